"""Which columns of a table are its texts, second texts and labels: those that are named, else those with usual names.

Our own names (`text`, `pair` or `text_pair`, `label`) come first; without them, just one choice of the usual names
below must be there, for nothing is guessed between two. Case does not matter. Where the text is named or is ours, no
usual name makes a pair of it.
"""

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

from bothways.data.near_duplicates import text_key
from bothways.data.tables import RowErrorHandler, TableRow, join_texts, match_columns
from bothways.errors import InputError
from bothways.tables_in_memory import TableSource

PAIR_NAMES = (  # texts and second texts: names that go together
    ("text_a", "text_b"), ("text1", "text2"), ("sentence1", "sentence2"), ("sentence_a", "sentence_b"),
    ("question1", "question2"), ("premise", "hypothesis"), ("#1 string", "#2 string"), ("question", "sentence"),
    ("question", "answer"), ("question", "passage"), ("question", "context"), ("query", "passage"),
    ("query", "document"), ("anchor", "positive"),
)  # fmt: skip
TEXT_NAMES = (
    *("sentence", "content", "review", "tweet", "comment", "document", "abstract", "headline"),
    *dict.fromkeys(first for first, _ in PAIR_NAMES),
)
LABEL_NAMES = (
    "labels", "gold", "gold_label", "class", "category", "target", "score", "sentiment", "intent", "rating", "stars",
    "similarity", "similarity_score", "relatedness", "relatedness_score", "entailment_judgment", "is_duplicate",
    "quality",
)  # fmt: skip
Columns = tuple[str, ...]  # read together as one text, in this order
LabelCheck = Callable[
    [str, str], object
]  # of 'file:line' and a label; raises InputError where the label cannot be used
ColumnRole = Literal[
    "text", "pair", "label", "group", "words", "tags"
]  # of a column; the flag that names one is --text-column


@dataclass(frozen=True)
class Table:
    """Texts with, where the file has them, pairs and labels; `where` says file and line of each.

    A label that is a list (several at once) stands as JSON. notes: what was changed or left out when it was read.
    groups: of each row, where a column of them was named.
    """

    texts: list[str]
    pairs: list[str] | None
    labels: list[str] | None
    where: list[str]
    notes: tuple[str, ...] = ()
    groups: list[str] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> "Table":
        """The table with these rows only."""
        columns = (self.texts, self.pairs, self.labels, self.where, self.groups)
        texts, pairs, labels, where, groups = (column and [column[row] for row in rows] for column in columns)
        assert texts is not None and where is not None
        return Table(texts, pairs, labels, where, self.notes, groups)

    @cached_property
    def keys(self) -> list[tuple[str, ...]]:
        """What near-equal rows share (near_duplicates.text_key), labels aside."""
        columns = [self.texts] if self.pairs is None else [self.texts, self.pairs]
        return [*zip(*([*map(text_key, texts)] for texts in columns), strict=True)]


def build_table(
    path: TableSource,
    found: Sequence[tuple[str, TableRow]],
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    group: str | None = None,
    need_labels: bool,
    broken: RowErrorHandler,
    check: LabelCheck | None = None,
) -> Table:
    """The texts in ('file:line', columns by name). A column that is named must be there; None: found by its usual name.

    text, pair: one column, or several between commas, which are read together. Pairs may be absent, and labels unless
    they are needed; group: None reads none. InputError says which columns there are; a row without a text, a group or a
    needed label, or whose label does not pass `check`, goes to `broken`.
    """
    if not found:
        raise InputError(f"{path}: empty; a table has a header and at least one row")
    columns = list(dict.fromkeys(name for _, row in found for name in row))
    text_columns, pair_columns = find_text_columns(path, columns, text, None if pair == "pair" else pair)
    label = find_column(path, columns, "label", label, ["label"], LABEL_NAMES if need_labels else ())
    if need_labels and label is None:
        raise column_not_found(path, columns, "label")
    group = find_column(path, columns, "group", group, (), ())
    texts, pairs, labels, places, groups = [], [], [], [], []
    for where, row in found:
        try:
            one = read_text(where, row, text_columns)
            other = read_text(where, row, pair_columns) if pair_columns else ""
            name = None if label is None else _read_optional_label(where, row, label, need_labels)
            if check and name is not None:
                check(where, name)
            own = "" if group is None else read_text(where, row, (group,), "group")
            if group is not None and not own.strip():
                raise InputError(f"{where}: {group!r} is empty; fill it in or drop the row")
        except InputError as wrong:
            broken(wrong.with_traceback(None))
            continue
        texts.append(one)
        pairs.append(other)
        labels.append(name)
        places.append(where)
        groups.append(own)
    has_labels = label is not None and None not in labels
    return Table(
        texts, pairs if pair_columns else None, cast(list[str], labels) if has_labels else None, places,
        groups=None if group is None else groups,
    )  # fmt: skip


def _read_optional_label(where: str, row: TableRow, column: str, needed: bool) -> str | None:
    """The label in a row's column. None where there is none, or none that can be read, and it is not needed."""
    try:
        _check_filled(where, row, column)
        return _read_label(where, row, column)
    except InputError:
        if needed:
            raise
        return None


