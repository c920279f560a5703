"""Which example stands where: a pure function of (seed, epoch), and batches filled by a token budget."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np

from bothways.data.draws import Purpose, generator

Row = TypeVar("Row")


def shuffled(num_examples: int, *, seed: int, epoch: int) -> np.ndarray:
    """The order of one pass over the examples."""
    return generator(seed, Purpose.ORDER, epoch).permutation(num_examples)


def fill_budget(order: Sequence[int], lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Consecutive rows of `order` as batches of at most `budget` tokens, at least one row each."""
    rows: list[int] = []
    tokens = 0
    for row in order:
        if rows and tokens + lengths[row] > budget:
            yield rows
            rows, tokens = [], 0
        rows.append(row)
        tokens += lengths[row]
    if rows:
        yield rows


def by_length(rows: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """Rows sorted by length, so that texts of equal length stand together."""
    return sorted(rows, key=lambda row: (lengths[row], row))


def blocks(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Rows in lists of `size`, the last one shorter; nothing where there are none."""
    remaining = iter(rows)
    while block := list(islice(remaining, size)):
        yield block
