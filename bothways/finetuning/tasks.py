"""Start from some layers of a model only."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from bothways.checkpoint.contents import Checkpoint, check_plain
from bothways.distillation.student import copy_layers
from bothways.errors import InputError
from bothways.log import logger
from bothways.model.model import Model


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
