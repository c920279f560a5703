"""Block-sparse attention: each block of query tokens attends to some blocks of key tokens.

A pattern (a window, global tokens, random blocks) is a list of key blocks for each query block, and a mask inside them.
Time and memory grow with the number of key blocks: linearly with the text if each row has a bounded number. Letters:
T tokens of all texts, N heads, D head size; Q blocks of b slots each; R rows of J key blocks each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.base.device import copy_to
from bothways.model.buckets import MAX_SCORES
from bothways.model.config import RandomBlocksConfig
from bothways.model.dropout import draw_keep_mask, dropout_factors, new_key
from bothways.model.kernels import MAX_SAVED_LENGTH

MAX_BLOCK, MIN_BLOCK = 64, 16  # tokens of a block, for windows
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
        for first in range(0, len(self.queries), max_rows):
            rows = slice(first, first + max_rows)
            yield BlockRows(self.queries[rows], self.keys[rows], self.masked[rows])


@dataclass(frozen=True)
class Blocks:
    """Texts divided into blocks, from the first token of each text; the last block of a text is padded.

    tokens [Q * b]: the index in T of each slot's token; in padding any token of the same text. slots [T]: the slot of
    each token. rows: the key blocks of each query block. Further blocks at the end have global tokens, only as keys."""

    size: int
    tokens: Tensor
    slots: Tensor
    rows: tuple[BlockRows, ...]

    @property
    def count(self) -> int:
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
    """Whether blocks beat dense attention for texts of up to `max_length` tokens: windows in time, full attention with
    dropout over very long texts in memory."""
    if min(sides) < 0:
        return dropout > 0 and max_length > MAX_SAVED_LENGTH and q_TND.device.type == "cpu"
    size = choose_block_size(max(sides))
    return max_length > size * (3 + sum(-(-side // size) for side in sides))


# --- patterns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextBlocks:
    """Texts divided into blocks of b tokens: for each block the first block, first token, length and number of blocks
    of its text."""

    size: int
    lengths: np.ndarray  # [texts]
    firsts: np.ndarray  # [Q]
    starts: np.ndarray  # [Q]
    text_lengths: np.ndarray  # [Q]
    counts: np.ndarray  # [Q]

    @staticmethod
    def cut(lengths: np.ndarray, size: int) -> "TextBlocks":
        counts = -(-lengths // size)
        firsts, starts = counts.cumsum() - counts, lengths.cumsum() - lengths
        return TextBlocks(size, lengths, *(np.repeat(values, counts) for values in (firsts, starts, lengths, counts)))

    def tokens(self) -> np.ndarray:
        """The token of T in each slot, [Q * b]; in padding the text's last."""
        return (self.starts[:, None] + np.minimum(self.positions(), self.text_lengths[:, None] - 1)).ravel()

    def is_real(self) -> np.ndarray:
        """False in padding, [Q * b]."""
        return (self.positions() < self.text_lengths[:, None]).ravel()

    def positions(self) -> np.ndarray:
        """The position of each slot in its text, [Q, b]; in padding beyond the text."""
        firsts = (np.arange(len(self.firsts)) - self.firsts) * self.size
        return (firsts[:, None] + np.arange(self.size)).astype(np.int32)


