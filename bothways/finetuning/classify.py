"""Fine-tuning a text classifier (Devlin 2018, section 4.1): the whole model learns, the classes are read at [CLS]."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch

from bothways import metrics, report
from bothways.batch import Batch
from bothways.checkpoint import checkpoint, new_head
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.data.columns import Table
from bothways.data.datasets import has_named_columns
from bothways.data.labels import class_indices, label_sets
from bothways.data.quality import table_warnings
from bothways.data.split_tables import read_tables, texts_by_location
from bothways.errors import InputError, join_names
from bothways.evaluation.evaluators import ClassEvaluator, LabelSetEvaluator
from bothways.evaluation.scores import Predictions
from bothways.finetuning.features import FrozenTexts, fit_text_head
from bothways.finetuning.finetune import Result, fine_tuned, stays_frozen
from bothways.finetuning.simple_models import linear_models
from bothways.finetuning.task import Baseline, Figures, Task, at_work, outputs
from bothways.finetuning.texts import AT_ONCE, FEW_TEXTS, LEAST_TEXTS, Texts, begin_with_head, text_scores
from bothways.linear.regressions import Kind
from bothways.log import escape_line, muted
from bothways.metrics.label_errors import label_errors, label_set_errors
from bothways.model.model import Model
from bothways.settings import Classify
from bothways.training.losses import Loss
from bothways.training.run import MetricsCallback
from bothways.training.task_losses import multi_label_loss, weighted_class_loss

LIKELIEST = 5  # classes of a text whose probabilities are kept
MOST_CLASSES, COMMONEST = 30, 5  # classes that are listed one by one; of more the commonest


def run(settings: Classify, *, progress: MetricsCallback | None = None) -> Result:
    """Fine-tune as told; keeps the best or median seed by dev, reports on test if there is one, else on dev (and says
    so)."""
    start = checkpoint.load(settings.model)
    new_head.check_head_supported(start, "classes", settings.model)
    return fine_tuned(settings, lambda fold: Classification.of(settings, start, read_tables(settings, fold)), progress)


@dataclass(frozen=True)
class Classification(Task):
    """Texts (or pairs) with one label each, or with several at once."""

    name: ClassVar[str] = "classify"
    at_once: ClassVar[float] = AT_ONCE
    few: ClassVar[int] = FEW_TEXTS
    least_examples: ClassVar[int] = LEAST_TEXTS
    settings: Classify
    start: Checkpoint
    names: tuple[str, ...]
    tables: Mapping[str, Table]
    data: Mapping[str, Texts]

    @staticmethod
    def of(settings: Classify, start: Checkpoint, tables: Mapping[str, Table]) -> "Classification":
        several = settings.multi_label
        # In cross-validation each row is trained on by some fold, so that all of them know the same labels.
        learned = [*tables.values()] if settings.folds else [tables["train"]]
        names = label_names(learned, settings)
        check_metric(settings, names)
        targets = {split: (sets_of if several else numbers_of)(table, names) for split, table in tables.items()}
        task = Classification(settings, start, names, tables, {})
        compares = start.pooling == "mean" and start.normalized and settings.pooling != "cls"
        apart = compares and tables["train"].pairs is not None and stays_frozen(settings, task)
        data = {split: Texts.of(table, targets[split], start, settings, apart=apart) for split, table in tables.items()}
        return replace(task, data=data)

    @property
    def metric(self) -> str:
        return self.settings.metric or ("f1_micro" if self.settings.multi_label else "accuracy")

    def begin(self, seed: int) -> Checkpoint:
        few, apart = stays_frozen(self.settings, self), self.data["train"].apart is not None
        return begin_with_head(
            self.start, self.names, self.settings, seed=seed, several=self.settings.multi_label, few=few, apart=apart
        )  # fmt: skip

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
        fit_text_head(model, self.frozen, self.weighted_loss, on, self.score_of)

    def facts(self, figures: Mapping[str, Figures]) -> dict[str, bool]:
        return {"reads_pairs": self.tables["train"].pairs is not None}

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.labels is not None
        return {"classes": batch.labels.numel()}

    def losses(self, model: Model, batch: Batch) -> dict[str, Loss]:
        assert batch.labels is not None
        return {"classes": self.weighted_loss(self.read(model, batch), batch.labels)}

    def weighted_loss(self, scores_NC: torch.Tensor, targets: torch.Tensor) -> Loss:
        loss = multi_label_loss if self.settings.multi_label else weighted_class_loss
        return loss(scores_NC, targets, self.weights.to(scores_NC))

    @cached_property
    def weights(self) -> torch.Tensor:
        """What each class counts, [C]: 1, or inversely to how often it stands in the training table."""
        targets = self.data["train"].targets
        if self.settings.class_weights == "none":
            return torch.ones(len(self.names))
        if self.settings.multi_label:
            return torch.from_numpy((1 - targets).sum(0).clip(1) / targets.sum(0).clip(1)).float()
        counts = np.bincount(targets, minlength=len(self.names)).clip(1)  # a rare label can be missing in a fold
        return torch.from_numpy(len(targets) / (len(self.names) * counts)).float()

    def outputs(self, model: Model, split: str) -> torch.Tensor:
        """Scores of each text, [N, C]."""
        return torch.stack(outputs(model, self.data[split], self.read))

    def evaluate(self, split: str, outputs: torch.Tensor) -> Figures:
        """Mean loss, the figures of the classes, and as baseline the metric of always naming the commonest."""
        targets = torch.from_numpy(self.data[split].targets)
        loss = multi_label_loss if self.settings.multi_label else weighted_class_loss
        total, number = loss(outputs, targets, torch.ones(len(self.names)))
        found = self.figures(targets.numpy(), self.chosen(outputs))
        return {"loss": float(total) / number, **found, "baseline": self.baseline(targets.numpy())[self.metric]}

    def chosen(self, outputs: torch.Tensor) -> np.ndarray:
        """The class of each text [N], or which labels it has [N, C]."""
        chosen: np.ndarray = (outputs > 0 if self.settings.multi_label else outputs.argmax(-1)).numpy()
        return chosen

    def figures(self, gold: np.ndarray, predicted: np.ndarray) -> Figures:
        return self.evaluator.compare(self.named(gold), self.named(predicted), intervals=False).by_name

    @property
    def evaluator(self) -> ClassEvaluator | LabelSetEvaluator:
        return LabelSetEvaluator(self.names) if self.settings.multi_label else ClassEvaluator(self.positive)

    def named(self, labels: np.ndarray) -> list[Any]:
        if self.settings.multi_label:
            return named_sets(labels, self.names)
        return [self.names[label] for label in labels]

    @property
    def positive(self) -> str | None:
        return (self.settings.positive or self.names[-1]) if len(self.names) == 2 else None

    def num_rows(self, split: str) -> int:
        return len(self.tables[split])

    def predictions(self, split: str, outputs: torch.Tensor) -> Predictions:
        """details: the probabilities of its labels and of the LIKELIEST others, by name."""
        several = self.settings.multi_label
        gold, predicted = (self.named(labels) for labels in (self.data[split].targets, self.chosen(outputs)))
        shares_NC = outputs.sigmoid() if several else outputs.softmax(-1)
        best = shares_NC.topk(min(LIKELIEST, len(self.names))).indices.tolist()
        place = {name: number for number, name in enumerate(self.names)}
        probabilities = []
        for shares_C, likeliest, labels in zip(shares_NC, best, gold, strict=True):
            kept = [*dict.fromkeys([*(map(place.__getitem__, labels) if several else [place[labels]]), *likeliest])]
            probabilities.append(dict(zip([self.names[label] for label in kept], shares_C[kept].tolist(), strict=True)))
        if several:
            gold, predicted = ([*map(sorted, sets)] for sets in (gold, predicted))
        where = self.tables[split].where
        return Predictions(where, gold, predicted, where, probabilities)

    def scores(self, found: Predictions) -> dict[str, Any]:
        return self.evaluator.compare(found.gold, found.predicted).by_name

    def baseline(self, gold: np.ndarray) -> Figures:
        """The figures of a model that gives every text what is commonest in the training table."""
        targets = self.data["train"].targets
        if not self.settings.multi_label:
            return self.figures(gold, np.full_like(gold, np.bincount(targets).argmax()))
        label = np.zeros_like(gold)
        label[:, targets.sum(0).argmax()] = 1
        sets, counts = np.unique(targets, axis=0, return_counts=True)  # "none" may be commoner than any label
        choices = (label, np.broadcast_to(sets[counts.argmax()], gold.shape))
        return max((self.figures(gold, given) for given in choices), key=lambda found: found[self.metric])

    def score_of(self, scores_NC: torch.Tensor, targets: torch.Tensor) -> float:
        """The metric of what these scores choose."""
        value: float = self.figures(targets.numpy(), self.chosen(scores_NC))[self.metric]
        return value

    def baselines(self, split: str) -> Iterator[Baseline]:
        several, balanced = self.settings.multi_label, self.settings.class_weights == "balanced"
        kind: Kind = "labels" if several else "classes"

        def score(scores_NC: np.ndarray, targets: np.ndarray) -> float:
            return self.score_of(torch.from_numpy(scores_NC), torch.from_numpy(targets))

        models = linear_models(self, split, kind, len(self.names), balanced=balanced, score=score)
        for name, scores_NC, model in models:
            yield Baseline(name, self.predictions(split, torch.from_numpy(scores_NC)), model)

    def parts(self, found: Predictions) -> list[report.Section]:
        if self.settings.multi_label:
            return [report.LabelScores([*self.label_scores(found)])]
        place = {name: number for number, name in enumerate(self.names)}
        gold, predicted = ([place[name] for name in labels] for labels in (found.gold, found.predicted))
        right = [one == other for one, other in zip(gold, predicted, strict=True)]
        certain = [own[label] for own, label in zip(found.details, found.predicted, strict=True)]
        calibration = metrics.reliability(certain, right)
        mistakes = [
            report.LabelMistake(text, found.gold[row], found.predicted[row], certain[row], pair)
            for row, (text, pair) in enumerate(map(self.texts_at.__getitem__, found.where)) if not right[row]
        ]  # fmt: skip
        confusion = report.ConfusionMatrix.from_indices(self.names, gold, predicted)
        return [
            confusion, report.LabelScores(confusion.scores),
            report.ReliabilityDiagram(calibration.bins, calibration.error), report.LabelMistakes(mistakes, len(gold)),
        ]  # fmt: skip

    def label_scores(self, found: Predictions) -> Iterator[report.LabelScore]:
        """Of several labels a text, each by itself."""
        gold, given = (Counter(chain.from_iterable(column)) for column in (found.gold, found.predicted))
        both = Counter(name for a, b in zip(found.gold, found.predicted, strict=True) for name in {*a} & {*b})
        for name in self.names:
            yield report.LabelScore.from_counts(name, both[name], gold[name], given[name])

    @cached_property
    def texts_at(self) -> dict[str, tuple[str, str | None]]:
        """The text (and its pair) of each row, by file and line."""
        return texts_by_location(self.tables.values())

    def doubts(self, found: Predictions) -> list[report.LabelIssue]:
        errors = (label_set_errors if self.settings.multi_label else label_errors)(found.gold, found.details)
        return [
            report.LabelIssue(
                where := found.where[one.row], self.texts_at[where][0], one.given, one.suggested,
                one.given_probability, one.probability, self.texts_at[where][1],
            )
            for one in errors
        ]  # fmt: skip

    @property
    def warnings(self) -> list[str]:
        return table_warnings(self.settings, self.tables)

    def lengths(self, split: str) -> Sequence[int]:
        return self.data[split].lengths

    def describe(self) -> str:
        found = []
        for split, texts in self.data.items():
            several = self.settings.multi_label
            counts = texts.targets.sum(0) if several else np.bincount(texts.targets, minlength=len(self.names))
            found.append(f"{split}: {texts.describe()}\n  {class_line(self.names, counts.tolist())}")
        return "\n".join([*found, *self.warnings])


def class_line(names: Sequence[str], counts: Sequence[int]) -> str:
    """How many texts each class has; of very many classes how many there are, and which are the commonest."""
    if len(names) <= MOST_CLASSES:
        return ", ".join(f"{escape_line(name)} {number:,}" for name, number in zip(names, counts, strict=True))
    common = sorted(zip(names, counts, strict=True), key=lambda one: -one[1])[:COMMONEST]
    rare = ", ".join(f"{counts.count(number):,} with {number or 'no'} text{'s' * (number != 1)}" for number in (0, 1))
    first = ", ".join(f"{escape_line(name)} {number:,}" for name, number in common)
    return f"{len(names):,} classes, the commonest {first}; {rare}"


def label_names(tables: Sequence[Table], settings: Classify) -> tuple[str, ...]:
    """The labels that stand in these tables, sorted."""
    if settings.multi_label:
        names = tuple(sorted(set().union(*(labels for table in tables for labels in label_sets(table)))))
        if not names:
            raise InputError(f"{settings.train}: no row has a label; give each row those it has")
        return names
    labelled = [row for table in tables for row in zip(table.where, table.labels or [], strict=True)]
    names = tuple(sorted({label for _, label in labelled}))
    lists = [where for where, label in labelled if _is_list(label)]
    if lists and has_named_columns(settings.train):
        where = lists[0]
        raise InputError(f"{where}: a list of labels; texts that have several at once need --multi-label")
    if len(names) < 2:
        raise InputError(f"{settings.train}: one class only ({names[0]!r}); a classifier needs at least two")
    return names


def _is_list(label: str) -> bool:
    """Whether it was a list in its file (data/columns.py)."""
    try:
        return label.startswith("[") and isinstance(json.loads(label), list)
    except (ValueError, RecursionError):
        return False


def check_metric(settings: Classify, names: Sequence[str]) -> None:
    if settings.multi_label and settings.metric in ("f1", "matthews"):
        raise InputError(f"metric ({settings.metric}) is of two classes; with several labels at once use f1_micro")
    if settings.metric == "f1" and len(names) != 2:
        raise InputError(f"metric (f1) is of two classes, here are {len(names)}; use f1_macro or f1_micro")
    if settings.positive is not None and settings.positive not in names:
        raise InputError(f"positive ({settings.positive!r}) is no label of {settings.train}: {join_names(names)}")


def numbers_of(table: Table, names: Sequence[str]) -> np.ndarray:
    return np.array(class_indices(table, names), np.int64)


def sets_of(table: Table, names: Sequence[str]) -> np.ndarray:
    """Which labels each text has, int64 [N, C]. InputError for one that the training table lacks."""
    place = {name: index for index, name in enumerate(names)}
    found = np.zeros((len(table), len(names)), np.int64)
    for row, labels in enumerate(label_sets(table, names)):
        found[row, [place[label] for label in labels]] = 1
    return found


def named_sets(labels: np.ndarray, names: Sequence[str]) -> list[frozenset[str]]:
    return [frozenset(name for name, on in zip(names, row, strict=True) if on) for row in labels.tolist()]
