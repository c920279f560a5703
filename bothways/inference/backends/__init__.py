"""Backends of Predictor, by the format of a directory; any other is that of an encoder. A backend is imported when a
directory needs it.

A new backend is one file here and one entry in BACKENDS.
"""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from bothways.inference.backends.backend import Backend
from bothways.inference.backends.encoder import EncoderBackend
from bothways.io import Files, LazyTable
from bothways.model.checkpoint.directory import STATIC, Directory, locate, read_unchanged

Opener = Callable[..., Backend]  # (directory, dtype=, device=, window=, batch_tokens=)
BACKENDS = LazyTable[Opener](
    "bothways.inference.backends", {"bothways-tfidf": "tfidf:TfidfBackend.open", STATIC: "static:StaticBackend.open"}
)


def open_backend(path: str | PathLike[str], adapter: Path | None = None, **options: Any) -> Backend:
    """The model in a directory. adapter: of the model. options: dtype, device, window and batch_tokens, as in
    `bothways.load`."""
    path = locate(path)
    if path.is_file():
        return BACKENDS[STATIC](Files(path), **options)

    def opened(directory: Directory) -> Backend:
        if adapter is not None or directory.format not in BACKENDS:
            return EncoderBackend.open(directory, adapter=adapter, **options)
        return BACKENDS[directory.format](directory, **options)

    return read_unchanged(path, opened)
