"""Labels from table cells: class indices, label sets, numbers; merging variant spellings."""

import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from bothways.base.errors import InputError, RowError, RowLocation, flag, join_names
from bothways.text.data.columns import Table
from bothways.text.data.label_cells import list_items
from bothways.text.data.near_duplicates import label_key
from bothways.text.rows.row_errors import RowErrors

Some = TypeVar("Some")
INDICATORS = {"0", "1", "0.0", "1.0", "True", "False"}  # entries of a list of yes and no for each label
SEPARATORS = "|;,"  # between several labels of a text, in order of preference
FLOAT32_MAX = (2 - 2**-23) * 2.0**127
FEW_NUMBERS = 10  # up to this many classes may be fractions, such as ratings in half stars


def class_indices(table: Table, names: Sequence[str]) -> list[int]:
    """The index in `names` of each row's label. InputError for unknown and blank labels."""
    index_by_name = {name: index for index, name in enumerate(names)}

    def read_index(where: str, label: str) -> int:
        check_not_blank(where, label)
        if label not in index_by_name:
            raise _unknown_label(where, label, names)
        return index_by_name[label]

    return _parse_labels(table, read_index)


def check_not_blank(where: str, label: str) -> None:
    """InputError for a blank label."""
    if not label.strip():
        raise RowError(where, "the label is empty; fill it in or drop the row")


def label_sets(table: Table, names: Sequence[str] | None = None) -> list[frozenset[str]]:
    """The set of labels of each row, from a JSON list or a separated string; empty for an empty cell.

    The separator of a table is the first of | ; , that occurs in any of its labels. names: the known labels, which are
    not split. InputError for a label that is not among them.
    """
    separator = next((sign for sign in SEPARATORS if any(sign in label for _, label in _labels(table))), SEPARATORS[0])

    def read_set(where: str, label: str) -> frozenset[str]:
        labels = parse_label_set(where, label, separator, names or ())
        if names is not None and (unknown := sorted(labels.difference(names))):
            raise _unknown_label(where, unknown[0], names)
        return labels

    return _parse_labels(table, read_set)


def numeric_labels(table: Table) -> list[float]:
    """Each row's label as a number. InputError if it is not a number or not representable in float32."""
    return _parse_labels(table, parse_number)


def _parse_labels(table: Table, read: Callable[[str, str], Some]) -> list[Some]:
    """`read` applied to (location, label) of every row. One InputError lists all rows for which it fails."""
    values = []
    errors = RowErrors()
    for where, label in _labels(table):
        try:
            values.append(read(where, label))
        except InputError as error:
            errors(error)
    errors.notes(len(values))
    return values


def _labels(table: Table) -> Iterable[tuple[RowLocation, str]]:
    assert table.labels is not None
    return zip(table.where, table.labels, strict=True)


def _unknown_label(where: str, label: str, names: Sequence[str]) -> InputError:
    similar = next((name for name in names if label_key(name) == label_key(label)), None)
    hint = f"it differs from {similar!r} only in case or spaces" if similar else f"the model knows {join_names(names)}"
    advice = "fix the label" if similar else "fix the label, or train with rows that have it"
    return RowError(where, f"label {label!r} is unknown; {hint}; {advice}")


def parse_label_set(
    where: str, label: str, separator: str = SEPARATORS[0], names: Collection[str] = ()
) -> frozenset[str]:
    """The labels of one row; see `label_sets`. InputError for an invalid JSON list."""
    if label in names:
        return frozenset([label])
    items = list_items(label)
    if items is None and not label.startswith("["):
        return frozenset(name.strip() for name in label.split(separator) if name.strip())
    if items is None:
        raise RowError(where, f'label {label!r} is not a JSON list such as ["a", "b"]; fix it')
    if len(set(items)) < len(items) and set(items) <= INDICATORS:
        raise RowError(
            where,
            f"label {label} looks like yes or no for each label; list the names of the text's labels instead, "
            f"or give each label a column and name all in {flag('label_column')}",
        )
    return frozenset(items)


def is_json(text: str, kind: type[dict[Any, Any]] | type[list[Any]]) -> bool:
    """Whether a text, from its first character on, is a list or an object as JSON."""
    try:
        return text.startswith("{" if kind is dict else "[") and isinstance(json.loads(text), kind)
    except (ValueError, RecursionError):
        return False


def parse_number(where: str, label: str) -> float:
    """A label as a number. InputError if it is not a number or not representable in float32."""
    try:
        value = float(label.replace("_", "?"))  # Python would accept 1_000
    except ValueError:
        raise RowError(where, f"label {label!r} is not a number such as 3.5; fix it or drop the row") from None
    if not math.isfinite(value):
        raise RowError(where, f"label {label!r} is not a finite number; fix it or drop the row")
    if abs(value) > FLOAT32_MAX:
        raise RowError(
            where, f"label {label!r} exceeds {FLOAT32_MAX:.2g}, the largest float32; rescale all, or drop the row"
        )
    return value


def find_quantity(labels: Iterable[str]) -> str | None:
    """A label with a fraction if the labels are quantities: more than FEW_NUMBERS different numbers, one of them with a
    fraction. None for names of classes, which may be whole numbers."""
    names = sorted({*labels})
    if len(names) <= FEW_NUMBERS:
        return None
    if not all(map(is_number, names)):
        return None
    return next((name for name in names if not parse_number("", name).is_integer()), None)


def is_number(label: str) -> bool:
    """Whether a label is a number that float32 holds."""
    try:
        parse_number("", label)
    except InputError:
        return False
    return True


def labels_by_row(table: Table, several: bool) -> list[list[str]]:
    if several:
        return [sorted(labels) for labels in label_sets(table)]
    return [[label] for label in table.labels or []]
