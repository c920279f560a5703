"""Rows of tables, columns by name: JSON lines, CSV, TSV, Excel, Parquet, Arrow; where they are, and what is wrong."""

import csv
import json
import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Literal, cast

from bothways.data.files import (
    ARROW,
    BLOCK,
    DECOMPRESSION_ERRORS,
    FILE_TYPES,
    Line,
    check_file_type,
    decoded_lines,
    decompression_error,
    file_type,
    is_compressed,
    open_file,
)
from bothways.data.spreadsheet import XLSX, sheet_rows
from bothways.errors import InputError
from bothways.tables_in_memory import MemoryTable, RowErrorHandler, TableRow, TableSource, rows_from_batches

__all__ = [
    "OnError",
    "RowErrorHandler",
    "RowErrors",
    "TableRow",
    "iter_rows",
    "join_texts",
    "match_columns",
    "missing_column",
    "raise_error",
    "read_schema",
]  # fmt: skip

OnError = Literal["stop", "skip"]  # what rows that cannot be read do
LISTED = 5  # places, and kinds of errors, that are named
Records = Iterator[tuple[int, list[Any], InputError | None]]  # see _records
csv.field_size_limit(1 << 25)  # characters: what a quote that is never closed takes into memory at most


def raise_error(wrong: InputError) -> None:
    raise wrong


class RowErrors:
    """What is wrong with rows of a table, taken as a Broken: raised at the end, so that all rows are named at once, or
    noted where such rows are left out.

    on_error: None where the user has no --on-error to choose by, which is as "stop".
    """

    def __init__(self, on_error: OnError | None = None) -> None:
        self.on_error = on_error
        self.number = 0
        self.first = ""
        # By what is wrong, values and way out aside: how it is shown, (file, number) of the first few rows, how many.
        self.shown: dict[str, str] = {}
        self.places: dict[str, list[tuple[str, str]]] = {}
        self.counts = Counter[str]()

    def __call__(self, wrong: InputError) -> None:
        self.number += 1
        self.first = self.first or str(wrong)
        placed = re.fullmatch(r"(.+?(?::|: row ))(\d+): (.+)", str(wrong), re.DOTALL)
        file, row, why = placed.groups() if placed else ("", "", str(wrong))
        why = why.partition(";")[0]
        kind = re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "...", why)
        if kind in self.places or len(self.places) < LISTED:
            self.counts[kind] += 1
            self.shown[kind] = why if self.shown.get(kind, why) == why else kind
            places = self.places.setdefault(kind, [])
            places += [(file, row)] if len(places) < LISTED else []

    def notes(self, num_left: int) -> tuple[str, ...]:
        """A line on the rows that were left out, if any. InputError where they are not to be, or none is left."""
        if not self.number:
            return ()
        if self.on_error == "skip" and num_left:
            return (f"left out {self.number:,} row{'s' if self.number > 1 else ''}: {self}",)
        way = ", or leave such rows out with --on-error skip" if self.on_error == "stop" else ""
        all_rows = f"; {self.number:,} rows cannot be read: {self}" if self.number > 1 else ""
        raise InputError(f"{self.first}{all_rows}{way}")

    def __str__(self) -> str:
        """'it is missing (a.csv:4, 7, 9); ...'"""
        told = [f"{self.shown[kind]} ({self._listed(kind)})" for kind in self.places]
        others = self.number - self.counts.total()
        return "; ".join([*told, *([f"{others:,} others"] if others else [])])

    def _listed(self, kind: str) -> str:
        """'a.csv:4, 7, 9, ...: 1,024 rows': of several rows of one file, its name once."""
        files = dict.fromkeys(file for file, _ in self.places[kind])
        shown = (f"{one}{', '.join(row for file, row in self.places[kind] if file == one)}" for one in files)
        more = f", ...: {self.counts[kind]:,} rows" if self.counts[kind] > len(self.places[kind]) else ""
        return f"{'; '.join(shown)}{more}"


