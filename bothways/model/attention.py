"""Multi-head self-attention: softmax(Q K^T / sqrt(D)) V (Vaswani 2017, eq. 1), with positional information inside it.

Positions are none (as in BERT), or rotary embeddings (Su 2021): a `Positions` module is prepared once per batch and
applied in every layer. Letters: T tokens, H hidden, N heads, D head size; H = N x D, unless heads have been pruned.
"""

from collections.abc import Set
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.model.config import EncoderConfig
from bothways.model.layout import Layout, Sides
from bothways.text.batch import Batch


class Attention(nn.Module):
    """Attention of one layer, without the residual and the norm around it."""

    def __init__(self, config: EncoderConfig, *, sides: Sides, positions: "Positions") -> None:
        """sides: how many tokens before and after it a token attends to. positions: of queries and keys."""
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.sides = sides
        self.positions = positions
        self.dropout = config.attention_probs_dropout_prob

        size = config.num_attention_heads * config.head_size  # the hidden size, unless heads have been pruned
        self.qkv = nn.Linear(config.hidden_size, 3 * size, bias=config.linear_bias)
        self.output = nn.Linear(size, config.hidden_size, bias=config.linear_bias)

    def forward(self, x_TH: Tensor, context: "Context", rows_R: Tensor | None = None) -> Tensor:
        """[T, H] -> [T, H]; with rows_R, the tokens that are read, [R, H]."""
        attended_TH = self.attend(x_TH, self.project(x_TH, rows_R), context)
        output_RH: Tensor = self.output(take_rows(attended_TH, rows_R))
        return output_RH

    def project(self, x_TH: Tensor, rows_R: Tensor | None) -> Tensor:
        """Queries, keys and values side by side, [T, 3H].

        rows_R: tokens whose queries are needed; the others get a query of one of these, whose result nobody reads.
        """
        # Adapters and int8 have only the product as a whole.
        if rows_R is None or type(self.qkv) is not nn.Linear:
            qkv_TX: Tensor = self.qkv(x_TH)
            return qkv_TX

        size = self.qkv.out_features // 3
        weight, bias = self.qkv.weight, self.qkv.bias
        kv_TX = F.linear(x_TH, weight[size:], None if bias is None else bias[size:])
        q_RX = F.linear(x_TH[rows_R], weight[:size], None if bias is None else bias[:size])
        return torch.cat([spread_queries(q_RX, rows_R, len(x_TH)), kv_TX], 1)

    def attend(self, x_TH: Tensor, qkv_TX: Tensor, context: "Context") -> Tensor:
        """Attention before the output projection, [T, H].

        x_TH: the input, for attention that has further projections of it.
        qkv_TX: queries, keys and values of x side by side.
        context: the layout and the positions of the batch.
        """
        q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (3, self.num_heads, -1)).unbind(1)
        q_TND, k_TND = self.positions.rotate(q_TND, k_TND, context.positions[self.positions])

        # Only the layout knows which tokens form a text.
        dropout = self.dropout if self.training else 0.0
        attended_TND = context.layout.attend(q_TND, k_TND, v_TND, sides=self.sides, dropout=dropout)
        return attended_TND.flatten(1)


def take_rows(x_TH: Tensor, rows_R: Tensor | None) -> Tensor:
    """These rows, [R, H]; None: all."""
    return x_TH if rows_R is None else x_TH[rows_R]


def spread_queries(q_RX: Tensor, rows_R: Tensor, num_tokens: int) -> Tensor:
    """Queries in the places of their tokens, [T, X]; in all other places the first query.

    A gather, whose gradient is a sum: writing the queries to their places would give rows that occur twice the gradient
    of both, each time.
    """
    slot_T = rows_R.new_zeros(num_tokens)
    slot_T[rows_R] = torch.arange(len(rows_R), device=rows_R.device)
    return q_RX.index_select(0, slot_T)


@dataclass(frozen=True)
class Context:
    """Data that all layers share for one batch: the attention layout, and the output of each position module."""

    layout: Layout
    positions: dict["Positions", "Prepared"]


@dataclass(frozen=True)
class Prepared:
    """Base class of the data that a position module prepares for a batch."""


class Positions(nn.Module):
    """No positions inside attention. heads: names of the model's heads, for modules that depend on the task."""

    heads: Set[str] = frozenset()
    biases = False  # whether attention scores get a bias, which not every layout supports

    def prepare(self, batch: Batch, layout: Layout, dtype: torch.dtype) -> Prepared:
        """The data that the layers need for this batch.

        batch: the tokens, with their positions.
        layout: the attention layout of the batch.
        dtype: the number format of the queries and keys.
        """
        return Prepared()

    def rotate(self, q_TND: Tensor, k_TND: Tensor, prepared: Prepared) -> tuple[Tensor, Tensor]:
        """Queries and keys with their positions. prepared: the result of `prepare` for their batch."""
        return q_TND, k_TND


@dataclass(frozen=True)
class RotaryAngles(Prepared):
    """Cosines and sines of each token's angles."""

    cos_T1D: Tensor
    sin_T1D: Tensor


class Rotary(Positions):
    """Rotates pairs (d, d + D/2) of queries and keys by position * theta^(-2d/D) (Su 2021, section 3.4.2; paired as in
    GPT-NeoX)."""

    def __init__(self, head_size: int, theta: float) -> None:
        super().__init__()
        self.head_size = head_size
        self.theta = theta

    def prepare(self, batch: Batch, layout: Layout, dtype: torch.dtype) -> RotaryAngles:
        steps = torch.arange(0, self.head_size, 2, dtype=torch.float, device=batch.position_ids.device)
        frequencies = 1.0 / self.theta ** (steps / self.head_size)  # as transformers rounds: it shows at position 8,000
        angles_TD = (batch.position_ids[:, None].float() * frequencies).repeat(1, 2)
        return RotaryAngles(
            cos_T1D=angles_TD.cos()[:, None].to(dtype),
            sin_T1D=angles_TD.sin()[:, None].to(dtype),
        )

    def rotate(self, q_TND: Tensor, k_TND: Tensor, prepared: Prepared) -> tuple[Tensor, Tensor]:
        assert isinstance(prepared, RotaryAngles)

        def rotated(x_TND: Tensor) -> Tensor:
            left, right = x_TND.chunk(2, dim=-1)
            return x_TND * prepared.cos_T1D + torch.cat((-right, left), dim=-1) * prepared.sin_T1D

        return rotated(q_TND), rotated(k_TND)
