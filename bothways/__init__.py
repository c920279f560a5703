"""Bothways: the whole life of a BERT. Public names are loaded when first used, so that importing costs nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bothways.tokenizer.tokenizer import Encoding, Tokenizer

__version__ = "0.1.0"
_HOME = {
    "Encoding": "bothways.tokenizer.tokenizer",
    "Tokenizer": "bothways.tokenizer.tokenizer",
}
__all__ = ["Encoding", "Tokenizer"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bothways' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
