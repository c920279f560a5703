"""Sparse matrices in numpy: rows of columns and values (CSR), with the few operations of TF-IDF models. No scipy.

Values and their order in a row are those of scipy.sparse, bit by bit: sums depend on the order. Letters: N rows, F
columns, C columns of a dense factor, K stored values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCK = 1024  # rows whose terms are sorted together


@dataclass(frozen=True)
class Csr:
    """A matrix [N, F] of float64. Row n has the columns indices_K[indptr[n]:indptr[n + 1]], each once in any order."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.width

    @property
    def row_numbers(self) -> np.ndarray:
        """The row of each value."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    @property
    def is_sorted(self) -> bool:
        """Whether the columns of each row ascend."""
        return bool((np.diff(self.row_numbers * self.width + self.indices) > 0).all())

    def __getitem__(self, rows: slice) -> "Csr":
        """Consecutive rows."""
        first, last, _ = rows.indices(self.shape[0])
        ends = self.indptr[first : last + 1]
        return Csr(self.data[ends[0] : ends[-1]], self.indices[ends[0] : ends[-1]], ends - ends[0], self.width)

    def columns(self, columns: np.ndarray) -> "Csr":
        """The matrix of some columns, which ascend."""
        place_F = np.full(self.width, -1)
        place_F[columns] = np.arange(len(columns))
        places_K = place_F[self.indices]
        kept = self.where(places_K >= 0)
        return Csr(kept.data, place_F[kept.indices], kept.indptr, len(columns))

    def where(self, is_kept_K: np.ndarray) -> "Csr":
        """The matrix with some of its values."""
        counts_N = np.bincount(self.row_numbers[is_kept_K], minlength=self.shape[0])
        return Csr(self.data[is_kept_K], self.indices[is_kept_K], _ends(counts_N), self.width)

    def __matmul__(self, dense_FC: np.ndarray) -> np.ndarray:
        """The product with a dense matrix, float64 [N, C]. The products of a row are added one after another."""
        num_rows, num_outputs = self.shape[0], dense_FC.shape[1]
        product_NC, values_K1 = np.zeros((num_rows, max(2, num_outputs))), self.data[:, None]
        # Of two columns or more: numpy adds the rows one after another, but the numbers of a single column in pairs.
        dense_FC = np.ascontiguousarray(dense_FC if num_outputs > 1 else np.repeat(dense_FC, 2, 1))
        for row, (first, last) in enumerate(zip(self.indptr[:-1].tolist(), self.indptr[1:].tolist(), strict=True)):
            np.add.reduce(dense_FC.take(self.indices[first:last], 0) * values_K1[first:last], 0, None, product_NC[row])
        return product_NC[:, :num_outputs]

    def row_sums(self) -> np.ndarray:
        """The sum of each row, [N]."""
        sums_N, present = np.zeros(self.shape[0]), np.flatnonzero(np.diff(self.indptr))
        sums_N[present] = np.add.reduceat(self.data, self.indptr[present])
        return sums_N

    def to_scipy(self) -> Any:
        """A scipy.sparse.csr_array with the same arrays."""
        from scipy.sparse import csr_array

        return csr_array((self.data, self.indices, self.indptr), self.shape)


def _ends(counts_N: np.ndarray) -> np.ndarray:
    """indptr for the numbers of values in each row."""
    return np.concatenate([[0], np.cumsum(counts_N)])


def hstack(parts: Sequence[Csr]) -> Csr:
    """Matrices of the same rows side by side."""
    sizes_PN = np.stack([np.diff(part.indptr) for part in parts])
    indptr = _ends(sizes_PN.sum(0))
    data, indices = np.zeros(indptr[-1]), np.zeros(indptr[-1], np.int64)
    starts_N, offset = indptr[:-1], 0
    for part, sizes_N in zip(parts, sizes_PN, strict=True):
        places_K = np.arange(len(part.data)) + np.repeat(starts_N - part.indptr[:-1], sizes_N)
        data[places_K], indices[places_K] = part.data, part.indices + offset
        starts_N, offset = starts_N + sizes_N, offset + part.width
    return Csr(data, indices, indptr, offset)


def count_columns(indices: np.ndarray, indptr: np.ndarray, width: int) -> Csr:
    """How often each column occurs in each row, in ascending columns. indices: with repetitions."""
    keys = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)) * width + indices
    keys.sort()
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    rows, columns = np.divmod(keys[first], max(1, width))
    counts = np.diff(first, append=len(keys)).astype(np.float64)
    return Csr(counts, columns, _ends(np.bincount(rows, minlength=len(indptr) - 1)), width)


def expand(left: Csr, right: Csr) -> Csr:
    """The product of two sparse matrices with whole numbers."""
    blocks = [_expand(left[first : first + BLOCK], right) for first in range(0, max(1, left.shape[0]), BLOCK)]
    sizes = np.concatenate([np.diff(block.indptr) for block in blocks])
    data, indices = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("data", "indices"))
    return Csr(data, indices, _ends(sizes), right.width)


def _expand(left: Csr, right: Csr) -> Csr:
    sizes_K = np.diff(right.indptr)[left.indices]
    places = np.arange(sizes_K.sum()) + np.repeat(right.indptr[left.indices] - _ends(sizes_K)[:-1], sizes_K)
    values = np.repeat(left.data, sizes_K) * right.data[places]
    merged = _Groups(np.repeat(left.row_numbers, sizes_K), right.indices[places], left.shape[0], right.width)
    sums = np.add.reduceat(values[merged.order], merged.starts) if len(values) else values
    return merged.matrix(sums)


def product_and_distance(first: Csr, second: Csr) -> tuple[Csr, Csr]:
    """The product of two matrices number by number, and their absolute difference."""
    num_rows, width = first.shape
    pair = hstack([first, second])
    merged = _Groups(pair.row_numbers, pair.indices % max(1, width), num_rows, width)
    is_both = np.diff(merged.starts, append=len(pair.data)) == 2
    one, other = pair.data[merged.order[merged.starts]], np.zeros(len(is_both))
    other[is_both] = pair.data[merged.order[merged.starts[is_both] + 1]]
    product = merged.matrix(one * other, first.is_sorted and second.is_sorted)
    distance = merged.matrix(abs(one - other), True)
    return product.where(product.data != 0), distance.where(distance.data != 0)


class _Groups:
    """Values of the same row and column: those of group g have the places order[starts[g]:starts[g + 1]]."""

    def __init__(self, rows: np.ndarray, columns: np.ndarray, num_rows: int, width: int) -> None:
        """rows: ascend. A sort of whole numbers that hold the place as well is faster than one by key and place."""
        size, self.shape = max(1, len(rows)), (num_rows, width)
        keys, self.order = np.divmod(np.sort((rows * width + columns) * size + np.arange(len(rows))), size)
        self.starts = np.flatnonzero(np.diff(keys, prepend=-1))
        self.rows, self.columns = np.divmod(keys[self.starts], max(1, width))

    def matrix(self, values: np.ndarray, is_sorted: bool = False) -> Csr:
        """The matrix with a value for each group: in ascending columns, or as scipy leaves them, from the column that
        came last to the one that came first."""
        indptr = _ends(np.bincount(self.rows, minlength=self.shape[0]))
        if is_sorted:
            return Csr(values, self.columns, indptr, self.shape[1])
        group = np.full(len(self.order), -1)
        group[self.order[self.starts]] = np.arange(len(self.starts))
        group = group[group >= 0]  # by the place of the first value
        sizes = np.diff(indptr)
        group = group[np.repeat(indptr[:-1] + indptr[1:] - 1, sizes) - np.arange(len(group))]
        return Csr(values[group], self.columns[group], indptr, self.shape[1])
