"""Text classification, single-label and multi-label (Devlin 2018, section 4.1)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bothways.base.errors import InputError, RowError, RowLocation, flag, format_count, join_names
from bothways.base.io import is_same_file
from bothways.base.terminal import escape_line
from bothways.measure import metrics, report
from bothways.measure.metrics.classification import indicators
from bothways.measure.metrics.label_errors import doubtful_labels, label_set_errors
from bothways.model.linear.regressions import Kind, Score
from bothways.settings.finetune import Classify
from bothways.settings.predict import Evaluate
from bothways.tasks import training_task
from bothways.tasks.arrays import NO_LABEL, Floats, sigmoid, softmax, top_k
from bothways.tasks.class_decoding import EVEN, Calibration, Prediction, fit_calibration, fit_temperature
from bothways.tasks.linear_baselines import fit_linear_baselines, fit_tfidf, predict_out_of_fold
from bothways.tasks.novelty import scope_of
from bothways.tasks.regress import NumberEvaluator
from bothways.tasks.scores import PROBABILITY, Predictions, Scores, probability_column
from bothways.tasks.task import (
    LIST,
    Item,
    Route,
    fact,
    file_given_twice,
    split_pairs,
)
from bothways.tasks.text_examples import TextExamples
from bothways.tasks.text_rows import TextEvaluator, TextModelTask, TextRow, log_notes
from bothways.tasks.texts import HeadInput, TextTask, TextView
from bothways.text.batch import Batch
from bothways.text.data.columns import Table, has_text_column
from bothways.text.data.examples import read_table
from bothways.text.data.label_cells import list_items, read_labels, spell_labels
from bothways.text.data.labels import class_indices, find_quantity, label_sets, numeric_labels
from bothways.text.data.model_inputs import ModelInput
from bothways.text.data.quality import coverage_warnings, label_warnings, table_warnings
from bothways.text.data.split_tables import read_tables
from bothways.text.rows.rows import read_rows
from bothways.text.rows.text_files import file_type, read_lines

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.checkpoint.scope import Scope
    from bothways.model.linear.linear_head import RowLoss
    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.tasks.task import LoadedModel

LABELS = ("labels", "label", "score")
PREDICTED = ("prediction", "predicted", *LABELS)  # columns of a file of predictions; the first that it has counts
NUM_STORED = 100  # most probable classes of a text whose probabilities are stored
NEGLIGIBLE = 0.01  # mean cross-entropy: nearly all texts have a probability of 99 %
MAX_LISTED = 30  # classes whose counts are listed
NUM_FREQUENT = 5  # classes that are listed if there are more


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


@dataclass(frozen=True)
class ClassView(TextView):
    label_issue_criterion: ClassVar[str] = report.CONFIDENT_LEARNING
    task: Classification

    def sections(self, predictions: Predictions) -> list[report.Section]:
        if self.task.settings.multi_label:
            return [report.LabelScores([*self.label_scores(predictions)])]
        gold = predictions.gold
        predicted = predictions.predicted

        is_correct = [a == b for a, b in zip(gold, predicted, strict=True)]
        confidences = [probabilities[name] for probabilities, name in zip(predictions.details, predicted, strict=True)]
        calibration = metrics.reliability(confidences, is_correct)

        texts = map(self.text_by_location.__getitem__, predictions.where)
        mistakes = [
            report.LabelMistake(
                text=text,
                gold=gold[row],
                predicted=predicted[row],
                probability=confidences[row],
                pair=pair,
                where=predictions.where[row],
            )
            for row, (text, pair) in enumerate(texts)
            if not is_correct[row]
        ]

        confusion = report.ConfusionMatrix.from_names(self.task.names, gold, predicted)
        return [
            confusion,
            report.LabelScores(confusion.scores),
            report.ReliabilityDiagram(calibration.bins, calibration.error),
            report.Refusals(confidences, is_correct),
            report.LabelMistakes(mistakes, len(gold)),
        ]

    def columns(self, predictions: Predictions) -> dict[str, list[Any]]:
        """With a column for the probability of each class; "" for one that is not stored (NUM_STORED)."""
        details = predictions.details
        probabilities = {probability_column(name): [row.get(name, "") for row in details] for name in self.task.names}
        return {**super().columns(predictions), **probabilities}

    def label_scores(self, predictions: Predictions) -> Iterator[report.LabelScore]:
        """Scores of each label of a multi-label task."""
        gold = Counter(chain.from_iterable(predictions.gold))
        predicted = Counter(chain.from_iterable(predictions.predicted))
        rows = zip(predictions.gold, predictions.predicted, strict=True)
        correct = Counter(name for labels, others in rows for name in {*labels} & {*others})
        for name in self.task.names:
            yield report.LabelScore.from_counts(name, correct[name], gold[name], predicted[name])

    def label_issues(self, predictions: Predictions) -> list[report.LabelIssue]:
        find_errors = label_set_errors if self.task.settings.multi_label else doubtful_labels
        issues = []
        for error in find_errors(predictions.gold, predictions.details):
            where = predictions.where[error.row]
            text, pair = self.text_by_location[where]
            issues.append(training_task.label_issue(error, where, text, pair=pair))
        return issues


@dataclass(frozen=True)
class Classification(TextTask):
    """Texts or text pairs with labels, as class indices [N], or 0 and 1 per label [N, C]."""

    name: ClassVar[str] = "classify"
    no_label: ClassVar[float] = NO_LABEL
    settings: Classify
    pretrained: Checkpoint
    names: tuple[str, ...]
    tables: Mapping[str, Table]
    data: Mapping[str, TextExamples]
    reads: HeadInput | None = None

    @classmethod
    def build(cls, settings: Classify, pretrained: Checkpoint, tables: Mapping[str, Table]) -> Classification:
        # In cross-validation some fold trains on each row, and all folds need the same labels.
        labelled = [*tables.values()] if settings.folds else [tables["train"]]
        names = read_label_names(labelled, settings.train, multi_label=settings.multi_label)
        check_metric(settings.metric, settings.positive, names, settings.train, multi_label=settings.multi_label)
        targets = {split: class_targets(table, names, settings.multi_label) for split, table in tables.items()}
        return cls(settings, pretrained, names, tables, {}).with_targets(targets)

    def initial_checkpoint(self, seed: int) -> Checkpoint:
        return self.with_text_head(self.names, seed, multi_label=self.settings.multi_label)

    @property
    def num_outputs(self) -> int:
        return len(self.names)

    @property
    def row_loss(self) -> RowLoss:
        return self.objective.loss

    @property
    def min_folded_rows(self) -> float:  # type: ignore[override]
        return 2 * len(self.names)

    def fit_head(self, model: Model, splits: Sequence[str] = ("train",)) -> None:
        from bothways.tasks.linear_start import fit_text_head

        def score(scores_NC: Tensor, targets: Tensor) -> float:
            return self.scoring.score(scores_NC.numpy(), targets.numpy())

        fit_text_head(model, self.frozen, self.objective.loss, splits, score)

    def scope(self, model: Model, *, is_trained: bool) -> Scope | None:
        return scope_of(model, self.data, is_trained=is_trained)

    @cached_property
    def objective(self) -> ClassObjective:
        settings = self.settings
        targets = self.data["train"].targets
        weights_C = np.ones(len(self.names), np.float32)
        if settings.class_weights != "none":
            weights_C = balanced_weights(targets, len(self.names), multi_label=settings.multi_label)
        return ClassObjective(weights_C, settings.multi_label)

    def read_by(self, teacher: Checkpoint) -> Classification:
        from bothways.tasks.forward import with_labels

        training_task.check_task(teacher, self.name, self.settings.teacher)
        if teacher.multi_label != self.settings.multi_label:
            kind = "several labels" if teacher.multi_label else "one label"
            raise InputError(
                f"{self.settings.teacher}: gives a text {kind}, unlike the student ({flag('multi_label', True)})"
            )
        teacher = with_labels(teacher, "classes", self.names, self.settings.teacher)
        return replace(self, pretrained=teacher, data=self.encode_for(teacher))

    @property
    def linear_kind(self) -> Kind:
        return "labels" if self.settings.multi_label else "classes"

    @property
    def balanced(self) -> bool:
        return self.settings.class_weights == "balanced"

    @property
    def linear_score(self) -> Score:
        return self.scoring.score

    def baselines(self, split: str, *, words: bool = True) -> Iterator[training_task.Baseline]:
        for name, scores_NC, model in fit_linear_baselines(self, split, words=words):
            yield training_task.Baseline(name, self.scoring.predictions(split, scores_NC), model)

    def out_of_fold(self) -> Predictions | None:
        return predict_out_of_fold(self)

    tfidf_model = cached_property(fit_tfidf)
    scoring = cached_property(ClassScoring)
    view = cached_property(ClassView)

    def find_warnings(self) -> list[str]:
        several = self.settings.multi_label
        warnings = table_warnings(self.tables, lambda table: label_sets(table) if several else table.labels or [])
        warnings += label_warnings(self.tables, several)
        if not self.settings.folds and not self.settings.group_column:
            warnings += coverage_warnings(self.tables, self.settings.sources, several)
        return warnings

    def describe_targets(self, split: str) -> str:
        targets = self.data[split].targets
        counts = targets.sum(0) if self.settings.multi_label else np.bincount(targets, minlength=len(self.names))
        return describe_counts(self.names, counts.tolist())


def describe_counts(names: Sequence[str], counts: Sequence[int]) -> str:
    """The number of texts of each class; for many classes, only the most frequent, and the number of rare classes."""
    if len(names) <= MAX_LISTED:
        return ", ".join(f"{escape_line(name)} {count:,}" for name, count in zip(names, counts, strict=True))
    frequent = sorted(zip(names, counts, strict=True), key=lambda pair: -pair[1])[:NUM_FREQUENT]
    listed = ", ".join(f"{escape_line(name)} {count:,}" for name, count in frequent)
    return (
        f"{len(names):,} classes, the most frequent: {listed}; {counts.count(0):,} with no texts, "
        f"{counts.count(1):,} with 1 text"
    )


def read_label_names(tables: Sequence[Table], source: Any, *, multi_label: bool) -> tuple[str, ...]:
    """The sorted names of all labels in these tables. source: of the training data, for messages."""
    if multi_label:
        names = tuple(sorted(set().union(*(labels for table in tables for labels in label_sets(table)))))
        if not names:
            raise InputError(f"{source}: no row has a label")
        return names
    labelled = [row for table in tables for row in zip(table.where, table.labels or [], strict=True)]
    names = tuple(sorted({label for _, label in labelled}))
    if len(names) < 2:
        raise InputError(f"{source}: only one class ({names[0]!r}); a classifier needs at least two")
    return names


def check_metric(
    metric: str | None, positive: str | None, names: Sequence[str], source: object, *, multi_label: bool
) -> None:
    """InputError if the metric or the positive label does not fit the labels."""
    if multi_label and metric in ("f1", "matthews"):
        raise InputError(f"metric ({metric}) is for two classes; use f1_micro with multi-label data")
    if metric == "f1" and len(names) != 2:
        raise InputError(f"metric (f1) is for two classes, but there are {len(names)}; use f1_macro or f1_micro")
    if positive is not None and positive not in names:
        raise InputError(f"positive ({positive!r}) is not a label in {source}: {join_names(names)}")


def class_targets(table: Table, names: Sequence[str], multi_label: bool) -> np.ndarray:
    """The class index of each text, int64 [N], or whether it has each label, [N, C]. InputError for a label that is not
    among the names."""
    targets = indicators(label_sets(table, names), names) if multi_label else class_indices(table, names)
    return np.array(targets, np.int64)


# --- with a model -----------------------------------------------------------------------------------------------------


def class_scores(
    model: LoadedModel,
    items: Sequence[Item],
    reading: Mapping[str, Any],
    *,
    min_score: float | None = None,
    in_scope: float | None = None,
) -> Sequence[Any]:
    """The outputs of the head for classes, before a softmax or sigmoid, float32 [C] per text (or pair); with a
    threshold the predictions, whose labels may be None."""
    if min_score is not None or in_scope is not None:
        return model.classify(*split_pairs(items), min_score=min_score, in_scope=in_scope, **reading)
    parts = model.backend.text_scores("classes", *split_pairs(items), reading)
    return [*np.concatenate([*parts])]


def scored_labels(model: LoadedModel, scores_C: Floats | Prediction, options: Mapping[str, Any]) -> Any:
    """Labels with their scores, the best first; a regression model has one number. (Text Embeddings Inference.) With a
    threshold the prediction as `predict` writes it: that server's clients do not ask for one, nor know a null label."""
    if isinstance(scores_C, Prediction):
        return scores_C.to_json()
    if not model.labels:
        return [{"label": "score", "score": scores_C[0].item()}]
    if not options["raw_scores"]:
        scores_C = label_probabilities(model, scores_C)
    rows = zip(model.labels, scores_C.tolist(), strict=True)
    return [{"score": score, "label": label} for label, score in sorted(rows, key=lambda row: -row[1])]


