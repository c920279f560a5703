"""Tables: rows of JSON lines, CSV, TSV, Excel, Parquet and Arrow, each with its location."""

import csv
import json
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Literal, cast

from bothways.base.errors import (
    FileLocation,
    InputError,
    LineLocation,
    RowError,
    RowLocation,
    flag,
    format_count,
    no_such_column,
    require,
)
from bothways.base.paths import RemotePath
from bothways.settings.tables_in_memory import MemoryTable, RowErrorHandler, TableRow, TableSource, rows_from_batches
from bothways.text.data import json_tables, text_files

__all__ = ["OnError", "RowErrorHandler", "RowErrors", "TableRow", "iter_rows", "join_texts", "match_columns"]
__all__ += ["missing_column", "raise_error", "read_schema", "rename_columns", "rows_per_line"]

OnError = Literal["stop", "skip"]  # what to do about rows that cannot be read
LISTED = 5  # locations, and kinds of errors, in a message
ARROW_FILE_HEAD = b"ARROW1"  # first bytes of an Arrow file, which a stream lacks
Records = Iterator[tuple[int, list[Any], InputError | str | None]]  # see _records
LocatedRows = Iterator[tuple[RowLocation, TableRow]]
csv.field_size_limit(1 << 25)  # characters; bounds the memory that an unclosed quote takes


@dataclass(frozen=True)
class TableReading:
    """How a table is read; see `iter_rows`."""

    column: str | None
    on_row_error: RowErrorHandler
    encoding: str | None
    part_of: tuple[Path, Iterator[int]] | None


# What differs between errors of one kind: quoted text and numbers, such as 1,024 and -1.5e+300.
VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|-?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")
SIMILAR = " or similar"


def raise_error(error: InputError) -> None:
    raise error


class RowErrors:
    """A RowErrorHandler that collects the errors of a table, to report all of them at once in `notes`.

    on_error: stop (raise) or skip (note). None: like stop, for commands without --on-error.
    """

    def __init__(self, on_error: OnError | None = None) -> None:
        self.on_error = on_error
        self.count = 0
        self.first = ""
        # By kind of error (the message without values and advice): first message, first few (file, row), count.
        self.shown: dict[str, str] = {}
        self.places: dict[str, list[tuple[str, str]]] = {}
        self.counts = Counter[str]()
        self.remarks: list[str] = []  # notes on rows that were read, but changed

    def __call__(self, error: InputError) -> None:
        self.count += 1
        self.first = self.first or str(error)
        file, row, reason = "", "", str(error)
        if isinstance(error, RowError) and isinstance(error.where, FileLocation):
            file = error.where.file
            row = error.where.place
            reason = error.reason
        reason = reason.partition(";")[0]
        kind = VALUE.sub("...", reason)
        if kind in self.places or len(self.places) < LISTED:
            self.counts[kind] += 1
            first = self.shown.setdefault(kind, reason)
            if reason not in (first, first.removesuffix(SIMILAR)):  # the same error with another value
                self.shown[kind] = first.removesuffix(SIMILAR) + SIMILAR
            places = self.places.setdefault(kind, [])
            places += [(file, row)] if len(places) < LISTED else []

    def notes(self, num_left: int) -> tuple[str, ...]:
        """The remarks, and a note on the rows that were skipped, if any. InputError unless rows may be skipped and some
        are left."""
        if not self.count:
            return tuple(self.remarks)
        if self.on_error == "skip" and num_left:
            return (*self.remarks, f"left out {format_count(self.count, 'row')}: {self}")
        advice = f", or skip such rows with {flag('on_error', 'skip')}" if self.on_error == "stop" else ""
        all_rows = f"; {self.count:,} rows cannot be read: {self}" if self.count > 1 else ""
        raise InputError(f"{self.first}{all_rows}{advice}")

    def __str__(self) -> str:
        """'it is missing (a.csv: row 2 (line 4), row 5 (line 7)); ...'"""
        listed = [f"{self.shown[kind]} ({self._listed(kind)})" for kind in self.places]
        others = self.count - self.counts.total()
        return "; ".join([*listed, *([format_count(others, "other")] if others else [])])

    def _listed(self, kind: str) -> str:
        """'a.csv: row 2 (line 4), row 5 (line 7), ...: 1,024 rows', naming each file once."""
        files = dict.fromkeys(file for file, _ in self.places[kind])
        shown = (
            f"{name and name + ': '}{', '.join(row for file, row in self.places[kind] if file == name)}"
            for name in files
        )
        more = f", ...: {self.counts[kind]:,} rows" if self.counts[kind] > len(self.places[kind]) else ""
        return f"{'; '.join(shown)}{more}"


