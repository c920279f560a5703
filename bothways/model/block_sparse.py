"""Attention of few to few: tokens stand in blocks, and each block of queries looks at some blocks of keys.

What a token may look at (a window, tokens that see all, blocks at random) is which blocks stand in a row, and a mask
inside them. Time and memory grow with the rows, so linearly with the text where a row's length is bounded. Letters: T
tokens of all texts, N heads, D head size; Q blocks of b places each; R rows of J blocks each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.model.buckets import MOST_SCORES
from bothways.model.kernels import LONGEST_KEPT, draw_keep_mask, dropout_factors, new_key

LARGEST, SMALLEST = 64, 16  # tokens of a block where the model does not say
WHOLE = 256  # ... and where blocks see the whole text


@dataclass(frozen=True)
class Rows:
    """R blocks of queries that look at J blocks of keys each. queries [R], keys [R, J]: their numbers; hidden [R, b or
    1, J * b]: where a token may not look."""

    queries: Tensor
    keys: Tensor
    hidden: Tensor

    def parts(self, most: int) -> Iterator["Rows"]:
        """So many rows at a time."""
        for first in range(0, len(self.queries), most):
            part = slice(first, first + most)
            yield Rows(self.queries[part], self.keys[part], self.hidden[part])


@dataclass(frozen=True)
class Blocks:
    """Texts cut into blocks, each beginning with its text, the last one filled up.

    tokens [Q * b]: which token of T stands in each place, in the filling any of the same text; own [T]: the place that
    is each token's own; rows: who looks at whom, each block of queries once. Behind the
    blocks of texts there may be others, that are only looked at: tokens picked from all over a text.
    """

    size: int
    tokens: Tensor
    own: Tensor
    rows: tuple[Rows, ...]

    @property
    def number(self) -> int:
        return len(self.tokens) // self.size

    def take(self, x_TND: Tensor) -> Tensor:
        """As blocks, [N, Q, b * D]."""
        return x_TND.transpose(0, 1).index_select(1, self.tokens).unflatten(1, (self.number, -1)).flatten(2)

    def give(self, x_NQX: Tensor) -> Tensor:
        """The other way round: what stands in the tokens' own places, [T, N, D]."""
        x_NPD = x_NQX.unflatten(2, (self.size, -1)).flatten(1, 2)
        return x_NPD[:, self.own].transpose(0, 1)


def size_for(reach: int) -> int:
    """A good block size for windows that reach so far to one side; -1: over the whole text."""
    if reach < 0:
        return WHOLE
    return min(LARGEST, max(SMALLEST, 1 << (reach - 1).bit_length()))


