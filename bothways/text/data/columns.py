"""Columns of a table: texts, pairs, labels and groups, found by name; the `Table` of them.

A column named in the settings is used; else a standard name (`text`, `pair` or `text_pair`, `label`); else a common
name from the lists below, provided that only one choice matches: an ambiguous table is refused. Case does not matter. A
text column with a named or standard name gets no second text from the common names.
"""

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from bothways.base.errors import InputError, RowError, RowLocation, flag, no_such_column
from bothways.settings.tables_in_memory import LocatedRow, TableRow, TableSource
from bothways.text.data.near_duplicates import first_locations, text_key
from bothways.text.rows.column_names import join_texts, match_columns
from bothways.text.rows.row_errors import RowErrorHandler

PAIR_NAMES = (  # common names of first and second texts
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("#1 string", "#2 string"),
    ("question", "sentence"),
    ("question", "answer"),
    ("question", "passage"),
    ("question", "context"),
    ("query", "passage"),
    ("query", "document"),
    ("anchor", "positive"),
)
TEXT_NAMES = (
    "sentence",
    "content",
    "review",
    "tweet",
    "comment",
    "document",
    "abstract",
    "headline",
    *dict.fromkeys(first for first, _ in PAIR_NAMES),
)
LABEL_NAMES = [
    "labels",
    "gold",
    "gold_label",
    "class",
    "category",
    "target",
    "score",
    "sentiment",
    "intent",
    "rating",
    "stars",
    "similarity",
    "similarity_score",
    "relatedness",
    "relatedness_score",
    "entailment_judgment",
    "is_duplicate",
    "quality",
]
FLAGS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}  # whether a text has a label
Columns = tuple[str, ...]  # joined into one text, in this order
LabelCheck = Callable[[str, str], object]  # (location, label); raises InputError for an unusable label
ColumnRole = Literal["text", "pair", "label", "group", "words", "tags"]  # its column is named by the flag --ROLE-column


@dataclass(frozen=True)
class Table:
    """Texts with optional second texts (pairs), labels and groups. where: the location of each row.

    Labels that are lists are stored as JSON. notes: what was changed or left out while reading. groups: None unless a
    group column was named. columns: where texts and labels come from; None for files without named columns.
    """

    texts: list[str]
    pairs: list[str] | None
    labels: list[str] | None
    where: list[RowLocation]
    notes: tuple[str, ...] = ()
    groups: list[str] | None = None
    columns: "TableColumns | None" = None

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> "Table":
        """The table with these rows only."""
        columns = (self.texts, self.pairs, self.labels, self.groups)
        texts, pairs, labels, groups = (column and [column[row] for row in rows] for column in columns)
        assert texts is not None
        return Table(
            texts=texts,
            pairs=pairs,
            labels=labels,
            where=[self.where[row] for row in rows],
            notes=self.notes,
            groups=groups,
            columns=self.columns,
        )

    @cached_property
    def keys(self) -> list[tuple[str, ...]]:
        """Keys that are equal for near-duplicate rows (near_duplicates.text_key), ignoring labels."""
        columns = [self.texts] if self.pairs is None else [self.texts, self.pairs]
        return [*zip(*([*map(text_key, texts)] for texts in columns), strict=True)]

    @cached_property
    def units(self) -> list[str]:
        """The independent unit of each row: the location of the first row of its group, or without groups of its
        near duplicates."""
        return first_locations(self.groups or self.keys, self.where)


