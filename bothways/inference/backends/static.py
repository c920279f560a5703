"""Static vectors: vectors of whole texts from a table with a row for each token, on the CPU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError
from bothways.base.io import Files
from bothways.inference.backends.backend import Backend
from bothways.inference.reading import ReadOptions, Rows
from bothways.model.checkpoint.description import Description
from bothways.model.linear.static_vectors import MODEL_TYPE, StaticVectors, write_static
from bothways.model.linear.word_vector_files import open_static
from bothways.tasks.pooling import Pooling
from bothways.text.tokenizer.tokenizer import Tokenizer


class StaticBackend(Backend):
    """Static vectors. They read whole texts, of any length, without windows."""

    def __init__(self, vectors: StaticVectors, directory: Path) -> None:
        """directory: named in errors."""
        self.vectors = vectors
        self.directory = directory
        self.heads = {}
        self.description = Description(
            model_type=MODEL_TYPE,
            pooling="mean",
            normalized=vectors.normalize,
        )
        self.device = "cpu"
        self.dtype = "float32"

    @classmethod
    def open(cls, directory: Files, *, window: int | None = None, **options: object) -> "StaticBackend":
        """Read a directory, or a file of word vectors. Number format, device and batches of encoders do not matter."""
        if window:
            raise InputError(f"window ({window}) is for models that read tokens; static vectors read whole texts")
        return cls(open_static(directory.path), directory.path)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.vectors.tokenizer

    def refusal(self) -> InputError:
        return InputError(
            f"{self.directory}: static vectors, which only embed texts and have no encoder; use them with embed, "
            "evaluate, index and search, or name an encoder, such as bothways-en"
        )

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "model": f"static vectors of size {self.vectors.dimension}",
            "vocabulary": self.vectors.table.shape[0],
        }
        if "base_model" in self.vectors.facts:
            facts["made from"] = self.vectors.facts["base_model"]
        return facts

    def save(self, target: Path) -> None:
        write_static(self.vectors, target)

    def text_vectors(self, texts: Sequence[str], pooling: Pooling, options: ReadOptions) -> Rows:
        if pooling not in ("auto", "mean"):
            raise InputError(f"pooling ({pooling}) is for encoders; static vectors are the mean of their tokens")
        return self.vectors.embed(texts)
