"""A table of predictions as CSV, for a spreadsheet."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bothways.io import SURROGATES, to_json, write_atomic

BYTE_ORDER_MARK = "\ufeff"  # without it Excel reads UTF-8 as another encoding


def write_predictions(columns: Mapping[str, Sequence[Any]], file: Path) -> None:
    """Write columns with their names as CSV (RFC 4180; UTF-8 with a byte-order mark), atomically. Lists become JSON."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(map(_cell, columns))
    writer.writerows(map(_cell, row) for row in zip(*columns.values(), strict=True))
    write_atomic(file, BYTE_ORDER_MARK + buffer.getvalue())


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = to_json(value)
    return SURROGATES.sub("\ufffd", value) if isinstance(value, str) else value