def join_tables(source: TableSource, tables: Sequence[Table]) -> Table:
    """The rows of several tables, in order; without labels or groups if one has none.

    InputError if some have pairs and others have single texts.
    """
    if len({table.pairs is None for table in tables}) > 1:
        with_pairs = next(table.where[0] for table in tables if table.pairs is not None)
        single = next(table.where[0] for table in tables if table.pairs is None)
        raise InputError(
            f"{source}: pairs of texts at {with_pairs}, single ones at {single}; give tables of one form, or name the "
            f"column with {flag('pair_column')}"
        )

    def joined(columns: Sequence[list[str] | None]) -> list[str] | None:
        known = [column for column in columns if column is not None]
        return [value for column in known for value in column] if len(known) == len(tables) else None

    return Table(
        texts=[text for table in tables for text in table.texts],
        pairs=joined([table.pairs for table in tables]),
        labels=joined([table.labels for table in tables]),
        where=[where for table in tables for where in table.where],
        notes=tuple(dict.fromkeys(note for table in tables for note in table.notes)),
        groups=joined([table.groups for table in tables]),
        columns=tables[0].columns,
    )


@dataclass(frozen=True)
class TableColumns:
    """The columns of the texts, second texts, labels and groups of a table."""

    text: Columns
    pair: Columns | None
    label: Columns | None
    group: str | None

    @property
    def shown(self) -> set[str]:
        """The columns whose values a `Table` has as they are: not those that are joined into one text, nor groups."""
        columns = [self.text, self.pair or (), self.label or ()]
        return {names[0] for names in columns if len(names) == 1}

    @property
    def names(self) -> set[str]:
        """All columns of texts, second texts and labels."""
        return {*self.text, *(self.pair or ()), *(self.label or ())}

    def read_filled(self, where: RowLocation, row: TableRow) -> tuple[str, str, str | None]:
        """The text, second text and label of a row, "" for those that are missing or cannot be read."""
        text = _text_or_blank(where, row, self.text)
        pair = _text_or_blank(where, row, self.pair) if self.pair else ""
        label = None if self.label is None else _read_optional_label(where, row, self.label, needed=False) or ""
        return text, pair, label

    def read(
        self, where: RowLocation, row: TableRow, need_label: bool, check: LabelCheck | None
    ) -> tuple[str, str, str | None, RowLocation, str]:
        """The text, second text, label, location and group of a row; "" without a second text or group.

        InputError if one of them cannot be read, or `check` refuses the label.
        """
        text = read_text(where, row, self.text)
        pair = read_text(where, row, self.pair) if self.pair else ""
        label = None if self.label is None else _read_optional_label(where, row, self.label, need_label)
        if check and label is not None:
            check(where, label)
        group = "" if self.group is None else read_text(where, row, (self.group,), "group")
        if self.group is not None and not group.strip():
            raise RowError(where, f"{self.group!r} is empty; fill it in or drop the row")
        return text, pair, label, where, group

    def table(self, rows: Sequence[tuple[str, str, str | None, RowLocation, str]]) -> Table:
        """The table of rows that `read` has read; without labels if one of them has none."""
        texts, pairs, labels, where, groups = map(list, zip(*rows, strict=True)) if rows else ([] for _ in range(5))
        has_labels = self.label is not None and None not in labels
        return Table(
            texts=texts,
            pairs=pairs if self.pair else None,
            labels=labels if has_labels else None,
            where=where,
            groups=None if self.group is None else groups,
            columns=self if has_labels else replace(self, label=None),
        )


def build_table(
    path: object,
    located_rows: Sequence[LocatedRow],
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    group: str | None = None,
    need_labels: bool,
    on_row_error: RowErrorHandler,
    check: LabelCheck | None = None,
) -> Table:
    """Build a table from rows (location, values by column).

    text, pair, label, group: column names; None: found by standard or common names, except for groups. A text or pair
    may be several columns, comma-separated, which are joined. Several columns of labels hold 0 and 1, one for each
    label; their names are the labels. Pairs are optional, as are labels unless `need_labels`.
    InputError if a column is missing or ambiguous. Rows without a text, group or needed label, or whose label fails
    `check`, go to `on_row_error`.
    """
    if not located_rows:
        raise InputError(f"{path}: empty; a table has a header and at least one row")
    names = list(dict.fromkeys(name for _, row in located_rows for name in row))
    texts = find_text_columns(path, names, text, None if pair == "pair" else pair)
    labels = find_label_columns(path, names, label, ["label"], LABEL_NAMES if need_labels else ())
    if need_labels and labels is None:
        flags = _flag_columns(names, located_rows)
        hint = f"; a column for each label: {flag('label_column', ','.join(flags))}" if len(flags) > 1 else ""
        raise InputError(f"{column_not_found(path, names, 'label')}{hint}")
    columns = TableColumns(*texts, labels, find_column(path, names, "group", named=group, standard=(), common=()))
    rows = []
    for where, row in located_rows:
        try:
            rows.append(columns.read(where, row, need_labels, check))
        except InputError as error:
            on_row_error(error.with_traceback(None))
    return columns.table(rows)


