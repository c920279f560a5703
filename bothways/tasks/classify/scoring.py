"""Classification: the loss, the scores of predictions, and the evaluators.

Letters: N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bothways.base.errors import InputError, format_count
from bothways.measure import metrics
from bothways.tasks import training_task
from bothways.tasks.arrays import NO_LABEL, Floats, sigmoid, softmax, top_k
from bothways.tasks.class_decoding import EVEN, Calibration, fit_calibration, fit_temperature
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.task import split_pairs
from bothways.tasks.text_rows import TextEvaluator, TextRow
from bothways.text.batch import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.tasks.classify.training import Classification
    from bothways.tasks.task import LoadedModel

NUM_STORED = 100  # most probable classes of a text whose probabilities are stored
NEGLIGIBLE = 0.01  # mean cross-entropy: nearly all texts have a probability of 99 %


@dataclass(frozen=True)
class ClassObjective(training_task.LabelObjective):
    """Cross-entropy of the classes, or binary cross-entropy of each label; the classes may have weights [C]."""

    weights_C: Floats
    multi_label: bool
    target = "classes"
    negligible_loss: ClassVar[float] = NEGLIGIBLE

    def num_targets(self, batch: Batch) -> int:
        assert batch.labels is not None
        return batch.labels.numel()

    def forward(self, module: Any, batch: Batch) -> Tensor:
        """Scores of each text, [N, C]."""
        from bothways.tasks.forward import text_scores

        return text_scores(module, batch)

    def label_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        assert batch.labels is not None
        if not self.multi_label:
            return self.loss(outputs, batch.labels)
        is_labelled_N = batch.labels[:, 0] != NO_LABEL
        return self.loss(outputs[is_labelled_N], batch.labels[is_labelled_N])

    def teacher_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.model.losses import logits_loss
        from bothways.tasks.losses import multi_label_distance

        assert batch.soft_labels is not None
        loss = multi_label_distance if self.multi_label else logits_loss
        return loss(outputs, batch.soft_labels, training_task.TEACHER_TEMPERATURE)

    def loss(self, scores_NC: Tensor, targets: Tensor) -> Loss:
        import torch

        from bothways.tasks.losses import multi_label_loss, weighted_class_loss

        loss = multi_label_loss if self.multi_label else weighted_class_loss
        return loss(scores_NC, targets, torch.from_numpy(self.weights_C).to(scores_NC))


def balanced_weights(targets: np.ndarray, num_classes: int, *, multi_label: bool) -> Floats:
    """Weight of each class, [C], inversely proportional to its frequency; of a label, its negatives per positive."""
    if multi_label:
        weights_C = (1 - targets).sum(0).clip(1) / targets.sum(0).clip(1)
    else:
        counts = np.bincount(targets, minlength=num_classes).clip(1)  # a fold may lack a rare label
        weights_C = len(targets) / (num_classes * counts)
    return weights_C.astype(np.float32)


@dataclass(frozen=True)
class ClassEvaluator(TextEvaluator[str | None]):
    """Classification: accuracy, F1, Matthews correlation; of the answered texts, if some are refused (None).

    positive: the label that `f1` is computed for. thresholds: options of `Predictor.classify` for which texts are
    refused.
    """

    primary = "accuracy"
    secondary = "f1_macro"
    positive: str | None = None
    thresholds: Mapping[str, Any] = field(default_factory=dict)

    def predict(self, model: LoadedModel, rows: Sequence[TextRow]) -> list[str | None]:
        return [prediction.label for prediction in model.classify(*split_pairs(rows), **self.thresholds)]

    def compare(self, gold: Any, predictions: Any, units: Any = None, *, intervals: bool = True) -> Scores:
        """With refused texts, or thresholds that refuse none: also `answered`, the share of texts with a prediction.

        InputError if all are refused.
        """
        answered = [row for row, label in enumerate(predictions) if label is not None]
        if len(answered) == len(gold) and not self.thresholds:
            return super().compare(gold, predictions, units, intervals=intervals)
        if not answered:
            asked = ", ".join(f"{name} {value:g}" for name, value in self.thresholds.items()) or "predictions"
            raise InputError(f"{asked}: every one of {format_count(len(gold), 'text')} is refused; ask for less")
        rows = [range(len(gold)) if column is None else column for column in (gold, predictions, units)]
        scores = super().compare(*([column[row] for row in answered] for column in rows), intervals=intervals)
        return replace(
            scores,
            by_name={**scores.by_name, "answered": len(answered) / len(gold)},
            counts={**scores.counts, "texts": len(gold), "refused": len(gold) - len(answered)},
        )

    def scores(self, gold: Any, predictions: Any) -> Mapping[str, Any]:
        return metrics.classification(gold, predictions, positive=self.positive)

    def intervals(self, gold: Any, predictions: Any, units: Any) -> metrics.Intervals:
        return metrics.classification_intervals(gold, predictions, positive=self.positive, groups=units)


@dataclass(frozen=True)
class LabelSetEvaluator(TextEvaluator[Collection[str]]):
    """Multi-label classification: F1, and accuracy of whole sets. names: all labels. thresholds: options of
    `Predictor.classify`, on which the labels of a text depend."""

    primary = "f1_micro"
    secondary = "accuracy"
    names: Sequence[str]
    thresholds: Mapping[str, Any] = field(default_factory=dict)

    def predict(self, model: LoadedModel, rows: Sequence[TextRow]) -> list[Collection[str]]:
        return [prediction.labels for prediction in model.classify(*split_pairs(rows), **self.thresholds)]

    def scores(self, gold: Any, predictions: Any) -> Mapping[str, Any]:
        return metrics.multi_label(gold, predictions, self.names)

    intervals = staticmethod(metrics.multi_label_intervals)


@dataclass(frozen=True)
class ClassScoring(training_task.Scoring):
    """Scores of classes, [N, C]. cuts_C: of a multi-label task, the score above which a text has each label; None: 0,
    which is an even chance."""

    has_row_losses: ClassVar[bool] = True
    task: Classification
    cuts_C: Floats | None = None

    def outputs(self, model: Model, split: str) -> Floats:
        """Scores of each text, [N, C]."""
        return np.stack(super().outputs(model, split))

    def compute_metrics(self, split: str, outputs: Floats) -> training_task.Metrics:
        import torch

        targets = self.task.data[split].targets
        unweighted = replace(self.task.objective, weights_C=np.ones(len(self.task.names), np.float32))
        total, count = unweighted.loss(torch.from_numpy(outputs), torch.from_numpy(targets))
        scores = self.label_metrics(targets, self.decide(outputs))
        baseline = self.trivial_metrics(targets)[self.metric]
        return {"loss": float(total) / count, **scores, "baseline": baseline}

    def decide(self, scores_NC: Floats) -> np.ndarray:
        """The predicted class of each text [N], or whether it has each label [N, C]."""
        decisions: np.ndarray = scores_NC.argmax(-1)
        if self.task.settings.multi_label:
            decisions = scores_NC > (0 if self.cuts_C is None else self.cuts_C)
        return decisions

    def decided_by(self, calibration: Calibration | None) -> ClassScoring:
        if calibration is None or not calibration.thresholds:
            return self
        thresholds_C = np.array(calibration.thresholds)
        return replace(self, cuts_C=calibration.temperature * np.log(thresholds_C / (1 - thresholds_C)))

    def score(self, scores_NC: Floats, targets: np.ndarray) -> float:
        """The metric of the decisions for these scores."""
        value: float = self.label_metrics(targets, self.decide(scores_NC))[self.metric]
        return value

    def label_metrics(self, gold: np.ndarray, predicted: np.ndarray) -> training_task.Metrics:
        return self.evaluator.compare(self.to_names(gold), self.to_names(predicted), intervals=False).by_name

    @property
    def metric(self) -> str:
        return self.task.settings.metric or ("f1_micro" if self.task.settings.multi_label else "accuracy")

    @property
    def evaluator(self) -> TextEvaluator[Any]:
        names = self.task.names
        settings = self.task.settings
        if settings.multi_label:
            return LabelSetEvaluator(names)
        return ClassEvaluator((settings.positive or names[-1]) if len(names) == 2 else None)

    def trivial_metrics(self, gold: np.ndarray) -> training_task.Metrics:
        """Metrics of always predicting the most frequent class (or label set) of train."""
        targets = self.task.data["train"].targets
        if not self.task.settings.multi_label:
            return self.label_metrics(gold, np.full_like(gold, np.bincount(targets).argmax()))
        label = np.zeros_like(gold)
        label[:, targets.sum(0).argmax()] = 1
        sets, counts = np.unique(targets, axis=0, return_counts=True)  # most texts may have no label
        candidates = (label, np.broadcast_to(sets[counts.argmax()], gold.shape))
        scores = [self.label_metrics(gold, predicted) for predicted in candidates]
        return max(scores, key=lambda values: values[self.metric])

    def to_names(self, labels: np.ndarray) -> list[Any]:
        """Names of class indices [N], or sets of names of labels [N, C]."""
        if self.task.settings.multi_label:
            return [
                frozenset(name for name, has_label in zip(self.task.names, row, strict=True) if has_label)
                for row in labels.tolist()
            ]
        return [self.task.names[label] for label in labels]

    def predictions(self, split: str, outputs: Floats) -> Predictions:
        """details: probabilities, by name, of the gold labels and of the NUM_STORED most probable ones."""
        multi_label = self.task.settings.multi_label
        gold = self.to_names(self.task.data[split].targets)
        predicted = self.to_names(self.decide(outputs))

        probabilities_NC = (sigmoid if multi_label else softmax)(outputs)
        best = top_k(probabilities_NC, NUM_STORED).tolist()
        index_by_name = {name: index for index, name in enumerate(self.task.names)}

        details = []
        for probabilities_C, best_labels, labels in zip(probabilities_NC, best, gold, strict=True):
            gold_labels = [index_by_name[name] for name in (labels if multi_label else [labels])]
            stored = [*dict.fromkeys([*gold_labels, *best_labels])]
            names = [self.task.names[label] for label in stored]
            details.append(dict(zip(names, probabilities_C[stored].tolist(), strict=True)))

        if multi_label:
            gold = [*map(sorted, gold)]
            predicted = [*map(sorted, predicted)]

        table = self.task.tables[split]
        return Predictions(
            where=[*table.where],
            gold=gold,
            predicted=predicted,
            groups=table.units,
            details=details,
        )

    def row_losses(self, split: str, outputs: Floats) -> Tensor:
        """At the temperature that suits the scores, since a model that is calibrated later is not worse for its
        confidence."""
        import torch
        import torch.nn.functional as F

        labels = self.task.data[split].targets
        temperature = fit_temperature(outputs, labels, multi_label=self.task.settings.multi_label)
        scaled_NC = torch.from_numpy(outputs) / temperature
        targets = torch.from_numpy(labels)
        if self.task.settings.multi_label:
            losses_NC = F.binary_cross_entropy_with_logits(scaled_NC, targets.float(), reduction="none")
            return losses_NC.mean(-1)
        return F.cross_entropy(scaled_NC, targets, reduction="none")

    def calibrate(self, split: str, outputs: Floats) -> Calibration | None:
        multi_label = self.task.settings.multi_label
        targets = self.task.data[split].targets
        calibration = fit_calibration(outputs, targets, multi_label=multi_label)
        if not multi_label:
            return calibration
        from bothways.tasks.label_thresholds import fit_thresholds

        def score(gold_NC: np.ndarray, decided_NC: np.ndarray) -> float:
            return float(self.label_metrics(gold_NC, decided_NC)[self.metric])

        thresholds_C = fit_thresholds(sigmoid(outputs / calibration.temperature), targets, score)
        if (thresholds_C == EVEN).all():
            return calibration
        return replace(calibration, thresholds=[round(value, 4) for value in thresholds_C.tolist()])

    def calibrate_folds(self, predictions: Predictions) -> Calibration | None:
        if self.task.settings.multi_label or len(self.task.names) > NUM_STORED:
            return None
        probabilities_NC = np.array(
            [[details[name] for name in self.task.names] for details in predictions.details], np.float32
        )
        index_by_name = {name: index for index, name in enumerate(self.task.names)}
        targets = np.array([index_by_name[name] for name in predictions.gold])
        calibration = fit_calibration(np.log(probabilities_NC.clip(min=1e-30)), targets, multi_label=False)
        return replace(calibration, is_cross=True)

    def calibration_error(self, split: str, outputs: Floats) -> float | None:
        if self.task.settings.multi_label:
            return None
        is_correct = (self.decide(outputs) == self.task.data[split].targets).tolist()
        return metrics.reliability(softmax(outputs).max(-1).tolist(), is_correct).error
