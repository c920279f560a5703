"""Training of a classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bothways.base.errors import InputError, flag, join_names
from bothways.measure.metrics.classification import indicators
from bothways.model.linear.regressions import Kind, Score
from bothways.settings.finetune import Classify, TrainDecide
from bothways.tasks import training_task
from bothways.tasks.arrays import NO_LABEL
from bothways.tasks.classify.report import ClassReport, describe_counts
from bothways.tasks.classify.scoring import ClassObjective, ClassScoring, balanced_weights
from bothways.tasks.linear_baselines import fit_linear_baselines, fit_tfidf, predict_out_of_fold
from bothways.tasks.novelty import scope_of
from bothways.tasks.scores import Predictions
from bothways.tasks.text_examples import TextExamples
from bothways.tasks.texts import HeadInput, TextTask
from bothways.text.data.columns import Table
from bothways.text.data.labels import class_indices, label_sets
from bothways.text.data.quality import coverage_warnings, label_warnings, table_warnings

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.checkpoint.scope import Scope
    from bothways.model.linear.linear_head import RowLoss
    from bothways.model.model import Model


@dataclass(frozen=True)
class Classification(TextTask):
    """Texts or text pairs with labels, as class indices [N], or 0 and 1 per label [N, C]."""

    name: ClassVar[str] = "classify"
    no_label: ClassVar[float] = NO_LABEL
    settings: Classify | TrainDecide
    pretrained: Checkpoint
    names: tuple[str, ...]
    tables: Mapping[str, Table]
    data: Mapping[str, TextExamples]
    reads: HeadInput | None = None

    @classmethod
    def build(cls, settings: Any, pretrained: Checkpoint, tables: Mapping[str, Table]) -> Self:
        # In cross-validation some fold trains on each row, and all folds need the same labels.
        labelled = [*tables.values()] if settings.folds else [tables["train"]]
        names = cls.read_names(settings, labelled)
        check_metric(settings.metric, settings.positive, names, settings.train, multi_label=settings.multi_label)
        targets = {split: class_targets(table, names, settings.multi_label) for split, table in tables.items()}
        return cls(settings, pretrained, names, tables, {}).with_targets(targets)

    @classmethod
    def read_names(cls, settings: Any, tables: Sequence[Table]) -> tuple[str, ...]:
        """The names of the classes, in the order of the outputs. tables: with labels."""
        return read_label_names(tables, settings.train, multi_label=settings.multi_label)

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
    report = cached_property(ClassReport)

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