def window_blocks(
    lengths: Sequence[int],
    sides: tuple[int, int],
    device: torch.device,
    global_tokens: np.ndarray | None = None,
    size: int | None = None,
) -> Blocks:
    """Each token attends to this many neighbours before and after it (-1: all) and to its text's global tokens.

    global_tokens: indices in T, ascending. size: tokens of a block.
    """
    size = size or choose_block_size(max(sides))
    cut = TextBlocks.cut(np.asarray(lengths), size)
    before, after = (len(cut.firsts) if side < 0 else -(-side // size) for side in sides)
    index = np.arange(len(cut.firsts))
    low = np.maximum(index - before, cut.firsts)
    high = np.minimum(index + after, cut.firsts + cut.counts - 1)
    extra = _global_blocks(cut, global_tokens if global_tokens is not None else np.zeros(0, np.int64))
    tokens, positions = np.concatenate([cut.tokens(), extra.tokens.ravel()]), cut.positions()
    is_global = np.zeros(int(cut.lengths.sum()), bool)
    is_global[extra.tokens[extra.real]] = True
    shapes = np.stack([high - low + 1, extra.counts], 1)
    rows = []
    for shape in np.unique(shapes, axis=0):  # rows of one shape are computed together
        queries = np.flatnonzero((shapes == shape).all(1))
        near = low[queries][:, None] + np.arange(shape[0])
        far = extra.firsts[queries][:, None] + np.arange(shape[1])
        keys_RP = positions[near].reshape(len(queries), -1)
        masked_RP = keys_RP >= cut.text_lengths[queries][:, None]
        masked_RP |= is_global[tokens.reshape(-1, size)[near]].reshape(masked_RP.shape)  # they have blocks of their own
        masked = masked_RP[:, None]  # [R, 1, P], or [R, b, P] with a limited side
        for side, sign in zip(sides, (-1, 1), strict=True):
            if side >= 0:
                masked = masked | (sign * (keys_RP[:, None] - positions[queries][:, :, None]) > side)
        unreal_RP = ~extra.real[far].reshape(len(queries), -1)
        masked = np.concatenate([masked, unreal_RP[:, None].repeat(masked.shape[1], 1)], 2)
        rows.append(_rows(queries, np.concatenate([near, len(cut.firsts) + far], 1), masked, device))
    is_real = np.concatenate([cut.is_real(), np.zeros(extra.tokens.size, bool)])
    return Blocks(size, _on(tokens, device), _on(is_real.nonzero()[0], device), tuple(rows))


@dataclass(frozen=True)
class _GlobalBlocks:
    """Blocks of global tokens. tokens [P, b], real [P, b]: False in padding; for each block of the texts the first
    such block of its text and their count, [Q]."""

    tokens: np.ndarray
    real: np.ndarray
    firsts: np.ndarray
    counts: np.ndarray


def _global_blocks(cut: TextBlocks, global_tokens: np.ndarray) -> _GlobalBlocks:
    ends = cut.lengths.cumsum()
    text_of = np.searchsorted(ends, global_tokens, side="right")
    num_global = np.bincount(text_of, minlength=len(cut.lengths))
    counts = -(-num_global // cut.size)
    blocks = np.repeat(np.arange(len(cut.lengths)), counts)
    firsts, starts = counts.cumsum() - counts, num_global.cumsum() - num_global
    inside = ((np.arange(len(blocks)) - firsts[blocks]) * cut.size)[:, None] + np.arange(cut.size)
    real = inside < num_global[blocks][:, None]
    tokens = global_tokens[(starts[blocks][:, None] + np.minimum(inside, num_global[blocks][:, None] - 1))]
    text_of_block = np.searchsorted(ends, cut.starts, side="right")
    return _GlobalBlocks(tokens.reshape(-1, cut.size), real, firsts[text_of_block], counts[text_of_block])


def random_blocks(
    lengths: Sequence[int], config: RandomBlocksConfig, device: torch.device, keys: Sequence[int] | None = None
) -> Blocks:
    """BigBird's pattern: a block attends to its neighbours, the first and last block of its text, and random blocks.

    keys: seeds of the random draws, one per text. None: the first block replaces the random blocks, as in transformers
    outside of training. The first and the last block, and all blocks of short texts, attend to all.
    """
    size, num_random = config.size, config.num_random
    cut = TextBlocks.cut(np.asarray(lengths), size)
    inside = np.arange(len(cut.firsts)) - cut.firsts
    last, positions = cut.firsts + cut.counts - 1, cut.positions()
    is_full = (cut.text_lengths <= config.max_full_length) | (inside == 0) | (inside == cut.counts - 1)
    by_count: dict[int, tuple[list[int], list[np.ndarray]]] = {}
    draws = None if keys is None else [np.random.Generator(np.random.Philox(key=key)) for key in keys]
    text_of = np.repeat(np.arange(len(cut.lengths)), -(-cut.lengths // size))
    for block in range(len(cut.firsts)):
        first, end = int(cut.firsts[block]), int(last[block])
        if is_full[block]:
            attended = np.arange(first, end + 1)
        else:
            near = np.unique([first, block - 1, block, block + 1, end])
            others = np.full(num_random, first)
            if draws is not None:
                free = np.setdiff1d(np.arange(first, end + 1), near)
                others = draws[text_of[block]].choice(free, num_random, replace=False)
            attended = np.concatenate([near, others])
        queries, key_blocks = by_count.setdefault(len(attended), ([], []))
        queries.append(block)
        key_blocks.append(attended)
    rows = []
    for queries, key_blocks in by_count.values():
        keys_RJ = np.stack(key_blocks)
        masked = positions[keys_RJ].reshape(len(queries), 1, -1) >= cut.text_lengths[queries][:, None, None]
        rows.append(_rows(np.array(queries), keys_RJ, masked, device))
    return Blocks(size, _on(cut.tokens(), device), _on(cut.is_real().nonzero()[0], device), tuple(rows))


def _rows(queries: np.ndarray, keys: np.ndarray, masked: np.ndarray, device: torch.device) -> BlockRows:
    return BlockRows(*(_on(values, device) for values in (queries, keys, masked)))


def _on(values: np.ndarray, device: torch.device) -> Tensor:
    return copy_to(torch.from_numpy(np.ascontiguousarray(values)), device)


# --- attention --------------------------------------------------------------------------------------------------------


def block_attention(q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, blocks: Blocks, dropout: float = 0.0) -> Tensor:
    """softmax(q k^T / sqrt(D)) v of each token over its block's keys -> [T, N, D]."""
    if q_TND.device.type != "cpu":
        return plain_attention(q_TND, k_TND, v_TND, blocks, dropout)
    attended: Tensor = _BlockAttention.apply(q_TND, k_TND, v_TND, blocks, dropout)
    return attended


def plain_attention(q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, blocks: Blocks, dropout: float = 0.0) -> Tensor:
    """The same, written in plain torch operations."""
    q, k, v = (blocks.gather(x_TND) for x_TND in (q_TND, k_TND, v_TND))
    attended = []
    for rows in blocks.rows:
        heads = [
            x.index_select(1, which.flatten()).view(len(x), len(rows.queries), -1, q_TND.shape[-1])
            for x, which in ((q, rows.queries), (k, rows.keys), (v, rows.keys))
        ]
        mask = torch.zeros(rows.masked.shape, dtype=q.dtype, device=q.device)
        mask = mask.masked_fill(rows.masked, torch.finfo(q.dtype).min)
        attended.append(F.scaled_dot_product_attention(heads[0], heads[1], heads[2], mask, dropout).flatten(2))
    order = torch.cat([rows.queries for rows in blocks.rows]).argsort()
    return blocks.ungather(torch.cat(attended, 1)[:, order])


class _BlockAttention(torch.autograd.Function):
    """Processes a few rows at a time, so that scores stay in the cache. Scores are not saved: the backward pass
    recomputes them, and the dropout mask from its key."""

    @staticmethod
    def forward(ctx: Any, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, blocks: Blocks, dropout: float) -> Tensor:
        q, k, v = (blocks.gather(x_TND) for x_TND in (q_TND, k_TND, v_TND))
        attended, ctx.keys = torch.zeros_like(q), []
        for rows in _chunks(blocks):
            q_RbD, k_RkD, v_RkD = _heads(rows, blocks, q, k, v)
            weights = _weights(rows, q_RbD, k_RkD)
            if dropout:
                ctx.keys.append(new_key())
                weights = weights * dropout_factors(
                    draw_keep_mask(weights.numel(), dropout, ctx.keys[-1]), weights, dropout
                )
            attended[:, rows.queries] = torch.bmm(weights, v_RkD).view(len(q), len(rows.queries), -1)
        ctx.save_for_backward(q_TND, k_TND, v_TND)
        ctx.blocks, ctx.dropout = blocks, dropout
        return blocks.ungather(attended)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g_TND,), blocks = gradients, ctx.blocks
        q_TND, k_TND, v_TND = ctx.saved_tensors
        q, k, v = (blocks.gather(x_TND) for x_TND in (q_TND, k_TND, v_TND))
        g = _gather_gradients(g_TND, blocks)
        g_q = torch.zeros_like(q)
        g_k, g_v = (torch.zeros(x.shape, dtype=torch.float) for x in (k, v))  # sums over many rows, in full precision
        scale = q_TND.shape[-1] ** -0.5
        for index, rows in enumerate(_chunks(blocks)):
            q_RbD, k_RkD, v_RkD = _heads(rows, blocks, q, k, v)
            g_RbD = g.index_select(1, rows.queries).view(q_RbD.shape)
            weights = _weights(rows, q_RbD, k_RkD)
            g_weights, dropped = torch.bmm(g_RbD, v_RkD.transpose(1, 2)), weights
            if ctx.dropout:
                kept = draw_keep_mask(weights.numel(), ctx.dropout, ctx.keys[index])
                factor = dropout_factors(kept, weights, ctx.dropout)
                g_weights, dropped = g_weights * factor, weights * factor
            g_scores = torch._softmax_backward_data(g_weights, weights, -1, weights.dtype).mul_(scale)
            g_q[:, rows.queries] = torch.bmm(g_scores, k_RkD).view(len(q), len(rows.queries), -1)
            for total, left, right in ((g_k, g_scores, q_RbD), (g_v, dropped, g_RbD)):
                part = torch.bmm(left.transpose(1, 2), right).view(len(q), -1, total.shape[2])
                total.index_add_(1, rows.keys.flatten(), part.float())
        return *(_sum_slots(x, blocks, like) for x, like in ((g_q, q_TND), (g_k, k_TND), (g_v, v_TND))), None, None


def _chunks(blocks: Blocks) -> Iterator[BlockRows]:
    for rows in blocks.rows:
        yield from rows.split(max(1, MAX_SCORES // (rows.keys.shape[1] * blocks.size**2)))


def _heads(rows: BlockRows, blocks: Blocks, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [N * R, b, D], keys and values [N * R, J * b, D]."""
    num_rows, head_size = len(q) * len(rows.queries), q.shape[2] // blocks.size
    keys = rows.keys.flatten()
    return (
        q.index_select(1, rows.queries).view(num_rows, -1, head_size),
        k.index_select(1, keys).view(num_rows, -1, head_size),
        v.index_select(1, keys).view(num_rows, -1, head_size),
    )


def _weights(rows: BlockRows, q_RbD: Tensor, k_RkD: Tensor) -> Tensor:
    """[N * R, b, J * b]"""
    scores = torch.baddbmm(q_RbD.new_empty(1), q_RbD, k_RkD.transpose(1, 2), beta=0, alpha=q_RbD.shape[-1] ** -0.5)
    by_head = scores.view(-1, len(rows.queries), *scores.shape[1:])
    # Not minus infinity: a slot of padding may attend to nothing.
    by_head.masked_fill_(rows.masked, torch.finfo(scores.dtype).min)
    return scores.softmax(-1)


def _gather_gradients(g_TND: Tensor, blocks: Blocks) -> Tensor:
    """Gradients as blocks, with zeros in padding slots."""
    g_NPD = g_TND.new_zeros(g_TND.shape[1], len(blocks.tokens), g_TND.shape[2])
    g_NPD[:, blocks.slots] = g_TND.transpose(0, 1)
    return g_NPD.unflatten(1, (blocks.count, -1)).flatten(2)


def _sum_slots(g_NQX: Tensor, blocks: Blocks, like: Tensor) -> Tensor:
    """The sum over all slots of each token, [T, N, D]. Only global tokens have more than one with a gradient."""
    g_TND = blocks.ungather(g_NQX)
    first_global = int(blocks.slots[-1]) // blocks.size + 1
    if first_global < blocks.count:
        tokens = blocks.tokens[first_global * blocks.size :]
        more = g_NQX[:, first_global:].unflatten(2, (blocks.size, -1)).flatten(1, 2)
        g_TND = g_TND.contiguous().index_add(0, tokens, more.transpose(0, 1))
    return g_TND.to(like.dtype)
