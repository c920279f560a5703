"""Objectives of fine-tuning: the loss of labels, and a teacher's outputs beside it (Hinton 2015)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from bothways.batch import Batch
from bothways.model.model import Model
from bothways.training.losses import Loss
from bothways.training.objective import Objective

TEACHER = "teacher"  # name of the loss of a teacher's outputs
NO_LABEL = -100  # class of a target without a label, which cross-entropy ignores


class LabelObjective(Objective, ABC):
    """The loss of labels. Its targets are texts, words, windows or pairs, with or without a label.

    target: name of the loss. negligible_loss: below which training has nothing left to learn; 0: never.
    """

    target: str
    negligible_loss: ClassVar[float] = 0.0

    def module(self, model: Model, seed: int) -> nn.Module:
        return model

    @abstractmethod
    def num_targets(self, batch: Batch) -> int:
        """Number of targets in a batch."""

    @abstractmethod
    def forward(self, module: Any, batch: Batch) -> Tensor:
        """What the model says about the targets of a batch."""

    @abstractmethod
    def label_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        """The loss of the labels; targets without a label add 0."""

    @abstractmethod
    def teacher_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        """The distance to the teacher's outputs for the targets, `batch.soft_labels`."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.target: self.num_targets(batch)}

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> dict[str, Loss]:
        """The loss of the labels, as (sum, number of targets)."""
        return {self.target: (self.label_loss(outputs, batch)[0], self.num_targets(batch))}


@dataclass(frozen=True)
class Distilled(Objective):
    """alpha * (distance to a teacher's outputs) + (1 - alpha) * (loss of the labels), for batches with soft labels."""

    objective: LabelObjective
    alpha: float

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each loss that is computed."""
        weights = {TEACHER: self.alpha, self.objective.target: 1 - self.alpha}
        return {name: weight for name, weight in weights.items() if weight}

    def module(self, model: Model, seed: int) -> nn.Module:
        return self.objective.module(model, seed)

    def forward(self, module: Any, batch: Batch) -> Tensor:
        return self.objective.forward(module, batch)

    def counts(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(self.weights, self.objective.num_targets(batch))

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> Mapping[str, Loss]:
        num_targets, losses = self.objective.num_targets(batch), {}
        for name, weight in self.weights.items():
            loss = self.objective.teacher_loss if name == TEACHER else self.objective.label_loss
            total, _ = loss(outputs, batch)
            losses[name] = (total if weight == 1 else weight * total), num_targets
        return losses
