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
        """[T, H]; with rows_R, [R, H]. The state of a token that does not count is 0."""
        table = self.embeddings
        assert isinstance(table, StaticTable)
        rows_TH = table.words(batch.input_ids)
        counts_T = table.counts_V[batch.input_ids].float()

        lengths_N = copy_to(batch.lengths, rows_TH.device)
        text_T = torch.arange(len(lengths_N), device=rows_TH.device)
        text_T = text_T.repeat_interleave(lengths_N, output_size=len(rows_TH))
        counts_N = counts_T.new_zeros(len(lengths_N)).index_add(0, text_T, counts_T)

        # A mean divides by the number of all tokens, so that of those that count is made up for here.
        scale_N = lengths_N / counts_N.clamp(min=1)
        weight_T = counts_T * scale_N[text_T]
        return take_rows(rows_TH * weight_T[:, None].to(rows_TH.dtype), rows_R)