def find_column(
    path: TableSource,
    columns: Sequence[str],
    use: ColumnRole,
    named: str | None,
    ours: Collection[str],
    usual: Collection[str],
) -> str | None:
    """The column that is named, else the one with a name of ours, else the only one with a usual name; None: none is.

    InputError where the one that is named is not there, and where several could be meant.
    """
    if named is not None and named not in columns:
        raise _no_such_column(path, columns, use, named)
    if named is not None:
        return named
    for names in (ours, usual):
        if found := [name for name in columns if name.strip().lower() in names]:
            return _single_choice(path, use, [(name,) for name in found])[0]
    return None


def _no_such_column(path: TableSource, columns: Sequence[str], use: ColumnRole, named: str) -> InputError:
    there = ", ".join(columns)
    return InputError(
        f"{path}: no column {named!r} (there are: {there}); rename one, or name yours with --{use}-column"
    )


def column_not_found(path: TableSource, columns: Sequence[str], use: ColumnRole) -> InputError:
    there = f"(there are: {', '.join(columns)}), nor one with another usual name"
    return InputError(f"{path}: no column {use!r} {there}; rename one, or name yours with --{use}-column")


def find_text_columns(
    path: TableSource, columns: Sequence[str], text: str | None, pair: str | None
) -> tuple[Columns, Columns | None]:
    """The columns of texts and of second texts: those named, else those with usual names. InputError as find_column."""
    texts = _named_or_standard(path, columns, "text", text, ["text"])
    pairs = _named_or_standard(path, columns, "pair", pair, ["pair", "text_pair"])
    if texts is not None:
        return texts, pairs
    if pairs is not None:
        only = find_column(path, [name for name in columns if name not in pairs], "text", None, (), TEXT_NAMES)
        if only is None:
            raise column_not_found(path, columns, "text")
        return (only,), pairs
    choices = _usual_text_columns(columns)
    if not choices:
        raise column_not_found(path, columns, "text")
    first, *second = _single_choice(path, "text", choices)
    return (first,), tuple(second) or None


def _named_or_standard(
    path: TableSource, columns: Sequence[str], use: ColumnRole, named: str | None, ours: Collection[str]
) -> Columns | None:
    if named is None:
        found = find_column(path, columns, use, None, ours, ())
        return None if found is None else (found,)
    if names := match_columns(named, columns):
        return names
    missing = [name for name in map(str.strip, named.split(",")) if name not in columns]
    raise _no_such_column(path, columns, use, missing[0] if len(missing) < named.count(",") + 1 else named)


def has_text_column(columns: Sequence[str]) -> bool:
    """Whether some column has a usual name of texts."""
    return "text" in {name.strip().lower() for name in columns} or bool(_usual_text_columns(columns))


def _usual_text_columns(columns: Sequence[str]) -> list[tuple[str, ...]]:
    """(text, pair) or (text,) of every choice among the usual names; a part of a pair is no choice of its own."""
    by_name = {name.strip().lower(): name for name in columns}
    pairs = [(by_name[a], by_name[b]) for a, b in PAIR_NAMES if a in by_name and b in by_name]
    paired = {name for names in pairs for name in names}
    return [*pairs, *((by_name[name],) for name in TEXT_NAMES if name in by_name and by_name[name] not in paired)]


def _single_choice(path: TableSource, use: ColumnRole, choices: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    if len(choices) == 1:
        return choices[0]
    told = " or ".join(" with ".join(map(repr, names)) for names in choices)
    raise InputError(f"{path}: the {use} could be {told}; say which with --{use}-column")


def read_text(where: str, row: TableRow, columns: Columns, use: str = "text") -> str:
    """The text in a row's column, or in several together, of which some may be missing. InputError where all are."""
    if len(columns) > 1:
        filled = [name for name in columns if not _is_missing(row.get(name))]
        if filled:
            return join_texts(read_text(where, row, (name,), use) for name in filled)
    column = columns[0] if len(columns) == 1 else ",".join(columns)
    _check_filled(where, row, column)
    value = row[column]
    if isinstance(value, list | dict | bytes):
        raise InputError(
            f"{where}: {column!r} holds {type(value).__name__}, not text; name the column with --{use}-column"
        )
    return str(value)


def _check_filled(where: str, row: TableRow, column: str) -> None:
    if _is_missing(row.get(column)):
        raise InputError(f"{where}: {column!r} is missing; fill it in or drop the row")


def _is_missing(value: Any) -> bool:
    """None, or what pandas writes for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _read_label(where: str, row: TableRow, column: str) -> str:
    value: Any = row[column]
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict | list | bytes):
            held = type(one).__name__
            raise InputError(f"{where}: {column!r} holds {held}, not a label; name the column with --label-column")
        if _is_missing(one):
            raise InputError(f"{where}: {column!r} has a gap in its list of labels; fill it in or take it out")
    label = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list) else str(value)
    if not label.isprintable() and any("\ud800" <= sign <= "\udfff" for sign in label):
        raise InputError(
            f"{where}: {column!r} holds half of a character ({label!a}), which no file can; mend the label"
        )
    return label
