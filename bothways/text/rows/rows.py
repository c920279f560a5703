"""Rows: the one way in which every verb reads a source, with the location of each row.

A source is a file, a dataset, a table in memory, or standard input. Its `Form` says how it holds rows; the form of a
file is found by its ending and its first rows. A row that cannot be read is an error in its place, so that rows keep
their numbers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar

from bothways.base.errors import EmptyInput, InputError, RowLocation
from bothways.base.paths import as_path
from bothways.settings.tables_in_memory import (
    LocatedRow,
    MemoryTable,
    RowOrError,
    TableList,
    TableRow,
    TableSource,
)
from bothways.text.rows.annotation_files import is_annotation_file, text_rows
from bothways.text.rows.arrow_tables import (
    needed_columns,
    read_arrow,
    read_parquet,
    read_schema,
    stored_classes,
    with_class_names,
)
from bothways.text.rows.datasets import HUB_PREFIX, HubDataset, arrow_files
from bothways.text.rows.delimited import read_delimited, read_sheet
from bothways.text.rows.glue import FileFormat, detect_format, format_rows
from bothways.text.rows.json_tables import is_json_table, read_json, read_json_lines
from bothways.text.rows.row_errors import RowErrorHandler, raise_error
from bothways.text.rows.standard_input import STANDARD_INPUT, StandardInput
from bothways.text.rows.text_files import ARROW, JSON, XLSX, check_file_type, decoded_lines, file_type, open_file

FIRST_ROWS = 64  # rows that determine which columns a source has
MOST_CONSECUTIVE_ERRORS = 10_000  # above this, the file is probably not the intended one
StoredSource = TableSource | HubDataset
Source = StoredSource | StandardInput
Some = TypeVar("Some")


@dataclass(frozen=True)
class Form:
    """How a kind of source holds its rows.

    read: (source, required column or None, encoding or None) -> the rows, or their errors.
    has_names: whether each column has a name, in every source of this form. A CSV may lack its header.
    has_lines: whether a row is at a line of a file.
    may_widen: whether any row may have further columns.
    columns: the columns that every such source has; () if it names its own.
    text, pair, label: the columns that are read unless others are named; None: found by their names.
    is_text: whether a row is a line of text.
    is_squad: whether it holds questions in SQuAD's JSON, which only question answering reads.
    may_be_empty: whether a source without rows is no error.
    empty: what is expected of a source without rows, for the message.
    """

    read: Callable[[Any, str | None, str | None], Iterator[RowOrError]]
    has_names: bool = False
    has_lines: bool = False
    may_widen: bool = False
    columns: Sequence[str] = ()
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    is_text: bool = False
    is_squad: bool = False
    may_be_empty: bool = False
    empty: str = "a table has a header and at least one row"

    def chosen(self, text: str | None, pair: str | None, label: str | None = None) -> dict[str, str | None]:
        """The columns to read: those that are named, else the usual ones of this form."""
        return {
            "text": text or self.text,
            "pair": pair or (self.pair if text is None else None),
            "label": label or self.label,
        }


@dataclass(frozen=True)
class Rows:
    """The rows of a source: iterating gives (location, values by column) of each, or its error.

    source: a file, a dataset, a table in memory, or standard input.
    form: how it holds rows; see `open_rows`.
    encoding: of text files without a byte-order mark; None: UTF-8.
    column: a required column, or several, comma-separated. Forms that can read single columns read only these.
    """

    source: Source
    form: Form
    encoding: str | None = None
    column: str | None = None

    def __iter__(self) -> Iterator[RowOrError]:
        first_error: InputError | None = None
        num_errors = 0
        for row in self.form.read(self.source, self.column, self.encoding):
            if isinstance(row, InputError):
                first_error = first_error or row
                num_errors += 1
                if num_errors == MOST_CONSECUTIVE_ERRORS:
                    raise InputError(
                        f"{first_error}; {num_errors:,} rows in a row cannot be read; is it the right file?"
                    )
            else:
                first_error = None
                num_errors = 0
            yield row

    def read(self, on_row_error: RowErrorHandler = raise_error) -> Iterator[LocatedRow]:
        """The rows that can be read. The errors of the others go to `on_row_error`."""
        for row in self:
            if isinstance(row, InputError):
                on_row_error(row)
            else:
                yield row

    def refuse_empty(self) -> Iterator[RowOrError]:
        """The rows. EmptyInput if there are none, unless a source of this form may be empty."""
        if self.form.may_be_empty:
            return iter(self)
        return refuse_empty(self, f"{self.source}: empty; {self.form.empty}")

    def live(self) -> Iterator[RowOrError | None]:
        """The rows as they arrive, with None whenever standard input pauses. EmptyInput: see `refuse_empty`."""
        if isinstance(self.source, StandardInput):
            return self.source.live_rows(self.encoding)
        return self.refuse_empty()

    def first(self) -> list[TableRow]:
        """The values of the first rows that can be read."""
        return [row for _, row in islice(self.read(lambda error: None), FIRST_ROWS)]

    def names(self) -> list[str]:
        """The names of the columns in the first rows that can be read."""
        if self.form.columns:
            return [*self.form.columns]
        return list(dict.fromkeys(name for row in self.first() for name in row))

    def all_names(self) -> list[str]:
        """The names of all columns. InputError, the error of the first row, if no row can be read.

        JSON lines are read to the end, since any row may add a column.
        """
        if self.form.columns:
            return [*self.form.columns]

        names: dict[str, None] = {}  # a set with an order
        num_rows = 0
        first_error: InputError | None = None
        for row in self.refuse_empty():
            if isinstance(row, InputError):
                first_error = first_error or row
                continue

            names |= dict.fromkeys(row[1])
            num_rows += 1
            if num_rows == FIRST_ROWS and not self.form.may_widen:
                break

        if first_error and not names:
            raise first_error
        return [*names]

    def types(self) -> dict[str, Any]:
        """The Arrow types of the columns of a Parquet or Arrow file; not of classes, which are read as their names."""
        if self.form not in ARROW_FORMS:
            return {}
        assert isinstance(self.source, Path)
        files = arrow_files(self.source) if self.form is SAVED else [self.source]
        schema = read_schema((files or [self.source])[0])
        classes = stored_classes(schema)
        return {field.name: field.type for field in schema if field.name not in classes}


def open_rows(source: Source, encoding: str | None = None, column: str | None = None) -> Rows:
    """The rows of a source, in the form that its name and its first rows show.

    source: a file, compressed or not; a saved dataset; `hf:NAME[:CONFIG][@SPLIT]`; a table in memory, or several;
        standard input.
    encoding, column: see `Rows`.
    """
    return Rows(source, form_of(source, encoding), encoding, column)


def named_source(name: str) -> Source:
    """The source of a verb that also reads standard input, "-"."""
    return StandardInput() if name == STANDARD_INPUT else as_path(name)


def read_rows(
    source: Source, on_row_error: RowErrorHandler = raise_error, encoding: str | None = None
) -> list[LocatedRow]:
    """All rows of a source with named columns as (location, values by column).

    Class indices are replaced by the class names that the source declares, and -1 (no class) by None.

    source, encoding: see `open_rows`.
    on_row_error: receives the errors of rows that cannot be read.

    InputError if the source cannot be read, or is a .txt.
    """
    rows = open_rows(source, encoding)
    if rows.form.is_text:
        known = ", ".join(kind for kind in FORMS if kind not in (".txt", ARROW))
        raise InputError(f"{source}: a .txt has no columns; give one of {known}")
    return [*rows.read(on_row_error)]


def form_of(source: Source, encoding: str | None = None) -> Form:
    """How a source holds its rows."""
    if isinstance(source, StandardInput):
        return LINES_SENT
    if isinstance(source, TableList):
        return JOINED
    if isinstance(source, MemoryTable):
        return MEMORY
    if isinstance(source, HubDataset) or source.as_posix().startswith(HUB_PREFIX):
        return HUB
    if source.is_dir():
        return SAVED

    published = detect_format(source, encoding)
    if published:
        return _published_form(published)
    if is_annotation_file(source, encoding):
        return ANNOTATED
    if file_type(source) == JSON and not is_json_table(source):
        return SQUAD
    return FORMS.get(file_type(source), UNKNOWN)


def refuse_empty(items: Iterable[Some], message: str) -> Iterator[Some]:
    """The items. EmptyInput with this message if there are none."""
    is_empty = True
    for item in items:
        is_empty = False
        yield item
    if is_empty:
        raise EmptyInput(message)


# --- the forms --------------------------------------------------------------------------------------------------------


def _read_memory(source: MemoryTable, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    needed = None if source.schema is None else needed_columns(source, column, source.schema.names)
    yield from with_class_names(source.rows(needed), stored_classes(source.schema, needed))


def _read_joined(source: TableList, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    for part in source.parts:
        yield from open_rows(part, encoding, column)


def _read_hub(source: Path | HubDataset, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    dataset = source if isinstance(source, HubDataset) else HubDataset.parse(source.as_posix())
    yield from dataset.rows(column)


def _read_saved(source: Path, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    files = arrow_files(source)
    if files is None:
        open_file(source).close()  # which refuses a folder

    # Rows are numbered through all files.
    part_of = source, count()
    for file in files or ():
        yield from read_arrow(file, column, part_of=part_of)


def _read_annotated(source: Path, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    yield from text_rows(source, encoding)


def _read_lines(source: Path, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    for row, line in enumerate(decoded_lines(source, encoding)):
        yield line.error or (RowLocation(source, row, line.number), {"text": line.text})


def _read_sent(source: StandardInput, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    return source.rows(encoding)


def _refuse_unknown(source: Path, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    """InputError: a file of an unknown type has no rows."""
    check_file_type(source)
    yield from ()


def _published_form(found: FileFormat) -> Form:
    """The form of a published file, whose columns are known."""

    def read(source: Path, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
        yield from format_rows(source, found, encoding=encoding)

    return Form(
        read,
        has_lines=True,
        columns=found.columns,
        text=found.text,
        pair=found.pair,
        label=found.label,
    )


MEMORY = Form(_read_memory, has_names=True)
JOINED = Form(_read_joined, has_names=True)
HUB = Form(_read_hub, has_names=True)
SAVED = Form(_read_saved, has_names=True)
ANNOTATED = Form(_read_annotated, has_names=True)
LINES_SENT = Form(
    _read_sent,
    has_lines=True,
    columns=("text",),
    is_text=True,
    may_be_empty=True,
)
UNKNOWN = Form(_refuse_unknown)
SQUAD = Form(read_json, columns=("id", "question", "context"), is_squad=True)

# The form of a file that is none of these, by its ending.
FORMS = {
    ".txt": Form(
        _read_lines,
        has_lines=True,
        columns=("text",),
        is_text=True,
        empty="a file of texts has one per line",
    ),
    ".jsonl": Form(read_json_lines, has_names=True, has_lines=True, may_widen=True),
    ".csv": Form(read_delimited, has_lines=True),
    ".tsv": Form(read_delimited, has_lines=True),
    ".parquet": Form(read_parquet, has_names=True),
    XLSX: Form(read_sheet, has_names=True, has_lines=True),
    JSON: Form(read_json, has_names=True),
    ARROW: Form(read_arrow, has_names=True),
}
JSON_FORMS = (FORMS[JSON], ANNOTATED, SQUAD)  # of one value, which may hold anything
ARROW_FORMS = (FORMS[".parquet"], FORMS[ARROW], SAVED)
