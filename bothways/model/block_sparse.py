"""Block-sparse attention: each block of query tokens attends to some blocks of key tokens.

A pattern (`block_patterns.py`) is a list of key blocks for each query block, and a mask inside them. Time and memory
grow with the number of key blocks: linearly with the text if each row has a bounded number. Letters: T tokens of all
texts, N heads, D head size; Q blocks of b slots each; R rows of J key blocks each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.model.buckets import MAX_SCORES
from bothways.model.dropout import draw_keep_mask, dropout_factors, new_key
from bothways.model.kernels import MAX_SAVED_LENGTH

MIN_BLOCK = 16  # tokens of a block, for windows
MAX_BLOCK = 64
FULL_ATTENTION_BLOCK = 256  # ... and for full attention


@dataclass(frozen=True)
class BlockRows:
    """R blocks of queries, each attending to J blocks of keys.

    queries [R], keys [R, J]: indices of blocks. masked [R, b or 1, J * b]: True where a token may not attend.
    """

    queries: Tensor
    keys: Tensor
    masked: Tensor

    def split(self, max_rows: int) -> Iterator["BlockRows"]:
        """Parts of at most `max_rows` rows."""
        for first in range(0, len(self.queries), max_rows):
            rows = slice(first, first + max_rows)
            yield BlockRows(queries=self.queries[rows], keys=self.keys[rows], masked=self.masked[rows])


@dataclass(frozen=True)
class Blocks:
    """Texts divided into blocks, from the first token of each text; the last block of a text is padded.

    tokens [Q * b]: the index in T of each slot's token; in padding any token of the same text. slots [T]: the slot of
    each token. rows: the key blocks of each query block. Further blocks at the end have global tokens, only as keys.
    """

    size: int
    tokens: Tensor
    slots: Tensor
    rows: tuple[BlockRows, ...]

    @property
    def count(self) -> int:
        """The number of blocks."""
        return len(self.tokens) // self.size

    def gather(self, x_TND: Tensor) -> Tensor:
        """The tokens as blocks, [N, Q, b * D]."""
        return x_TND.transpose(0, 1).index_select(1, self.tokens).unflatten(1, (self.count, -1)).flatten(2)

    def ungather(self, x_NQX: Tensor) -> Tensor:
        """The inverse: the values of each token's slot, [T, N, D]."""
        x_NPD = x_NQX.unflatten(2, (self.size, -1)).flatten(1, 2)
        return x_NPD[:, self.slots].transpose(0, 1)


def choose_block_size(reach: int) -> int:
    """Block size for windows of this many tokens on the wider side; -1: full attention."""
    if reach < 0:
        return FULL_ATTENTION_BLOCK
    return min(MAX_BLOCK, max(MIN_BLOCK, 1 << (reach - 1).bit_length()))


