"""Prefixes (Li & Liang 2021) and prompts (Lester 2021): rows that are added to each text of the ragged batch.

The rows follow the tokens of the text, so that positions and [CLS] do not change, and are dropped from the result. A
prompt replaces the embeddings of its rows; a prefix replaces their keys and values in every layer, so what the rows
themselves read does not matter. Letters: N texts of s_1 .. s_N tokens, T tokens of all, P rows of a text, H hidden
size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bothways.model.attention import Attention, Context
from bothways.model.encoder import Encoder
from bothways.model.kernels import append_dummy_text
from bothways.model.parameters import retype
from bothways.text.batch import Batch


@dataclass(frozen=True)
class RowsContext(Context):
    """added_rows: indices in T of the rows that are added, [N * P]."""

    added_rows: Tensor


class RowsEncoder(Encoder):
    """An encoder that adds rows to each text. prompt: their embeddings, [P, H]; None for a prefix."""

    adds_rows = True
    num_rows: int
    prompt: nn.Parameter | None

    @staticmethod
    def of(encoder: Encoder, num_rows: int) -> "RowsEncoder":
        module = retype(encoder, RowsEncoder)
        module.num_rows, module.prompt = num_rows, None
        return module

    def forward(self, batch: Batch, context: Context | None = None) -> Tensor:
        if context is not None:
            raise ValueError("a context cannot be passed: rows are added to the batch")
        extended, own_T, added_X = add_rows(batch, self.num_rows)
        extended = append_dummy_text(extended, self.embeddings.words.weight)
        context = self.build_context(extended)
        context = RowsContext(context.layout, context.positions, added_X)
        x_TH = self.embeddings(extended)
        if self.prompt is not None:
            x_TH = x_TH.index_copy(0, added_X, self.prompt.repeat(len(batch), 1))
        for layer in self.layer_sequence:
            x_TH = layer(x_TH, context)
        last_TH: Tensor = self.final_norm(x_TH)[own_T]
        return last_TH


class PrefixAttention(Attention):
    """Attention in which the keys and values of the added rows are parameters, [2, P, H]."""

    prefix: nn.Parameter

    @staticmethod
    def of(attention: Attention, values_2PH: Tensor) -> "PrefixAttention":
        module = retype(attention, PrefixAttention)
        module.prefix = nn.Parameter(values_2PH)
        return module

    def attend(self, x_TH: Tensor, qkv_TX: Tensor, context: Context) -> Tensor:
        assert isinstance(context, RowsContext)
        rows_X, num_rows = context.added_rows, self.prefix.shape[1]
        keys_PX = torch.cat([torch.zeros_like(self.prefix[0]), *self.prefix], 1)  # their queries do not matter
        qkv_TX = qkv_TX.index_copy(0, rows_X, keys_PX.repeat(len(rows_X) // num_rows, 1))
        return super().attend(x_TH, qkv_TX, context)


def add_rows(batch: Batch, num_rows: int) -> tuple[Batch, Tensor, Tensor]:
    """The batch with rows behind each text, the positions of the original tokens [T], and those of the rows [N * P]."""
    device, lengths = batch.input_ids.device, batch.lengths + num_rows
    ends = lengths.cumsum(0)
    added_X = (ends[:, None] - num_rows + torch.arange(num_rows)).flatten()
    is_own = torch.ones(int(ends[-1]), dtype=torch.bool)
    is_own[added_X] = False
    own_T = is_own.nonzero()[:, 0].to(device)
    tokens = {
        name: getattr(batch, name).new_zeros(len(is_own)).index_copy(0, own_T, getattr(batch, name))
        for name in ("input_ids", "segment_ids", "position_ids")
    }
    return Batch(**tokens, lengths=lengths), own_T, added_X.to(device)
