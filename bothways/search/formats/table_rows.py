"""Rows of a table for search: the text of each row, its line, and its other values."""

import math
from collections.abc import Iterator
from datetime import date, datetime, time
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError
from bothways.search.formats.plain_text import MOST_VALUES, Scalar, Value, check_is_text, read_scalar
from bothways.text.data.columns import PAIR_NAMES, TEXT_NAMES
from bothways.text.rows.rows import open_rows
from bothways.text.rows.text_files import BLOCK, DECOMPRESSION_ERRORS, decompression_error, file_type, open_file

LONGEST_LINE = 1 << 24  # bytes of a line in JSON lines, CSV and TSV
LARGEST_INTEGER = 1 << 63
LONGEST_VALUE = 1000  # characters of a text that filters may compare
TITLES = (
    "title",
    "headline",
    "heading",
    "name",
    "subject",
)
TEXTS = {
    "text",
    "body",
    "description",
    "passage",
    *TEXT_NAMES,
    *chain.from_iterable(PAIR_NAMES),
}.difference(TITLES)


def table_rows(path: Path, encoding: str | None) -> Iterator[tuple[str, int, dict[str, Value]]]:
    """(text, line, metadata) of every row with text.

    text: the columns with a name of TEXTS, after the columns with a name of TITLES; without texts, it is
        `name: value` of every column of strings.
    line: in the file, from 1; Parquet counts as a line a row.
    metadata: the other strings, numbers, truth values and times (in ISO format), and lists of them, or all columns if
        there are no texts; and `row`, the number of the row from 0, unless a column has this name.
    """
    kind = file_type(path)
    if kind != ".parquet":
        check_is_text(path, encoding)
        _check_lines(path)

    columns_of = cache(_text_columns)  # rows of JSON lines may differ in their columns, but most have the same
    is_typed = kind not in (".csv", ".tsv")
    for where, row in open_rows(path, encoding).read():
        columns = columns_of(tuple(row))
        text = _row_text(row, columns)
        if not text.strip():
            continue
        line = where.row + 1 if where.line is None else where.line
        yield text, line, {"row": where.row, **_metadata(row, columns, is_typed)}


def _check_lines(path: Path) -> None:
    """InputError for a line of more than LONGEST_LINE bytes, before a reader would load it.

    Lines end in line feeds, or in carriage returns if there are no line feeds.
    """
    longest = {b"\n": 0, b"\r": 0}  # line, if they end in this mark
    current = {b"\n": 0, b"\r": 0}  # bytes since the last mark
    has_line_feed = False

    with open_file(path) as file:
        try:
            for block in iter(partial(file.read, BLOCK), b""):
                has_line_feed = has_line_feed or b"\n" in block
                for mark in longest:
                    # Lines within a block are shorter than the limit, so only its first and last line count.
                    first = block.find(mark)
                    if first < 0:
                        current[mark] += len(block)
                        longest[mark] = max(longest[mark], current[mark])
                    else:
                        longest[mark] = max(longest[mark], current[mark] + first)
                        current[mark] = len(block) - block.rfind(mark) - 1
        except DECOMPRESSION_ERRORS as error:
            raise decompression_error(str(path), error) from None

    if longest[b"\n" if has_line_feed else b"\r"] > LONGEST_LINE:
        raise InputError(f"{path}: a line of more than {LONGEST_LINE >> 20} MiB; a table has one row a line")


def _text_columns(names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of texts, titles first; () if there are none. A title alone is none."""
    texts = [name for name in names if name.strip().lower() in TEXTS]
    if not texts:
        return ()
    titles = [name for name in names if name.strip().lower() in TITLES]
    return (*titles, *texts)


def _row_text(row: Any, text_columns: tuple[str, ...]) -> str:
    if not text_columns:
        return "\n".join(f"{name}: {value}" for name, value in row.items() if isinstance(value, str) and value.strip())
    values = [row[name] for name in text_columns]
    texts = [str(value) for value in values if isinstance(value, str | int)]
    return "\n\n".join(text for text in texts if text.strip())


def _metadata(row: Any, text_columns: tuple[str, ...], is_typed: bool) -> dict[str, Value]:
    """The values of all other columns than the text's. is_typed: whether a number is not a text, as in CSV."""
    values = {}
    for name, column in row.items():
        if name in text_columns:
            continue
        value = _value(column, is_typed)
        if value is not None:
            values[name] = value
    return values


def _value(value: Any, is_typed: bool) -> Value | None:
    if not isinstance(value, list):
        return _scalar(value, is_typed)
    if len(value) > MOST_VALUES:
        return None
    scalars = [_scalar(item, is_typed) for item in value]
    return [scalar for scalar in scalars if scalar is not None] or None


def _scalar(value: Any, is_typed: bool) -> Scalar | None:
    """The value if it is a string, number, truth value or time; None for lists, objects and missing values."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, int):
        return value if abs(value) < LARGEST_INTEGER else str(value)
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_VALUE:
        return None
    return value if is_typed else read_scalar(value)
