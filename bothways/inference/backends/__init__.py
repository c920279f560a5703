"""Backends of Predictor, by the model_type of config.json; any other directory is that of an encoder.

A new backend is one file here and one entry in BACKENDS.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bothways.checkpoint.checkpoint import find
from bothways.checkpoint.contents import CONFIG, is_adapter
from bothways.checkpoint.formats.tfidf import TfidfFormat
from bothways.inference.backends.backend import Backend
from bothways.inference.backends.encoder import EncoderBackend
from bothways.inference.backends.static import StaticBackend
from bothways.inference.backends.tfidf import TfidfBackend
from bothways.io import read_json
from bothways.linear.static_vectors import MODEL_TYPE, is_static

Opener = Callable[..., Backend]  # (directory, dtype=, device=, window=, batch_tokens=)
BACKENDS: dict[str, Opener] = {TfidfFormat.model_type: TfidfBackend.open, MODEL_TYPE: StaticBackend.open}


def open_backend(path: Path, **options: Any) -> Backend:
    """The model in a directory. options: dtype, device, window and batch_tokens, as in `bothways.load`."""
    if path.is_file() or is_static(path):  # sentence-transformers writes no model_type for static vectors
        return StaticBackend.open(path, **options)
    directory = find(path, lambda _: None)
    model_type = None if is_adapter(directory) else read_json(directory / CONFIG).get("model_type")
    if opener := BACKENDS.get(str(model_type)):
        return opener(find(path), **options)
    return EncoderBackend.open(path, **options)
