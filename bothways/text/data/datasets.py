"""Hugging Face datasets, from the hub or saved to disk, and the rows of any source of labelled data.

Reading from the hub needs the extra `hub`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from re import fullmatch
from typing import Any, cast

from bothways.base.errors import InputError, RowError, RowLocation, format_count, needs_package
from bothways.settings.tables_in_memory import MemoryTable, TableList, TableSource
from bothways.text.data import tables
from bothways.text.data.text_files import ARROW, EXPLICIT_TYPES, file_type, open_file

HUB_PREFIX = "hf:"
HUB_NAME = r"hf:(?P<name>[\w.-]+(/[\w.-]+)?)(:(?P<config>[^@:]+))?(@(?P<split>[\w.-]+))?"
ClassNames = Mapping[str, Sequence[str]]  # class names by column, for columns of class indices or lists of them


@dataclass(frozen=True)
class HubDataset:
    """`hf:NAME[:CONFIG][@SPLIT]`: a split of a dataset on the hub, at the newest commit when first accessed.

    name: the name of the dataset, usually owner/name.
    config: one of its configurations, such as a language; None: the default one.
    split: one of its splits.
    """

    name: str
    config: str | None = None
    split: str = "train"

    @classmethod
    def parse(cls, text: str) -> "HubDataset":
        """The dataset that a user named. InputError if the text has another form."""
        parts = fullmatch(HUB_NAME, text)
        if not parts:
            raise InputError(f"{text}: expected hf:NAME[:CONFIG][@SPLIT], such as hf:owner/name:en@train")
        return cls(parts["name"], parts["config"], parts["split"] or "train")

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        return f"{HUB_PREFIX}{self.name}{config}@{self.split}"

    @property
    def revision(self) -> str:
        """The commit hash, which stays the same while this process runs."""
        return _revision(self.name)

    def rows(self, column: str | None = None) -> Iterator[tuple[RowLocation, tables.TableRow]]:
        """Stream (location, values by column).

        column: the only column to read, or several, comma-separated, if the dataset declares its columns.
        """
        with _hub_errors(str(self)):
            dataset = self._load()
            if column is not None and dataset.features is not None:
                names = tables.match_columns(column, dataset.features)
                if not names:
                    raise tables.missing_column(str(self), column, dataset.features)
                dataset = dataset.select_columns([*names])

            for row_number, row in enumerate(dataset):
                yield RowLocation(self, row_number).with_id(row), row

    def features(self) -> Mapping[str, Any]:
        """The features by column, in the form `datasets` writes into files; empty if the dataset declares none."""
        with _hub_errors(str(self)):
            features = self._load().features
            return {} if features is None else cast(Mapping[str, Any], features.to_dict())

    def _load(self) -> Any:
        """The streamed dataset. InputError if the name is also a local path, which `datasets` would read instead."""
        if Path(self.name).exists():
            raise InputError(
                f"{self}: {self.name} is also a local path; work in another directory, or drop {HUB_PREFIX}"
            )
        import datasets

        return datasets.load_dataset(self.name, self.config, split=self.split, revision=self.revision, streaming=True)


@cache
def _revision(name: str) -> str:
    """The newest commit of a dataset on the hub."""
    with _hub_errors(f"{HUB_PREFIX}{name}"):
        from huggingface_hub import HfApi

        return str(HfApi().dataset_info(name).sha)


@contextmanager
def _hub_errors(name: str) -> Iterator[None]:
    """Turn all exceptions of hub access into InputError. name: the dataset, for messages."""
    try:
        yield
    except InputError:
        raise
    except ImportError as error:
        raise needs_package(name, error.name or "datasets", "hub") from None
    except Exception as error:  # from several packages, without a common base class
        first_line = str(error).strip().split("\n")[0]
        reason = first_line or type(error).__name__
        raise InputError(f"{name}: not read from the hub ({reason}); check its name and the network") from error


def unread_splits(path: TableSource) -> list[str]:
    """The splits other than `train` of a saved DatasetDict; [] if `path` is anything else."""
    if isinstance(path, MemoryTable) or not (path / "dataset_dict.json").is_file():
        return []
    return sorted(file.parent.name for file in path.glob("*/state.json") if file.parent.name != "train")


def unread_splits_warning(train: TableSource, *others: TableSource | None) -> str:
    """A warning if `train` is a saved DatasetDict with splits that are not used; else ''.

    train: the training data.
    others: the other sources of the run. A split that is named among them is used.
    """
    used = {path.resolve() for path in others if isinstance(path, Path)}
    unread = [split for split in unread_splits(train) if Path(str(train), split).resolve() not in used]
    if not unread:
        return ""
    return f"{train}: only split train is read, not {', '.join(unread)}; name {train}/{unread[0]} to use it"


def arrow_files(folder: Path) -> list[Path] | None:
    """The .arrow files of a saved Dataset, or of split `train` of a DatasetDict, in order; None for other folders."""
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
    """Whether a path is the name of a dataset on the hub, or a directory, such as a saved dataset."""
    return path.as_posix().startswith(HUB_PREFIX) or path.is_dir()


def is_text_file(path: TableSource) -> bool:
    """Whether a source is a .txt, which has one text per line."""
    return not isinstance(path, MemoryTable) and file_type(path) == ".txt" and not is_dataset(path)


def has_named_columns(path: TableSource) -> bool:
    """Whether a source always has named columns. False for CSV and TSV, which may lack a header, and for text."""
    if isinstance(path, MemoryTable) or is_dataset(path):
        return True
    return file_type(path) in (".jsonl", ".parquet", *EXPLICIT_TYPES)


def read_rows(
    path: TableSource,
    *,
    on_row_error: tables.RowErrorHandler = tables.raise_error,
    encoding: str | None = None,
) -> list[tuple[RowLocation, tables.TableRow]]:
    """All rows of a source as (location, values by column).

    If the source declares class names, they replace the class indices, and None replaces -1 (no class).

    path: a table in a file or in memory, several of them, a dataset on the hub, or a saved dataset. The split is
    `train` unless named: hf:owner/name@validation, or DIRECTORY/validation of a saved DatasetDict.
    on_row_error, encoding: see `tables.iter_rows`.

    InputError if the source cannot be read.
    """
    if isinstance(path, TableList):
        return [row for part in path.parts for row in read_rows(part, on_row_error=on_row_error, encoding=encoding)]

    if isinstance(path, MemoryTable):
        return _with_class_names(
            list(tables.iter_rows(path, on_row_error=on_row_error)),
            class_names(_schema_features(path.schema)),
            on_row_error,
        )

    if path.as_posix().startswith(HUB_PREFIX):
        dataset = HubDataset.parse(path.as_posix())
        return _with_class_names(list(dataset.rows()), class_names(dataset.features()), on_row_error)

    located_rows: list[tuple[RowLocation, tables.TableRow]] = []
    # Rows of a saved dataset are numbered through all its files.
    part_of = (path, count())
    files = arrow_files(path) if path.is_dir() else None
    for file in files or [path]:
        open_file(file).close()  # InputError here if it cannot be opened, whatever its format
        rows = tables.iter_rows(file, on_row_error=on_row_error, encoding=encoding, part_of=part_of)
        file_rows = list(rows)
        arrow_schema = tables.read_schema(file) if file_type(file) in (".parquet", ARROW) else None
        located_rows += _with_class_names(file_rows, class_names(_schema_features(arrow_schema)), on_row_error)
    return located_rows


def class_names(features: Mapping[str, Any]) -> ClassNames:
    """The class names in `features`, which are in the form `datasets` writes into files (5.2, and before 4)."""
    names_by_column = {}
    for column, feature in features.items():
        # A list of values is [feature] before datasets 4, an object with the key `feature` since.
        if isinstance(feature, list) and feature:
            feature = feature[0]
        value_type = feature.get("feature", feature) if isinstance(feature, Mapping) else None
        if isinstance(value_type, Mapping) and value_type.get("_type") == "ClassLabel":
            names_by_column[column] = [*map(str, value_type["names"])]
    return names_by_column


def _schema_features(schema: Any) -> Mapping[str, Any]:
    """The features that `datasets` stored in a pyarrow.Schema; {} without a schema (None) or features."""
    metadata = (schema.metadata or {}).get(b"huggingface") if schema else None
    try:
        features = json.loads(metadata)["info"]["features"] if metadata else {}
    except (ValueError, KeyError, TypeError):
        features = {}
    return features if isinstance(features, dict) else {}


def _with_class_names(
    located_rows: list[tuple[RowLocation, tables.TableRow]],
    names_by_column: ClassNames,
    on_row_error: tables.RowErrorHandler,
) -> list[tuple[RowLocation, tables.TableRow]]:
    """The rows with class names instead of class indices. Rows with an unknown index go to `on_row_error`."""
    if not names_by_column:
        return located_rows

    renamed: list[tuple[RowLocation, tables.TableRow]] = []
    for where, row in located_rows:
        try:
            classes = {
                column: _class_name(where, row.get(column), column, names) for column, names in names_by_column.items()
            }
            renamed.append((where, {**row, **classes}))
        except InputError as error:
            on_row_error(error.with_traceback(None))  # a traceback would keep all rows in memory
    return renamed


def _class_name(where: str, value: Any, column: str, names: Sequence[str]) -> Any:
    """The class name of an index, or of each index in a list; None for -1; values that are not integers are kept.

    where, column: the location and the column of the value, for the message.
    value: a value of the column.
    names: the class names of the column, by index.
    """
    if isinstance(value, list):
        return [_class_name(where, item, column, names) for item in value]
    if value == -1:
        return None
    if not isinstance(value, int):
        return value

    if 0 <= value < len(names):
        return names[value]
    raise RowError(
        where, f"{column!r} is {value}, but the dataset has {format_count(len(names), 'class', 'classes')}; fix the row"
    )
