"""Tables of values between commas, semicolons or tabs, or in the cells of a sheet; the first row names the columns."""

import csv
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, LineLocation, RowError, RowLocation, format_count
from bothways.settings.tables_in_memory import RowOrError
from bothways.text.rows import text_files
from bothways.text.rows.column_names import match_columns, missing_column

Records = Iterator[tuple[int, list[Any], InputError | str | None]]  # see _records
csv.field_size_limit(1 << 25)  # characters; bounds the memory that an unclosed quote takes


def read_delimited(path: Path, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    """The rows of a CSV or TSV, or their errors.

    CSV is quoted as by spreadsheets, and its delimiter (comma, semicolon or tab) is taken from the header. In TSV,
    quotes are ordinary characters.

    column: a required column, or several, comma-separated.
    """
    yield from _header_rows(path, column, _records(path, encoding))


def read_sheet(path: Path, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    """The rows of an Excel workbook, or their errors. Empty cells are "", as in CSV."""
    if text_files.is_compressed(path):
        raise InputError(f"{path}: an .xlsx is compressed in itself; decompress this one first")
    text_files.open_file(path).close()  # a missing file is no broken workbook
    records = ((number, cells, None) for number, cells in text_files.sheet_rows(path))
    yield from _header_rows(path, column, records)


def rows_per_line(path: Path, most: int, encoding: str | None = None) -> float:
    """Rows per line of a CSV, less than 1 where quoted values have several lines, in its first `most` rows.

    The header is no row. InputError if the file as a whole cannot be read.
    """
    lines = [number for number, _, _ in islice(_records(path, encoding), most + 1)]
    num_rows = len(lines) - 1
    if num_rows < 1:
        return 0.0
    return num_rows / (lines[-1] - 1 + (lines[-1] - lines[0]) / num_rows)  # the last row has as many as the others


def _header_rows(path: Path, column: str | None, records: Records) -> Iterator[RowOrError]:
    """The rows of a table whose first row names the columns."""
    header = _header(path, column, records)
    for number, (line_number, values, error) in enumerate(records):
        where = RowLocation(path, number, line_number)
        if not error and len(values) != len(header):
            columns = format_count(len(values), "column")
            error = f"{columns}, but the header has {len(header)}; fix the line or its quotes"
        if error:
            yield RowError(where, error) if isinstance(error, str) else error
        else:
            row = dict(zip(header, values, strict=True))
            yield where.with_id(row), row


def _header(path: Path, column: str | None, records: Records) -> list[str]:
    """The names of the columns, in the first record; [] without one. InputError if no row can be read with them."""
    for line_number, values, error in records:
        where = LineLocation(path, line_number)
        if error:
            raise RowError(where, error) if isinstance(error, str) else error
        header = [*map(str, values)]
        check_names(where, header)
        if column is not None and not match_columns(column, header):
            raise missing_column(where, column, header)
        return header
    return []


def check_names(where: str, names: Iterable[str]) -> None:
    """InputError if two columns have one name."""
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