def iter_rows(
    path: TableSource, *, column: str | None = None, broken: RowErrorHandler = raise_error, encoding: str | None = None
) -> Iterator[tuple[str, TableRow]]:
    """('file:line', columns by name) of a table in a file or in memory. CSV is quoted as spreadsheets do, between
    commas, semicolons or tabs as its header has them; in TSV a quote is a character. Empty cells of
    .xlsx are "", as in CSV.

    column: one that is needed, or several between commas; where a header names the columns they must be among them, and
    Parquet reads no other. encoding: of JSON lines, CSV and TSV (checked_lines).
    What is wrong with a row is told to `broken`; InputError where the file as a whole cannot be read.
    """
    if isinstance(path, MemoryTable):
        return path.rows(broken, None if path.schema is None else _needed_columns(path, column, path.schema.names))
    kind = check_file_type(path)
    if kind == ".jsonl":
        return _json_rows(path, broken, encoding)
    if kind in (".csv", ".tsv"):
        return _header_rows(path, column, broken, _records(path, encoding))
    if kind == XLSX:
        if is_compressed(path):
            raise InputError(f"{path}: an .xlsx is packed in itself; unpack this one first")
        return _header_rows(path, column, broken, ((number, cells, None) for number, cells in sheet_rows(path)))
    if kind == ".parquet":
        return _parquet_rows(path, column, broken)
    if kind == ARROW:
        return _arrow_rows(path, column, broken)
    raise InputError(f"{path}: a {kind} has no columns; {', '.join((*FILE_TYPES[1:], XLSX))} have")


def missing_column(where: str, column: str, there_are: Iterable[str]) -> InputError:
    there = ", ".join(there_are) or "none"
    return InputError(f"{where}: no column {column!r} (there are: {there}); rename yours or use --text-column")


def match_columns(named: str, there: Collection[str]) -> tuple[str, ...]:
    """The column of that name, else those between its commas, which are read together; () where one is missing."""
    if named in there:
        return (named,)
    names = [name if name in there else name.strip() for name in named.split(",")]
    return tuple(dict.fromkeys(names)) if all(name in there for name in names) else ()


def join_texts(texts: Iterable[str]) -> str:
    """The texts of several columns as one, a line each; blank ones are left out."""
    return "\n".join(text for text in texts if text and not text.isspace())


def _json_rows(path: Path, broken: RowErrorHandler, encoding: str | None) -> Iterator[tuple[str, TableRow]]:
    for number, line, wrong in decoded_lines(path, encoding):
        if not line or line.isspace():
            continue
        where = f"{path}:{number}"
        row = wrong or _json_row(where, line)
        if isinstance(row, InputError):
            broken(row)
        else:
            yield where, row


def _json_row(where: str, line: str) -> TableRow | InputError:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        return InputError(f"{where}: not valid JSON ({error.msg} at column {error.colno}); mend the line")
    except (ValueError, RecursionError) as error:  # a number of too many digits, brackets too deep
        return InputError(f"{where}: not JSON that can be read ({error}); mend the line")
    if isinstance(row, dict):
        return row
    return InputError(f"{where}: expected a JSON object, found {type(row).__name__}; write one object a line")


# --- values between commas or tabs ------------------------------------------------------------------------------------


def _header_rows(
    path: Path, column: str | None, broken: RowErrorHandler, records: Records
) -> Iterator[tuple[str, TableRow]]:
    """The rows of what has the names of its columns in the first one."""
    header: list[str] = []
    for number, values, wrong in records:
        where = f"{path}:{number}"
        if not wrong and header and len(values) != len(header):
            wrong = InputError(
                f"{where}: {len(values)} columns where the header has {len(header)}; mend the line or its quotes"
            )
        if wrong and not header:
            raise wrong  # without its header no row can be read
        if wrong:
            broken(wrong)
        elif not header:
            header = [*map(str, values)]
            _check_names(where, header)
            if column is not None and not match_columns(column, header):
                raise missing_column(where, column, header)
        else:
            yield where, dict(zip(header, values, strict=True))


def _check_names(where: str, names: Iterable[str]) -> None:
    if twice := [name for name, number in Counter(names).items() if name and number > 1]:
        raise InputError(f"{where}: two columns are named {twice[0]!r}; rename one")


def _records(path: Path, encoding: str | None) -> Records:
    """(line on which it ends, a broken one begins; its values; what is wrong with it) of every record."""
    lines = _Rereadable(decoded_lines(path, encoding))
    if file_type(path) == ".tsv":
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, delimiter=_delimiter(*lines.first_two()), strict=True)
    while True:
        lines.taken.clear()
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # a quote is never closed, or a word follows a closed one
            number = lines.taken[0].number
            lines.go_back()
            yield number, [], InputError(f"{path}:{number}: not valid CSV ({error}); mend the line or its quotes")
            continue
        wrong = next((line.wrong for line in lines.taken if line.wrong), None)
        if values:
            yield lines.taken[-1].number, values, wrong


