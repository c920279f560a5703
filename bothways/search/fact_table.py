"""The table of an extraction: one row for each fact, as Parquet, CSV or JSON lines."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.io import SURROGATES, to_json
from bothways.base.terminal import escape_controls

COLUMNS = (
    "path",
    "kind",
    "name",
    "text",
    "start",
    "end",
    "line",
    "page",
    "score",
    "group",
)
FORMATS = (".parquet", ".csv", ".jsonl")


def write_rows(rows: Sequence[dict[str, Any]], path: Path, kind: str) -> None:
    """Write a table; the same rows give the same bytes.

    rows: with the keys COLUMNS.
    path: of the file, whatever its name.
    kind: one of FORMATS.
    """
    if kind == ".parquet":
        _write_parquet(rows, path)
        return

    with path.open("w", encoding="utf-8", newline="\n") as file:
        if kind == ".jsonl":
            file.writelines(to_json({name: row[name] for name in COLUMNS}) + "\n" for row in rows)
        else:
            table = chain([COLUMNS], ([row[name] for name in COLUMNS] for row in rows))
            file.writelines(",".join(map(_cell, values)) + "\n" for values in table)


def _write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    # Types are given, since a column that is empty in all rows would have none.
    types = {
        "start": pa.int64(),
        "end": pa.int64(),
        "line": pa.int64(),
        "page": pa.int64(),
        "score": pa.float64(),
    }
    schema = pa.schema([(name, types.get(name, pa.string())) for name in COLUMNS])
    values = [{name: _encodable(row[name]) for name in COLUMNS} for row in rows]
    parquet.write_table(pa.Table.from_pylist(values, schema), path, compression="zstd")


def _cell(value: Any) -> str:
    """A value in a .csv: texts in quotes, numbers without, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        quoted = str(_encodable(value)).replace('"', '""')
        return f'"{quoted}"'
    if isinstance(value, float):
        return str(np.format_float_positional(value, trim="-"))
    return str(value)


def _encodable(value: Any) -> Any:
    """A value of a column. Only JSON can hold the bytes of a file name that are not UTF-8; here they are escaped."""
    if isinstance(value, str):
        return SURROGATES.sub(lambda match: escape_controls(match[0]), value)
    return value