def iter_rows(
    path: TableSource,
    *,
    column: str | None = None,
    on_row_error: RowErrorHandler = raise_error,
    encoding: str | None = None,
    part_of: tuple[Path, Iterator[int]] | None = None,
) -> Iterator[tuple[RowLocation, TableRow]]:
    """Stream (location, values by column) of the rows of a table in a file or in memory.

    CSV: quoted as by spreadsheets; the delimiter (comma, semicolon or tab) is taken from the header. TSV: quotes are
    ordinary characters. Excel: empty cells are "", as in CSV.

    column: a required column, or several, comma-separated; Parquet and Arrow read only these.
    encoding: of JSON lines, CSV and TSV; see `text_files.decoded_lines`.
    part_of: of an Arrow file, the dataset that it is a part of, and its row numbers.

    Errors in a row go to `on_row_error`; InputError if the file as a whole cannot be read.
    """
    if isinstance(path, MemoryTable):
        needed = None if path.schema is None else _needed_columns(path, column, path.schema.names)
        return path.rows(on_row_error, needed)

    kind = text_files.check_file_type(path)
    if kind not in READERS:
        known = (*text_files.FILE_TYPES[1:], text_files.XLSX, text_files.JSON)
        raise InputError(f"{path}: a {kind} has no columns; give one of {', '.join(known)}")
    return READERS[kind](
        path, TableReading(column=column, on_row_error=on_row_error, encoding=encoding, part_of=part_of)
    )


def rows_per_line(path: Path, most: int, encoding: str | None = None) -> float:
    """Rows per line of a CSV, less than 1 where quoted values have several lines, in its first `most` rows.

    The header is no row. InputError if the file as a whole cannot be read.
    """
    lines = [number for number, _, _ in islice(_records(path, encoding), most + 1)]
    num_rows = len(lines) - 1
    if num_rows < 1:
        return 0.0
    return num_rows / (lines[-1] - 1 + (lines[-1] - lines[0]) / num_rows)  # the last row has as many as the others


def missing_column(where: str, column: str, columns: Iterable[str]) -> InputError:
    return no_such_column(where, column, columns, f"rename yours or use {flag('text_column')}")


def match_columns(named: str, columns: Collection[str]) -> tuple[str, ...]:
    """The column of that name, else its comma-separated columns, which are joined; () if one is missing."""
    if named in columns:
        return (named,)
    names = [name if name in columns else name.strip() for name in named.split(",")]
    return tuple(dict.fromkeys(names)) if all(name in columns for name in names) else ()


def rename_columns(names: Sequence[str], taken: Iterable[str]) -> dict[str, str]:
    """The names of input columns in a result, of which `taken` and "row" are the result's own: input_NAME for such a
    name, or the next that is free."""
    names_taken = {"row", *taken}
    kept = dict[str, str]()
    # Columns that keep their names come first.
    for name in sorted(names, key=names_taken.__contains__):
        kept[name] = name
        while kept[name] in names_taken:
            kept[name] = f"input_{kept[name]}"
        names_taken.add(kept[name])
    return {name: kept[name] for name in names}


def join_texts(texts: Iterable[str]) -> str:
    """Join the texts of several columns with line feeds, skipping blank ones."""
    return "\n".join(text for text in texts if text and not text.isspace())


# --- JSON -------------------------------------------------------------------------------------------------------------


def _json_rows(path: Path, reading: TableReading) -> LocatedRows:
    lines = (line for line in text_files.decoded_lines(path, reading.encoding) if line.text and not line.text.isspace())
    for number, (line_number, line, error) in enumerate(lines):
        where = RowLocation(path, number, line_number)
        row = error or _json_row(where, line)
        if isinstance(row, InputError):
            reading.on_row_error(row)
        else:
            yield where.with_id(row), row


def _json_file_rows(path: Path, reading: TableReading) -> LocatedRows:
    """The rows of a .json: JSON lines, or one value that holds all rows."""
    if json_tables.is_json_lines(text_files.read_bytes(path)):
        yield from _json_rows(path, reading)
        return

    for where, row in json_tables.json_items(path, reading.encoding):
        if isinstance(row, dict):
            yield where, row
        else:
            found = type(row).__name__
            reading.on_row_error(RowError(where, f"expected an object, found {found}; give one per row"))


def _json_row(where: str, line: str) -> TableRow | InputError:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        return RowError(where, f"not valid JSON ({error.msg} at column {error.colno}); fix the line")
    except (ValueError, RecursionError) as error:  # numbers with too many digits, brackets nested too deeply
        return RowError(where, f"not readable as JSON ({error}); fix the line")
    if isinstance(row, dict):
        return row
    return RowError(where, f"expected a JSON object, found {type(row).__name__}; write one object per line")