def label_probabilities(model: LoadedModel, scores_C: Floats) -> Floats:
    return (sigmoid if model.description.multi_label else softmax)(scores_C)


class ClassifyTask(TextModelTask):
    """A label for each text (or pair), or several."""

    name = "classify"
    gold = "labels"
    evaluate_options = ("min_score", "in_scope")
    evaluate_data = "texts with labels"
    options = frozenset({"top", "coverage", "min_score", "in_scope"})
    route = "/predict"
    routes = (
        Route(
            path="/predict",
            summary="Labels of a text (or pair) with their scores, the best first",
            answer=LIST,
            reads="sequences",
            compute=class_scores,
            shares=("min_score", "in_scope"),
            flags=("raw_scores",),
            shape=scored_labels,
        ),
    )

    def train(self, settings: Classify, pretrained: Checkpoint, fold: int | None) -> Classification:
        return Classification.build(settings, pretrained, read_tables(settings, fold))

    def evaluator(
        self, model: LoadedModel, positive: str | None, thresholds: Mapping[str, Any] | None = None
    ) -> TextEvaluator[Any]:
        """positive: by default the positive label of fine-tuning, else the last of two labels.

        InputError if the model does not have the positive label.
        """
        if positive is not None and positive not in model.labels:
            raise InputError(
                f"positive ({positive!r}) is not a label of the model ({join_names(model.labels)}); name one"
            )
        if model.description.multi_label:
            return LabelSetEvaluator(model.labels, thresholds or {})
        default = model.labels[-1] if len(model.labels) == 2 else None
        return ClassEvaluator(positive or model.description.settings.get("positive") or default, thresholds or {})

    def labels(self, model: LoadedModel, table: Table) -> Sequence[Any]:
        if model.description.multi_label:
            return label_sets(table, model.labels)
        class_indices(table, model.labels)  # raises for unknown labels
        return table.labels or []

    def readable(self, model: LoadedModel, table: Table) -> Table:
        return read_labels(table, several=model.description.multi_label, names=model.labels)

    def predict_rows(self, model: LoadedModel, rows: Sequence[ModelInput], **options: Any) -> list[dict[str, Any]]:
        """The most probable label (None for a refused text), its score and the scores of all labels (or the `top`
        best); for multi-label models also the labels above the threshold, and with coverage the prediction set."""
        return [prediction.to_json() for prediction in model.classify(*split_pairs(rows), **options)]

    def columns(self, model: LoadedModel, top: int | None = None, *, has_sets: bool = False) -> dict[str, Any]:
        labels = {"labels": [str]} if model.description.multi_label or has_sets else {}
        scores = (str, float) if top else dict.fromkeys(model.labels, float)
        return {"label": str, **labels, "score": float, "scores": scores}

    def scores_per_row(self, model: LoadedModel, top: int | None) -> int:
        return len(model.labels) if top is None else 1

    def facts(
        self, model: LoadedModel, texts: Sequence[str], question: str, min_score: float | None = None
    ) -> list[list[dict[str, Any]]]:
        found = model.classify(texts, min_score=min_score)
        return [
            [fact("label", one.label, "", start=0, end=0, score=one.score)] if one.label is not None else []
            for one in found
        ]

    def score_file(self, predictions: Path, gold: Path, columns: Evaluate) -> Scores:
        """Labels, sets of labels or numbers of a table, row by row."""
        table = read_table(
            gold,
            text=columns.text_column,
            pair=columns.pair_column,
            label=columns.label_column,
            group=columns.group_column,
            need_labels=True,
            encoding=columns.encoding,
        )

        same = table if is_same_file(predictions, gold) else None
        column, predicted = read_predicted_labels(predictions, columns.encoding, same)
        if len(predicted) != len(table):
            counts = f"{format_count(len(predicted), 'prediction')}, but {gold} has {format_count(len(table), 'row')}"
            raise InputError(f"{predictions}: {counts}; give one prediction per row, in order")

        refused = {where for where, label in predicted if label is None}
        answered = replace(
            table, labels=[label or "" for _, label in predicted], where=[where for where, _ in predicted]
        )

        if columns.task == "regress" or (
            columns.task == "auto" and (column == "score" or (not refused and are_numbers(table, answered)))
        ):
            if refused:
                raise InputError(f"{min(refused)}: {column!r} is missing; give a number for each row")
            return NumberEvaluator().compare(numeric_labels(table), numeric_labels(answered), table.units)

        has_lists = any(list_items(label) is not None for label in table.labels or [])
        several = columns.multi_label or column == "labels" or has_lists

        row_by_location = {where: row for row, where in enumerate(table.where)}
        table = read_labels(table, several=several)
        log_notes(gold, table)

        answered = answered.take([row_by_location[where] for where in table.where])
        is_refused = [where in refused for where in answered.where]
        answered = spell_labels(answered, several=several, names={*(table.labels or [])})

        if several:
            gold_sets = label_sets(table)
            predicted_sets = label_sets(answered)
            names = sorted(frozenset().union(*gold_sets, *predicted_sets))
            return LabelSetEvaluator(names).compare(gold_sets, predicted_sets, table.units)

        labels = [None if refuses else name for name, refuses in zip(answered.labels or [], is_refused, strict=True)]
        return compare_classes(predictions, table, labels, columns.positive)


