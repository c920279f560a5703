"""Tables in JSON lines, and in a .json: a list of records, an object with such a list, columns, or JSON lines.

SQuAD's JSON (text/data/squad.py) is no table: its records hold paragraphs.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, RowError, RowLocation
from bothways.settings.tables_in_memory import MemoryTable, RowOrError, TableRow, TableSource
from bothways.text.rows.text_files import JSON, decoded_lines, file_type, read_bytes

SQUAD_KEYS = (b'"paragraphs"', b'"qas"')
LAYOUTS = 'a list of objects, {"data": [...]} with such a list, or an object per line'


def read_json_lines(path: Path, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    """The rows of a .jsonl, an object a line, or their errors. Blank lines are no rows.

    column: not used, since any row may have other columns.
    """
    lines = (line for line in decoded_lines(path, encoding) if line.text and not line.text.isspace())
    for number, line in enumerate(lines):
        where = RowLocation(path, number, line.number)
        row = line.error or _json_row(where, line.text)
        yield row if isinstance(row, InputError) else (where.with_id(row), row)


def read_json(path: Path, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    """The rows of a .json, or their errors: JSON lines, or one value that holds all rows."""
    if is_json_lines(read_bytes(path)):
        yield from read_json_lines(path, column, encoding)
        return

    for where, row in json_items(path, encoding):
        if isinstance(row, dict):
            yield where, row
        else:
            yield RowError(where, f"expected an object, found {type(row).__name__}; give one per row")


def _json_row(where: RowLocation, line: str) -> TableRow | InputError:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        return RowError(where, f"not valid JSON ({error.msg} at column {error.colno}); fix the line")
    except (ValueError, RecursionError) as error:  # numbers with too many digits, brackets nested too deeply
        return RowError(where, f"not readable as JSON ({error}); fix the line")
    if isinstance(row, dict):
        return row
    return RowError(where, f"expected a JSON object, found {type(row).__name__}; write one object per line")


def is_json_table(path: TableSource) -> bool:
    """Whether a file is a .json with rows: the rows of a list, of an object with a list, or of lines."""
    if isinstance(path, MemoryTable) or file_type(path) != JSON or not path.is_file():
        return False
    content = read_bytes(path)
    if content.removeprefix(BOM_UTF8).lstrip()[:1] == b"[":
        return True
    if all(key in content for key in SQUAD_KEYS):
        return False
    return is_json_lines(content) or _records(_parsed(content)) is not None


def is_json_lines(content: bytes) -> bool:
    """Whether the first line alone is an object, and another line follows."""
    first, _, rest = content.removeprefix(BOM_UTF8).strip().partition(b"\n")
    return rest != b"" and isinstance(_parsed(first), dict)


def json_items(path: Path, encoding: str | None = None) -> Iterator[tuple[RowLocation, Any]]:
    """(location, value) of each row of a .json whose content is one value. encoding: None means UTF-8, 16 or 32.

    InputError if it holds no rows.
    """
    content = read_bytes(path)
    try:
        value = json.loads(content.decode(encoding) if encoding and not content.startswith(BOM_UTF8) else content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable as JSON ({error}); give {LAYOUTS}") from None
    if all(key in content for key in SQUAD_KEYS):
        raise InputError(f"{path}: holds SQuAD's questions, which only question answering reads; give {LAYOUTS}")
    rows = _records(value)
    if rows is None:
        raise InputError(f"{path}: holds {type(value).__name__} without rows; give {LAYOUTS}")
    for number, row in enumerate(rows):
        where = RowLocation(path, number)
        yield where.with_id(row) if isinstance(row, Mapping) else where, row


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _records(value: Any) -> list[Any] | None:
    """The rows of a list, of the only list of objects in an object, or of an object of columns; None for other
    values."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict) or not value:
        return None
    columns = [*value.values()]
    lists = [column for column in columns if isinstance(column, list) and column and isinstance(column[0], dict)]
    if len(lists) == 1:
        return lists[0]
    return _rows_of_columns(value)


def _rows_of_columns(columns: Mapping[str, Any]) -> list[TableRow] | None:
    """The rows of columns of one length: lists of values, or objects of values by row, as pandas writes them; None for
    anything else."""
    values = [[*column.values()] if isinstance(column, dict) else column for column in columns.values()]
    if not all(isinstance(column, list) for column in values):
        return None
    lengths = {len(column) for column in values}
    if len(lengths) > 1 or 0 in lengths:
        return None
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
