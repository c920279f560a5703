"""In-memory tables as input: list of dicts, dict of columns, pandas, Arrow, datasets."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from bothways.base.errors import InputError, RowError, RowLocation, format_count, require
from bothways.settings.fields import AnyPath

TableRow = Mapping[str, Any]  # values by column
LocatedRow = tuple[RowLocation, TableRow]
RowOrError = LocatedRow | InputError  # the error of a row that cannot be read stands in its place
COLUMN_PACKAGES = ("pandas", "polars", "pyarrow", "datasets")  # their columns of strings are texts, not paths
BATCH_ROWS = 256
MAX_FILE_NAME = 255  # characters, on all common systems
MAX_SHOWN = 60  # characters of a value in a message


class MemoryTable:
    """A table in memory. Lists and dicts are copied, Arrow data is shared.

    name: name of the setting, used in messages like a file name: "train: row 17" (counted from 0). kind: the original
    type, such as "pandas.DataFrame". data: a pyarrow.Table, or a list of rows whose columns may differ.
    """

    def __init__(self, name: str, kind: str, data: Any) -> None:
        self.name = name
        self.kind = kind
        self.data = data

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.name} ({self.kind}, {format_count(self.num_rows, 'row')})"

    def __deepcopy__(self, memo: object) -> "MemoryTable":
        return self  # immutable; dataclasses.asdict copies it

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
        """The pyarrow.Schema; None for a list of rows."""
        return None if isinstance(self.data, list) else self.data.schema

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[RowOrError]:
        """(location, values by column) of each row, or its error.

        columns: those to read of Arrow data; None reads all.
        """
        if not isinstance(self.data, list):
            data = self.data if columns is None else self.data.select([*columns])
            yield from rows_from_batches(self.name, data.to_batches(max_chunksize=BATCH_ROWS))
            return

        for number, row in enumerate(self.data):
            where = RowLocation(self.name, number)
            if isinstance(row, dict):
                yield where.with_id(row), row
            else:
                yield RowError(where, f"expected a dict, found {type(row).__name__}; give one dict per row")

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all rows, in order."""
        digest = hashlib.sha256(json.dumps(self.columns).encode())
        errors: list[InputError] = []
        for row in self.rows():
            if isinstance(row, InputError):
                errors.append(row)
            else:
                digest.update(json.dumps(row[1], default=str).encode() + b"\n")
        digest.update(json.dumps([str(error).removeprefix(self.name) for error in errors]).encode())
        return digest.hexdigest()[:16]

    def record(self) -> dict[str, Any]:
        """The description that bothways.json stores in place of a path."""
        return {"kind": self.kind, "rows": self.num_rows, "columns": [*self.columns], "fingerprint": self.fingerprint}


class TableList(MemoryTable):
    """Several tables that are read as one, in their order. Each row has the location in its own table.

    parts: files, datasets or tables in memory. The readers of text/data join their rows; this class has none itself.
    """

    def __init__(self, parts: Sequence["TableSource"]) -> None:
        super().__init__(", ".join(map(str, parts)), "list of tables", [])
        self.parts = tuple(parts)

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.parts))}]"

    def record(self) -> Any:
        """The names or records of the tables, as bothways.json stores them."""
        return [part.record() if isinstance(part, MemoryTable) else str(part) for part in self.parts]


