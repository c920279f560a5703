"""Activation checkpointing: windows are recomputed in the backward pass (Chen 2016)."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bothways.batch import Batch

MAX_TOKENS = 1024  # of texts whose activations are kept; the windows of larger batches are recomputed
MAX_PAIR_TOKENS = 8192  # of pairs, whose losses need the whole batch


def checkpointed(encode: Callable[..., Tensor], batch: Batch, *arguments: Any) -> Tensor:
    """encode(batch, *arguments) without storing activations; the backward pass recomputes them.

    Dropout is the same both times, since torch restores the random state. It does so only for the devices of tensors
    that are direct arguments, so input_ids are passed although unused.
    """
    result: Tensor = checkpoint(lambda _: encode(batch, *arguments), batch.input_ids, use_reentrant=False)
    return result


def split_batch(batch: Batch, max_tokens: int) -> Iterator[Batch]:
    """The windows of a batch, in order, as batches of at most max_tokens (or of one longer window), without labels."""
    ends = batch.lengths.cumsum(0).tolist()
    bounds, start = [0], 0
    for row, end in enumerate(ends):
        if end - start > max_tokens and row > bounds[-1]:
            bounds.append(row)
            start = ends[row - 1]
    for first, last in pairwise([*bounds, len(ends)]):
        tokens = slice(ends[first - 1] if first else 0, ends[last - 1])
        yield Batch(
            batch.input_ids[tokens], batch.segment_ids[tokens], batch.position_ids[tokens], batch.lengths[first:last]
        )