# --- values between commas or tabs, or in cells -----------------------------------------------------------------------


def _delimited_rows(path: Path, reading: TableReading) -> LocatedRows:
    return _header_rows(path, reading, _records(path, reading.encoding))


def _sheet_rows(path: Path, reading: TableReading) -> LocatedRows:
    if text_files.is_compressed(path):
        raise InputError(f"{path}: an .xlsx is compressed in itself; decompress this one first")
    records = ((number, cells, None) for number, cells in text_files.sheet_rows(path))
    return _header_rows(path, reading, records)


def _header_rows(path: Path, reading: TableReading, records: Records) -> LocatedRows:
    """The rows of a table whose first row names the columns."""
    header = _header(path, reading.column, records)
    for number, (line_number, values, error) in enumerate(records):
        where = RowLocation(path, number, line_number)
        if not error and len(values) != len(header):
            columns = format_count(len(values), "column")
            error = f"{columns}, but the header has {len(header)}; fix the line or its quotes"
        if error:
            reading.on_row_error(RowError(where, f"{error}") if isinstance(error, str) else error)
        else:
            row = dict(zip(header, values, strict=True))
            yield where.with_id(row), row


def _header(path: Path, column: str | None, records: Records) -> list[str]:
    """The names of the columns, in the first record; [] without one. InputError if no row can be read with them."""
    for line_number, values, error in records:
        where = LineLocation(path, line_number)
        if error:
            raise RowError(where, f"{error}") if isinstance(error, str) else error
        header = [*map(str, values)]
        _check_names(where, header)
        if column is not None and not match_columns(column, header):
            raise missing_column(where, column, header)
        return header
    return []


def _check_names(where: str, names: Iterable[str]) -> None:
    if duplicates := [name for name, count in Counter(names).items() if name and count > 1]:
        raise RowError(where, f"two columns are named {duplicates[0]!r}; rename one")


def _records(path: Path, encoding: str | None) -> Records:
    """(number of its first line, values, error or None) of every record. An error is the reason, or the whole error of
    a line that cannot be decoded."""
    lines = _RewindableLines(text_files.decoded_lines(path, encoding))
    if text_files.file_type(path) == ".tsv":
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        named = _named_delimiter(lines)
        header, second = lines.first_two()
        delimiter = named or _delimiter(header, second)
        reader = csv.reader(
            lines,
            delimiter=delimiter,
            strict=True,
            skipinitialspace=_spaces_follow(header, second, delimiter),
        )
    while True:
        lines.taken.clear()
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # an unclosed quote, text after a closing quote, or a carriage return in a value
            line_number = lines.taken[0].number
            reason = "a carriage return in a value without quotes" if "\r" in lines.taken[-1].text else str(error)
            lines.rewind()
            yield line_number, [], f"not valid CSV ({reason}); fix the line or its quotes"
            continue
        error_in_record = next((line.error for line in lines.taken if line.error), None)
        if values:
            yield lines.taken[0].number, values, error_in_record


def _delimiter(header: str, second: str) -> str:
    """The delimiter of a header: comma, semicolon (spreadsheets in locales with decimal commas) or tab.

    If several fit, the one that divides the second line into as many values as the header.
    """
    try:
        counts = {candidate: len(next(csv.reader([header], delimiter=candidate))) for candidate in ",;\t"}
    except csv.Error:  # reported when the header is read
        return ","

    candidates = [candidate for candidate, count in counts.items() if count > 1] or [","]

    if second.count('"') % 2:  # a record that continues on the next line
        return candidates[0]

    try:
        matching = [
            candidate
            for candidate in candidates
            if len(next(csv.reader([second], delimiter=candidate), [])) == counts[candidate]
        ]
    except csv.Error:
        matching = []
    return next(iter(matching or candidates))


def _named_delimiter(lines: "_RewindableLines") -> str:
    """The delimiter that Excel names in a first line such as sep=; which is left out; "" without one."""
    first, _ = lines.first_two()
    match = re.fullmatch(r'"?sep=(.)"?', first, re.IGNORECASE)
    if not match:
        return ""
    next(lines)
    while lines.taken[-1].text != first:  # blank lines before it
        next(lines)
    lines.taken.clear()
    return match[1]


def _spaces_follow(header: str, second: str, delimiter: str) -> bool:
    """Whether a space follows each delimiter of the header, and the first of the second line: `text, label`."""
    names = header.split(delimiter)
    return (
        len(names) > 1 and all(name.startswith(" ") for name in names[1:]) and (f"{delimiter} " in second or not second)
    )


