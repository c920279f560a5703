"""The table of words in the files of a model, of which only the rows of a text are read."""

from collections.abc import Iterator

import numpy as np

from bothways.base.errors import InputError
from bothways.inference.backends.forward import Array, Ids
from bothways.model.checkpoint.formats.hugging_face import TABLE
from bothways.model.checkpoint.formats.packed import PackedTensors
from bothways.model.checkpoint.model_files import ModelFiles
from bothways.model.checkpoint.weights import TensorFiles, is_finite, not_finite_error

PIECE = 4096  # rows of the word table in memory at once, for the scores of all words


class WordTable:
    """The embeddings of words, of which only the rows that are used are read."""

    def __init__(self, files: ModelFiles, shape: tuple[int, ...]) -> None:
        """InputError if the table in the files has another shape."""
        self.arrays = files.arrays
        self.file = files.directory.path
        self.size = shape[0]
        name, *_ = files.family.hf_names(TABLE, ())
        # Some checkpoints hold the encoder alone, without the prefix of a model with heads.
        self.name = name if name in self.arrays else name.removeprefix(files.family.prefix)

        stored = self._stored_shape()
        if stored != shape:
            raise InputError(
                f"{self.file}: {self.name} is {[*stored]}, config.json requires {[*shape]}; use the config.json that "
                "belongs to the weights"
            )
        kind = self._stored_rows(np.arange(1)).dtype
        if kind.kind != "f":
            raise InputError(
                f"{self.file}: wrong shape or type: {self.name} is {kind}, not floating point; use the config.json "
                "that belongs to the weights"
            )

    def _stored_shape(self) -> tuple[int, ...]:
        if isinstance(self.arrays, TensorFiles | PackedTensors):
            return self.arrays.shape(self.name)
        shape: tuple[int, ...] = self.arrays[self.name].shape
        return shape

    def _stored_rows(self, ids_n: Ids) -> Array:
        if isinstance(self.arrays, TensorFiles | PackedTensors):
            return self.arrays.rows(self.name, ids_n)
        rows_nE: Array = self.arrays[self.name][ids_n]
        return rows_nE

    def rows(self, ids_T: Ids) -> Array:
        """[T, E]"""
        ids_n, row_T = np.unique(ids_T, return_inverse=True)
        rows_nE = self._stored_rows(ids_n)
        with np.errstate(over="ignore"):
            rows_nE = rows_nE.astype(np.float32, copy=False)
        if not is_finite(rows_nE):
            raise not_finite_error(self.file, [self.name])
        rows_TE: Array = rows_nE[row_T]
        return rows_TE

    def pieces(self) -> Iterator[Array]:
        """All rows, PIECE at a time."""
        for start in range(0, self.size, PIECE):
            end = min(start + PIECE, self.size)
            yield self.rows(np.arange(start, end))
