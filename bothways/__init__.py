"""Bothways, the whole life of a BERT: pre-train, fine-tune, evaluate, predict, quantize, export.

Public names are imported when they are first used, so that `import bothways` is fast and loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `as` makes a name public for type checkers, which do not compute __all__
    from bothways import settings as settings
    from bothways.api import check as check
    from bothways.api import evaluate as evaluate
    from bothways.api import finetune as finetune
    from bothways.api import train as train
    from bothways.base.errors import InputError as InputError
    from bothways.inference.explanation import Explanation as Explanation
    from bothways.inference.load import load as load
    from bothways.inference.predictor import Predictor as Predictor
    from bothways.measure.report.attention_map import AttentionWeights as AttentionWeights
    from bothways.search.store import Hit as Hit
    from bothways.search.store import Store as Store
    from bothways.tasks.answer.decoding import Answer as Answer
    from bothways.tasks.class_decoding import Prediction as Prediction
    from bothways.tasks.fill.decoding import Guess as Guess
    from bothways.tasks.scores import Scores as Scores
    from bothways.tasks.tag.decoding import Entity as Entity
    from bothways.text.tokenizer.encoding import Encoding as Encoding
    from bothways.text.tokenizer.tokenizer import Tokenizer as Tokenizer
    from bothways.training.callbacks import Callback as Callback
    from bothways.training.finetuning.deliver import FineTuneResult as FineTuneResult
    from bothways.training.finetuning.deliver import open_run as open_run
    from bothways.training.finetuning.estimator import TextClassifier as TextClassifier
    from bothways.training.pretraining.result import PretrainingResult as PretrainingResult

__version__ = "0.1.0"
# The module of each public name.
_MODULES = {
    "Answer": "tasks.answer.decoding",
    "AttentionWeights": "measure.report.attention_map",
    "Callback": "training.callbacks",
    "Encoding": "text.tokenizer.encoding",
    "Entity": "tasks.tag.decoding",
    "Explanation": "inference.explanation",
    "FineTuneResult": "training.finetuning.deliver",
    "Guess": "tasks.fill.decoding",
    "Hit": "search.store",
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
__all__ = sorted((*_MODULES, "settings"))


def __getattr__(name: str) -> Any:
    if name == "settings":
        return import_module("bothways.settings")
    if name not in _MODULES:
        raise AttributeError(f"module 'bothways' has no attribute {name!r}")
    return getattr(import_module(f"bothways.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
