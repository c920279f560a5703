"""Tables for the next line of code: pandas.DataFrame, or lists of rows without pandas; and the CSV files of a run."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from bothways.measure.report.page import write_predictions

# Columns that are texts even if they hold digits.
TEXTS = (
    "file",
    "id",
    "text",
    "pair",
    "gold",
    "predicted",
    "label",
    "suggested",
    "why",
)
# Columns of numbers and of True and False, whose type does not depend on the rows, even if there are none.
TYPES = {
    "row": int,
    "start": int,
    "end": int,
    "label_probability": float,
    "suggested_probability": float,
    "is_likely": bool,
}


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
    """A table without pandas: a list of rows. columns: their names, which a table without rows has, too."""

    columns: Sequence[str] = ()

    def to_csv(self, path: str | Path, **_: Any) -> None:
        """Write a CSV file with a header."""
        names = [*self[0].values] if self else self.columns
        write_predictions({name: [row[name] for row in self] for name in names}, Path(path))


def as_table(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Columns as a pandas.DataFrame, or as `RowList` if pandas is not installed. Both have `to_csv`."""
    try:
        from pandas import DataFrame, Series
    except ImportError:
        table = RowList()
        table.columns = [*columns]
        for values in zip(*columns.values(), strict=True):
            table.append(Row(dict(zip(columns, values, strict=True))))
        return table

    table = DataFrame(dict(columns))
    if len(table) == 0:
        # Of no values pandas cannot tell the type, and `df.iloc[table.row]` needs whole numbers.
        for name in columns:
            table[name] = Series([], dtype=TYPES.get(name, object))
    return table


def read_columns(
    file: Path,
    texts: Sequence[str] = TEXTS,
    kinds: Mapping[str, str] | None = None,
) -> dict[str, list[Any]]:
    """The columns of a CSV file of a run.

    file: a file of `write_predictions`.
    texts: the columns that hold texts. Others become numbers if each value is one; `is_likely` becomes True and False.
    kinds: the kinds of other columns, as `column_kinds` noted them when the file was written.
    """
    with file.open(encoding="utf-8-sig", newline="") as opened:
        head, *rows = csv.reader(opened)
    columns = zip(*rows, strict=True) if rows else ([] for _ in head)

    result = {}
    for name, column in zip(head, columns, strict=True):
        values = [*column]
        kind = "bool" if TYPES.get(name) is bool else (kinds or {}).get(name)
        if kind is not None:
            result[name] = _of_kind(values, kind)
        elif name in texts:
            result[name] = values
        else:
            result[name] = _numbers(values)
    return result


def _of_kind(values: list[str], kind: str) -> list[Any]:
    """The values as times, dates or True and False, missing ones as None, if each is one and loses nothing."""
    read = READERS[kind]
    try:
        read_values = [None if value == "" else read(value) for value in values]
    except (KeyError, ValueError):
        return values
    return read_values if _is_same(values, read_values) else values


READERS: Mapping[str, Callable[[str], Any]] = {
    "time": datetime.fromisoformat,
    "date": date.fromisoformat,
    "bool": {"True": True, "False": False}.__getitem__,
}


def _numbers(values: list[str]) -> list[Any]:
    """The values as numbers, missing ones as None, if none of them loses a digit that way, such as 007."""
    for kind in (int, float):
        try:
            numbers = [None if value == "" else kind(value) for value in values]
        except ValueError:
            continue
        if _is_same(values, numbers):
            # Of a column without values nothing tells the type.
            return numbers if any(values) else [*values]
    return values


def _is_same(values: Sequence[str], read_values: Sequence[Any]) -> bool:
    """Whether the values would be written as they were read; missing ones are None."""
    return all(value in ("", str(read_value)) for value, read_value in zip(values, read_values, strict=True))