class _RewindableLines:
    """Lines for the CSV reader that can be rewound to the second line of the current record.

    A stray quote swallows all lines up to the next quote or the end of the file; rewinding confines the error to one
    line.
    """

    def __init__(self, lines: Iterator[text_files.Line]):
        self.lines = lines
        self.again: deque[text_files.Line] = deque()
        self.taken: list[text_files.Line] = []  # lines of the current record

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.taken.append(self.again.popleft() if self.again else next(self.lines))
        return self.taken[-1].text + "\n"

    def first_two(self) -> tuple[str, str]:
        """The first two lines that are not blank, or "", without consuming them."""
        while len(lines := [line.text for line in self.again if line.text]) < 2:
            if (line := next(self.lines, None)) is None:
                break
            self.again.append(line)
        first, second = [*lines, "", ""][:2]
        return first, second

    def rewind(self) -> None:
        self.again.extendleft(reversed(self.taken[1:]))


# --- Parquet and Arrow ------------------------------------------------------------------------------------------------


def _parquet_rows(path: Path, reading: TableReading) -> LocatedRows:
    require(path, "pyarrow")
    import pyarrow
    import pyarrow.parquet

    with _seekable(path) as source:
        try:
            # Read pages as needed instead of whole row groups.
            with pyarrow.parquet.ParquetFile(source, buffer_size=text_files.BLOCK, pre_buffer=False) as file:
                needed = _needed_columns(path, reading.column, file.schema_arrow.names)
                batches = file.iter_batches(batch_size=256, columns=needed)
                yield from rows_from_batches(path, batches, reading.on_row_error)
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(
                f"{path}: not a valid Parquet file ({str(error).splitlines()[0]}); write it again"
            ) from None


def read_schema(path: Path) -> Any:
    """The pyarrow.Schema of a Parquet or Arrow file."""
    require(path, "pyarrow")
    import pyarrow.parquet

    if text_files.file_type(path) == text_files.ARROW:
        with _arrow_batches(path) as (schema, _):
            return schema
    with _seekable(path) as source:
        return pyarrow.parquet.read_schema(source)


@contextmanager
def _seekable(path: Path) -> Iterator[Path | BinaryIO]:
    """The file, or a decompressed temporary copy: Parquet is read from its end."""
    with text_files.open_file(path) as file:
        if not text_files.is_compressed(path):
            yield cast(BinaryIO, file) if isinstance(path, RemotePath) else path
            return
        with TemporaryFile() as temporary:
            try:
                copyfileobj(file, temporary, text_files.BLOCK)
            except text_files.DECOMPRESSION_ERRORS as error:
                raise text_files.decompression_error(str(path), error) from None
            yield cast(BinaryIO, temporary)


def _arrow_rows(path: Path, reading: TableReading) -> LocatedRows:
    require(path, "pyarrow")
    import pyarrow

    dataset, numbers = reading.part_of or (path, None)
    try:
        with _arrow_batches(path) as (schema, batches):
            needed = _needed_columns(path, reading.column, schema.names)
            selected = (batch.select(needed) for batch in batches)
            yield from rows_from_batches(dataset, selected, reading.on_row_error, numbers)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a valid Arrow file ({str(error).splitlines()[0]}); save it again") from None


@contextmanager
def _arrow_batches(path: Path) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The schema and the batches of an Arrow file, or of a stream as `datasets` saves it under the same ending."""
    import pyarrow.ipc

    with text_files.open_file(path) as file:
        if not file.peek(len(ARROW_FILE_HEAD)).startswith(ARROW_FILE_HEAD):
            with pyarrow.ipc.open_stream(file) as batches:
                yield batches.schema, iter(batches)
            return

    # Unlike a stream, a file is read from its end.
    with _seekable(path) as source, pyarrow.ipc.open_file(source) as batches:
        yield batches.schema, map(batches.get_batch, range(batches.num_record_batches))


def _needed_columns(path: TableSource, column: str | None, columns: list[str]) -> list[str]:
    _check_names(str(path), columns)
    if column is None:
        return columns
    if not (needed := match_columns(column, columns)):
        raise missing_column(str(path), column, columns)
    return [*needed]


# --- by type of file --------------------------------------------------------------------------------------------------

READERS: dict[str, Callable[[Path, TableReading], LocatedRows]] = {
    ".jsonl": _json_rows,
    ".csv": _delimited_rows,
    ".tsv": _delimited_rows,
    text_files.XLSX: _sheet_rows,
    ".parquet": _parquet_rows,
    text_files.JSON: _json_file_rows,
    text_files.ARROW: _arrow_rows,
}
