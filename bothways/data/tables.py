"""Rows of tables, columns by name: JSON lines, CSV, TSV, Parquet and Arrow; each with its place, and what is wrong."""

import csv
import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, BinaryIO, cast

from bothways.data.files import (
    ARROW,
    BLOCK,
    KINDS,
    UNPACKING_ERRORS,
    Line,
    checked_lines,
    is_packed,
    kind_of,
    known_kind,
    open_file,
    unpacking_failed,
)
from bothways.errors import InputError

Row = Mapping[str, Any]
Broken = Callable[[InputError], None]  # is told what is wrong with a row: raises to stop, returns to go on without it
csv.field_size_limit(sys.maxsize)


def stop(wrong: InputError) -> None:
    raise wrong


def rows(path: Path, *, column: str | None = None, broken: Broken = stop) -> Iterator[tuple[str, Row]]:
    """('file:line', columns by name) of a table. CSV is quoted as spreadsheets do, between commas,
    semicolons or tabs as its header has them; in TSV a quote is a character.

    column: one that is needed; where a header names the columns it must be among them, and Parquet reads no other.
    What is wrong with a row is told to `broken`; InputError where the file as a whole cannot be read.
    """
    kind = known_kind(path)
    if kind == ".jsonl":
        return _json_rows(path, broken)
    if kind in (".csv", ".tsv"):
        return _separated_rows(path, column, broken)
    if kind == ".parquet":
        return _parquet_rows(path, column, broken)
    if kind == ARROW:
        return _arrow_rows(path, column, broken)
    raise InputError(f"{path}: a {kind} has no columns; {', '.join(KINDS[1:])} have")


def no_column(where: str, column: str, there_are: Iterable[str]) -> InputError:
    there = ", ".join(there_are) or "none"
    return InputError(f"{where}: no column {column!r} (there are: {there}); rename yours or use --text-column")


def _json_rows(path: Path, broken: Broken) -> Iterator[tuple[str, Row]]:
    for number, line, wrong in checked_lines(path):
        if not line or line.isspace():
            continue
        where = f"{path}:{number}"
        row = wrong or _json_row(where, line)
        if isinstance(row, InputError):
            broken(row)
        else:
            yield where, row


def _json_row(where: str, line: str) -> Row | InputError:
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


def _separated_rows(path: Path, column: str | None, broken: Broken) -> Iterator[tuple[str, Row]]:
    header: list[str] = []
    for number, values, wrong in _records(path):
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
            header = values
            if twice := [name for name, number in Counter(header).items() if name and number > 1]:
                raise InputError(f"{where}: two columns are named {twice[0]!r}; rename one")
            if column is not None and column not in header:
                raise no_column(where, column, header)
        else:
            yield where, dict(zip(header, values, strict=True))


def _records(path: Path) -> Iterator[tuple[int, list[str], InputError | None]]:
    """(line on which it ends, a broken one begins; its values; what is wrong with it) of every record."""
    lines = _Rereadable(checked_lines(path))
    if kind_of(path) == ".tsv":
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


def _parquet_rows(path: Path, column: str | None, broken: Broken) -> Iterator[tuple[str, Row]]:
    import pyarrow
    import pyarrow.parquet

    with _seekable(path) as source:
        try:
            # Pages are read as they are needed; else whole row groups are.
            with pyarrow.parquet.ParquetFile(source, buffer_size=BLOCK, pre_buffer=False) as file:
                needed = _needed(path, column, file.schema_arrow.names)
                yield from _batch_rows(path, file.iter_batches(batch_size=256, columns=needed), broken)
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(
                f"{path}: not a sound Parquet file ({str(error).splitlines()[0]}); write it again"
            ) from None


def schema(path: Path) -> Any:
    """The schema of a Parquet or Arrow file that has been read before, a pyarrow.Schema."""
    import pyarrow.ipc
    import pyarrow.parquet

    if kind_of(path) == ARROW:
        with open_file(path) as file, pyarrow.ipc.open_stream(file) as batches:
            return batches.schema
    with _seekable(path) as source:
        return pyarrow.parquet.read_schema(source)


@contextmanager
def _seekable(path: Path) -> Iterator[Path | BinaryIO]:
    """The file, or a temporary one with what is packed in it: Parquet is read from its end."""
    with open_file(path) as file:
        if not is_packed(path):
            yield path
            return
        with TemporaryFile() as unpacked:
            try:
                copyfileobj(file, unpacked, BLOCK)
            except UNPACKING_ERRORS as error:
                raise unpacking_failed(str(path), error) from None
            yield cast(BinaryIO, unpacked)


def _arrow_rows(path: Path, column: str | None, broken: Broken) -> Iterator[tuple[str, Row]]:
    import pyarrow
    import pyarrow.ipc

    try:
        with open_file(path) as file, pyarrow.ipc.open_stream(file) as batches:
            needed = _needed(path, column, batches.schema.names)
            yield from _batch_rows(path, (batch.select(needed) for batch in batches), broken)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a sound Arrow file ({str(error).splitlines()[0]}); save it again") from None


def _needed(path: Path, column: str | None, there_are: list[str]) -> list[str]:
    if column is None:
        return there_are
    if column not in there_are:
        raise no_column(str(path), column, there_are)
    return [column]


def _batch_rows(path: Path, batches: Iterable[Any], broken: Broken) -> Iterator[tuple[str, Row]]:
    numbers = count(1)
    for batch in batches:
        try:
            found = batch.to_pylist()
        except (ValueError, OverflowError):
            found = [_row_of(batch, index) for index in range(len(batch))]
        for row in found:
            where = f"{path}: row {next(numbers)}"
            if isinstance(row, str):
                broken(InputError(f"{where}: {row}"))
            else:
                yield where, row


def _row_of(batch: Any, index: int) -> Row | str:
    """A row whose times may be more than Python's: those stand as text then. Or what is wrong with it."""
    try:
        return {name: _value_of(batch.column(place).slice(index, 1)) for place, name in enumerate(batch.schema.names)}
    except UnicodeDecodeError:
        return "not UTF-8; convert it first"
    except (ValueError, OverflowError) as error:
        return f"a value that cannot be read ({error}); mend it or drop the row"


def _value_of(one: Any) -> Any:
    import pyarrow

    try:
        return one.to_pylist()[0]
    except (ValueError, OverflowError):
        if not pyarrow.types.is_temporal(one.type):
            raise
        return one.cast(pyarrow.string()).to_pylist()[0]
