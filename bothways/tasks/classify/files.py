"""Files of predicted labels, compared with gold labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, RowError, RowLocation
from bothways.tasks.classify.scoring import ClassEvaluator
from bothways.tasks.scores import PROBABILITY, Scores
from bothways.tasks.task import file_given_twice
from bothways.text.data.columns import Table, has_text_column
from bothways.text.data.labels import find_quantity, numeric_labels
from bothways.text.rows.rows import read_rows
from bothways.text.rows.text_files import file_type, read_lines

LABELS = ("labels", "label", "score")
PREDICTED = ("prediction", "predicted", *LABELS)  # columns of a file of predictions; the first that it has counts


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
