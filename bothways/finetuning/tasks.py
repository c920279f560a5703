"""A fine-tuning run of any task, and the model that it starts from."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from bothways.checkpoint import checkpoint
from bothways.checkpoint.changes.new_head import check_head_supported
from bothways.checkpoint.contents import Checkpoint, check_plain
from bothways.errors import InputError
from bothways.finetuning import finetune
from bothways.finetuning.finetune import FineTuneResult
from bothways.log import logger
from bothways.model.model import Model
from bothways.pretraining.distillation.student import copy_layers
from bothways.settings.finetune import FineTune
from bothways.tasks import TASKS, task_of
from bothways.training.run import Callbacks


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
    pretrained, task = load_initial_model(settings.model, settings.keep_layers), task_of(settings)
    if head := TASKS[task.name].head:
        check_head_supported(pretrained, head, settings.model)
    else:
        check_plain(pretrained.model)
    return finetune.run(settings, lambda settings, fold: task.train(settings, pretrained, fold), callbacks)