class ArrowData(Protocol):
    """An object that exports Arrow data: a DataFrame of pandas or Polars, a table of pyarrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


TableSource = Path | MemoryTable  # a path may also be a folder, a glob or hf:OWNER/NAME
Table = AnyPath | MemoryTable | Mapping[str, Any] | Iterable[Mapping[str, Any]] | ArrowData  # what `as_source` takes


def as_source(name: str, value: Any) -> Any:
    """Convert a table to a MemoryTable; return anything else, such as a path, unchanged.

    value: a list of dicts (one per row) or of spaCy's pairs (text, {"entities": [...]}), a dict of columns, a
    DataFrame, an Arrow Table or RecordBatch, a Dataset of `datasets`, any object with `__arrow_c_stream__`; or a single
    column of pandas, Arrow or `datasets`, which becomes the column "text". InputError if a table cannot be converted.
    """
    if isinstance(value, str | bytes | PathLike | MemoryTable):
        return value
    if isinstance(value, Mapping):
        return MemoryTable(name, "dict of columns", _rows_from_columns(name, value))

    kind = f"{type(value).__module__.split('.')[0]}.{type(value).__qualname__}"
    if _has_attribute(value, "features") and _has_attribute(value, "column_names"):
        return MemoryTable(name, kind, _data_from_dataset(value))

    is_table = any(_has_attribute(value, attribute) for attribute in ("columns", "column_names", "schema"))
    if kind.startswith(COLUMN_PACKAGES) and not is_table:
        return MemoryTable(name, kind, [{"text": text} for text in _column_values(name, "text", value)])
    if _has_attribute(value, "__arrow_c_stream__") or kind == "pandas.DataFrame":
        return MemoryTable(name, kind, _arrow_table(name, kind, value))

    if isinstance(value, Sequence | Iterator):
        rows = [*value]
        if rows and all(map(is_annotated_pair, rows)):
            return MemoryTable(name, "list of texts with annotations", [_json_value({"text": a, **b}) for a, b in rows])
        if any(isinstance(row, Mapping) for row in rows) and not isinstance(rows[0], str | PathLike):
            return MemoryTable(name, "list of dicts", [*map(_json_value, rows)])
        return rows
    return value


def is_annotated_pair(row: Any) -> bool:
    """Whether a row is a text and its annotations, as spaCy 2 trains on: ("In Rome", {"entities": [(3, 7, "LOC")]})."""
    return isinstance(row, list | tuple) and len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], Mapping)


def as_sources(name: str, value: Any) -> Any:
    """Like `as_source`, for one source or a list of them. InputError if a list holds texts rather than paths."""
    value = as_source(name, value)
    if not isinstance(value, list):
        return value
    texts = (source for source in value if isinstance(source, str))
    if any("\n" in text or max(map(len, text.split("/"))) > MAX_FILE_NAME for text in texts):
        raise InputError(f"{name} holds texts where paths are expected; give texts as {{'text': [...]}}")
    return [as_source(f"{name}[{index}]", source) for index, source in enumerate(value)]


def parts_of(source: "TableSource") -> tuple["TableSource", ...]:
    """The tables of a list, or the only table."""
    return source.parts if isinstance(source, TableList) else (source,)


def rows_from_batches(
    name: object, batches: Iterable[Any], numbers: Iterator[int] | None = None
) -> Iterator[RowOrError]:
    """(location, values by column) of each row of Arrow record batches, or its error.

    numbers: of the rows; None: from 0.
    """
    numbers = count() if numbers is None else numbers
    for batch in batches:
        try:
            rows = batch.to_pylist()
        except (ValueError, OverflowError):
            rows = [_read_row(batch, index) for index in range(len(batch))]
        for row in rows:
            where = RowLocation(name, next(numbers))
            if isinstance(row, str):
                yield RowError(where, row)
            else:
                yield where.with_id(row), row


def _read_row(batch: Any, index: int) -> TableRow | str:
    """A row of a batch, with times outside of Python's range as text; or an error message."""
    try:
        names = enumerate(batch.schema.names)
        return {name: _read_value(batch.column(column).slice(index, 1)) for column, name in names}
    except UnicodeDecodeError:
        return "not UTF-8; convert it first"
    except (ValueError, OverflowError) as error:
        return f"a value cannot be read ({error}); correct it or drop the row"


def _read_value(array: Any) -> Any:
    """The value of an Arrow array of length 1."""
    import pyarrow

    try:
        return array.to_pylist()[0]
    except (ValueError, OverflowError):
        if not pyarrow.types.is_temporal(array.type):
            raise
        return array.cast(pyarrow.string()).to_pylist()[0]


# --- conversion -------------------------------------------------------------------------------------------------------


def _has_attribute(value: Any, name: str) -> bool:
    return hasattr(type(value), name) or hasattr(value, name)


def _arrow_table(name: str, kind: str, value: Any) -> Any:
    require(name, "pyarrow")
    import pyarrow

    try:
        table = pyarrow.table(value)
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        reason = "; ".join(str(part).partition("\n")[0] for part in error.args)
        raise InputError(
            f"{name}: {kind} does not fit into Arrow columns ({reason}); use one type per column"
        ) from None
    index_columns = [column for column in table.column_names if column.startswith("__index_level_")]  # from pandas
    return table.drop_columns(index_columns) if index_columns else table


def _data_from_dataset(value: Any) -> Any:
    """The rows of a Dataset as Arrow data, whose schema names the classes. An IterableDataset is read completely."""
    if hasattr(value, "__len__"):
        return value.with_format("arrow")[:]
    if value.features is None:
        return [*map(_json_value, value)]
    import pyarrow

    return pyarrow.Table.from_pylist([*value], schema=value.features.arrow_schema)


def _rows_from_columns(name: str, columns: Mapping[Any, Any]) -> list[TableRow]:
    is_table = {
        str(key): isinstance(value, Mapping) or _has_attribute(value, "column_names") for key, value in columns.items()
    }
    if tables := [key for key, holds in is_table.items() if holds]:
        raise InputError(f"{name} is several tables ({', '.join(tables)}); give one, such as data[{tables[0]!r}]")
    values_by_column = {str(column): _column_values(name, str(column), value) for column, value in columns.items()}
    lengths = {column: len(values) for column, values in values_by_column.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{column} {length:,}" for column, length in lengths.items())
        raise InputError(f"{name}: columns of different lengths ({listed}); give each row a value in every column")
    return [dict(zip(values_by_column, row, strict=True)) for row in zip(*values_by_column.values(), strict=True)]


def _column_values(name: str, column: str, value: Any) -> list[Any]:
    """The values of a column as Python objects."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name}: column {column!r} holds {value!r:.{MAX_SHOWN}}; give a list with one value per row")
    convert = getattr(value, "to_pylist", None) or getattr(value, "tolist", None) or value.__iter__
    return [*map(_json_value, convert())]


def _json_value(value: Any) -> Any:
    """The value in JSON's types: tuples, sets and arrays become lists, and pandas' NA becomes None."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_json_value, value)]
    if isinstance(value, Set):
        return sorted(map(_json_value, value), key=str)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    convert = getattr(value, "to_pylist", None) or getattr(value, "tolist", None)
    return _json_value(convert()) if convert else value
