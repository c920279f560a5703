"""The fine-tuning tasks by their settings, and a run of any of them. A new task is one file and one entry."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bothways.checkpoint import checkpoint
from bothways.checkpoint.contents import Checkpoint, check_plain
from bothways.checkpoint.new_head import check_head_supported
from bothways.data.pairs import read_pairs
from bothways.data.split_tables import read_tables
from bothways.data.tables import RowErrors
from bothways.distillation.student import copy_layers
from bothways.errors import InputError
from bothways.finetuning import finetune
from bothways.finetuning.finetune import FineTuneResult
from bothways.log import logger
from bothways.model.model import Model
from bothways.settings import Answer, Classify, FineTune, Regress, Tag, TrainEmbed
from bothways.tasks.answer import Answering
from bothways.tasks.classify import Classification
from bothways.tasks.embed import Embedding
from bothways.tasks.regress import Regression
from bothways.tasks.tag import Tagging
from bothways.tasks.tag_examples import read_splits
from bothways.tasks.training_task import TrainingTask
from bothways.training.run import Callbacks


@dataclass(frozen=True)
class TaskKind:
    """How to build a task.

    build: from its settings, the pre-trained model, and in cross-validation a fold, whose rows are the test split.
    head: the head that the model's family must be able to save; "" for a task without one.
    """

    build: Callable[[Any, Checkpoint, int | None], TrainingTask]
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


def load_initial_model(model: Path, keep_layers: Sequence[int] = ()) -> Checkpoint:
    """A checkpoint with the layers to keep; without any, all. InputError for layers that it does not have."""
    pretrained = checkpoint.load(model)
    return with_layers(pretrained, keep_layers) if keep_layers else pretrained


def with_layers(source: Checkpoint, layers: Sequence[int]) -> Checkpoint:
    """A checkpoint with these layers only, counted from 0, and the same embeddings and heads."""
    check_plain(source.model)
    config = source.model.config
    listed = " ".join(map(str, layers))
    if wrong := [layer for layer in layers if not 0 <= layer < config.num_hidden_layers]:
        raise InputError(f"keep_layers ({wrong[0]}): the model has layers 0 to {config.num_hidden_layers - 1}")
    if list(layers) != sorted({*layers}):
        raise InputError(f"keep_layers ({listed}) must be in ascending order, each once")
    if config.num_layer_groups or config.full_attention_every > 1 or config.direction == "halves":
        raise InputError(f"keep_layers ({listed}): the layers of this model differ in attention or share weights")
    old = source.model
    model = Model(config.replace(num_hidden_layers=len(layers)), old.num_outputs, pooler=old.pooler is not None)
    copy_layers(old, model, layers, torch.arange(config.vocab_size))
    logger.info(f"kept {len(layers)} of {config.num_hidden_layers} layers: {listed}")
    return replace(source, model=model)


def run(settings: FineTune, *, callbacks: Callbacks = ()) -> FineTuneResult:
    """Fine-tune a model; reports on test if there is one, else on dev."""
    kind, pretrained = TASKS[type(settings)], load_initial_model(settings.model, settings.keep_layers)
    if kind.head:
        check_head_supported(pretrained, kind.head, settings.model)
    else:
        check_plain(pretrained.model)
    return finetune.run(settings, lambda settings, fold: kind.build(settings, pretrained, fold), callbacks)
