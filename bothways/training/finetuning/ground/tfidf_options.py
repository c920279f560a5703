"""`--model tf-idf`: the settings of a run that trains TF-IDF, and no encoder."""

from collections.abc import Mapping
from dataclasses import fields

from bothways.base.errors import InputError, flag
from bothways.settings.finetune import FineTune
from bothways.tasks import TASKS, task_of

TFIDF = "tf-idf"  # as `model`
NO_STEPS = "is fitted at once, without steps of a training"
NO_WINDOWS = "reads whole texts, without windows"
NO_LAYERS = "has no layers"
NO_TEACHER = "learns from labels, not from a teacher"

# Why an option has no meaning, by its name.
MEANINGLESS: Mapping[str, str] = {
    "adapter": NO_LAYERS,
    "rank": NO_LAYERS,
    "keep_layers": NO_LAYERS,
    "quantize": NO_LAYERS,
    "pooling": NO_LAYERS,
    "teacher": NO_TEACHER,
    "alpha": NO_TEACHER,
    "unlabelled": NO_TEACHER,
    "epochs": NO_STEPS,
    "batch_tokens": NO_STEPS,
    "batch_size": NO_STEPS,
    "learning_rate": NO_STEPS,
    "warmup": NO_STEPS,
    "linear_start": NO_STEPS,
    "dropout": NO_STEPS,
    "evaluations_per_epoch": NO_STEPS,
    "patience": NO_STEPS,
    "window": NO_WINDOWS,
    "long": NO_WINDOWS,
    "seeds": "is the same for all seeds",
}


def trains_tfidf(settings: FineTune) -> bool:
    """Whether the model of the settings is TF-IDF."""
    return str(settings.model) == TFIDF


def check_tfidf(settings: FineTune) -> None:
    """InputError for a task or an option that TF-IDF does not have."""
    task = task_of(settings).name
    if TASKS[task].labelled is None:
        raise InputError(
            f"{flag('model', TFIDF)}: TF-IDF classifies and regresses whole texts, but the task is {task}; name an "
            "encoder, such as bothways-en"
        )

    defaults = {one.name: one.default for one in fields(settings)}
    for name, reason in MEANINGLESS.items():
        value = getattr(settings, name, None)
        if name in defaults and value != defaults[name]:
            raise InputError(
                f"{name} ({value}) has no meaning with {flag('model', TFIDF)}: it {reason}; leave the option out, or "
                "name an encoder, such as bothways-en"
            )
