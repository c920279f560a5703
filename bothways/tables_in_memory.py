"""Tables in memory, which settings take in place of files: lists of dicts, dicts of columns, pandas, Arrow and whatever
else gives Arrow data."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

from bothways.errors import InputError

Row = Mapping[str, Any]
RowErrorHandler = Callable[
    [InputError], None
]  # takes what is wrong with a row: raises to stop, returns to go on without it
COLUMN_PACKAGES = ("pandas", "polars", "pyarrow", "datasets")  # whose columns of text are no lists of paths
ROWS_AT_ONCE = 256
LONGEST_NAME = 255  # characters of a file's name, on all usual systems
SHOWN = 60  # characters of a value in a message


class MemoryTable:
    """A table in memory. Lists and dicts are copied, Arrow's data is shared.

    name: the setting that it was given as, which stands in messages where a file's name would: "train: row 17" (rows
    count from 1). kind: what it was given as, such as "pandas.DataFrame". data: a pyarrow.Table, or a list of rows,
    which may have different columns.
    """

    def __init__(self, name: str, kind: str, data: Any) -> None:
        self.name, self.kind, self.data = name, kind, data

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.name} ({self.kind}, {self.num_rows:,} rows)"

    def __deepcopy__(self, memo: object) -> "MemoryTable":
        return self  # nothing changes it; dataclasses.asdict copies

    @property
    def num_rows(self) -> int:
        return len(self.data)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        if isinstance(self.data, list):
            return tuple(dict.fromkeys(name for row in self.data if isinstance(row, dict) for name in row))
        return tuple(self.data.schema.names)

    @property
    def schema(self) -> Any:
        """A pyarrow.Schema; None of a list of rows."""
        return None if isinstance(self.data, list) else self.data.schema

    def rows(self, broken: RowErrorHandler, columns: Sequence[str] | None = None) -> Iterator[tuple[str, Row]]:
        """("train: row 1", values by column). What is wrong with a row goes to `broken`. columns: of Arrow data, those
        to read; None: all."""
        if not isinstance(self.data, list):
            data = self.data if columns is None else self.data.select([*columns])
            yield from rows_from_batches(self.name, data.to_batches(max_chunksize=ROWS_AT_ONCE), broken)
            return
        for number, row in enumerate(self.data, 1):
            where = f"{self.name}: row {number}"
            if isinstance(row, dict):
                yield where, row
            else:
                broken(InputError(f"{where}: expected a dict, found {type(row).__name__}; give one dict a row"))

    @cached_property
    def fingerprint(self) -> str:
        """Names the content: a hash of all rows, in order."""
        found = hashlib.sha256(json.dumps(self.columns).encode())
        wrong: list[InputError] = []
        for _, row in self.rows(wrong.append):
            found.update(json.dumps(row, default=str).encode() + b"\n")
        found.update(json.dumps([str(one).removeprefix(self.name) for one in wrong]).encode())
        return found.hexdigest()[:16]

    def record(self) -> dict[str, Any]:
        """What bothways.json holds in place of a path."""
        return {
            "kind": self.kind, "rows": self.num_rows, "columns": [*self.columns], "fingerprint": self.fingerprint,
        }  # fmt: skip


TableSource = Path | MemoryTable  # what rows are read from; a path may also be a folder, a glob or hf:OWNER/NAME


def as_source(name: str, value: Any) -> Any:
    """A table as a MemoryTable; anything else, such as a path, as it is. InputError for a table that cannot be read.

    value: dicts (one a row), a dict of columns, a DataFrame, an Arrow Table or RecordBatch, a Dataset of `datasets`,
    whatever has `__arrow_c_stream__`; or one column of pandas, Arrow or `datasets`, which becomes the column "text".
    """
    if isinstance(value, str | bytes | PathLike | MemoryTable):
        return value
    if isinstance(value, Mapping):
        return MemoryTable(name, "dict of columns", _rows_of_columns(name, value))
    kind = f"{type(value).__module__.split('.')[0]}.{type(value).__qualname__}"
    if _has(value, "features") and _has(value, "column_names"):
        return MemoryTable(name, kind, _of_dataset(value))
    if kind.startswith(COLUMN_PACKAGES) and not any(_has(value, one) for one in ("columns", "column_names", "schema")):
        return MemoryTable(name, kind, [{"text": text} for text in _values(name, "text", value)])
    if _has(value, "__arrow_c_stream__") or kind == "pandas.DataFrame":
        return MemoryTable(name, kind, _of_arrow(name, kind, value))
    if isinstance(value, Sequence | Iterator):
        rows = [*value]
        if any(isinstance(row, Mapping) for row in rows) and not isinstance(rows[0], str | PathLike):
            return MemoryTable(name, "list of dicts", [*map(_plain, rows)])
        return rows
    return value


def as_sources(name: str, value: Any) -> Any:
    """The same of one source or several. A list of texts is refused if they cannot be paths."""
    value = as_source(name, value)
    if not isinstance(value, list):
        return value
    if any(isinstance(one, str) and ("\n" in one or max(map(len, one.split("/"))) > LONGEST_NAME) for one in value):
        raise InputError(f"{name} holds texts where paths are expected; give texts as {{'text': [...]}}")
    return [as_source(f"{name}[{place}]", one) for place, one in enumerate(value)]


def batch_rows(name: object, batches: Iterable[Any], broken: RowErrorHandler) -> Iterator[tuple[str, Row]]:
    """("NAME: row 1", values by column) of Arrow's record batches. What is wrong with a row goes to `broken`."""
    numbers = count(1)
    for batch in batches:
        try:
            found = batch.to_pylist()
        except (ValueError, OverflowError):
            found = [_row_of(batch, index) for index in range(len(batch))]
        for row in found:
            where = f"{name}: row {next(numbers)}"
            if isinstance(row, str):
                broken(InputError(f"{where}: {row}"))
            else:
                yield where, row