def _read_optional_label(where: str, row: TableRow, columns: Columns, needed: bool) -> str | None:
    """The label in a row's column, or of several columns the names of those that hold 1, as JSON; None if it is missing
    or unreadable and not needed."""
    try:
        if len(columns) > 1:
            return json.dumps([name for name in columns if _read_flag(where, row, name)], ensure_ascii=False)
        _check_filled(where, row, columns[0])
        return _read_label(where, row, columns[0])
    except InputError:
        if needed:
            raise
        return None


def _read_flag(where: str, row: TableRow, column: str) -> bool:
    """Whether a text has the label of a column. InputError for values other than 0 and 1."""
    value = row.get(column)
    if (text := str(value).strip().lower()) not in FLAGS:
        raise RowError(
            where,
            f"{column!r} holds {value!r}, not 0 or 1 as the column of one label among several; fix it, or "
            f"leave the column out of {flag('label_column')}",
        )
    return FLAGS[text]


def _flag_columns(names: Sequence[str], located_rows: Sequence[LocatedRow]) -> list[str]:
    """The columns that hold nothing but 0 and 1."""
    return [name for name in names if all(str(row.get(name)).strip().lower() in FLAGS for _, row in located_rows)]


def find_label_columns(
    path: object, columns: Sequence[str], named: str | None, standard: Collection[str], common: Collection[str]
) -> Columns | None:
    """The column of the labels by the rules of `find_column`, or several that are named, comma-separated: one for each
    label."""
    if named is not None and named not in columns and (several := match_columns(named, columns)):
        return several
    column = find_column(path, columns, "label", named=named, standard=standard, common=common)
    return None if column is None else (column,)


def find_column(
    path: object,
    columns: Sequence[str],
    role: ColumnRole,
    named: str | None,
    standard: Collection[str],
    common: Collection[str],
) -> str | None:
    """The named column, else the one with a standard name, else the only one with a common name; None if none matches.

    InputError if the named column is missing or several columns match.
    """
    if named is not None and named not in columns:
        raise no_such_column(path, named, columns, _remedy(role))
    if named is not None:
        return named
    for names in (standard, common):
        if matches := [name for name in columns if name.strip().lower() in names]:
            return _single_choice(path, role, [(name,) for name in matches])[0]
    return None


def _remedy(role: ColumnRole) -> str:
    return f"rename one, or name yours with {flag(role + '_column')}"


def column_not_found(path: object, columns: Sequence[str], role: ColumnRole) -> InputError:
    existing = f"(there are: {', '.join(columns)}), nor one with another common name"
    return InputError(f"{path}: no column {role!r} {existing}; {_remedy(role)}")


def find_text_columns(
    path: object, columns: Sequence[str], text: str | None, pair: str | None
) -> tuple[Columns, Columns | None]:
    """The columns of texts and of second texts, by the rules of `find_column`."""
    texts = _named_or_standard(path, columns, "text", text, ["text"])
    pairs = _named_or_standard(path, columns, "pair", pair, ["pair", "text_pair"])

    if texts is not None:
        return texts, pairs

    if pairs is not None:
        text_column = find_column(
            path,
            [name for name in columns if name not in pairs],
            "text",
            named=None,
            standard=(),
            common=TEXT_NAMES,
        )
        if text_column is None:
            raise column_not_found(path, columns, "text")
        return (text_column,), pairs

    choices = _usual_text_columns(columns)
    if not choices:
        raise column_not_found(path, columns, "text")
    first, *second = _single_choice(path, "text", choices)
    return (first,), tuple(second) or None


