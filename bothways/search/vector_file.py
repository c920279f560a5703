"""A file of vectors of a store: one float32 row per slot, appended to, and memory-mapped for reading.

The database has the number of valid rows. A row that was written but not counted, as after a kill, is overwritten by
the next append, so a reader never sees half a vector. Letters: N slots, n new ones, H size of a vector.
"""

import os
from pathlib import Path

import numpy as np

from bothways.base.errors import InputError

VALUE = np.dtype("<f4")


def append_vectors(path: Path, first: int, vectors_nH: np.ndarray) -> None:
    """Write vectors behind the rows that are counted, and return once they are on disk.

    path: the file; it is made if it does not exist.
    first: the slot of the first new vector, which is also the number of rows before it.
    vectors_nH: the vectors, in the order of their slots.
    """
    content = np.ascontiguousarray(vectors_nH, VALUE)
    row_bytes = content.shape[1] * VALUE.itemsize

    with path.open("r+b" if path.exists() else "w+b") as file:
        # Rows from `first` on were never counted.
        file.truncate(first * row_bytes)
        file.seek(first * row_bytes)
        file.write(content.data)

        # The commit that counts these rows comes after this: it must not reach the disk before them.
        file.flush()
        os.fsync(file.fileno())


def map_vectors(path: Path, rows: int, dimension: int) -> np.ndarray:
    """The first rows of a file, float32 [rows, dimension], read-only.

    path: the file; it is not looked for if there are no rows.
    rows: the number of rows that the database counts.
    dimension: of a vector, H.

    InputError if the file has fewer rows, FileNotFoundError if there is no file.
    """
    # A file without bytes cannot be mapped, and a store without passages has no file.
    if not rows:
        return np.empty((0, dimension), VALUE)

    if not path.is_file():
        raise FileNotFoundError(f"{path}: the vectors of the store are missing")
    num_bytes = rows * dimension * VALUE.itemsize
    if path.stat().st_size < num_bytes:
        raise InputError(f"{path}: the vectors of the store are cut off; delete the store and index again")

    return np.memmap(path, VALUE, "r", shape=(rows, dimension))
