"""Bothways, the whole life of a BERT: pre-train, fine-tune, evaluate, predict, quantize, export.

Public names are imported when they are first used, so that `import bothways` is fast and loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bothways import settings
    from bothways.api import check, evaluate, finetune, train
    from bothways.base.errors import InputError
    from bothways.inference.load import load
    from bothways.inference.predictor import Predictor
    from bothways.measure.report.attention_map import AttentionWeights
    from bothways.search.store import Hit, Store
    from bothways.tasks.answer_decoding import Answer
    from bothways.tasks.class_decoding import Prediction
    from bothways.tasks.fill import Guess
    from bothways.tasks.scores import Scores
    from bothways.tasks.tag_decoding import Entity
    from bothways.text.tokenizer.tokenizer import Encoding, Tokenizer
    from bothways.training.callbacks import Callback
    from bothways.training.finetuning.deliver import FineTuneResult, open_run
    from bothways.training.finetuning.estimator import TextClassifier
    from bothways.training.pretraining.result import PretrainingResult

__version__ = "0.1.0"
__all__ = ["Answer", "AttentionWeights", "Callback", "Encoding", "Entity", "FineTuneResult", "Guess", "Hit"]
__all__ += ["InputError", "Prediction", "Predictor", "PretrainingResult", "Scores", "Store", "TextClassifier"]
__all__ += ["Tokenizer", "check", "evaluate", "finetune", "load", "open_run", "settings", "train"]
_MODULES = {
    "Answer": "tasks.answer_decoding",
    "AttentionWeights": "measure.report.attention_map",
    "Callback": "training.callbacks",
    "Encoding": "text.tokenizer.tokenizer",
    "Entity": "tasks.tag_decoding",
    "Guess": "tasks.fill",
    "Hit": "search.store",
    "FineTuneResult": "training.finetuning.deliver",
    "InputError": "base.errors",
    "Prediction": "tasks.class_decoding",
    "Predictor": "inference.predictor",
    "PretrainingResult": "training.pretraining.result",
    "Scores": "tasks.scores",
    "Store": "search.store",
    "TextClassifier": "training.finetuning.estimator",
    "Tokenizer": "text.tokenizer.tokenizer",
    "check": "api",
    "evaluate": "api",
    "finetune": "api",
    "load": "inference.load",
    "open_run": "training.finetuning.deliver",
    "train": "api",
}


def __getattr__(name: str) -> Any:
    if name == "settings":
        return import_module("bothways.settings")
    if name not in _MODULES:
        raise AttributeError(f"module 'bothways' has no attribute {name!r}")
    return getattr(import_module(f"bothways.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
