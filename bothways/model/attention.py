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

    has_query_block = True  # whether queries are the first third of the joint projection

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
        # Adapters and int8 have the product only as a whole.
        if rows_R is None or type(self.qkv) is not nn.Linear or not self.has_query_block:
            attended_RH = take_rows(self.attend(x_TH, self.qkv(x_TH), context), rows_R)
        else:
            query, key_value = split_queries(self.qkv)
            attended_RH = self.attend_rows(
                x_TH,
                q_RX=F.linear(x_TH[rows_R], *query),
                kv_TX=F.linear(x_TH, *key_value),
                context=context,
                rows_R=rows_R,
            )
        output_RH: Tensor = self.output(attended_RH)
        return output_RH

    def attend_rows(self, x_TH: Tensor, *, q_RX: Tensor, kv_TX: Tensor, context: "Context", rows_R: Tensor) -> Tensor:
        """Attention of some tokens before the output projection, [R, H].

        x_TH: the input of all tokens.
        q_RX: queries of the rows.
        kv_TX: keys and values of all tokens side by side.
        context: the layout and the positions of the batch.
        rows_R: the tokens.
        """
        is_plain = type(self) is Attention and type(self.positions) is Positions and self.sides == (-1, -1)
        has_dropout = self.training and self.dropout > 0
        if is_plain and not has_dropout and not torch.is_grad_enabled():
            k_TND, v_TND = kv_TX.unflatten(-1, (2, self.num_heads, -1)).unbind(1)
            q_RND = q_RX.unflatten(-1, (self.num_heads, -1))
            attended_RND = context.layout.attend_first(q_RND, k_TND, v_TND, rows_R)
            if attended_RND is not None:
                return attended_RND.flatten(1)

        # Attention of all tokens, most of whose queries stand for nothing: it is a small part of a layer.
        qkv_TX = torch.cat([spread_queries(q_RX, rows_R, len(x_TH)), kv_TX], 1)
        return self.attend(x_TH, qkv_TX, context)[rows_R]

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


def split_queries(qkv: nn.Linear) -> tuple[tuple[Tensor, Tensor | None], tuple[Tensor, Tensor | None]]:
    """Weight and bias of the queries, and of keys and values side by side."""
    size = qkv.out_features // 3
    query_bias = None if qkv.bias is None else qkv.bias[:size]
    key_value_bias = None if qkv.bias is None else qkv.bias[size:]
    return (qkv.weight[:size], query_bias), (qkv.weight[size:], key_value_bias)


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
