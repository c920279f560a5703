"""Rows of texts or pairs of texts, read as in fine-tuning: columns, second texts, spelling of labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from bothways.base.log import logger
from bothways.measure import metrics
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.scores import Scores
from bothways.tasks.task import Evaluator, LabelledRows, Prediction, Task
from bothways.text.data.columns import Table
from bothways.text.data.examples import read_table
from bothways.text.data.model_inputs import resolve_columns

if TYPE_CHECKING:
    from bothways.tasks.task import LoadedModel


class TextRow(NamedTuple):
    """A text or a pair of texts. label: a class, a set of labels or a number; None without labels. unit: name of the
    independent unit (`Table.units`); None: the row."""

    text: str
    pair: str | None = None
    label: Any = None
    unit: str | None = None


class TextEvaluator(Evaluator[TextRow, Prediction]):
    """Predictions for texts or pairs, compared with their labels.

    scores: (gold, predictions) -> the scores by name. intervals: (gold, predictions, units) -> their 95 % intervals.
    """

    primary: ClassVar[str]
    secondary: ClassVar[str]
    scores: Callable[..., Mapping[str, Any]]
    intervals: Callable[..., metrics.Intervals]

    def columns(self, rows: Sequence[TextRow], predictions: Sequence[Prediction]) -> tuple[Any, Any, Any] | None:
        if not rows or rows[0].label is None:
            return None
        units = [row_number if row.unit is None else row.unit for row_number, row in enumerate(rows)]
        return [row.label for row in rows], predictions, units

    def compare(self, gold: Any, predictions: Any, units: Any = None, *, intervals: bool = True) -> Scores:
        bounds = self.intervals(gold, predictions, units) if intervals else None
        scores = self.scores(gold, predictions)
        counts = {"texts": len(gold)}
        return Scores.with_intervals(self.primary, scores, bounds, counts=counts, secondary=self.secondary)


class TextModelTask(Task):
    """A task whose rows are texts or pairs with a label each."""

    def evaluator(
        self, model: LoadedModel, positive: str | None, thresholds: Mapping[str, Any] | None = None
    ) -> TextEvaluator[Any]:
        """positive, thresholds: the label and the thresholds that were asked for; see ClassEvaluator."""
        raise NotImplementedError

    def labels(self, model: LoadedModel, table: Table) -> Sequence[Any]:
        """The labels of a table. InputError for labels that are unknown to the model or not numbers."""
        raise NotImplementedError

    def readable(self, model: LoadedModel, table: Table) -> Table:
        """The table with the labels in the spelling of the model, without the rows that have no gold label."""
        return table

    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> LabelledRows:
        group = getattr(columns, "group_column", None)
        need_labels = need_labels or columns.label_column is not None
        tables = [read_trained_table(model, file, columns, need_labels=need_labels, group=group) for file in files]
        tables = [self.readable(model, table) for table in tables]
        for file, table in zip(files, tables, strict=True):
            log_notes(file, table)
        rows = [row for table in tables for row in self.rows(model, table)]
        asked = {name: getattr(columns, name, None) for name in ("min_score", "in_scope")}
        thresholds = {name: value for name, value in asked.items() if value is not None}
        evaluator = self.evaluator(model, getattr(columns, "positive", None), thresholds)
        return LabelledRows(evaluator, rows, all(table.labels is not None for table in tables))

    def rows(self, model: LoadedModel, table: Table) -> list[TextRow]:
        """The rows of a table. InputError for labels that are unknown to the model or not numbers."""
        labels = [None] * len(table) if table.labels is None else self.labels(model, table)
        pairs: Sequence[str | None] = table.pairs if table.pairs is not None else [None] * len(table)
        return [*map(TextRow, table.texts, pairs, labels, table.units)]


def log_notes(source: TableSource, table: Table) -> None:
    """Log what was changed or left out while reading."""
    for note in table.notes:
        logger.warning(f"{source}: {note}")


def read_trained_table(
    model: LoadedModel, file: TableSource, columns: Any, *, need_labels: bool, group: str | None = None
) -> Table:
    """Read a table by the named columns, else by the columns of the fine-tuning, else by the usual names.

    group: column of groups. None: the one of the fine-tuning, if the file has it.

    InputError if the table has pairs and the model was fine-tuned on single texts, or the reverse.
    """
    names = resolve_columns(file, columns, model.description.settings, ("text", "pair", "label"))
    table = read_table(
        file,
        text=names["text"],
        pair=names["pair"],
        label=names["label"],
        need_labels=need_labels,
        group=group or model.description.settings.get("group_column"),
        need_group=group is not None,
        encoding=columns.encoding,
    )
    if model.ignores_pairs(names["text"], columns.pair_column):
        table = replace(table, pairs=None)
    model.check_pairs(table.pairs is not None, file)
    return table
