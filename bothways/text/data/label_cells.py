"""Cells of labels as other programs write them: no gold label, lists as text, whole numbers with a fraction of zero.

`read_labels` is the one reader of labels of a table, for training, evaluation and checks alike.
"""

import ast
import json
import re
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from bothways.base.errors import InputError, RowLocation, flag, format_count
from bothways.text.data.columns import Table

NO_GOLD = "-"  # SNLI and MNLI: the annotators did not agree
INFERENCE_CLASSES = {"entailment", "neutral", "contradiction"}
LISTED = 5  # rows that a note names
QUOTED = r"""(?:'[^']*'|"[^"]*")"""
NUMPY_VALUE = r"(?:True|False|-?\d+\.?\d*)"
# Lists as NumPy prints them, without commas: ['a' 'b'] and [0 1 0].
NUMPY_TEXTS = re.compile(rf"\[\s*{QUOTED}(?:\s+{QUOTED})+\s*\]")
NUMPY_NUMBERS = re.compile(rf"\[\s*{NUMPY_VALUE}(?:\s+{NUMPY_VALUE})*\s*\]")
WHOLE = re.compile(r"(-?\d+)(?:\.0*)?")  # 1, and 1. or 1.0, which pandas and NumPy write for it


def read_labels(table: Table, *, several: bool, names: Collection[str] = ()) -> Table:
    """The table with its labels in their usual spelling (`spell_labels`), without the rows that have no gold label.

    Each kind of change, and the rows left out, are a note of the table.

    table: a table; without labels it is returned as it is.
    several: whether a text may have several labels; else a list is refused.
    names: the known labels. A label that differs from one of them only in spaces around it and zeros after the point is
    spelled like it.
    """
    if table.labels is None:
        return table
    return spell_labels(_without_unlabelled(table), several=several, names=names)


def spell_labels(table: Table, *, several: bool, names: Collection[str] = ()) -> Table:
    """The table with its labels in their usual spelling.

    Spaces around a label are removed. 0.0 and 1.0 become 0 and 1 if all labels are whole numbers. A label like a known
    one is spelled like it. A list that is written as text becomes JSON. Parameters: see `read_labels`.
    """
    assert table.labels is not None
    labels = table.labels
    known_names = {*names}
    known_by_key = _known_by_key(known_names)
    notes = []

    # A blank label stays as it is: other code says that it is missing.
    stripped = [label.strip() for label in labels]
    if changed := [label for label, new in zip(labels, stripped, strict=True) if label != new and new]:
        notes.append(f"the spaces around {format_count(len(changed), 'label')} are left out, such as in {changed[0]!r}")
    labels = [new or label for label, new in zip(labels, stripped, strict=True)]

    whole = _whole_numbers(labels)
    if changed := [label for label, new in zip(labels, whole, strict=True) if label != new]:
        example = f"{changed[0]} as {_whole_number(changed[0])}"
        notes.append(f"labels that are whole numbers are read without a fraction, such as {example}")

    known = [label if label in known_names else known_by_key.get(_key(label), label) for label in whole]
    if respelled := [(label, new) for label, new in zip(whole, known, strict=True) if label != new]:
        old, new = respelled[0]
        notes.append(f"labels are spelled like those that are known, such as {old!r} like {new!r}")

    lists = [None if label in known_names else list_items(label) for label in known]
    _check_lists(lists, table.where, several=several)
    spelled = [
        label if items is None else json.dumps(items, ensure_ascii=False)
        for label, items in zip(known, lists, strict=True)
    ]
    # A list that is JSON already may differ in spaces from JSON of our own, which needs no note.
    pairs = zip(known, spelled, strict=True)
    if changed := [label for label, new in pairs if label != new and not _is_json_list(label)]:
        count = format_count(len(changed), "row")
        notes.append(f"labels that are lists in {count} are read as such, for example {changed[0]}")

    return replace(table, labels=spelled, notes=(*table.notes, *notes))


