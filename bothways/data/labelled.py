"""All rows of what people keep labels in: a table in a file or in memory, a dataset saved by Hugging Face's `datasets`,
a name on the hub."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bothways.data.files import ARROW, NAMED_KINDS, kind_of, open_file
from bothways.data.hub import PREFIX, HubDataset, saved_files
from bothways.data.tables import Broken, Row, rows, schema, stop
from bothways.errors import InputError
from bothways.tables_in_memory import MemoryTable, Source

ClassNames = Mapping[str, Sequence[str]]  # of a column that holds numbers of classes, or lists of them


def is_dataset(path: Path) -> bool:
    """Whether it is the name of a dataset on the hub, or a directory."""
    return path.as_posix().startswith(PREFIX) or path.is_dir()


def is_lines(path: Source) -> bool:
    """Whether it is a .txt, which holds a text a line."""
    return not isinstance(path, MemoryTable) and kind_of(path) == ".txt" and not is_dataset(path)


def has_named_columns(path: Source) -> bool:
    """Whether it is of a kind whose columns have names whatever is in it, so no CSV, TSV or text."""
    return isinstance(path, MemoryTable) or is_dataset(path) or kind_of(path) in (".jsonl", ".parquet", *NAMED_KINDS)


def labelled_rows(path: Source, *, broken: Broken = stop, encoding: str | None = None) -> list[tuple[str, Row]]:
    """('file:line', columns by name) of a table in a file or in memory, of `hf:NAME[:CONFIG][@SPLIT]`, or of a
    directory `datasets` saved.

    The split is `train` unless it is named: hf:owner/name@validation; in a saved DatasetDict, DIRECTORY/validation.
    Where the dataset names its classes, the names stand in place of their numbers, and None in place of -1, no class.
    broken, encoding: as of tables.rows. InputError for what cannot be read.
    """
    if isinstance(path, MemoryTable):
        return _named(list(rows(path, broken=broken)), class_names(_features(path.schema)), broken)
    if path.as_posix().startswith(PREFIX):
        dataset = HubDataset.parse(path.as_posix())
        return _named(list(dataset.rows()), class_names(dataset.features()), broken)
    found: list[tuple[str, Row]] = []
    for file in (saved_files(path) if path.is_dir() else None) or [path]:
        open_file(file).close()
        part = list(rows(file, broken=broken, encoding=encoding))
        written = schema(file) if kind_of(file) in (".parquet", ARROW) else None
        found += _named(part, class_names(_features(written)), broken)
    return found


def class_names(features: Mapping[str, Any]) -> ClassNames:
    """The names of classes in `features`, as Hugging Face writes them beside a table (datasets 5.2)."""
    found = {}
    for column, feature in features.items():
        feature = feature[0] if isinstance(feature, list) and feature else feature  # of lists, before datasets 4
        inner = feature.get("feature", feature) if isinstance(feature, Mapping) else None  # List and Sequence
        if isinstance(inner, Mapping) and inner.get("_type") == "ClassLabel":
            found[column] = [*map(str, inner["names"])]
    return found


def _features(schema: Any) -> Mapping[str, Any]:
    """What `datasets` has written into a pyarrow.Schema; nothing where there is none (None)."""
    written = (schema.metadata or {}).get(b"huggingface") if schema else None
    try:
        features = json.loads(written)["info"]["features"] if written else {}
    except (ValueError, KeyError, TypeError):
        features = {}
    return features if isinstance(features, dict) else {}


def _named(found: list[tuple[str, Row]], names: ClassNames, broken: Broken) -> list[tuple[str, Row]]:
    if not names:
        return found
    renamed: list[tuple[str, Row]] = []
    for where, row in found:
        try:
            renamed.append((where, {**row, **{c: _name(where, row.get(c), c, names[c]) for c in names}}))
        except InputError as wrong:
            broken(wrong.with_traceback(None))
    return renamed


def _name(where: str, value: Any, column: str, names: Sequence[str]) -> Any:
    """The name of a class by its number, or of each in a list; -1 is none, and what is no number stays."""
    if isinstance(value, list):
        return [_name(where, one, column, names) for one in value]
    if not isinstance(value, int) or value == -1:
        return None if value == -1 else value
    if 0 <= value < len(names):
        return names[value]
    raise InputError(f"{where}: {column!r} is {value}, but the dataset has {len(names)} classes; mend the row")
