"""Labelled examples, in whatever people keep them: texts with labels and numbers, and words with tags."""

import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from bothways.data.columns import Check, Table, Use, find_column, no_usual_column, table_of
from bothways.data.conll import Sentence, read_conll
from bothways.data.files import text_lines
from bothways.data.glue import glue_table
from bothways.data.labelled import has_named_columns, is_lines, labelled_rows
from bothways.data.near_duplicates import label_key
from bothways.data.stream import refuse_columns
from bothways.data.tables import OnError, Row, RowErrors
from bothways.errors import InputError, listed
from bothways.tables_in_memory import MemoryTable, Source

__all__ = ["Sentence", "Table", "label_numbers", "label_sets", "numbers", "read_table", "read_tagged"]

Some = TypeVar("Some")
MARKS = {"0", "1", "0.0", "1.0", "True", "False"}  # of a label that a text has or has not, in its place in a list
SEPARATORS = "|;,"  # between several labels of one text, in this order
FLOAT32_MAX = (2 - 2**-23) * 2.0**127
TAGS = ("ner_tags", "ner", "labels")  # usual names of columns, beside our own


def read_table(
    path: Source,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    need_labels: bool,
    encoding: str | None = None,
    on_error: OnError | None = None,
    check: Check | None = None,
) -> Table:
    """The texts of a table in a file or in memory, a dataset (data/labelled.py) or a file of GLUE (data/glue.py); a
    .txt holds one a line.

    text, pair, label: names of columns, which must be there; None: found by their usual names (data/columns.py). Texts
    of several columns, named between commas, are read together. Pairs, and labels unless needed, may be absent.
    encoding: of text files without a byte-order mark; None: UTF-8. on_error: rows that cannot be read, lack a text or a
    needed label, or whose label does not pass `check`, are all named in one InputError, or left out and noted.
    InputError names the file, the line and the columns there are.
    """
    errors = RowErrors(on_error)
    columns = {"text": text, "pair": pair, "label": label}
    table = glue_table(path, **columns, need_labels=need_labels, broken=errors, check=check, encoding=encoding)
    if table is None and not is_lines(path):
        found = labelled_rows(path, broken=errors, encoding=encoding)
        if not found:
            errors.notes(0)
        table = table_of(path, found, **columns, need_labels=need_labels, broken=errors, check=check)
    if table is not None:
        return replace(table, notes=errors.notes(len(table)))
    if need_labels:
        raise InputError(
            f"{path}: a .txt has no labels; give .csv, .tsv, .jsonl or .parquet with columns "
            f"{text or 'text'!r} and {label or 'label'!r}"
        )
    assert not isinstance(path, MemoryTable)  # whose rows have columns
    refuse_columns(path, text, pair)
    numbered = list(text_lines(path, encoding))
    if not numbered:
        raise InputError(f"{path}: empty; a file of texts holds one a line")
    return Table([line for _, line in numbered], None, None, [f"{path}:{number}" for number, _ in numbered])


# --- labels -----------------------------------------------------------------------------------------------------------


def label_numbers(table: Table, names: Sequence[str]) -> list[int]:
    """Each row's label as its place among `names`. InputError where one is not among them, and where it is blank."""
    place = {name: index for index, name in enumerate(names)}

    def number(where: str, label: str) -> int:
        check_class(where, label)
        if label not in place:
            raise _unknown(where, label, names)
        return place[label]

    return _each(table, number)


def check_class(where: str, label: str) -> None:
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
        labels = label_set(where, label, separator, names or ())
        if names is not None and (strange := sorted(labels.difference(names))):
            raise _unknown(where, strange[0], names)
        return labels

    return _each(table, known)


def numbers(table: Table) -> list[float]:
    """Each row's label as a number that float32, in which models compute, can hold. InputError where it is none."""
    return _each(table, number_of)


def _each(table: Table, read: Callable[[str, str], Some]) -> list[Some]:
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


def _unknown(where: str, label: str, names: Sequence[str]) -> InputError:
    like = next((name for name in names if label_key(name) == label_key(label)), None)
    there = f"it differs from {like!r} only in case or blanks" if like else f"the model knows {listed(names)}"
    way = "mend the label, or train with " + ("--merge-labels" if like else "rows that have it")
    return InputError(f"{where}: label {label!r} is unknown; {there}; {way}")