def is_better(q_TND: Tensor, sides: tuple[int, int], longest: int, dropout: float) -> bool:
    """Whether rows of blocks beat whole texts of up to so many tokens: windows that reach so far in time, and dropout
    over all of a very long text in memory."""
    if min(sides) < 0:
        return dropout > 0 and longest > LONGEST_KEPT and q_TND.device.type == "cpu"
    size = size_for(max(sides))
    return longest > size * (3 + sum(-(-side // size) for side in sides))


# --- who looks at whom ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """Texts cut into blocks of b: for each block its text's first block, first token, length and number of blocks."""

    size: int
    lengths: np.ndarray  # [number of texts]
    firsts: np.ndarray  # [Q]
    starts: np.ndarray  # [Q]
    sizes: np.ndarray  # [Q]
    counts: np.ndarray  # [Q]

    @staticmethod
    def of(lengths: np.ndarray, size: int) -> "Cut":
        counts = -(-lengths // size)
        firsts, starts = counts.cumsum() - counts, lengths.cumsum() - lengths
        return Cut(size, lengths, *(np.repeat(row, counts) for row in (firsts, starts, lengths, counts)))

    def tokens(self) -> np.ndarray:
        """[Q * b]"""
        return (self.starts[:, None] + np.minimum(self.places(), self.sizes[:, None] - 1)).ravel()

    def own(self) -> np.ndarray:
        return (self.places() < self.sizes[:, None]).ravel()

    def places(self) -> np.ndarray:
        """Where each place of each block would stand in its text, [Q, b]."""
        firsts = (np.arange(len(self.firsts)) - self.firsts) * self.size
        return (firsts[:, None] + np.arange(self.size)).astype(np.int32)


def window_blocks(
    lengths: Sequence[int], sides: tuple[int, int], device: torch.device, picked: np.ndarray | None = None,
    size: int | None = None,
) -> Blocks:  # fmt: skip
    """Each token looks at so many neighbours to its left and right (-1: all), and at the picked tokens of its text.

    picked: tokens' numbers in T, ascending. size: of a block.
    """
    size = size or size_for(max(sides))
    cut = Cut.of(np.asarray(lengths), size)
    before, behind = (len(cut.firsts) if side < 0 else -(-side // size) for side in sides)
    own_number = np.arange(len(cut.firsts))
    low = np.maximum(own_number - before, cut.firsts)
    high = np.minimum(own_number + behind, cut.firsts + cut.counts - 1)
    extra = _picked(cut, picked if picked is not None else np.zeros(0, np.int64))
    tokens, places = np.concatenate([cut.tokens(), extra.tokens.ravel()]), cut.places()
    is_picked = np.zeros(int(cut.lengths.sum()), bool)
    is_picked[extra.tokens[extra.real]] = True
    shapes = np.stack([high - low + 1, extra.counts], 1)
    rows = []
    for shape in np.unique(shapes, axis=0):  # rows of one shape stand together
        queries = np.flatnonzero((shapes == shape).all(1))
        near = low[queries][:, None] + np.arange(shape[0])
        far = extra.firsts[queries][:, None] + np.arange(shape[1])
        keys_RP = places[near].reshape(len(queries), -1)
        closed_RP = keys_RP >= cut.sizes[queries][:, None]
        closed_RP |= is_picked[tokens.reshape(-1, size)[near]].reshape(closed_RP.shape)  # they come once, behind
        hidden = closed_RP[:, None]  # [R, 1, P], or [R, b, P] where a side ends
        for side, sign in zip(sides, (-1, 1), strict=True):
            if side >= 0:
                hidden = hidden | (sign * (keys_RP[:, None] - places[queries][:, :, None]) > side)
        unreal_RP = ~extra.real[far].reshape(len(queries), -1)
        hidden = np.concatenate([hidden, unreal_RP[:, None].repeat(hidden.shape[1], 1)], 2)
        rows.append(_rows(queries, np.concatenate([near, len(cut.firsts) + far], 1), hidden, device))
    own = np.concatenate([cut.own(), np.zeros(extra.tokens.size, bool)])
    return Blocks(size, _on(tokens, device), _on(own.nonzero()[0], device), tuple(rows))


@dataclass(frozen=True)
class _Picked:
    """Blocks of picked tokens. tokens [P, b], real [P, b]; for each block of the texts the first of its text's and
    their number, [Q]."""

    tokens: np.ndarray
    real: np.ndarray
    firsts: np.ndarray
    counts: np.ndarray


def _picked(cut: Cut, picked: np.ndarray) -> _Picked:
    ends = cut.lengths.cumsum()
    text_of = np.searchsorted(ends, picked, side="right")
    numbers = np.bincount(text_of, minlength=len(cut.lengths))
    counts = -(-numbers // cut.size)
    blocks = np.repeat(np.arange(len(cut.lengths)), counts)
    firsts, starts = counts.cumsum() - counts, numbers.cumsum() - numbers
    inside = ((np.arange(len(blocks)) - firsts[blocks]) * cut.size)[:, None] + np.arange(cut.size)
    real = inside < numbers[blocks][:, None]
    tokens = picked[(starts[blocks][:, None] + np.minimum(inside, numbers[blocks][:, None] - 1))]
    text_of_block = np.searchsorted(ends, cut.starts, side="right")
    return _Picked(tokens.reshape(-1, cut.size), real, firsts[text_of_block], counts[text_of_block])


def random_blocks(
    lengths: Sequence[int], size: int, number: int, shortest: int, device: torch.device,
    keys: Sequence[int] | None = None,
) -> Blocks:  # fmt: skip
    """BigBird's: a block looks at its neighbours, at the first and the last of its text, and at `number` others, which
    are drawn by its text's key; without keys each is the first once more, as transformers has it when a model does not
    train. The first and the last, and all blocks of texts of up to `shortest` tokens, look at the whole text."""
    cut = Cut.of(np.asarray(lengths), size)
    inside = np.arange(len(cut.firsts)) - cut.firsts
    last, places = cut.firsts + cut.counts - 1, cut.places()
    whole = (cut.sizes <= shortest) | (inside == 0) | (inside == cut.counts - 1)
    by_shape: dict[int, tuple[list[int], list[np.ndarray]]] = {}
    draws = None if keys is None else [np.random.Generator(np.random.Philox(key=key)) for key in keys]
    text_of = np.repeat(np.arange(len(cut.lengths)), -(-cut.lengths // size))
    for block in range(len(cut.firsts)):
        first, end = int(cut.firsts[block]), int(last[block])
        if whole[block]:
            seen = np.arange(first, end + 1)
        else:
            near = np.unique([first, block - 1, block, block + 1, end])
            others = np.full(number, first)
            if draws is not None:
                free = np.setdiff1d(np.arange(first, end + 1), near)
                others = draws[text_of[block]].choice(free, number, replace=False)
            seen = np.concatenate([near, others])
        queries, found = by_shape.setdefault(len(seen), ([], []))
        queries.append(block)
        found.append(seen)
    rows = []
    for queries, found in by_shape.values():
        seen = np.stack(found)
        hidden = places[seen].reshape(len(queries), 1, -1) >= cut.sizes[queries][:, None, None]
        rows.append(_rows(np.array(queries), seen, hidden, device))
    return Blocks(size, _on(cut.tokens(), device), _on(cut.own().nonzero()[0], device), tuple(rows))


def _rows(queries: np.ndarray, keys: np.ndarray, hidden: np.ndarray, device: torch.device) -> Rows:
    return Rows(*(_on(value, device) for value in (queries, keys, hidden)))


def _on(values: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(device)


# --- attention --------------------------------------------------------------------------------------------------------


def block_attention(q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, blocks: Blocks, dropout: float = 0.0) -> Tensor:
    """softmax(q k^T / sqrt(D)) v of each token with what its block's row shows it -> [T, N, D]."""
    if q_TND.device.type != "cpu":
        return plain_attention(q_TND, k_TND, v_TND, blocks, dropout)
    attended: Tensor = _BlockAttention.apply(q_TND, k_TND, v_TND, blocks, dropout)
    return attended


def plain_attention(q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, blocks: Blocks, dropout: float = 0.0) -> Tensor:
    """The same in torch's own operations."""
    q, k, v = (blocks.take(x_TND) for x_TND in (q_TND, k_TND, v_TND))
    attended = []
    for rows in blocks.rows:
        heads = [
            x.index_select(1, which.flatten()).view(len(x), len(rows.queries), -1, q_TND.shape[-1])
            for x, which in ((q, rows.queries), (k, rows.keys), (v, rows.keys))
        ]
        mask = torch.zeros(rows.hidden.shape, dtype=q.dtype, device=q.device)
        mask = mask.masked_fill(rows.hidden, torch.finfo(q.dtype).min)
        attended.append(F.scaled_dot_product_attention(heads[0], heads[1], heads[2], mask, dropout).flatten(2))
    order = torch.cat([rows.queries for rows in blocks.rows]).argsort()
    return blocks.give(torch.cat(attended, 1)[:, order])


class _BlockAttention(torch.autograd.Function):
    """A few rows at a time, so that scores stay in the cache. Nothing of their size is kept: they are worked out again
    on the way back, and what was dropped is drawn again from its key."""

    @staticmethod
    def forward(ctx: Any, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, blocks: Blocks, dropout: float) -> Tensor:
        q, k, v = (blocks.take(x_TND) for x_TND in (q_TND, k_TND, v_TND))
        attended, ctx.keys = torch.zeros_like(q), []
        for rows in _some(blocks):
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
        return blocks.give(attended)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g_TND,), blocks = gradients, ctx.blocks
        q_TND, k_TND, v_TND = ctx.saved_tensors
        q, k, v = (blocks.take(x_TND) for x_TND in (q_TND, k_TND, v_TND))
        g = _own(g_TND, blocks)
        g_q = torch.zeros_like(q)
        g_k, g_v = (torch.zeros(x.shape, dtype=torch.float) for x in (k, v))  # sums of many, in full precision
        scale = q_TND.shape[-1] ** -0.5
        for number, rows in enumerate(_some(blocks)):
            q_RbD, k_RkD, v_RkD = _heads(rows, blocks, q, k, v)
            g_RbD = g.index_select(1, rows.queries).view(q_RbD.shape)
            weights = _weights(rows, q_RbD, k_RkD)
            g_weights, dropped = torch.bmm(g_RbD, v_RkD.transpose(1, 2)), weights
            if ctx.dropout:
                kept = draw_keep_mask(weights.numel(), ctx.dropout, ctx.keys[number])
                factor = dropout_factors(kept, weights, ctx.dropout)
                g_weights, dropped = g_weights * factor, weights * factor
            g_scores = torch._softmax_backward_data(g_weights, weights, -1, weights.dtype).mul_(scale)
            g_q[:, rows.queries] = torch.bmm(g_scores, k_RkD).view(len(q), len(rows.queries), -1)
            for total, left, right in ((g_k, g_scores, q_RbD), (g_v, dropped, g_RbD)):
                part = torch.bmm(left.transpose(1, 2), right).view(len(q), -1, total.shape[2])
                total.index_add_(1, rows.keys.flatten(), part.float())
        return *(_summed(x, blocks, like) for x, like in ((g_q, q_TND), (g_k, k_TND), (g_v, v_TND))), None, None


def _some(blocks: Blocks) -> Iterator[Rows]:
    for rows in blocks.rows:
        yield from rows.parts(max(1, MOST_SCORES // (rows.keys.shape[1] * blocks.size**2)))


def _heads(rows: Rows, blocks: Blocks, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [N * R, b, D], keys and values [N * R, J * b, D]."""
    number, size = len(q) * len(rows.queries), q.shape[2] // blocks.size
    which = rows.keys.flatten()
    return (
        q.index_select(1, rows.queries).view(number, -1, size),
        k.index_select(1, which).view(number, -1, size),
        v.index_select(1, which).view(number, -1, size),
    )


def _weights(rows: Rows, q_RbD: Tensor, k_RkD: Tensor) -> Tensor:
    """[N * R, b, J * b]"""
    scores = torch.baddbmm(q_RbD.new_empty(1), q_RbD, k_RkD.transpose(1, 2), beta=0, alpha=q_RbD.shape[-1] ** -0.5)
    apart = scores.view(-1, len(rows.queries), *scores.shape[1:])
    # Not minus infinity: a place of the filling may look at nothing.
    apart.masked_fill_(rows.hidden, torch.finfo(scores.dtype).min)
    return scores.softmax(-1)


def _own(g_TND: Tensor, blocks: Blocks) -> Tensor:
    """As blocks, with zeros where no token has its own place."""
    g_NPD = g_TND.new_zeros(g_TND.shape[1], len(blocks.tokens), g_TND.shape[2])
    g_NPD[:, blocks.own] = g_TND.transpose(0, 1)
    return g_NPD.unflatten(1, (blocks.number, -1)).flatten(2)


def _summed(g_NQX: Tensor, blocks: Blocks, like: Tensor) -> Tensor:
    """What all places of each token add up to, [T, N, D]. Only picked tokens have more than one that counts."""
    g_TND = blocks.give(g_NQX)
    first_picked = int(blocks.own[-1]) // blocks.size + 1
    if first_picked < blocks.number:
        places = blocks.tokens[first_picked * blocks.size :]
        more = g_NQX[:, first_picked:].unflatten(2, (blocks.size, -1)).flatten(1, 2)
        g_TND = g_TND.contiguous().index_add(0, places, more.transpose(0, 1))
    return g_TND.to(like.dtype)
