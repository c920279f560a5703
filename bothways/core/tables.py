"""Tables of words that are stored in few bits or in int8; packed.c unpacks the rows that are used.

Letters: V rows of a table, E embedding size, G groups of 32 numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError
from bothways.core.library import Core
from bothways.core.structures import Array, address

GROUP = 32  # numbers of a packed table that share a scale


class PackedTable:
    """A table of few bits for each number, with a scale for each 32, whose rows are unpacked as they are used."""

    def __init__(self, core: Core, codes: NDArray[np.uint8], scales_VG: Array, bits: int) -> None:
        """codes: of all numbers, as formats/packed.py has them. bits: 4, 5, 6 or 8."""
        self.core = core
        self.codes = np.ascontiguousarray(codes, np.uint8)
        self.scales_VG = np.ascontiguousarray(scales_VG, np.float32)
        self.bits = bits
        self.shape = (len(scales_VG), GROUP * scales_VG.shape[1])

    def rows(self, ids_n: NDArray[Any]) -> Array:
        """Rows of the table, float32 [n, E]. InputError for an id out of range."""
        ids_n = np.ascontiguousarray(ids_n, np.int32)
        out = np.empty((len(ids_n), self.shape[1]), np.float32)
        table = address(self.codes), address(self.scales_VG), self.bits, *self.shape
        done = self.core.unpack_rows(*table, address(ids_n), len(ids_n), address(out))
        if done < len(ids_n):
            raise _id_error(done, ids_n, self.shape[0])
        return out


class Int8Table:
    """A table of integers with a scale for each row, whose rows become float32 as they are used."""

    def __init__(self, core: Core, integers_VE: NDArray[np.int8], scales_V: Array) -> None:
        self.core = core
        self.integers_VE = np.ascontiguousarray(integers_VE)
        self.scales_V = np.ascontiguousarray(scales_V, np.float32)

    def rows(self, ids_n: NDArray[Any]) -> Array:
        """Rows of the table, float32 [n, E]. InputError for an id out of range."""
        ids_n = np.ascontiguousarray(ids_n, np.int32)
        num_rows, size = self.integers_VE.shape
        out = np.empty((len(ids_n), size), np.float32)
        table = address(self.integers_VE), address(self.scales_V), num_rows, size
        done = self.core.scale_rows(*table, address(ids_n), len(ids_n), address(out))
        if done < len(ids_n):
            raise _id_error(done, ids_n, num_rows)
        return out


def _id_error(place: int, ids_n: NDArray[np.int32], num_rows: int) -> InputError:
    return InputError(f"token {place} has the id {ids_n[place]}; ids are from 0 to {num_rows - 1}")
