"""Training of a regression model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from bothways.base.errors import InputError
from bothways.settings.finetune import Regress
from bothways.tasks.linear_baselines import fit_linear_baselines, fit_tfidf, predict_out_of_fold
from bothways.tasks.regress.report import NumberReport
from bothways.tasks.regress.scoring import NumberObjective, NumberScoring
from bothways.tasks.scores import Predictions
from bothways.tasks.text_examples import TextExamples
from bothways.tasks.texts import HeadInput, TextTask
from bothways.tasks.training_task import Baseline, TrainingTask, check_task
from bothways.text.data.columns import Table
from bothways.text.data.labels import numeric_labels
from bothways.text.data.quality import table_warnings

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.linear.linear_head import RowLoss
    from bothways.model.model import Model
    from bothways.model.transforms import ScaleOutputs, Transform

# Distance of neighbouring float32 numbers, in standard deviations of the training numbers.
COARSE = 0.001  # a warning
TOO_COARSE = 0.1  # an error


@dataclass(frozen=True)
class Regression(TextTask):
    """Texts or text pairs with numbers, which are standardized for training: (number - mean) / deviation.

    A transform folds mean and deviation into the head, so that the saved model predicts the original numbers.
    """

    name: ClassVar[str] = "regress"
    no_label: ClassVar[float] = np.nan
    min_folded_rows: ClassVar[float] = 8  # type: ignore[misc]
    settings: Regress
    pretrained: Checkpoint
    tables: Mapping[str, Table]
    data: Mapping[str, TextExamples]
    mean: float
    deviation: float
    reads: HeadInput | None = None

    @classmethod
    def build(cls, settings: Regress, pretrained: Checkpoint, tables: Mapping[str, Table]) -> Regression:
        targets = {split: np.array(numeric_labels(table)) for split, table in tables.items()}
        mean = float(targets["train"].mean())
        deviation = float(targets["train"].std())
        task = cls(settings, pretrained, tables, data={}, mean=mean, deviation=deviation)
        task.check_numbers(targets["train"])
        standardized = {split: ((numbers - mean) / deviation).astype(np.float32) for split, numbers in targets.items()}
        return task.with_targets(standardized)

    def check_numbers(self, numbers: np.ndarray) -> None:
        """InputError if nothing can be learned from these targets."""
        if not np.ptp(numbers):
            raise InputError(f"{self.settings.train}: all numbers are {self.mean:g}; there is nothing to learn")
        if float32_spacing(numbers) > TOO_COARSE * self.deviation:
            raise InputError(
                f"{self.settings.train}: {describe_rounding(numbers)}, too coarse to tell them apart; subtract a "
                f"constant such as {self.mean:.6g} from all numbers, or scale them"
            )

    def initial_checkpoint(self, seed: int) -> Checkpoint:
        return self.with_text_head((), seed)

    num_outputs = 1

    @property
    def row_loss(self) -> RowLoss:
        from bothways.tasks.losses import number_loss

        return number_loss

    def outputs_of(self, scores_NC: np.ndarray) -> np.ndarray:
        """Numbers on the original scale, [N]."""
        numbers_N: np.ndarray = scores_NC[:, 0].astype(np.float64) * self.deviation + self.mean
        return numbers_N

    @property
    def output_scale(self) -> float:
        return self.deviation

    def fit_head(self, model: Model, splits: Sequence[str] = ("train",)) -> None:
        from bothways.tasks.linear_start import fit_text_head
        from bothways.tasks.losses import number_loss

        fit_text_head(model, self.frozen, number_loss, splits)

    @property
    def objective(self) -> NumberObjective:
        return NumberObjective()

    def read_by(self, teacher: Checkpoint) -> Regression:
        """With numbers that are not standardized, as a saved model predicts them."""
        check_task(teacher, self.name, self.settings.teacher)
        return replace(self, pretrained=teacher, data=self.encode_for(teacher), mean=0.0, deviation=1.0)

    def soft_labels(self, reader: TrainingTask, outputs: np.ndarray) -> list[Tensor]:
        import torch

        return [*torch.from_numpy((outputs - self.mean) / self.deviation).float()]

    linear_kind = "number"

    def baselines(self, split: str, *, words: bool = True) -> Iterator[Baseline]:
        for name, scores_N1, model in fit_linear_baselines(self, split, words=words):
            scaled = model and model.scaled(self.deviation, self.mean)
            yield Baseline(name, self.scoring.predictions(split, self.outputs_of(scores_N1)), scaled)

    def out_of_fold(self) -> Predictions | None:
        return predict_out_of_fold(self)

    @property
    def transforms(self) -> Sequence[Transform]:
        return (self.scaling,)

    @property
    def scaling(self) -> ScaleOutputs:
        from bothways.model.transforms import ScaleOutputs

        return ScaleOutputs(self.mean, self.deviation)

    tfidf_model = cached_property(fit_tfidf)
    scoring = cached_property(NumberScoring)
    report = cached_property(NumberReport)

    def describe_targets(self, split: str) -> str:
        low, median, high = np.percentile(numeric_labels(self.tables[split]), [0, 50, 100])
        return f"numbers from {low:.9g} to {high:.9g}, median {median:.9g}"

    def find_warnings(self) -> list[str]:
        """Warnings about the rows, and about numbers that float32 rounds."""
        train_N = np.array(numeric_labels(self.tables["train"]))
        warnings = table_warnings(self.tables, numeric_labels)
        if float32_spacing(train_N) > COARSE * float(train_N.std()):
            hint = "predictions are rounded to that; to avoid it, subtract a constant from all numbers"
            warnings = [*warnings, f"{describe_rounding(train_N)}: {hint}"]
        return warnings


def float32_spacing(numbers_N: np.ndarray) -> float:
    """Distance of neighbouring float32 numbers at the largest of these numbers."""
    return float(np.spacing(np.float32(abs(numbers_N).max())))


def describe_rounding(numbers_N: np.ndarray) -> str:
    spacing = float32_spacing(numbers_N)
    deviation = numbers_N.std()
    return (
        f"float32 numbers near {abs(numbers_N).max():.10g} are {spacing:g} apart, {spacing / deviation:.1%} of these "
        f"numbers' standard deviation ({deviation:g})"
    )
