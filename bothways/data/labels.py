"""Labels: class indices, sets of labels and numbers from the cells of a table, and one spelling for each label."""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from bothways.data.columns import Table
from bothways.data.near_duplicates import label_key, preferred_spellings, spelling_variants
from bothways.data.tables import RowErrors
from bothways.errors import InputError, join_names

Some = TypeVar("Some")
INDICATORS = {"0", "1", "0.0", "1.0", "True", "False"}  # of a label that a text has or has not, in its place in a list
SEPARATORS = "|;,"  # between several labels of one text, in this order
FLOAT32_MAX = (2 - 2**-23) * 2.0**127


def class_indices(table: Table, names: Sequence[str]) -> list[int]:
    """Each row's label as its place among `names`. InputError where one is not among them, and where it is blank."""
    place = {name: index for index, name in enumerate(names)}

    def number(where: str, label: str) -> int:
        check_not_blank(where, label)
        if label not in place:
            raise _unknown_label(where, label, names)
        return place[label]

    return _parse_labels(table, number)


def check_not_blank(where: str, label: str) -> None:
    """InputError where a label is blank."""
    if not label.strip():
        raise InputError(f"{where}: the label is empty; fill it in or drop the row")


def label_sets(table: Table, names: Sequence[str] | None = None) -> list[frozenset[str]]:
    """Each row's labels: those of a JSON list, else what stands between separators; none where the label is empty.

    The separator of a table is the first of | ; , that is in any of its labels. names: the labels there are; one of
    them is not divided. InputError where a label is not among them.
    """
    separator = next((sign for sign in SEPARATORS if any(sign in label for _, label in _labels(table))), SEPARATORS[0])

    def known(where: str, label: str) -> frozenset[str]:
        labels = parse_label_set(where, label, separator, names or ())
        if names is not None and (strange := sorted(labels.difference(names))):
            raise _unknown_label(where, strange[0], names)
        return labels

    return _parse_labels(table, known)


def numeric_labels(table: Table) -> list[float]:
    """Each row's label as a number that float32, in which models compute, can hold. InputError where it is none."""
    return _parse_labels(table, parse_number)


def _parse_labels(table: Table, read: Callable[[str, str], Some]) -> list[Some]:
    """What `read` makes of 'file:line' and label of every row. InputError names all rows for which it raises one."""
    found, errors = [], RowErrors()
    for where, label in _labels(table):
        try:
            found.append(read(where, label))
        except InputError as wrong:
            errors(wrong)
    errors.notes(len(found))
    return found


def _labels(table: Table) -> Iterable[tuple[str, str]]:
    assert table.labels is not None
    return zip(table.where, table.labels, strict=True)


def _unknown_label(where: str, label: str, names: Sequence[str]) -> InputError:
    like = next((name for name in names if label_key(name) == label_key(label)), None)
    there = f"it differs from {like!r} only in case or blanks" if like else f"the model knows {join_names(names)}"
    way = "mend the label, or train with " + ("--merge-labels" if like else "rows that have it")
    return InputError(f"{where}: label {label!r} is unknown; {there}; {way}")


def parse_label_set(
    where: str, label: str, separator: str = SEPARATORS[0], names: Collection[str] = ()
) -> frozenset[str]:
    """The labels of one row: see label_sets. InputError for what only looks like a list."""
    if label in names:
        return frozenset([label])
    if not label.startswith("["):
        return frozenset(name.strip() for name in label.split(separator) if name.strip())
    try:
        found = [*map(str, json.loads(label))]
    except (ValueError, RecursionError):
        raise InputError(f'{where}: label {label!r} is not a JSON list such as ["a", "b"]; mend it') from None
    if len(set(found)) < len(found) and set(found) <= INDICATORS:
        raise InputError(
            f"{where}: label {label} says yes or no to each label there is; give the names of those the text has"
        )
    return frozenset(found)


def parse_number(where: str, label: str) -> float:
    """A label as a number. InputError where it is none that float32 can hold."""
    try:
        number = float(label.replace("_", "?"))  # Python takes 1_000 for a number
    except ValueError:
        raise InputError(f"{where}: label {label!r} is not a number such as 3.5; mend it or drop the row") from None
    if not math.isfinite(number):
        raise InputError(f"{where}: label {label!r} is not a finite number; mend it or drop the row")
    if abs(number) > FLOAT32_MAX:
        raise InputError(
            f"{where}: label {label!r} is beyond {FLOAT32_MAX:.2g}, the largest float32; scale the numbers or drop it"
        )
    return number


# --- spellings --------------------------------------------------------------------------------------------------------


def merge_labels(tables: Mapping[str, Table], *, several: bool) -> dict[str, Table]:
    """The tables with one spelling of each label, that of `merged` over the training table; noted there.

    several: whether a row may have several labels.
    """
    names = preferred_spellings(spelling_variants(chain.from_iterable(labels_by_row(tables["train"], several))))
    by_key = {label_key(name): name for name in chain.from_iterable(labels_by_row(tables["train"], several))}
    by_key |= {label_key(name): name for name in names.values()}
    found = {name: respell_labels(table, by_key, several=several) for name, table in tables.items()}
    changed = sorted((one, name) for one, name in names.items() if one != name)
    if changed:
        note = f"labels merged: {', '.join(f'{one!r} into {name!r}' for one, name in changed)}"
        found["train"] = replace(found["train"], notes=(*found["train"].notes, note))
    return found


def respell_labels(table: Table, names: Mapping[str, str], *, several: bool) -> Table:
    """The table with labels as `names` spells them, by near_duplicates.label_key; others stay."""
    rows = [[names.get(label_key(label), label) for label in labels] for labels in labels_by_row(table, several)]
    return replace(table, labels=[json.dumps(row, ensure_ascii=False) if several else row[0] for row in rows])


def labels_by_row(table: Table, several: bool) -> list[list[str]]:
    if several:
        return [sorted(labels) for labels in label_sets(table)]
    return [[label] for label in table.labels or []]