def is_faster(q_TND: Tensor, sides: tuple[int, int], max_length: int, dropout: float) -> bool:
    """Whether blocks beat dense attention: windows in time, full attention with dropout over very long texts in memory.

    q_TND: queries, of the device in question.
    sides: tokens before and after it that a token attends to; -1: all.
    max_length: tokens of the longest text.
    dropout: rate for the attention weights.
    """
    if min(sides) < 0:
        return dropout > 0 and max_length > MAX_SAVED_LENGTH and q_TND.device.type == "cpu"

    size = choose_block_size(max(sides))
    num_near = sum(-(-side // size) for side in sides)
    return max_length > size * (3 + num_near)


def block_attention(q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, blocks: Blocks, dropout: float = 0.0) -> Tensor:
    """softmax(q k^T / sqrt(D)) v of each token over its block's keys -> [T, N, D].

    q_TND, k_TND, v_TND: queries, keys and values.
    blocks: the pattern.
    dropout: rate for the attention weights.
    """
    if q_TND.device.type != "cpu":
        return plain_attention(q_TND, k_TND, v_TND, blocks, dropout)
    attended: Tensor = _BlockAttention.apply(q_TND, k_TND, v_TND, blocks, dropout)
    return attended


def plain_attention(q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, blocks: Blocks, dropout: float = 0.0) -> Tensor:
    """The same, written in plain torch operations."""
    q, k, v = (blocks.gather(x_TND) for x_TND in (q_TND, k_TND, v_TND))

    attended = []
    for rows in blocks.rows:
        q_NRbD, k_NRkD, v_NRkD = (
            x_RxD.unflatten(0, (len(q), len(rows.queries))) for x_RxD in _heads(rows, blocks, q, k, v)
        )
        mask = torch.zeros(rows.masked.shape, dtype=q.dtype, device=q.device)
        mask = mask.masked_fill(rows.masked, torch.finfo(q.dtype).min)
        attended_NRbD = F.scaled_dot_product_attention(q_NRbD, k_NRkD, v_NRkD, attn_mask=mask, dropout_p=dropout)
        attended.append(attended_NRbD.flatten(2))

    order = torch.cat([rows.queries for rows in blocks.rows]).argsort()
    return blocks.ungather(torch.cat(attended, 1)[:, order])


class _BlockAttention(torch.autograd.Function):
    """Processes a few rows at a time, so that scores stay in the cache. Scores are not saved: the backward pass
    recomputes them, and the dropout mask from its key."""

    @staticmethod
    def forward(ctx: Any, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, blocks: Blocks, dropout: float) -> Tensor:
        q, k, v = (blocks.gather(x_TND) for x_TND in (q_TND, k_TND, v_TND))
        attended = torch.zeros_like(q)
        ctx.keys = []

        for rows in _chunks(blocks):
            q_RbD, k_RkD, v_RkD = _heads(rows, blocks, q, k, v)
            weights = _weights(rows, q_RbD, k_RkD)
            if dropout:
                key = new_key()
                ctx.keys.append(key)
                kept = draw_keep_mask(weights.numel(), dropout, key)
                weights = weights * dropout_factors(kept, weights, dropout)
            attended[:, rows.queries] = torch.bmm(weights, v_RkD).view(len(q), len(rows.queries), -1)

        ctx.save_for_backward(q_TND, k_TND, v_TND)
        ctx.blocks = blocks
        ctx.dropout = dropout
        return blocks.ungather(attended)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g_TND,) = gradients
        blocks = ctx.blocks
        q_TND, k_TND, v_TND = ctx.saved_tensors
        q, k, v = (blocks.gather(x_TND) for x_TND in (q_TND, k_TND, v_TND))
        g = _gather_gradients(g_TND, blocks)
        g_q = torch.zeros_like(q)
        # Sums over many rows, in full precision.
        g_k = torch.zeros(k.shape, dtype=torch.float)
        g_v = torch.zeros(v.shape, dtype=torch.float)
        scale = q_TND.shape[-1] ** -0.5

        for index, rows in enumerate(_chunks(blocks)):
            q_RbD, k_RkD, v_RkD = _heads(rows, blocks, q, k, v)
            g_RbD = g.index_select(1, rows.queries).view(q_RbD.shape)

            weights = _weights(rows, q_RbD, k_RkD)
            g_weights = torch.bmm(g_RbD, v_RkD.transpose(1, 2))
            dropped = weights
            if ctx.dropout:
                kept = draw_keep_mask(weights.numel(), ctx.dropout, ctx.keys[index])
                factor = dropout_factors(kept, weights, ctx.dropout)
                g_weights = g_weights * factor
                dropped = weights * factor
            g_scores = torch._softmax_backward_data(g_weights, weights, -1, weights.dtype).mul_(scale)

            g_q[:, rows.queries] = torch.bmm(g_scores, k_RkD).view(len(q), len(rows.queries), -1)
            _add_key_gradients(g_k, rows, torch.bmm(g_scores.transpose(1, 2), q_RbD))
            _add_key_gradients(g_v, rows, torch.bmm(dropped.transpose(1, 2), g_RbD))

        return (
            _sum_slots(g_q, blocks, like=q_TND),
            _sum_slots(g_k, blocks, like=k_TND),
            _sum_slots(g_v, blocks, like=v_TND),
            None,
            None,
        )


def _chunks(blocks: Blocks) -> Iterator[BlockRows]:
    """A few rows at a time, of at most MAX_SCORES scores per head."""
    for rows in blocks.rows:
        scores_per_row = rows.keys.shape[1] * blocks.size**2
        yield from rows.split(max(1, MAX_SCORES // scores_per_row))


def _heads(rows: BlockRows, blocks: Blocks, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [N * R, b, D], keys and values [N * R, J * b, D]."""
    num_rows = len(q) * len(rows.queries)
    head_size = q.shape[2] // blocks.size
    keys = rows.keys.flatten()
    return (
        q.index_select(1, rows.queries).view(num_rows, -1, head_size),
        k.index_select(1, keys).view(num_rows, -1, head_size),
        v.index_select(1, keys).view(num_rows, -1, head_size),
    )


def _weights(rows: BlockRows, q_RbD: Tensor, k_RkD: Tensor) -> Tensor:
    """Attention weights of some rows, [N * R, b, J * b]."""
    scale = q_RbD.shape[-1] ** -0.5
    scores = torch.baddbmm(q_RbD.new_empty(1), q_RbD, k_RkD.transpose(1, 2), beta=0, alpha=scale)
    by_head = scores.view(-1, len(rows.queries), *scores.shape[1:])
    # Not minus infinity: a slot of padding may attend to nothing.
    by_head.masked_fill_(rows.masked, torch.finfo(scores.dtype).min)
    return scores.softmax(-1)


def _gather_gradients(g_TND: Tensor, blocks: Blocks) -> Tensor:
    """Gradients as blocks, with zeros in padding slots."""
    g_NPD = g_TND.new_zeros(g_TND.shape[1], len(blocks.tokens), g_TND.shape[2])
    g_NPD[:, blocks.slots] = g_TND.transpose(0, 1)
    return g_NPD.unflatten(1, (blocks.count, -1)).flatten(2)


def _add_key_gradients(total: Tensor, rows: BlockRows, gradients_RkD: Tensor) -> None:
    """Add the gradients of the keys or values of some rows to the sums for all blocks, in place."""
    part = gradients_RkD.view(len(total), -1, total.shape[2])
    total.index_add_(1, rows.keys.flatten(), part.float())


def _sum_slots(g_NQX: Tensor, blocks: Blocks, like: Tensor) -> Tensor:
    """The sum over all slots of each token, [T, N, D]. Only global tokens have more than one with a gradient."""
    g_TND = blocks.ungather(g_NQX)
    first_global = int(blocks.slots[-1]) // blocks.size + 1

    if first_global < blocks.count:
        tokens = blocks.tokens[first_global * blocks.size :]
        more = g_NQX[:, first_global:].unflatten(2, (blocks.size, -1)).flatten(1, 2)
        g_TND = g_TND.contiguous().index_add(0, tokens, more.transpose(0, 1))
    return g_TND.to(like.dtype)
