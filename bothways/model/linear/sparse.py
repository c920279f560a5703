"""Sparse matrices in numpy: rows of columns and values (CSR), with the few operations of TF-IDF models. No scipy.

Values and their order in a row are as in scipy.sparse, bit by bit: sums depend on the order. Letters: N rows, F
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
        values = slice(ends[0], ends[-1])
        return Csr(
            data=self.data[values],
            indices=self.indices[values],
            indptr=ends - ends[0],
            width=self.width,
        )

    def columns(self, columns: np.ndarray) -> "Csr":
        """The matrix of some columns, which ascend."""
        new_columns_F = np.full(self.width, -1)
        new_columns_F[columns] = np.arange(len(columns))
        kept = self.where(new_columns_F[self.indices] >= 0)
        return Csr(
            data=kept.data,
            indices=new_columns_F[kept.indices],
            indptr=kept.indptr,
            width=len(columns),
        )

    def where(self, is_kept_K: np.ndarray) -> "Csr":
        """The matrix with some of its values."""
        counts_N = np.bincount(self.row_numbers[is_kept_K], minlength=self.shape[0])
        return Csr(
            data=self.data[is_kept_K],
            indices=self.indices[is_kept_K],
            indptr=_ends(counts_N),
            width=self.width,
        )

    def __matmul__(self, dense_FC: np.ndarray) -> np.ndarray:
        """The product with a dense matrix, float64 [N, C]. The products of a row are added one after another."""
        num_outputs = dense_FC.shape[1]
        # Of two columns or more: numpy adds the rows one after another, but the numbers of a single column in pairs.
        if num_outputs == 1:
            dense_FC = np.repeat(dense_FC, 2, 1)
        dense_FC = np.ascontiguousarray(dense_FC)

        product_NC = np.zeros((self.shape[0], dense_FC.shape[1]))
        values_K1 = self.data[:, None]
        ends = self.indptr.tolist()
        for product_C, first, last in zip(product_NC, ends[:-1], ends[1:], strict=True):
            terms_kC = dense_FC.take(self.indices[first:last], 0) * values_K1[first:last]
            np.add.reduce(terms_kC, axis=0, out=product_C)
        return product_NC[:, :num_outputs]

    def row_sums(self) -> np.ndarray:
        """The sum of each row, [N]."""
        sums_N = np.zeros(self.shape[0])
        # `reduceat` gives an empty row the first value of the next.
        present = np.flatnonzero(np.diff(self.indptr))
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
    data = np.zeros(indptr[-1])
    indices = np.zeros(indptr[-1], np.int64)

    starts_N = indptr[:-1]
    width = 0
    for part, sizes_N in zip(parts, sizes_PN, strict=True):
        targets_K = np.arange(len(part.data)) + np.repeat(starts_N - part.indptr[:-1], sizes_N)
        data[targets_K] = part.data
        indices[targets_K] = part.indices + width
        starts_N = starts_N + sizes_N
        width += part.width
    return Csr(data=data, indices=indices, indptr=indptr, width=width)


def count_columns(indices: np.ndarray, indptr: np.ndarray, width: int) -> Csr:
    """How often each column occurs in each row, in ascending columns.

    indices: the columns, with repetitions, row by row.
    indptr: where each row begins, and the end.
    width: number of columns.
    """
    num_rows = len(indptr) - 1
    keys = np.repeat(np.arange(num_rows), np.diff(indptr)) * width + indices
    keys.sort()
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    rows, columns = np.divmod(keys[firsts], max(1, width))
    return Csr(
        data=np.diff(firsts, append=len(keys)).astype(np.float64),
        indices=columns,
        indptr=_ends(np.bincount(rows, minlength=num_rows)),
        width=width,
    )


def expand(left: Csr, right: Csr) -> Csr:
    """The product of two sparse matrices with whole numbers."""
    blocks = [_expand(left[first : first + BLOCK], right) for first in range(0, max(1, left.shape[0]), BLOCK)]
    sizes = np.concatenate([np.diff(block.indptr) for block in blocks])
    return Csr(
        data=np.concatenate([block.data for block in blocks]),
        indices=np.concatenate([block.indices for block in blocks]),
        indptr=_ends(sizes),
        width=right.width,
    )


def _expand(left: Csr, right: Csr) -> Csr:
    # Each value of the left matrix meets a row of the right one.
    sizes_K = np.diff(right.indptr)[left.indices]
    sources = np.arange(sizes_K.sum()) + np.repeat(right.indptr[left.indices] - _ends(sizes_K)[:-1], sizes_K)
    values = np.repeat(left.data, sizes_K) * right.data[sources]

    groups = _Groups(
        np.repeat(left.row_numbers, sizes_K),
        right.indices[sources],
        num_rows=left.shape[0],
        width=right.width,
    )
    sums = np.add.reduceat(values[groups.order], groups.starts) if len(values) else values
    return groups.matrix(sums)


def product_and_distance(first: Csr, second: Csr) -> tuple[Csr, Csr]:
    """The product of two matrices number by number, and their absolute difference."""
    num_rows, width = first.shape
    pair = hstack([first, second])
    groups = _Groups(pair.row_numbers, pair.indices % max(1, width), num_rows=num_rows, width=width)

    # A group has the numbers of both matrices, or the only one that is not zero.
    is_both = np.diff(groups.starts, append=len(pair.data)) == 2
    left = pair.data[groups.order[groups.starts]]
    right = np.zeros(len(is_both))
    right[is_both] = pair.data[groups.order[groups.starts[is_both] + 1]]

    product = groups.matrix(left * right, is_sorted=first.is_sorted and second.is_sorted)
    distance = groups.matrix(abs(left - right), is_sorted=True)
    return product.where(product.data != 0), distance.where(distance.data != 0)


class _Groups:
    """Values of the same row and column: the values of group g have the indices order[starts[g]:starts[g + 1]]."""

    def __init__(self, rows: np.ndarray, columns: np.ndarray, *, num_rows: int, width: int) -> None:
        """rows, columns: of each value; the rows ascend. num_rows, width: of the matrix."""
        self.shape = (num_rows, width)

        # To sort whole numbers that hold the index as well is faster than to sort by key and index.
        size = max(1, len(rows))
        keys_and_indices = np.sort((rows * width + columns) * size + np.arange(len(rows)))
        keys, self.order = np.divmod(keys_and_indices, size)
        self.starts = np.flatnonzero(np.diff(keys, prepend=-1))
        self.rows, self.columns = np.divmod(keys[self.starts], max(1, width))

    def matrix(self, values: np.ndarray, is_sorted: bool = False) -> Csr:
        """The matrix with a value for each group: in ascending columns, or as scipy leaves them, from the column that
        came last to the one that came first."""
        num_rows, width = self.shape
        indptr = _ends(np.bincount(self.rows, minlength=num_rows))
        if is_sorted:
            return Csr(data=values, indices=self.columns, indptr=indptr, width=width)

        # The groups by the index of their first value, then each row in reverse.
        groups = np.full(len(self.order), -1)
        groups[self.order[self.starts]] = np.arange(len(self.starts))
        groups = groups[groups >= 0]
        sizes = np.diff(indptr)
        groups = groups[np.repeat(indptr[:-1] + indptr[1:] - 1, sizes) - np.arange(len(groups))]
        return Csr(data=values[groups], indices=self.columns[groups], indptr=indptr, width=width)
