"""Bothways: the whole life of a BERT. Public names are loaded when first used, so that importing costs nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bothways.errors import InputError
    from bothways.inference.answer_decoding import Answer
    from bothways.inference.load import load
    from bothways.inference.masked_words import Fill
    from bothways.inference.predictor import Predictor
    from bothways.inference.tag_decoding import Entity
    from bothways.inference.text_scores import Prediction
    from bothways.tokenizer.tokenizer import Encoding, Tokenizer
    from bothways.verbs import evaluate, train

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
    "Answer": "bothways.inference.answer_decoding",
    "Encoding": "bothways.tokenizer.tokenizer",
    "Entity": "bothways.inference.tag_decoding",
    "Fill": "bothways.inference.masked_words",
    "InputError": "bothways.errors",
    "Prediction": "bothways.inference.text_scores",
    "Predictor": "bothways.inference.predictor",
    "Tokenizer": "bothways.tokenizer.tokenizer",
    "evaluate": "bothways.verbs",
    "load": "bothways.inference.load",
    "train": "bothways.verbs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bothways' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
