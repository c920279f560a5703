"""The vector spaces of a store: static vectors, which need no torch, and the vectors of an encoder."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, Protocol

import numpy as np

from bothways.base.errors import InputError
from bothways.base.paths import RemotePath, as_path, local_place
from bothways.pretrained import locate
from bothways.text.tokenizer.tokenizer import Tokenizer

Space = Literal["static", "encoder"]


class VectorModel(Protocol):
    """Vectors of texts: a table of static vectors, or an encoder."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 [N, H], of length 1."""
        ...


class EncoderVectors:
    """Vectors of texts by a model of the package, a checkpoint or a name of the hub."""

    def __init__(self, model: str, *, device: str = "auto", dtype: str = "auto") -> None:
        from bothways.inference.fingerprint import vector_space
        from bothways.inference.load import load

        self.model = model
        self.predictor = load(model, device=device, dtype=dtype)
        self.tokenizer = self.predictor.tokenizer

        fingerprint = vector_space(self.predictor)
        if fingerprint is None:
            raise InputError(f"{model}: has no vectors of texts; name an embedding model, such as bothways-en")
        self.fingerprint = fingerprint

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return self.predictor.embed(list(texts))


def open_vectors(space: Space, model: str, *, device: str = "auto", dtype: str = "auto") -> VectorModel:
    """The static vectors or the encoder of this name or directory; each is loaded once.

    space: of the vectors.
    model: name or directory.
    device, dtype: of an encoder.
    """
    if space == "encoder":
        return _encoder(model, device, dtype)
    return _static(model)


@lru_cache(4)
def _encoder(model: str, device: str, dtype: str) -> VectorModel:
    return EncoderVectors(model, device=device, dtype=dtype)


@lru_cache(4)
def _static(model: str) -> VectorModel:
    from bothways.model.linear.word_vector_files import open_static

    static: VectorModel = open_static(locate(model) or local_place(model))
    return static


def files_state(model: str) -> str:
    """A hash of the names, sizes and times of a model's files, which changes when it is trained anew in its place, or
    when the cache of the hub has another version of it."""
    top = locate(model) or as_path(model)
    if isinstance(top, RemotePath):
        return _hash([(file.key, file.stat().st_size, file.stat().e_tag) for file in top.files()])

    if not top.exists():
        from bothways.model.checkpoint.hub import HubModel

        hub_model = HubModel.parse(model)
        snapshot = hub_model.snapshot() if hub_model else None
        top = snapshot or top

    states = []
    for path in (top, *top.rglob("*")):
        if path.is_file():
            status = path.stat()
            states.append((str(path.relative_to(top)), status.st_size, status.st_mtime_ns))
    return _hash(sorted(states))


def _hash(states: list[tuple[str, int, object]]) -> str:
    # A name that is not UTF-8 has surrogates.
    return blake2b(repr(states).encode(errors="surrogatepass"), digest_size=16).hexdigest()