def read_predicted_labels(
    path: Path, encoding: str | None, gold: Table | None = None
) -> tuple[str, list[tuple[RowLocation, str | None]]]:
    """(name of the column, (location, label) of each row); a list of labels becomes JSON, an empty cell or null None:
    the row is refused. gold: the table with the gold labels, if it is of the same file."""
    if file_type(path) == ".txt":
        lines = enumerate(read_lines(path, encoding))
        return "label", [(RowLocation(path, row, number), line) for row, (number, line) in lines]

    rows = read_rows(path, encoding=encoding)
    columns = dict.fromkeys(name for _, row in rows for name in row)

    by_name = {name.strip().lower(): name for name in columns}
    usual = next((name for name in PREDICTED if name in by_name), None)
    if usual is None:
        available = f"(there are: {', '.join(columns) or 'none'})"
        raise InputError(f"{path}: no column of predictions {available}; name it {' or '.join(PREDICTED)}")

    column = by_name[usual]
    if gold is not None and (gold.columns is None or gold.columns.label == (column,)):
        raise file_given_twice(path, f"both would be its column {column!r}, as no other is named {PREDICTED[0]!r}")

    # `predict --keep-columns text` writes probabilities too.
    has_scores = any(name == "scores" or name.startswith(PROBABILITY) for name in columns)
    if usual in LABELS and has_text_column([*columns]) and not has_scores:
        raise InputError(
            f"{path}: {column!r} next to texts may hold gold labels, not predictions; name the column of predictions "
            f"{PREDICTED[0]!r}"
        )

    for where, row in rows:
        if column not in row:
            raise RowError(where, f"{column!r} is missing; give a prediction for each row")
    return usual, [(where, as_predicted(row[column])) for where, row in rows]


