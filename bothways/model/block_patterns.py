"""Patterns of block-sparse attention: windows with global tokens, and random blocks.

Computed with numpy, once per batch. Letters: T tokens of all texts; Q blocks of b slots each; R rows of J key blocks
each, with P = J * b slots.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bothways.base.device import copy_to
from bothways.model.block_sparse import BlockRows, Blocks, choose_block_size
from bothways.model.config import RandomBlocksConfig


def window_blocks(
    lengths: Sequence[int],
    sides: tuple[int, int],
    device: torch.device,
    global_tokens: np.ndarray | None = None,
    size: int | None = None,
) -> Blocks:
    """Each token attends to some neighbours and to its text's global tokens.

    lengths: tokens of each text.
    sides: neighbours before and after a token that it attends to; -1: all.
    device: of the result.
    global_tokens: indices in T, ascending.
    size: tokens of a block. None: by the wider side.
    """
    size = size or choose_block_size(max(sides))
    cut = TextBlocks.cut(np.asarray(lengths), size)
    if global_tokens is None:
        global_tokens = np.zeros(0, np.int64)
    extra = _global_blocks(cut, global_tokens)
    is_global_T = np.zeros(int(cut.lengths.sum()), bool)
    is_global_T[extra.tokens[extra.real]] = True
    is_global_Qb = is_global_T[cut.tokens()].reshape(-1, size)

    low, high = _window_bounds(cut, sides)
    shapes = np.stack([high - low + 1, extra.counts], 1)
    rows = []
    for shape in np.unique(shapes, axis=0):  # rows of one shape are computed together
        queries = np.flatnonzero((shapes == shape).all(1))
        num_near, num_far = shape
        near = low[queries][:, None] + np.arange(num_near)
        far = extra.firsts[queries][:, None] + np.arange(num_far)

        near_masked = _window_mask(cut, sides, queries, near)
        # Global tokens have blocks of their own, and must not count twice.
        near_masked = near_masked | is_global_Qb[near].reshape(len(queries), 1, -1)
        far_masked = ~extra.real[far].reshape(len(queries), 1, -1)
        far_masked = far_masked.repeat(near_masked.shape[1], 1)

        keys = np.concatenate([near, len(cut.firsts) + far], 1)
        masked = np.concatenate([near_masked, far_masked], 2)
        rows.append(_rows(queries, keys, masked, device=device))

    tokens = np.concatenate([cut.tokens(), extra.tokens.ravel()])
    is_real = np.concatenate([cut.is_real(), np.zeros(extra.tokens.size, bool)])
    return Blocks(
        size=size,
        tokens=_on(tokens, device),
        slots=_on(is_real.nonzero()[0], device),
        rows=tuple(rows),
    )


def _window_bounds(cut: "TextBlocks", sides: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last block that each block attends to, [Q] each."""
    num_blocks = len(cut.firsts)
    before, after = (num_blocks if side < 0 else -(-side // cut.size) for side in sides)
    index = np.arange(num_blocks)
    low = np.maximum(index - before, cut.firsts)
    high = np.minimum(index + after, cut.firsts + cut.counts - 1)
    return low, high


def _window_mask(cut: "TextBlocks", sides: tuple[int, int], queries: np.ndarray, near: np.ndarray) -> np.ndarray:
    """True for key slots that are padding or outside the window: [R, 1, P], or [R, b, P] with a limited side.

    cut: the texts in blocks.
    sides: neighbours before and after a token; -1: all.
    queries: blocks [R].
    near: the blocks that each attends to, [R, J].
    """
    positions = cut.positions()
    keys_R1P = positions[near].reshape(len(queries), 1, -1)
    queries_Rb1 = positions[queries][:, :, None]

    masked = keys_R1P >= cut.text_lengths[queries][:, None, None]
    before, after = sides
    if before >= 0:
        masked = masked | (queries_Rb1 - keys_R1P > before)
    if after >= 0:
        masked = masked | (keys_R1P - queries_Rb1 > after)
    return masked


@dataclass(frozen=True)
class _GlobalBlocks:
    """Blocks of global tokens. tokens [P, b], real [P, b]: False in padding; for each block of the texts the first
    such block of its text and their count, [Q]."""

    tokens: np.ndarray
    real: np.ndarray
    firsts: np.ndarray
    counts: np.ndarray


def _global_blocks(cut: "TextBlocks", global_tokens: np.ndarray) -> _GlobalBlocks:
    ends = cut.lengths.cumsum()
    text_of = np.searchsorted(ends, global_tokens, side="right")
    num_global = np.bincount(text_of, minlength=len(cut.lengths))
    starts = num_global.cumsum() - num_global

    # Of each text: its blocks of global tokens.
    counts = -(-num_global // cut.size)
    firsts = counts.cumsum() - counts

    # Of each such block: its text, and the numbers of its tokens among the global tokens of the text.
    texts = np.repeat(np.arange(len(cut.lengths)), counts)
    first_inside = (np.arange(len(texts)) - firsts[texts]) * cut.size
    inside = first_inside[:, None] + np.arange(cut.size)
    num_inside = num_global[texts][:, None]
    tokens = global_tokens[starts[texts][:, None] + np.minimum(inside, num_inside - 1)]

    text_of_block = np.searchsorted(ends, cut.starts, side="right")
    return _GlobalBlocks(
        tokens=tokens.reshape(-1, cut.size),
        real=inside < num_inside,
        firsts=firsts[text_of_block],
        counts=counts[text_of_block],
    )


def random_blocks(
    lengths: Sequence[int], config: RandomBlocksConfig, device: torch.device, keys: Sequence[int] | None = None
) -> Blocks:
    """BigBird's pattern: a block attends to its neighbours, the first and last block of its text, and random blocks.
    The first and the last block, and all blocks of short texts, attend to all.

    lengths: tokens of each text.
    config: size of the blocks, and number of random ones.
    device: of the result.
    keys: seeds of the random draws, one per text. None: the first block replaces the random blocks, as in transformers
        outside of training.
    """
    cut = TextBlocks.cut(np.asarray(lengths), config.size)
    inside = np.arange(len(cut.firsts)) - cut.firsts
    is_full = (cut.text_lengths <= config.max_full_length) | (inside == 0) | (inside == cut.counts - 1)
    generators = None
    if keys is not None:
        generators = [np.random.Generator(np.random.Philox(key=key)) for key in keys]
    text_of = np.repeat(np.arange(len(cut.lengths)), -(-cut.lengths // config.size))

    key_blocks = []
    blocks_by_count = defaultdict(list)
    for block in range(len(cut.firsts)):
        first = int(cut.firsts[block])
        last = first + int(cut.counts[block]) - 1
        if is_full[block]:
            attended = np.arange(first, last + 1)
        else:
            rng = None if generators is None else generators[text_of[block]]
            attended = _near_and_random(block, first, last, num_random=config.num_random, rng=rng)
        key_blocks.append(attended)
        blocks_by_count[len(attended)].append(block)

    rows = []
    positions = cut.positions()
    for blocks in blocks_by_count.values():  # rows of one length are computed together
        queries = np.array(blocks)
        keys_RJ = np.stack([key_blocks[block] for block in blocks])
        masked = positions[keys_RJ].reshape(len(queries), 1, -1) >= cut.text_lengths[queries][:, None, None]
        rows.append(_rows(queries, keys_RJ, masked, device=device))
    return Blocks(
        size=config.size,
        tokens=_on(cut.tokens(), device),
        slots=_on(cut.is_real().nonzero()[0], device),
        rows=tuple(rows),
    )


def _near_and_random(
    block: int, first: int, last: int, *, num_random: int, rng: np.random.Generator | None
) -> np.ndarray:
    """The blocks that a block attends to, in a text of the blocks `first` to `last`."""
    near = np.unique([first, block - 1, block, block + 1, last])
    if rng is None:
        others = np.full(num_random, first)
    else:
        free = np.setdiff1d(np.arange(first, last + 1), near)
        others = rng.choice(free, num_random, replace=False)
    return np.concatenate([near, others])


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
        """Texts of these lengths in blocks of this size."""
        counts = -(-lengths // size)
        firsts = counts.cumsum() - counts
        starts = lengths.cumsum() - lengths
        return TextBlocks(
            size=size,
            lengths=lengths,
            firsts=np.repeat(firsts, counts),
            starts=np.repeat(starts, counts),
            text_lengths=np.repeat(lengths, counts),
            counts=np.repeat(counts, counts),
        )

    def tokens(self) -> np.ndarray:
        """The token of T in each slot, [Q * b]; in padding the text's last."""
        inside = np.minimum(self.positions(), self.text_lengths[:, None] - 1)
        return (self.starts[:, None] + inside).ravel()

    def is_real(self) -> np.ndarray:
        """False in padding, [Q * b]."""
        return (self.positions() < self.text_lengths[:, None]).ravel()

    def positions(self) -> np.ndarray:
        """The position of each slot in its text, [Q, b]; in padding beyond the text."""
        firsts = (np.arange(len(self.firsts)) - self.firsts) * self.size
        return (firsts[:, None] + np.arange(self.size)).astype(np.int32)


def _rows(queries: np.ndarray, keys: np.ndarray, masked: np.ndarray, *, device: torch.device) -> BlockRows:
    return BlockRows(queries=_on(queries, device), keys=_on(keys, device), masked=_on(masked, device))


def _on(values: np.ndarray, device: torch.device) -> Tensor:
    return copy_to(torch.from_numpy(np.ascontiguousarray(values)), device)
