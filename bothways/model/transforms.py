"""Changes of a model for its training: adapters, fake int8 layers, scaled outputs.

A transform is applied to the initial model, before its training and before stored weights are loaded into it, and
finalized in the trained model, before that is saved. No other part of a run depends on it.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bothways.model.adapters.install import install
from bothways.model.adapters.spec import AdapterSpec
from bothways.model.families import FamilySpec
from bothways.model.heads import ClassificationHead
from bothways.model.int8_training import deploy_fake_int8, fake_layers, install_fake_int8
from bothways.model.model import Model


class Transform:
    """A change of a model. A subclass overrides what it needs."""

    def apply(self, model: Model) -> None:
        """Change the initial model, in place."""

    def finalize(self, model: Model) -> None:
        """Change the trained model, in place, into the one to be saved."""

    @property
    def stored(self) -> Mapping[str, Any]:
        """Metadata for the saved model, as JSON."""
        return {}


def apply_all(transforms: Sequence[Transform], model: Model) -> None:
    """Change the initial model, in place, in this order."""
    for transform in transforms:
        transform.apply(model)


def finalize_all(transforms: Sequence[Transform], model: Model) -> dict[str, Any]:
    """Finalize in the reverse order. Returns the metadata to store."""
    for transform in reversed(transforms):
        transform.finalize(model)

    stored: dict[str, Any] = {}
    for transform in transforms:
        stored.update(transform.stored)
    return stored


@dataclass(frozen=True)
class AddAdapter(Transform):
    """Only an adapter and the head are trained."""

    spec: AdapterSpec
    family: FamilySpec
    seed: int

    def apply(self, model: Model) -> None:
        install(model, self.spec, self.family, self.seed)


@dataclass(frozen=True)
class FakeInt8(Transform):
    """Layers that compute as int8 layers from the moment they are calibrated, and become such layers at the end."""

    def apply(self, model: Model) -> None:
        install_fake_int8(model)

    def finalize(self, model: Model) -> None:
        # A training that ends before the calibration has float layers still.
        is_calibrated = any(layer.is_on for layer in fake_layers(model).values())
        if is_calibrated:
            deploy_fake_int8(model.eval())

    @property
    def stored(self) -> Mapping[str, Any]:
        return {"quantize": {"method": "int8, trained"}}


@dataclass(frozen=True)
class DivideScores(Transform):
    """The scores of a head on texts are divided by a temperature, in its last layer."""

    temperature: float

    def finalize(self, model: Model) -> None:
        head = model.heads["classes"]
        assert isinstance(head, ClassificationHead)
        with torch.no_grad():
            head.output.weight.div_(self.temperature)
            head.output.bias.div_(self.temperature)


@dataclass(frozen=True)
class ScaleOutputs(Transform):
    """A head that is trained on standardized numbers, (number - mean) / deviation, predicts the original ones."""

    mean: float
    deviation: float

    def finalize(self, model: Model) -> None:
        # In float32: in bf16 a mean of 2,000 would be rounded to a multiple of 8.
        head = deepcopy(model.heads["classes"]).float()
        assert isinstance(head, ClassificationHead)
        with torch.no_grad():
            head.output.weight.mul_(self.deviation)
            head.output.bias.mul_(self.deviation).add_(self.mean)
        model.heads["classes"] = head


@dataclass(frozen=True)
class RestorePooler(Transform):
    """The pooler, which published checkpoints contain although sentence vectors do not use it, is saved again."""

    pooler: nn.Module | None

    def finalize(self, model: Model) -> None:
        model.pooler = deepcopy(self.pooler)