def _row_of(batch: Any, index: int) -> TableRow | str:
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


# --- what people have, as rows or as Arrow data -----------------------------------------------------------------------


def _has(value: Any, name: str) -> bool:
    return hasattr(type(value), name) or hasattr(value, name)


def _of_arrow(name: str, kind: str, value: Any) -> Any:
    import pyarrow

    try:
        table = pyarrow.table(value)
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        why = "; ".join(str(part).partition("\n")[0] for part in error.args)
        raise InputError(f"{name}: {kind} does not fit into Arrow columns ({why}); give each column one type") from None
    unnamed = [column for column in table.column_names if column.startswith("__index_level_")]  # of pandas
    return table.drop_columns(unnamed) if unnamed else table


def _of_dataset(value: Any) -> Any:
    """A Dataset's rows as Arrow data, whose schema names the classes; of an IterableDataset all rows are read."""
    if hasattr(value, "__len__"):
        return value.with_format("arrow")[:]
    if value.features is None:
        return [*map(_plain, value)]
    import pyarrow

    return pyarrow.Table.from_pylist([*value], schema=value.features.arrow_schema)


def _rows_of_columns(name: str, columns: Mapping[Any, Any]) -> list[TableRow]:
    if tables := [
        str(key) for key, value in columns.items() if isinstance(value, Mapping) or _has(value, "column_names")
    ]:
        raise InputError(f"{name} is several tables ({', '.join(tables)}); give one, such as data[{tables[0]!r}]")
    found = {str(column): _values(name, str(column), value) for column, value in columns.items()}
    sizes = {column: len(values) for column, values in found.items()}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{column} {size:,}" for column, size in sizes.items())
        raise InputError(f"{name}: columns of different lengths ({told}); give each row a value in every column")
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def _values(name: str, column: str, value: Any) -> list[Any]:
    """A column's values, as Python's objects."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name}: column {column!r} holds {value!r:.{SHOWN}}; give a list, one value a row")
    convert = getattr(value, "to_pylist", None) or getattr(value, "tolist", None) or value.__iter__
    return [*map(_plain, convert())]


def _plain(value: Any) -> Any:
    """A value as JSON lines would have it: lists in place of tuples, sets and arrays, None for pandas' NA."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    if isinstance(value, Set):
        return sorted(map(_plain, value), key=str)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    convert = getattr(value, "to_pylist", None) or getattr(value, "tolist", None)
    return _plain(convert()) if convert else value
