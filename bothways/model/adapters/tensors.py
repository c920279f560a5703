"""Tensors in the files of an adapter, compared with the parameters of a model; and a model for them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from bothways.base.errors import InputError
from bothways.model.adapters.files import PEFT_WEIGHTS, AdapterFiles
from bothways.model.checkpoint.weights import Array, shorten
from bothways.model.config import EncoderConfig
from bothways.model.heads import ClassificationHead
from bothways.model.model import Model
from bothways.model.parameters import all_finite, no_init, share


def to_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value) for name, value in arrays.items()}


def take(files: AdapterFiles, stored: dict[str, Tensor], names: list[str]) -> list[Tensor]:
    """Remove tensors from `stored`, and return them. InputError for missing ones."""
    missing = [name for name in names if name not in stored]
    if missing:
        raise InputError(f"{files.directory / PEFT_WEIGHTS}: missing: {shorten(missing)}; download the adapter again")
    return [stored.pop(name) for name in names]


def check(files: AdapterFiles, tensors: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]) -> None:
    """InputError names tensors that are missing, misshapen or not finite."""
    missing = sorted(shapes.keys() - tensors.keys())
    if missing:
        raise InputError(f"{files.directory}: missing parameters: {shorten(missing)}; download the adapter again")

    for name, shape in shapes.items():
        value = tensors[name]
        if value.shape != shape:
            raise InputError(
                f"{files.directory}: {name} is {[*value.shape]}, the model needs {[*shape]}; pass the model "
                "that the adapter was trained on"
            )
        if not value.is_floating_point() or not all_finite(value):
            raise InputError(f"{files.directory}: {name} has values that are no numbers; download the adapter again")


def with_encoder_of(base: Model, config: EncoderConfig, heads: Mapping[str, int]) -> Model:
    """A model with these heads, uninitialized, and an encoder that shares the weights of `base`."""
    # The base's pooler may stay if no head is new.
    keeps_heads = dict(heads) in ({}, base.num_outputs)
    with no_init(base.encoder.embeddings.words.weight.dtype):
        model = Model(config, heads, pooler=base.pooler is not None and keeps_heads)
    for head in model.heads.values():
        if isinstance(head, ClassificationHead):
            head.output.float()  # as `move_model` does
    model.encoder = share(base.encoder)
    return model