def _without_unlabelled(table: Table) -> Table:
    """The table without the rows whose label is the mark of SNLI and MNLI for no gold label.

    InputError if no row is left.
    """
    # Beside classes other than inference's, the mark may be a class itself.
    names = {label.strip() for label in table.labels or ()}
    others = {name.lower() for name in names - {NO_GOLD}}
    if NO_GOLD not in names or not others <= INFERENCE_CLASSES:
        return table

    assert table.labels is not None
    unlabelled = [row for row, label in enumerate(table.labels) if label.strip() == NO_GOLD]
    if not others:
        raise InputError(f"{table.where[0]}: no row has a gold label, only {NO_GOLD!r}; name another file or column")

    shown = ", ".join(table.where[row] for row in unlabelled[:LISTED])
    more = ", ..." if len(unlabelled) > LISTED else ""
    note = f"left out {format_count(len(unlabelled), 'row')} without a gold label ({NO_GOLD!r}): {shown}{more}"

    left_out = {*unlabelled}
    kept = table.take([row for row in range(len(table)) if row not in left_out])
    return replace(kept, notes=(*table.notes, note))


def _whole_numbers(labels: Sequence[str]) -> list[str]:
    """The labels without fractions of zero if all of them but the blank ones are whole numbers; else as they are."""
    if all(WHOLE.fullmatch(label) or not label.strip() for label in labels):
        return [*map(_whole_number, labels)]
    return [*labels]


def _whole_number(label: str) -> str:
    """'1' for '1.0'; any other text as it is."""
    is_fraction = "." in label and WHOLE.fullmatch(label)
    return str(int(label.partition(".")[0])) if is_fraction else label


def _key(label: str) -> str:
    """A key that is equal for labels that differ only in spaces around them and fractions of zero."""
    return _whole_number(label.strip())


def _known_by_key(names: Collection[str]) -> dict[str, str]:
    """The known label of each key (`_key`), without the keys that several known labels share."""
    counts = Counter(map(_key, names))
    return {_key(name): name for name in names if counts[_key(name)] == 1}


def _check_lists(lists: Sequence[list[str] | None], where: Sequence[RowLocation], *, several: bool) -> None:
    """InputError for the first list, unless a text may have several labels.

    lists: the items of each label; None for a label that is no list.
    where: the location of each label.
    several: whether a text may have several labels.
    """
    first = next((row for row, items in enumerate(lists) if items is not None), None)
    if first is not None and not several:
        raise InputError(
            f"{where[first]}: the label is a list; texts with several labels need {flag('multi_label', True)}"
        )


def list_items(label: str) -> list[str] | None:
    """The items of a list that is written as JSON, by Python (['a', 'b'], {'a'}) or by NumPy ([0 1 0]); None for any
    other text."""
    if not label.startswith(("[", "{", "(")):
        return None

    # Before Python's literals, which would join 'a' 'b' to one string.
    if NUMPY_TEXTS.fullmatch(label):
        return [item[1:-1] for item in re.findall(QUOTED, label)]
    if " " in label and NUMPY_NUMBERS.fullmatch(label):
        return [*map(_whole_number, label.strip("[] ").split())]

    items = _parsed(label)
    if not isinstance(items, list | tuple | set):
        return None
    if isinstance(items, tuple) and not all(isinstance(item, str) for item in items):
        return None  # (0, 10) is rather an interval
    if any(isinstance(item, list | dict | tuple | set) for item in items):
        return None
    # A set has no order of its own.
    ordered = sorted(items, key=str) if isinstance(items, set) else items
    return [*map(str, ordered)]


def _parsed(label: str) -> object:
    """The value of JSON or of a Python literal; None for any other text."""
    try:
        return json.loads(label)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # such as the warning of [1 [2]]
            return ast.literal_eval(label)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _is_json_list(label: str) -> bool:
    """Whether a label is a list written as JSON."""
    try:
        return isinstance(json.loads(label), list)
    except (ValueError, RecursionError):
        return False
