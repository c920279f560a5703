"""Fine-tuning a model that gives a text (or a pair) a number: one output at [CLS], squared error (as STS-B in Devlin
2018, section 4.1)."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from bothways import report
from bothways.batch import Batch
from bothways.checkpoint import checkpoint, new_head
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.data.columns import Table
from bothways.data.labels import numeric_labels
from bothways.data.quality import table_warnings
from bothways.data.split_tables import read_tables, texts_by_location
from bothways.errors import InputError
from bothways.evaluation.evaluators import NumberEvaluator
from bothways.evaluation.scores import Predictions
from bothways.finetuning.features import FrozenTexts, fit_text_head
from bothways.finetuning.finetune import Result, fine_tuned
from bothways.finetuning.simple_models import linear_models
from bothways.finetuning.task import Baseline, Figures, Task, at_work, outputs
from bothways.finetuning.texts import AT_ONCE, FEW_TEXTS, LEAST_TEXTS, Texts, begin_with_head, text_scores
from bothways.log import muted
from bothways.metrics.label_errors import OUTLIER_DEVIATIONS, find_outliers
from bothways.model.heads import ClassificationHead
from bothways.model.model import Model
from bothways.settings import Regress
from bothways.training.losses import Loss, mse_loss
from bothways.training.run import MetricsCallback

# The distance between neighbouring float32 numbers, beside the deviation of a table's: warned of, and refused.
ROUNDED, TOO_COARSE = 0.001, 0.1


def run(settings: Regress, *, progress: MetricsCallback | None = None) -> Result:
    """Fine-tune as told; keeps the best or median seed by dev, reports on test if there is one, else on dev (and says
    so)."""
    start = checkpoint.load(settings.model)
    new_head.check_head_supported(start, "classes", settings.model)
    return fine_tuned(settings, lambda fold: Regression.of(settings, start, read_tables(settings, fold)), progress)


@dataclass(frozen=True)
class Regression(Task):
    """Texts (or pairs) with a number each. Trained on (number - mean) / deviation of the training table, so that any
    unit is learned alike; the finished head gives the number itself."""

    name: ClassVar[str] = "regress"
    constant: ClassVar[str] = "mean of all"
    doubted: ClassVar[str] = f"its number is further off than {OUTLIER_DEVIATIONS:g} robust deviations of all errors"
    at_once: ClassVar[float] = AT_ONCE
    few: ClassVar[int] = FEW_TEXTS
    least_examples: ClassVar[int] = LEAST_TEXTS
    settings: Regress
    start: Checkpoint
    tables: Mapping[str, Table]
    data: Mapping[str, Texts]
    mean: float
    deviation: float

    @staticmethod
    def of(settings: Regress, start: Checkpoint, tables: Mapping[str, Table]) -> "Regression":
        targets = {split: np.array(numeric_labels(table)) for split, table in tables.items()}
        mean, deviation = float(targets["train"].mean()), float(targets["train"].std())
        if not np.ptp(targets["train"]):
            raise InputError(f"{settings.train}: every number is {mean:g}; there is nothing to learn")
        if spacing(targets["train"]) > TOO_COARSE * deviation:
            raise InputError(
                f"{settings.train}: {rounding(targets['train'])}, too coarse to tell them apart; subtract a constant "
                f"such as {mean:.6g} from every number, or scale them"
            )
        data = {
            split: Texts.of(table, ((targets[split] - mean) / deviation).astype(np.float32), start, settings)
            for split, table in tables.items()
        }
        return Regression(settings, start, tables, data, mean, deviation)

    @property
    def metric(self) -> str:
        return self.settings.metric

    def begin(self, seed: int) -> Checkpoint:
        return begin_with_head(self.start, (), self.settings, seed=seed)

    @cached_property
    def frozen(self) -> FrozenTexts:
        """What the encoder gives for the texts before training."""
        with muted():
            model = at_work(self.begin(0).model, self.settings)
        return FrozenTexts(model, self.data, self.settings)

    def examples(self, seed: int, epoch: int) -> Texts:
        return self.data["train"].drawn(self.settings.train_windows, seed=seed, epoch=epoch)

    def read(self, model: Model, batch: Batch) -> torch.Tensor:
        return text_scores(model, batch, self.settings.window_pooling)

    def fit_head(self, model: Model, on: Sequence[str] = ("train",)) -> None:
        fit_text_head(model, self.frozen, number_loss, on)

    def facts(self, figures: Mapping[str, Figures]) -> dict[str, bool]:
        return {"reads_pairs": self.tables["train"].pairs is not None}

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.labels is not None
        return {"numbers": len(batch.labels)}

    def losses(self, model: Model, batch: Batch) -> dict[str, Loss]:
        assert batch.labels is not None
        return {"numbers": number_loss(self.read(model, batch), batch.labels)}

    def outputs(self, model: Model, split: str) -> np.ndarray:
        """What a model in training would give each text if it were finished, float64 [N]."""
        own = model.heads["classes"]
        self.finished(model)
        try:
            found: np.ndarray = torch.stack(outputs(model, self.data[split], self.read))[:, 0].double().numpy()
        finally:
            model.heads["classes"] = own
        return found

    def evaluate(self, split: str, outputs: np.ndarray) -> Figures:
        """Mean loss (of standardized numbers), both correlations, the mean squared error in the numbers' own unit: all
        of the numbers that the finished model gives."""
        errors = (outputs - self.mean) / self.deviation - self.data[split].targets
        gold = numeric_labels(self.tables[split])
        scores = NumberEvaluator().compare(gold, outputs.tolist(), intervals=False).by_name
        return {"loss": float((errors**2).mean()), **scores, "baseline": 0.0}

    def num_rows(self, split: str) -> int:
        return len(self.tables[split])

    def predictions(self, split: str, outputs: np.ndarray) -> Predictions:
        where, gold = self.tables[split].where, numeric_labels(self.tables[split])
        return Predictions(where, gold, outputs.tolist(), where, [None] * len(gold))

    def scores(self, found: Predictions) -> dict[str, Any]:
        return NumberEvaluator().compare(found.gold, found.predicted).by_name

    def baselines(self, split: str) -> Iterator[Baseline]:
        for name, scores_N1, model in linear_models(self, split, "number", 1):
            numbers_N = scores_N1[:, 0] * self.deviation + self.mean
            own = model and model.scaled(self.deviation, self.mean)
            yield Baseline(name, self.predictions(split, numbers_N), own)

    def parts(self, found: Predictions) -> list[report.Section]:
        texts = texts_by_location(self.tables.values())
        misses = [
            report.NumberMistake(texts[where][0], gold, predicted, texts[where][1])
            for where, gold, predicted in zip(found.where, found.gold, found.predicted, strict=True)
        ]
        return [report.ScatterPlot(found.gold, found.predicted), report.NumberMistakes(misses)]

    def doubts(self, found: Predictions) -> list[report.LabelIssue]:
        texts = texts_by_location(self.tables.values())
        return [
            report.LabelIssue(
                where := found.where[row], texts[where][0], f"{found.gold[row]:.6g}", f"{found.predicted[row]:.6g}",
                pair=texts[where][1],
            )
            for row in find_outliers(found.gold, found.predicted)
        ]  # fmt: skip

    @property
    def warnings(self) -> list[str]:
        train_N = np.array(numeric_labels(self.tables["train"]))
        rounded = spacing(train_N) > ROUNDED * self.deviation
        way_out = "predictions are rounded to that; subtract a constant from every number to avoid it"
        return [*table_warnings(self.settings, self.tables), *([f"{rounding(train_N)}: {way_out}"] if rounded else [])]

    def finished(self, model: Model) -> None:
        head = deepcopy(model.heads["classes"]).float()
        assert isinstance(head, ClassificationHead)
        with torch.no_grad():
            head.output.weight.mul_(self.deviation)
            head.output.bias.mul_(self.deviation).add_(self.mean)
        model.heads["classes"] = head

    def lengths(self, split: str) -> Sequence[int]:
        return self.data[split].lengths

    def describe(self) -> str:
        found = []
        for split, texts in self.data.items():
            low, middle, high = np.percentile(numeric_labels(self.tables[split]), [0, 50, 100])
            found.append(f"{split}: {texts.describe()}\n  numbers from {low:.9g} to {high:.9g}, median {middle:.9g}")
        return "\n".join([*found, *self.warnings])


def number_loss(scores_N1: torch.Tensor, numbers_N: torch.Tensor) -> Loss:
    return mse_loss(scores_N1[:, 0], numbers_N)


def spacing(numbers_N: np.ndarray) -> float:
    """How far apart neighbouring float32 numbers are where the largest of these stands."""
    return float(np.spacing(np.float32(abs(numbers_N).max())))


def rounding(numbers_N: np.ndarray) -> str:
    return (
        f"float32 numbers near {abs(numbers_N).max():.10g} are {spacing(numbers_N):g} apart, "
        f"{spacing(numbers_N) / numbers_N.std():.1%} of these numbers' standard deviation ({numbers_N.std():g})"
    )
