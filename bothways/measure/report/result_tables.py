"""Tables for the next line of code: pandas.DataFrame, or lists of rows without pandas; and the CSV files of a run."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bothways.measure.report.page import write_predictions

# Columns that are texts even if they hold digits.
TEXTS = ("file", "id", "text", "pair", "gold", "predicted", "label", "suggested", "why")


@dataclass(frozen=True)
class Row:
    """A row of a table: `row["label"]` or `row.label`."""

    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __getattr__(self, name: str) -> Any:
        if name == "values" or name not in self.values:  # "values" is missing while a row is unpickled
            raise AttributeError(f"no column {name!r}")
        return self.values[name]


class RowList(list[Row]):
    """A table without pandas: a list of rows."""

    def to_csv(self, path: str | Path, **_: Any) -> None:
        """Write a CSV file with a header."""
        names = [*self[0].values] if self else []
        write_predictions({name: [row[name] for row in self] for name in names}, Path(path))


def as_table(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Columns as a pandas.DataFrame, or as `RowList` if pandas is not installed. Both have `to_csv`."""
    try:
        from pandas import DataFrame
    except ImportError:
        return RowList(Row(dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True))
    return DataFrame(dict(columns))


def read_columns(file: Path, texts: Sequence[str] = TEXTS) -> dict[str, list[Any]]:
    """The columns of a CSV file of a run. Columns of numbers become numbers, except for those that hold texts."""
    with file.open(encoding="utf-8-sig", newline="") as opened:
        head, *rows = csv.reader(opened)
    columns = zip(*rows, strict=True) if rows else ([] for _ in head)
    return {
        name: [*values] if name in texts else _numbers([*values]) for name, values in zip(head, columns, strict=True)
    }


def _numbers(values: list[str]) -> list[Any]:
    """The values as numbers, missing ones as None, if none of them loses a digit that way, such as 007."""
    for kind in (int, float):
        try:
            numbers = [None if value == "" else kind(value) for value in values]
        except ValueError:
            continue
        if all(value in ("", str(number)) for value, number in zip(values, numbers, strict=True)):
            return numbers if any(values) else [*values]
    return values