def as_predicted(value: Any) -> str | None:
    """A label as text, several as JSON; None for a cell that is empty."""
    if value is None or value == "":
        return None
    return json.dumps(value) if isinstance(value, list) else str(value)


def are_numbers(gold: Table, predicted: Table) -> bool:
    """Whether the labels are quantities, as in `find_quantity`; or numbers, of which some have a fraction and some
    predictions are no gold label, so that they cannot be names of classes."""
    labels = gold.labels or []
    predictions = predicted.labels or []
    if find_quantity([*labels, *predictions]):
        return True
    try:
        numbers = {*numeric_labels(gold)}
        guesses = {*numeric_labels(predicted)}
    except InputError:
        return False
    has_fraction = any(not number.is_integer() for number in numbers | guesses)
    return has_fraction and not guesses <= numbers


def compare_classes(path: Path, gold: Table, predicted_labels: Sequence[str | None], positive: str | None) -> Scores:
    """predicted_labels: None for a refused row."""
    gold_labels = gold.labels or []
    names = {label for label in predicted_labels if label is not None}
    if names.isdisjoint(gold_labels) and names:
        raise InputError(
            f"{path}: no prediction is one of the gold labels ({shorten_labels(gold_labels)}), the first is "
            f"{min(names)!r}; use the same names"
        )
    if not names:
        raise InputError(f"{path}: no row has a prediction; give one for each row that is not refused")
    if positive is not None and positive not in gold_labels:
        raise InputError(f"positive ({positive!r}) is not among the gold labels: {shorten_labels(gold_labels)}")
    return ClassEvaluator(positive).compare(gold_labels, predicted_labels, gold.units)


def shorten_labels(labels: Sequence[str], limit: int = 9) -> str:
    names = sorted(set(labels))
    return ", ".join(map(repr, names[:limit])) + (f", ... ({len(names)} in all)" if len(names) > limit else "")


CLASSIFY = ClassifyTask()
