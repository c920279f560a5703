"""Bothways: the whole life of a BERT. Public names are loaded when first used, so that importing costs nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bothways.answering import Answer
    from bothways.errors import InputError
    from bothways.loading import load
    from bothways.predict import Fill, Prediction, Predictor
    from bothways.tagging import Entity
    from bothways.tasks.registry import evaluate, train
    from bothways.tokenizer.tokenizer import Encoding, Tokenizer

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "Encoding",
    "Entity",
    "Fill",
    "InputError",
    "Prediction",
    "Predictor",
    "Tokenizer",
    "evaluate",
    "load",
    "train",
]
_HOME = {
    "Answer": "bothways.answering",
    "Encoding": "bothways.tokenizer.tokenizer",
    "Entity": "bothways.tagging",
    "Fill": "bothways.predict",
    "InputError": "bothways.errors",
    "Prediction": "bothways.predict",
    "Predictor": "bothways.predict",
    "Tokenizer": "bothways.tokenizer.tokenizer",
    "evaluate": "bothways.tasks.registry",
    "load": "bothways.loading",
    "train": "bothways.tasks.registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bothways' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
