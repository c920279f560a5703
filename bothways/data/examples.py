"""Labelled examples from a table: texts, their pairs and labels, by column names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bothways.data.files import kind_of, open_file, text_lines
from bothways.data.tables import rows
from bothways.errors import InputError


@dataclass(frozen=True)
class Table:
    """Texts with, where the file has them, pairs and labels; `where` says file and line of each."""

    texts: list[str]
    pairs: list[str] | None
    labels: list[str] | None
    where: list[str]

    def __len__(self) -> int:
        return len(self.texts)


def read_table(path: Path, *, text: str = "text", pair: str = "pair", label: str = "label", need_labels: bool) -> Table:
    """Read columns by name; `pair` and, if need_labels is off, `label` may be absent. A .txt holds one text a line.

    InputError names the file, the line and the columns there are.
    """
    if kind_of(path) == ".txt":
        if need_labels:
            raise InputError(
                f"{path}: a .txt has no labels; give .csv, .tsv, .jsonl or .parquet with columns {text!r} and {label!r}"
            )
        numbered = list(text_lines(path))
        if not numbered:
            raise InputError(f"{path}: empty; a file of texts holds one a line")
        return Table([line for _, line in numbered], None, None, [f"{path}:{number}" for number, _ in numbered])
    open_file(path).close()
    found = list(rows(path))
    if not found:
        raise InputError(f"{path}: empty; a table has a header and at least one row")
    columns = found[0][1]
    if missing := [name for name in ([text, label] if need_labels else [text]) if name not in columns]:
        raise InputError(
            f"{path}: no column {missing[0]!r} (there are: {', '.join(columns)}); "
            f"rename one, or name yours with --{'text' if missing[0] == text else 'label'}-column"
        )
    paired = any(pair in row for _, row in found)
    needed = [text, *([pair] if paired else []), *([label] if need_labels else [])]
    for where, row in found:
        if absent := [name for name in needed if row.get(name) is None]:
            raise InputError(f"{where}: {absent[0]!r} is missing; fill it in or drop the row")
    return Table(
        [str(row[text]) for _, row in found],
        [str(row[pair]) for _, row in found] if paired else None,
        [str(row[label]) for _, row in found] if all(row.get(label) is not None for _, row in found) else None,
        [where for where, _ in found],
    )


def label_numbers(table: Table, names: Sequence[str]) -> list[int]:
    """Each row's label as its place among `names`. InputError where one is not among them."""
    place = {name: index for index, name in enumerate(names)}
    assert table.labels is not None
    for where, label in zip(table.where, table.labels, strict=True):
        if label not in place:
            raise InputError(f"{where}: label {label!r} is unknown; the model knows {', '.join(names)}")
    return [place[label] for label in table.labels]
