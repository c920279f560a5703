"""Text regression: a number per text or text pair (STS-B in Devlin 2018, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bothways.base.errors import InputError
from bothways.measure import metrics, report
from bothways.measure.metrics.label_errors import OUTLIER_DEVIATIONS, find_outliers
from bothways.settings.finetune import Regress
from bothways.tasks.linear_baselines import fit_linear_baselines, fit_tfidf, predict_out_of_fold
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.task import split_pairs
from bothways.tasks.text_examples import TextExamples
from bothways.tasks.text_rows import TextEvaluator, TextModelTask, TextRow
from bothways.tasks.texts import HeadInput, TextTask, TextView
from bothways.tasks.training_task import Baseline, LabelObjective, Metrics, Scoring, TrainingTask, check_task
from bothways.text.batch import Batch
from bothways.text.data.columns import Table
from bothways.text.data.labels import numeric_labels
from bothways.text.data.model_inputs import ModelInput
from bothways.text.data.quality import table_warnings
from bothways.text.data.split_tables import read_tables

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.linear.linear_head import RowLoss
    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.model.transforms import ScaleOutputs, Transform
    from bothways.tasks.task import LoadedModel

# Distance of neighbouring float32 numbers, in standard deviations of the training numbers.
COARSE = 0.001  # a warning
TOO_COARSE = 0.1  # an error


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


@dataclass(frozen=True)
class NumberView(TextView):
    label_issue_criterion: ClassVar[str] = (
        f"its error is more than {OUTLIER_DEVIATIONS:g} robust standard deviations of all errors"
    )

    def sections(self, predictions: Predictions) -> list[report.Section]:
        texts = self.text_by_location
        mistakes = [
            report.NumberMistake(
                text=texts[where][0],
                gold=gold,
                predicted=predicted,
                pair=texts[where][1],
                where=where,
            )
            for where, gold, predicted in zip(predictions.where, predictions.gold, predictions.predicted, strict=True)
        ]
        return [report.ScatterPlot(predictions.gold, predictions.predicted), report.NumberMistakes(mistakes)]

    def label_issues(self, predictions: Predictions) -> list[report.LabelIssue]:
        texts = self.text_by_location
        issues = []
        for row in find_outliers(predictions.gold, predictions.predicted):
            where = predictions.where[row]
            gold = predictions.gold[row]
            predicted = predictions.predicted[row]
            text, pair = texts[where]
            issues.append(
                report.LabelIssue(
                    where=where,
                    text=text,
                    label=f"{gold:.6g}",
                    suggested=f"{predicted:.6g}",
                    pair=pair,
                )
            )
        return issues


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
    view = cached_property(NumberView)

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


# --- with a model -----------------------------------------------------------------------------------------------------


class RegressTask(TextModelTask):
    """A number for each text (or pair)."""

    name = "regress"
    route = "/predict"

    def train(self, settings: Regress, pretrained: Checkpoint, fold: int | None) -> Regression:
        return Regression.build(settings, pretrained, read_tables(settings, fold))

    def evaluator(
        self, model: LoadedModel, positive: str | None, thresholds: Mapping[str, Any] | None = None
    ) -> TextEvaluator[Any]:
        return NumberEvaluator()

    def labels(self, model: LoadedModel, table: Table) -> Sequence[float]:
        return numeric_labels(table)

    def predict_rows(self, model: LoadedModel, rows: Sequence[ModelInput], **options: Any) -> list[dict[str, Any]]:
        return [{"score": number} for number in model.regress(*split_pairs(rows), **options).tolist()]

    def columns(self, model: LoadedModel, top: int | None = None, *, has_sets: bool = False) -> dict[str, Any]:
        return {"score": float}


REGRESS = RegressTask()
