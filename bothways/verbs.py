"""Settings -> the function that runs them: bothways.train and bothways.evaluate."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bothways import settings
from bothways.errors import InputError
from bothways.settings import Evaluate

if TYPE_CHECKING:
    from bothways.evaluation.scores import Scores

TASKS = {
    settings.Pretrain: "pretraining.pretrain",
    settings.Classify: "finetuning.classify",
    settings.Regress: "finetuning.regress",
    settings.Tag: "finetuning.tag",
    settings.Answer: "finetuning.answer",
    settings.TrainEmbed: "finetuning.embed",
}


def train(settings: Any, *, progress: Callable[[Mapping[str, Any]], None] | None = None) -> Any:
    """Run what a settings dataclass of bothways.settings asks for; what the verbs pretrain and finetune do.

    Its corpus, heldout, train, dev and test may be paths or tables in memory: dicts (one a row), a dict of columns, a
    pandas DataFrame, an Arrow table, a Dataset of `datasets`, or whatever else gives Arrow data. A list of
    strings is paths; texts of a corpus are given as {"text": texts}. Rows count from 1 in messages: "train: row 17".

    progress: called in the first process with each row of the run's metrics.jsonl as it is written: `split` ("train"
    after a step, "heldout" after an evaluation), `step`, `loss`, `tokens` and `seconds` of training so far,
    `learning_rate`, `seed` if there are several, and `steps`, the number of steps there will be. What it
    raises ends the run, which can go on with resume=True from its last checkpoint.
    """
    if type(settings) not in TASKS:
        known = ", ".join(kind.__name__ for kind in TASKS)
        raise InputError(f"{type(settings).__name__} is no training; give one of bothways.settings: {known}")
    return import_module(f"bothways.{TASKS[type(settings)]}").run(settings, progress=progress)


def evaluate(settings: Evaluate) -> "Scores":
    """Measure a model as bothways.settings.Evaluate asks; what the verb evaluate does. Scores by name; one with a 95 %
    interval is followed by it as NAME_interval. `file` may be paths or tables in memory, as for `train`."""
    if type(settings) is not Evaluate:
        raise InputError(f"{type(settings).__name__} is no measurement; give bothways.settings.Evaluate")
    from bothways.evaluation.evaluate import run

    return run(settings)
