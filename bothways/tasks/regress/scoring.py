"""Regression: the loss, the scores of predictions, and the evaluator.

Letters: N texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bothways.measure import metrics
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.task import split_pairs
from bothways.tasks.text_rows import TextEvaluator, TextRow
from bothways.tasks.training_task import LabelObjective, Metrics, Scoring
from bothways.text.batch import Batch
from bothways.text.data.labels import numeric_labels

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.tasks.regress.training import Regression
    from bothways.tasks.task import LoadedModel


@dataclass(frozen=True)
class NumberObjective(LabelObjective):
    """Squared error of standardized numbers."""

    target = "numbers"

    def forward(self, module: Any, batch: Batch) -> Tensor:
        """The number of each text, [N, 1]."""
        from bothways.tasks.forward import text_scores

        return text_scores(module, batch)

    def label_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.tasks.losses import number_loss

        assert batch.labels is not None
        is_labelled_N = ~batch.labels.isnan()
        return number_loss(outputs[is_labelled_N], batch.labels[is_labelled_N])

    def teacher_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.tasks.losses import number_loss

        assert batch.soft_labels is not None
        return number_loss(outputs, batch.soft_labels)


@dataclass(frozen=True)
class NumberEvaluator(TextEvaluator[float]):
    """Regression: rank and linear correlation, and errors."""

    primary = "spearman"
    secondary = "pearson"

    def predict(self, model: LoadedModel, rows: Sequence[TextRow]) -> list[float]:
        scores: list[float] = model.regress(*split_pairs(rows)).tolist()
        return scores

    def agree(self, predictions: Sequence[float], reference: Sequence[float] | None) -> Scores:
        assert reference is not None
        return self.compare(reference, predictions, intervals=False)

    scores = staticmethod(metrics.regression)
    intervals = staticmethod(metrics.regression_intervals)


@dataclass(frozen=True)
class NumberScoring(Scoring):
    """Numbers of texts, [N], on the original scale."""

    trivial_baseline: ClassVar[str] = "mean"
    has_row_losses: ClassVar[bool] = True
    evaluator = NumberEvaluator()
    task: Regression

    @property
    def metric(self) -> str:
        return self.task.settings.metric

    def outputs(self, model: Model, split: str) -> np.ndarray:
        """The number for each text, float64 [N], computed with the head as it will be saved."""
        head = model.heads["classes"]
        self.task.scaling.finalize(model)
        try:
            scores_N1 = np.stack(super().outputs(model, split))
        finally:
            model.heads["classes"] = head
        return scores_N1[:, 0].astype(np.float64)

    def compute_metrics(self, split: str, outputs: np.ndarray) -> Metrics:
        """The loss is computed on standardized numbers, the mean squared error on the original ones."""
        gold = numeric_labels(self.task.tables[split])
        scores = self.evaluator.compare(gold, outputs.tolist(), intervals=False).by_name
        return {"loss": float(self.row_losses(split, outputs).mean()), **scores, "baseline": 0.0}

    def row_losses(self, split: str, outputs: np.ndarray) -> Tensor:
        import torch

        errors_N = (outputs - self.task.mean) / self.task.deviation - self.task.data[split].targets
        return torch.from_numpy(errors_N**2)

    def predictions(self, split: str, outputs: np.ndarray) -> Predictions:
        table = self.task.tables[split]
        gold = numeric_labels(table)
        return Predictions(
            where=[*table.where],
            gold=gold,
            predicted=outputs.tolist(),
            groups=table.units,
            details=[None] * len(gold),
        )
