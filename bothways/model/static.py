"""Static vectors as an encoder without layers: the vector of a text is the mean of its tokens' rows of a table.

linear/static_vectors.py computes the same in numpy, for tables that only embed. Letters: T tokens, N texts, V entries
of the vocabulary, H size of a vector.
"""

import torch
from torch import Tensor, nn

from bothways.base.device import copy_to
from bothways.model.attention import Context, take_rows
from bothways.model.config import EncoderConfig
from bothways.model.encoder import Encoder
from bothways.text.batch import Batch


class StaticTable(nn.Module):
    """A vector for each token.

    counts_V: 1 for tokens that count, 0 for [CLS], [SEP] and unknown ones.
    """

    counts_V: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.register_buffer("counts_V", torch.ones(config.vocab_size))


class StaticEncoder(Encoder):
    """States of tokens whose mean over a text is the mean of the rows of the tokens that count."""

    def __init__(self, config: EncoderConfig) -> None:
        nn.Module.__init__(self)  # without the parts of an encoder with layers
        self.config = config
        self.embeddings = StaticTable(config)  # type: ignore[assignment]
        self.layers = nn.ModuleList()
        self.shared = nn.ModuleDict()
        self.final_norm = nn.Identity()
        self.positions = []

    def forward(self, batch: Batch, context: Context | None = None, rows_R: Tensor | None = None) -> Tensor:
        """[T, H]; with rows_R, [R, H]. The state of a token that counts is its row, that of any other 0 but for the
        last of a text, [SEP]."""
        table = self.embeddings
        assert isinstance(table, StaticTable)
        counts_T = table.counts_V[batch.input_ids]
        x_TH = table.words(batch.input_ids) * counts_T[:, None]

        # In half precision a sum of several hundred rows hardly grows any more.
        lengths_N = copy_to(batch.lengths, x_TH.device)
        text_T = torch.arange(len(lengths_N), device=x_TH.device)
        text_T = text_T.repeat_interleave(lengths_N, output_size=len(x_TH))
        sums_NH = x_TH.new_zeros(len(lengths_N), x_TH.shape[1], dtype=torch.float32)
        sums_NH = sums_NH.index_add(0, text_T, x_TH.float())
        counts_N = sums_NH.new_zeros(len(lengths_N)).index_add(0, text_T, counts_T.float())

        # A mean divides by the number of all tokens; the last one makes up for those that do not count.
        missing_N = lengths_N / counts_N.clamp(min=1) - 1
        made_up_NH = missing_N[:, None] * sums_NH
        return take_rows(x_TH.index_add(0, batch.last_tokens, made_up_NH.to(x_TH.dtype)), rows_R)
