"""Fine-tuning a model that gives a text (or a pair) a number: one output at [CLS], squared error (as STS-B in Devlin
2018, section 4.1)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from bothways import checkpoint, metrics, page
from bothways.batch import Batch
from bothways.checkpoint import Checkpoint
from bothways.data.examples import Table, numbers
from bothways.errors import InputError
from bothways.model.heads import Classes
from bothways.model.model import Model
from bothways.predict import Predictor
from bothways.settings import Regress
from bothways.tasks.finetune import Result, fine_tuned
from bothways.tasks.progress import Tell, lines
from bothways.tasks.tables import read_tables, table_warnings
from bothways.tasks.task import Figures, Task, outputs
from bothways.tasks.texts import AT_ONCE, Texts, text_scores
from bothways.train.losses import Loss, squared_loss


def run(settings: Regress, tell: Tell = lines) -> Result:
    """Fine-tune as told; keeps the best or median seed by dev, reports on test if there is one, else on dev (and says
    so)."""
    start = checkpoint.load(settings.model)
    checkpoint.refuse_headless(start, "classes", settings.model)
    task = Regression.of(settings, start, read_tables(settings))
    return fine_tuned(settings, task, tell)


@dataclass(frozen=True)
class Regression(Task):
    """Texts (or pairs) with a number each. Trained on (number - mean) / deviation of the training table, so that any
    unit is learned alike; the finished head gives the number itself."""

    name: ClassVar[str] = "regress"
    at_once: ClassVar[float] = AT_ONCE
    settings: Regress
    start: Checkpoint
    tables: Mapping[str, Table]
    data: Mapping[str, Texts]
    mean: float
    deviation: float

    @staticmethod
    def of(settings: Regress, start: Checkpoint, tables: Mapping[str, Table]) -> "Regression":
        targets = {split: np.array(numbers(table)) for split, table in tables.items()}
        mean, deviation = float(targets["train"].mean()), float(targets["train"].std())
        if not np.ptp(targets["train"]):
            raise InputError(f"{settings.train}: every number is {mean:g}; there is nothing to learn")
        predictor = Predictor(start, dtype="float32", device="cpu")
        data = {
            split: Texts.of(table, ((targets[split] - mean) / deviation).astype(np.float32), predictor, settings)
            for split, table in tables.items()
        }
        return Regression(settings, start, tables, data, mean, deviation)

    @property
    def metric(self) -> str:
        return self.settings.metric

    def begin(self, seed: int, warn: Callable[[str], None]) -> Checkpoint:
        return checkpoint.with_head(
            self.start, "classes", (), seed=seed, num_outputs=1, dropout=self.settings.dropout, warn=warn
        )

    def facts(self, figures: Mapping[str, Figures]) -> dict[str, bool]:
        return {"reads_pairs": self.tables["train"].pairs is not None}

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.labels is not None
        return {"numbers": len(batch.labels)}

    def losses(self, model: Model, batch: Batch) -> dict[str, Loss]:
        assert batch.labels is not None
        return {"numbers": squared_loss(text_scores(model, batch)[:, 0], batch.labels)}

    def measure(self, model: Model, split: str) -> Figures:
        """Mean loss (of standardized numbers), both correlations, the mean squared error in the numbers' own unit."""
        scores = torch.stack(outputs(model, self.data[split], text_scores))[:, 0]
        targets = torch.from_numpy(self.data[split].targets)
        loss = float(squared_loss(scores, targets)[0]) / len(targets)
        predicted = scores.double().numpy() * self.deviation + self.mean
        return {"loss": loss, **metrics.regression(numbers(self.tables[split]), predicted.tolist()), "baseline": 0.0}

    def parts(self, model: Model, split: str, figures: Mapping[str, Figures]) -> list[page.Part]:
        scores = torch.stack(outputs(model, self.data[split], text_scores))[:, 0].double().numpy()
        gold = numbers(self.tables[split])
        predicted = (scores * self.deviation + self.mean).tolist()
        table = self.tables[split]
        misses = [
            page.Miss(table.texts[row], gold[row], predicted[row], table.pairs[row] if table.pairs else None)
            for row in range(len(gold))
        ]
        return [page.Scatter(gold, predicted), page.Misses(misses)]

    @property
    def warnings(self) -> list[str]:
        return table_warnings(self.tables)

    def finished(self, model: Model) -> None:
        head = model.heads["classes"]
        assert isinstance(head, Classes)
        with torch.no_grad():
            head.output.weight.mul_(self.deviation)
            head.output.bias.mul_(self.deviation).add_(self.mean)

    def lengths(self, split: str) -> Sequence[int]:
        return self.data[split].lengths

    def describe(self) -> str:
        found = []
        for split, texts in self.data.items():
            values = texts.targets * self.deviation + self.mean
            low, middle, high = np.percentile(values, [0, 50, 100])
            found.append(f"{split}: {texts.describe()}\n  numbers from {low:g} to {high:g}, median {middle:g}")
        return "\n".join([*found, *self.warnings])