def _delimiter(header: str, second: str) -> str:
    """What stands between a header's names: spreadsheets write semicolons where the comma belongs to numbers. Where it
    could be one or another, the one which divides the next line into as many values."""
    try:
        counts = {sign: len(next(csv.reader([header], delimiter=sign))) for sign in ",;\t"}
    except csv.Error:  # which is said where the header is read
        return ","
    signs = [sign for sign, number in counts.items() if number > 1] or [","]
    if second.count('"') % 2:  # a record that goes on in the line below
        return signs[0]
    try:
        fits = [sign for sign in signs if len(next(csv.reader([second], delimiter=sign), [])) == counts[sign]]
    except csv.Error:
        fits = []
    return next(iter(fits or signs))


class _Rereadable:
    """Lines for the CSV reader, which can go back to the second line of the record that it is reading.

    For a stray quote takes into its record all lines up to the next quote or the file's end: one is broken, not all.
    """

    def __init__(self, lines: Iterator[Line]):
        self.lines = lines
        self.again: deque[Line] = deque()
        self.taken: list[Line] = []  # into the record that is being read

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.taken.append(self.again.popleft() if self.again else next(self.lines))
        return self.taken[-1].text + "\n"

    def first_two(self) -> tuple[str, str]:
        """The first lines that are not blank, or "", without taking them."""
        while len(found := [line.text for line in self.again if line.text]) < 2:
            if (line := next(self.lines, None)) is None:
                break
            self.again.append(line)
        first, second, *_ = *found, "", ""
        return first, second

    def go_back(self) -> None:
        self.again.extendleft(reversed(self.taken[1:]))


# --- Parquet and Arrow ------------------------------------------------------------------------------------------------


def _parquet_rows(path: Path, column: str | None, broken: RowErrorHandler) -> Iterator[tuple[str, TableRow]]:
    import pyarrow
    import pyarrow.parquet

    with _seekable(path) as source:
        try:
            # Pages are read as they are needed; else whole row groups are.
            with pyarrow.parquet.ParquetFile(source, buffer_size=BLOCK, pre_buffer=False) as file:
                needed = _needed_columns(path, column, file.schema_arrow.names)
                yield from rows_from_batches(path, file.iter_batches(batch_size=256, columns=needed), broken)
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(
                f"{path}: not a sound Parquet file ({str(error).splitlines()[0]}); write it again"
            ) from None


def read_schema(path: Path) -> Any:
    """The schema of a Parquet or Arrow file that has been read before, a pyarrow.Schema."""
    import pyarrow.ipc
    import pyarrow.parquet

    if file_type(path) == ARROW:
        with open_file(path) as file, pyarrow.ipc.open_stream(file) as batches:
            return batches.schema
    with _seekable(path) as source:
        return pyarrow.parquet.read_schema(source)


@contextmanager
def _seekable(path: Path) -> Iterator[Path | BinaryIO]:
    """The file, or a temporary one with what is packed in it: Parquet is read from its end."""
    with open_file(path) as file:
        if not is_compressed(path):
            yield path
            return
        with TemporaryFile() as unpacked:
            try:
                copyfileobj(file, unpacked, BLOCK)
            except DECOMPRESSION_ERRORS as error:
                raise decompression_error(str(path), error) from None
            yield cast(BinaryIO, unpacked)


def _arrow_rows(path: Path, column: str | None, broken: RowErrorHandler) -> Iterator[tuple[str, TableRow]]:
    import pyarrow
    import pyarrow.ipc

    try:
        with open_file(path) as file, pyarrow.ipc.open_stream(file) as batches:
            needed = _needed_columns(path, column, batches.schema.names)
            yield from rows_from_batches(path, (batch.select(needed) for batch in batches), broken)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a sound Arrow file ({str(error).splitlines()[0]}); save it again") from None


def _needed_columns(path: TableSource, column: str | None, there_are: list[str]) -> list[str]:
    _check_names(str(path), there_are)
    if column is None:
        return there_are
    if not (needed := match_columns(column, there_are)):
        raise missing_column(str(path), column, there_are)
    return [*needed]