def _named_or_standard(
    path: object, columns: Sequence[str], role: ColumnRole, named: str | None, standard: Collection[str]
) -> Columns | None:
    if named is None:
        column = find_column(path, columns, role, named=None, standard=standard, common=())
        return None if column is None else (column,)
    if names := match_columns(named, columns):
        return names
    missing = [name for name in map(str.strip, named.split(",")) if name not in columns]
    name = missing[0] if len(missing) < named.count(",") + 1 else named
    raise no_such_column(path, name, columns, _remedy(role))


def has_text_column(columns: Sequence[str]) -> bool:
    """Whether a column has a standard or common name of texts."""
    return "text" in {name.strip().lower() for name in columns} or bool(_usual_text_columns(columns))


def refuse_column_names(source: object, text: str | None, pair: str | None) -> None:
    """InputError if a column other than the standard ones is named for a source without columns."""
    for named in (text, pair):
        if named not in (None, "text", "pair"):
            raise InputError(
                f"{source}: has one text per line and no column {named!r}; give a table, or omit the column"
            )


def _usual_text_columns(columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Every match among the common names: (text, pair) or (text,). Members of a pair do not match alone."""
    by_name = {name.strip().lower(): name for name in columns}
    pairs = [(by_name[a], by_name[b]) for a, b in PAIR_NAMES if a in by_name and b in by_name]
    paired = {name for names in pairs for name in names}
    return [*pairs, *((by_name[name],) for name in TEXT_NAMES if name in by_name and by_name[name] not in paired)]


def _single_choice(path: object, role: ColumnRole, choices: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    if len(choices) == 1:
        return choices[0]
    listed = " or ".join(" with ".join(map(repr, names)) for names in choices)
    raise InputError(f"{path}: the {role} could be {listed}; choose one with {flag(role + '_column')}")


def read_text(where: str, row: TableRow, columns: Columns, role: str = "text") -> str:
    """The text in one column of a row, or joined from several. InputError if all of them are missing."""
    if len(columns) > 1:
        filled = [name for name in columns if not is_missing(row.get(name))]
        if filled:
            return join_texts(read_text(where, row, (name,), role) for name in filled)
    column = columns[0] if len(columns) == 1 else ",".join(columns)
    _check_filled(where, row, column)
    value = row[column]
    if isinstance(value, list | dict | bytes):
        raise RowError(
            where, f"{column!r} holds {type(value).__name__}, not text; name the column with {flag(role + '_column')}"
        )
    return str(value)


def _text_or_blank(where: str, row: TableRow, columns: Columns) -> str:
    try:
        return read_text(where, row, columns)
    except InputError:
        return ""


def _check_filled(where: str, row: TableRow, column: str) -> None:
    if is_missing(row.get(column)):
        raise RowError(where, f"{column!r} is missing; fill it in or drop the row")


def is_missing(value: Any) -> bool:
    """Whether a value is None, or NaN, which pandas writes for None."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _read_label(where: str, row: TableRow, column: str) -> str:
    value: Any = row[column]
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict | list | bytes):
            kind = type(item).__name__
            raise RowError(where, f"{column!r} holds {kind}, not a label; name the column with {flag('label_column')}")
        if is_missing(item):
            raise RowError(where, f"{column!r} has a missing value in its list of labels; fill it in or remove it")
    label = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list) else str(value)
    if not label.isprintable() and any("\ud800" <= character <= "\udfff" for character in label):
        raise RowError(
            where, f"{column!r} holds a lone surrogate ({label!a}), which cannot be written to a file; fix the label"
        )
    return label
