"""Settings -> the task that runs them."""

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


def train(settings: Any) -> Any:
    """Run what a settings dataclass of bothways.settings asks for; what the verbs pretrain and finetune do."""
    if type(settings) not in TASKS:
        known = ", ".join(kind.__name__ for kind in TASKS)
        raise InputError(f"{type(settings).__name__} is no training; give one of bothways.settings: {known}")
    return import_module(f"bothways.tasks.{TASKS[type(settings)]}").run(settings)
