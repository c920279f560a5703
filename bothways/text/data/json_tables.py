"""Tables in a .json: a list of records, an object with such a list ({"data": [...]}), columns, or JSON lines.

SQuAD's JSON (text/data/squad.py) is no table: its records hold paragraphs.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, RowLocation
from bothways.settings.tables_in_memory import MemoryTable, TableRow, TableSource
from bothways.text.data.text_files import JSON, file_type, read_bytes

SQUAD_KEYS = (b'"paragraphs"', b'"qas"')
LAYOUTS = 'a list of objects, {"data": [...]} with such a list, or an object per line'


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


def has_questions(path: TableSource) -> bool:
    """Whether a file is a .json with a question in its first row, unlike SQuAD's."""
    if not isinstance(path, Path) or not is_json_table(path):
        return False
    content = read_bytes(path)
    first = content.removeprefix(BOM_UTF8).strip().partition(b"\n")[0]
    rows = [_parsed(first)] if is_json_lines(content) else _records(_parsed(content))
    return rows is not None and len(rows) > 0 and isinstance(rows[0], dict) and "question" in rows[0]


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
