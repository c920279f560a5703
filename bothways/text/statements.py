"""Texts with statements behind them: what a model reads to say how far each statement holds for its text.

A statement is a few words, such as an option together with its question. It attends to its text and to itself, the text
to itself alone, and the positions of each begin anew. So a text is read once, however many statements there are, and no
statement knows of another one.

Letters: N texts, P parts (each text and the statements behind it), T tokens of all parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class StatementBatch:
    """The tokens of each text, then those of its statements, without padding.

    ids_T: int32, special tokens included.
    lengths_P: tokens of each part.
    parts_N: parts of each text, of which the first is the text itself.
    """

    ids_T: Ids
    lengths_P: Integers
    parts_N: Integers

    @staticmethod
    def of(texts: Sequence[Sequence[int]], statements: Sequence[Sequence[Sequence[int]]]) -> StatementBatch:
        """The batch of texts and the statements behind each of them, as ids."""
        parts = [part for text, behind in zip(texts, statements, strict=True) for part in (text, *behind)]
        parts_N = np.array([1 + len(behind) for behind in statements], np.int64)
        lengths_P = np.fromiter(map(len, parts), np.int64, len(parts))
        return StatementBatch(
            ids_T=np.fromiter(chain.from_iterable(parts), np.int32, int(lengths_P.sum())),
            lengths_P=lengths_P,
            parts_N=parts_N,
        )

    @property
    def first_parts(self) -> Integers:
        """The first part of each text, and after the last text the number of parts. [N + 1]"""
        return with_zero(self.parts_N.cumsum())

    @property
    def starts(self) -> Integers:
        """The first token of each part, and the end of the last one. [P + 1]"""
        return with_zero(self.lengths_P.cumsum())

    @property
    def positions(self) -> Integers:
        """The position of each token in its part, [T]."""
        return np.arange(len(self.ids_T)) - np.repeat(self.starts[:-1], self.lengths_P)


def with_zero(values: Integers) -> Integers:
    """These after a 0."""
    return np.concatenate([np.zeros(1, np.int64), values.astype(np.int64)])
