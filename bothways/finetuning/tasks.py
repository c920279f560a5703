"""The fine-tuning tasks by their settings, and a run of any of them. A new task is one file and one entry."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bothways.checkpoint.contents import Checkpoint, check_plain
from bothways.checkpoint.new_head import check_head_supported
from bothways.data.pairs import read_pairs
from bothways.data.split_tables import read_tables
from bothways.data.tables import RowErrors
from bothways.finetuning import finetune
from bothways.finetuning.answer import Answering
from bothways.finetuning.classify import Classification
from bothways.finetuning.embed import Embedding
from bothways.finetuning.finetune import FineTuneResult
from bothways.finetuning.initial_model import load_initial_model
from bothways.finetuning.regress import Regression
from bothways.finetuning.tag import Tagging
from bothways.finetuning.tag_examples import read_splits
from bothways.finetuning.task import Task
from bothways.settings import Answer, Classify, FineTune, Regress, Tag, TrainEmbed
from bothways.training.run import Callbacks


@dataclass(frozen=True)
class TaskKind:
    """How to build a task.

    build: from its settings, the pre-trained model, and in cross-validation a fold, whose rows are the test split.
    head: the head that the model's family must be able to save; "" for a task without one.
    """

    build: Callable[[Any, Checkpoint, int | None], Task]
    head: str


def build_tagging(settings: Tag, pretrained: Checkpoint, fold: int | None) -> Tagging:
    errors = RowErrors(settings.on_error)
    sentences = read_splits(settings, errors, fold)
    return Tagging.build(settings, pretrained, sentences, errors.notes(len(sentences["train"])))


TASKS: dict[type[FineTune], TaskKind] = {
    Classify: TaskKind(
        lambda settings, model, fold: Classification.build(settings, model, read_tables(settings, fold)), "classes"
    ),
    Regress: TaskKind(
        lambda settings, model, fold: Regression.build(settings, model, read_tables(settings, fold)), "classes"
    ),
    Tag: TaskKind(build_tagging, "tokens"),
    Answer: TaskKind(Answering.build, "spans"),
    TrainEmbed: TaskKind(
        lambda settings, model, fold: Embedding.build(settings, model, read_pairs(settings, fold)), ""
    ),
}


def run(settings: FineTune, *, callbacks: Callbacks = ()) -> FineTuneResult:
    """Fine-tune a model; reports on test if there is one, else on dev."""
    kind, pretrained = TASKS[type(settings)], load_initial_model(settings.model, settings.keep_layers)
    if kind.head:
        check_head_supported(pretrained, kind.head, settings.model)
    else:
        check_plain(pretrained.model)
    return finetune.run(settings, partial(kind.build, settings, pretrained), callbacks)
