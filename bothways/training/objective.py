"""Objective of a training run: the module to train, its outputs for a batch, and their losses."""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import nn

from bothways.batch import Batch
from bothways.model.model import Model
from bothways.training.losses import Loss, Losses


class Objective(Protocol):
    """How a model is trained, independent of data and schedule."""

    def module(self, model: Model, seed: int) -> nn.Module:
        """The module to train, which contains the model. seed: for weights outside the model."""
        ...

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """Number of targets of each loss, from the batch alone."""
        ...

    def forward(self, module: nn.Module, batch: Batch) -> Any:
        """Hidden states [T, H], or other outputs that `losses` needs."""
        ...

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> Mapping[str, Loss]:
        """Each loss by name, as (sum, count)."""
        ...


def forward_losses(objective: Objective) -> Losses:
    """Forward pass and losses as one function of (module, batch), for the training loop."""
    return lambda module, batch: objective.losses(module, batch, objective.forward(module, batch))
