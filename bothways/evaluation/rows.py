"""Evaluation rows, read as in training: columns, second texts, and spelling of labels."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bothways.data.columns import Table
from bothways.data.examples import read_table
from bothways.data.labels import class_indices, label_sets, numeric_labels, respell_labels
from bothways.data.near_duplicates import label_key
from bothways.data.stream import resolve_columns
from bothways.evaluation.evaluators import ClassEvaluator, Evaluator, LabelSetEvaluator, NumberEvaluator, TextRow
from bothways.inference.predictor import Predictor
from bothways.log import logger
from bothways.settings import TextColumns
from bothways.settings.tables_in_memory import MemoryTable, TableSource


def read_trained_table(
    model: Predictor, file: TableSource, columns: TextColumns, *, need_labels: bool, group: str | None = None
) -> Table:
    """Read a table by the named columns, else by those of the fine-tuning, else by the usual names.

    group: column of groups. None: that of the fine-tuning, if the file has it.

    Labels get the model's spelling if it was fine-tuned with merge_labels. InputError if the table has pairs and the
    model was fine-tuned on single texts, or the reverse."""
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
    if table.labels is not None and model.description.settings.get("merge_labels"):
        spelling = {label_key(label): label for label in model.labels}
        table = respell_labels(table, spelling, several=model.description.multi_label)
    return table


def text_evaluator(model: Predictor, positive: str | None = None) -> Evaluator[TextRow, Any]:
    """The evaluator of a classifier or regression model."""
    if not model.labels:
        return NumberEvaluator()
    return LabelSetEvaluator(model.labels) if model.description.multi_label else ClassEvaluator(positive)


def text_rows(model: Predictor, table: Table) -> list[TextRow]:
    """The rows of a table for `text_evaluator`. InputError for labels that are unknown to the model or not numbers."""
    labels: Sequence[Any] = [None] * len(table)
    if table.labels is not None and not model.labels:
        labels = numeric_labels(table)
    elif table.labels is not None and model.description.multi_label:
        labels = label_sets(table, model.labels)
    elif table.labels is not None:
        class_indices(table, model.labels)  # raises for unknown labels
        labels = table.labels
    pairs: Sequence[str | None] = table.pairs if table.pairs is not None else [None] * len(table)
    return [*map(TextRow, table.texts, pairs, labels, table.units)]


def selected_on(model: Predictor, files: Iterable[TableSource]) -> dict[str, str]:
    """{"selected_on": split}, with a warning, if the model was trained or selected on one of the files; else {}."""
    for split, use in (("train", "trained on"), ("dev", "selected on")):
        used = model.description.settings.get(split)
        for file in files:
            if _is_same(file, used):
                logger.warning(f"{file}: the model was {use} this file, so the scores say little about other text")
                return {"selected_on": split}
    return {}


def _is_same(file: TableSource, used: Any) -> bool:
    """Whether data is `used`, an entry of bothways.json: a path, or the record of an in-memory table."""
    if isinstance(file, MemoryTable):
        return isinstance(used, dict) and used.get("fingerprint") == file.fingerprint
    return isinstance(used, str) and Path(used).resolve() == Path(file).resolve()
