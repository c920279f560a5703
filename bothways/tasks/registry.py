"""Settings -> the task that runs them."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from bothways import settings
from bothways.errors import InputError

TASKS = {
    settings.Pretrain: "pretrain",
    settings.Classify: "classify",
    settings.Regress: "regress",
    settings.Tag: "tag",
    settings.Answer: "answer",
    settings.TrainEmbed: "embed",
}


def train(settings: Any, *, progress: Callable[[Mapping[str, Any]], None] | None = None) -> Any:
    """Run what a settings dataclass of bothways.settings asks for; what the verbs pretrain and finetune do.

    progress: called in the first process with each row of the run's metrics.jsonl as it is written: `split` ("train"
    after a step, "heldout" after an evaluation), `step`, `loss`, `tokens` and `seconds` of training so far, `rate` (the
    learning rate) and `seed` where there are several; and with `steps`, the number of steps there will be. What it
    raises ends the run, which can go on with resume=True from its last checkpoint.
    """
    if type(settings) not in TASKS:
        known = ", ".join(kind.__name__ for kind in TASKS)
        raise InputError(f"{type(settings).__name__} is no training; give one of bothways.settings: {known}")
    return import_module(f"bothways.tasks.{TASKS[type(settings)]}").run(settings, progress=progress)
