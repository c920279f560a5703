"""Datasets of Hugging Face: by name, streamed from the hub (extra `hub`), or a directory `save_to_disk` has written."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from re import fullmatch
from typing import Any, cast

from bothways.data.files import ARROW, EXPLICIT_TYPES, file_type, open_file
from bothways.data.tables import (
    RowErrorHandler,
    TableRow,
    iter_rows,
    match_columns,
    missing_column,
    raise_error,
    read_schema,
)
from bothways.errors import InputError
from bothways.tables_in_memory import MemoryTable, TableSource

HUB_PREFIX = "hf:"
ClassNames = Mapping[str, Sequence[str]]  # of a column that holds numbers of classes, or lists of them


@dataclass(frozen=True)
class HubDataset:
    """`hf:NAME[:CONFIG][@SPLIT]`: one split of a dataset on the hub, at the commit that is newest when first asked."""

    name: str  # owner/name
    config: str | None = None
    split: str = "train"

    @classmethod
    def parse(cls, text: str) -> "HubDataset":
        parts = fullmatch(r"hf:(?P<name>[\w.-]+(/[\w.-]+)?)(:(?P<config>[^@:]+))?(@(?P<split>[\w.-]+))?", text)
        if not parts:
            raise InputError(f"{text}: expected hf:NAME[:CONFIG][@SPLIT], such as hf:owner/name:en@train")
        return cls(parts["name"], parts["config"], parts["split"] or "train")

    def __str__(self) -> str:
        return f"{HUB_PREFIX}{self.name}{':' + self.config if self.config else ''}@{self.split}"

    @property
    def revision(self) -> str:
        """The commit, in hexadecimal digits, the same for as long as this process runs."""
        return _revision(self.name)

    def rows(self, column: str | None = None) -> Iterator[tuple[str, TableRow]]:
        """('hf:NAME@SPLIT: row 1', columns by name), streamed; of a dataset that says what it has only `column`, or
        those between its commas."""
        with _hub_errors(str(self)):
            found = self._load()
            if column is not None and found.features is not None:
                if not (needed := match_columns(column, found.features)):
                    raise missing_column(str(self), column, found.features)
                found = found.select_columns([*needed])
            for number, row in enumerate(found, 1):
                yield f"{self}: row {number}", row

    def features(self) -> Mapping[str, Any]:
        """What the columns hold, by name, as `datasets` writes it into files; empty where it is not said."""
        with _hub_errors(str(self)):
            features = self._load().features
            return {} if features is None else cast(Mapping[str, Any], features.to_dict())

    def _load(self) -> Any:
        if Path(self.name).exists():
            raise InputError(f"{self}: {self.name} is a path here too; run elsewhere, or name it without {HUB_PREFIX}")
        import datasets

        return datasets.load_dataset(self.name, self.config, split=self.split, revision=self.revision, streaming=True)


@cache
def _revision(name: str) -> str:
    with _hub_errors(f"{HUB_PREFIX}{name}"):
        from huggingface_hub import HfApi

        return str(HfApi().dataset_info(name).sha)


@contextmanager
def _hub_errors(name: str) -> Iterator[None]:
    """Whatever goes wrong on the way to the hub, as an InputError."""
    try:
        yield
    except InputError:
        raise
    except ImportError as error:
        raise InputError(f"{name}: needs the package {error.name or 'datasets'}; pip install 'bothways[hub]'") from None
    except Exception as error:  # of several packages, with no base class in common
        what = str(error).strip().split("\n")[0] or type(error).__name__
        raise InputError(f"{name}: not read from the hub ({what}); check its name and the network") from error


def unread_splits(path: TableSource) -> list[str]:
    """Splits of a saved DatasetDict beside `train`, where its directory is named and none of them."""
    if isinstance(path, MemoryTable) or not (path / "dataset_dict.json").is_file():
        return []
    return sorted(file.parent.name for file in path.glob("*/state.json") if file.parent.name != "train")


def unread_splits_warning(train: TableSource, *others: TableSource | None) -> str:
    """Which splits of a saved DatasetDict are not read, where its directory is named as training data; '' if none."""
    used = {path.resolve() for path in others if isinstance(path, Path)}
    left = [split for split in unread_splits(train) if Path(str(train), split).resolve() not in used]
    return f"{train}: split train is read, not {', '.join(left)}; name {train}/{left[0]} to use it" if left else ""


def arrow_files(folder: Path) -> list[Path] | None:
    """The .arrow files of a saved Dataset, or of split `train` of a saved DatasetDict, in order; None for others."""
    if (folder / "dataset_dict.json").is_file():
        if not (folder / "train" / "state.json").is_file():
            splits = sorted(path.parent.name for path in folder.glob("*/state.json"))
            raise InputError(f"{folder}: no split 'train'; name one of its directories: {', '.join(splits) or 'none'}")
        folder = folder / "train"
    state = folder / "state.json"
    if not state.is_file() or not (folder / "dataset_info.json").is_file():
        return None
    try:
        return [folder / part["filename"] for part in json.loads(state.read_bytes())["_data_files"]]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{state}: does not list the dataset's {ARROW} files; save the dataset again") from None


# --- rows, with the names of classes ----------------------------------------------------------------------------------


def is_dataset(path: Path) -> bool:
    """Whether it is the name of a dataset on the hub, or a directory."""
    return path.as_posix().startswith(HUB_PREFIX) or path.is_dir()


def is_text_file(path: TableSource) -> bool:
    """Whether it is a .txt, which holds a text a line."""
    return not isinstance(path, MemoryTable) and file_type(path) == ".txt" and not is_dataset(path)


def has_named_columns(path: TableSource) -> bool:
    """Whether it is of a kind whose columns have names whatever is in it, so no CSV, TSV or text."""
    return (
        isinstance(path, MemoryTable) or is_dataset(path) or file_type(path) in (".jsonl", ".parquet", *EXPLICIT_TYPES)
    )


def read_rows(
    path: TableSource, *, broken: RowErrorHandler = raise_error, encoding: str | None = None
) -> list[tuple[str, TableRow]]:
    """('file:line', columns by name) of a table in a file or in memory, of `hf:NAME[:CONFIG][@SPLIT]`, or of a
    directory `datasets` saved.

    The split is `train` unless it is named: hf:owner/name@validation; in a saved DatasetDict, DIRECTORY/validation.
    Where the dataset names its classes, the names stand in place of their numbers, and None in place of -1, no class.
    broken, encoding: as of tables.rows. InputError for what cannot be read.
    """
    if isinstance(path, MemoryTable):
        return _with_class_names(
            list(iter_rows(path, broken=broken)), class_names(_schema_features(path.schema)), broken
        )
    if path.as_posix().startswith(HUB_PREFIX):
        dataset = HubDataset.parse(path.as_posix())
        return _with_class_names(list(dataset.rows()), class_names(dataset.features()), broken)
    found: list[tuple[str, TableRow]] = []
    for file in (arrow_files(path) if path.is_dir() else None) or [path]:
        open_file(file).close()
        part = list(iter_rows(file, broken=broken, encoding=encoding))
        written = read_schema(file) if file_type(file) in (".parquet", ARROW) else None
        found += _with_class_names(part, class_names(_schema_features(written)), broken)
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


def _schema_features(schema: Any) -> Mapping[str, Any]:
    """What `datasets` has written into a pyarrow.Schema; nothing where there is none (None)."""
    written = (schema.metadata or {}).get(b"huggingface") if schema else None
    try:
        features = json.loads(written)["info"]["features"] if written else {}
    except (ValueError, KeyError, TypeError):
        features = {}
    return features if isinstance(features, dict) else {}


def _with_class_names(
    found: list[tuple[str, TableRow]], names: ClassNames, broken: RowErrorHandler
) -> list[tuple[str, TableRow]]:
    if not names:
        return found
    renamed: list[tuple[str, TableRow]] = []
    for where, row in found:
        try:
            renamed.append((where, {**row, **{c: _class_name(where, row.get(c), c, names[c]) for c in names}}))
        except InputError as wrong:
            broken(wrong.with_traceback(None))
    return renamed


def _class_name(where: str, value: Any, column: str, names: Sequence[str]) -> Any:
    """The name of a class by its number, or of each in a list; -1 is none, and what is no number stays."""
    if isinstance(value, list):
        return [_class_name(where, one, column, names) for one in value]
    if not isinstance(value, int) or value == -1:
        return None if value == -1 else value
    if 0 <= value < len(names):
        return names[value]
    raise InputError(f"{where}: {column!r} is {value}, but the dataset has {len(names)} classes; mend the row")