def label_set(where: str, label: str, separator: str = SEPARATORS[0], names: Collection[str] = ()) -> frozenset[str]:
    """The labels of one row: see label_sets. InputError for what only looks like a list."""
    if label in names:
        return frozenset([label])
    if not label.startswith("["):
        return frozenset(name.strip() for name in label.split(separator) if name.strip())
    try:
        found = [*map(str, json.loads(label))]
    except (ValueError, RecursionError):
        raise InputError(f'{where}: label {label!r} is not a JSON list such as ["a", "b"]; mend it') from None
    if len(set(found)) < len(found) and set(found) <= MARKS:
        raise InputError(
            f"{where}: label {label} says yes or no to each label there is; give the names of those the text has"
        )
    return frozenset(found)


def number_of(where: str, label: str) -> float:
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


# --- words with tags --------------------------------------------------------------------------------------------------


def read_tagged(
    path: Source,
    *,
    words: str | None = None,
    tags: str | None = None,
    encoding: str | None = None,
    errors: RowErrors | None = None,
) -> list[Sentence]:
    """Sentences of a CoNLL file (data/conll.py), or of a table in a file or in memory, or a dataset, with a list of
    words and one of tags a row.

    words, tags: names of columns, in a CoNLL file their numbers from 0 (-1 is the last one). None: the usual names; the
    first and the last column. What is no .jsonl, .parquet, .arrow or dataset is taken for a CoNLL file.
    encoding: as of read_table. errors: decides on sentences that cannot be read, whose `notes` are the caller's; None:
    InputError names the files and lines of all.
    """
    decided = errors or RowErrors()
    if isinstance(path, MemoryTable) or has_named_columns(path):
        found = _tagged_rows(path, words, tags, decided, encoding)
    else:
        columns = {"words": _column_number(words, "words", 0), "tags": _column_number(tags, "tags", -1)}
        found = read_conll(path, **columns, broken=decided, encoding=encoding)
    if errors is None or not found:
        decided.notes(len(found))
    return found


def _tagged_rows(
    path: Source, words: str | None, tags: str | None, errors: RowErrors, encoding: str | None
) -> list[Sentence]:
    rows = labelled_rows(path, broken=errors, encoding=encoding)
    if not rows:
        errors.notes(0)
        raise InputError(f"{path}: empty; a table of sentences holds one a row")
    columns = list(rows[0][1])
    words = find_column(path, columns, "words", words, ["words"], ["tokens"])
    tags = find_column(path, columns, "tags", tags, ["tags"], TAGS)
    if words is None or tags is None:
        raise no_usual_column(path, columns, "words" if words is None else "tags")
    found = []
    for where, row in rows:
        try:
            found.append(_sentence(where, row, words, tags))
        except InputError as wrong:
            errors(wrong)
    return found


def _column_number(given: str | None, use: Use, usual: int) -> int:
    try:
        return usual if given is None else int(given)
    except ValueError:
        raise InputError(
            f"--{use}-column ({given}): a CoNLL file's columns have no names; give a number from 0, -1 for the last one"
        ) from None


def _sentence(where: str, row: Row, words: str, tags: str) -> Sentence:
    for name in (words, tags):
        value = row.get(name)
        if not isinstance(value, list) or not value or None in value:
            held = "an empty list" if value == [] else "a list with gaps" if isinstance(value, list) else repr(value)
            raise InputError(f"{where}: {name!r} holds {held}, not a list of {name}; mend the row or drop it")
    if len(row[words]) != len(row[tags]):
        raise InputError(f"{where}: {len(row[words])} words but {len(row[tags])} tags; mend the row or drop it")
    for name in (words, tags):
        if strange := [value for value in row[name] if not isinstance(value, str | int | float)]:
            raise InputError(
                f"{where}: {name!r} holds {type(strange[0]).__name__}, not text; name the column with "
                f"--{'words' if name == words else 'tags'}-column"
            )
    if "" in row[words]:
        raise InputError(f"{where}: word {row[words].index('') + 1} is empty; mend the row or drop it")
    return Sentence(tuple(map(str, row[words])), tuple(map(str, row[tags])), where)
