"""Hugging Face datasets, from the hub or saved to disk. Reading from the hub needs the extra `hub`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from re import fullmatch
from typing import Any

from bothways.base.errors import InputError, RowLocation, needs_package
from bothways.settings.tables_in_memory import MemoryTable, RowOrError, TableSource
from bothways.text.rows.arrow_tables import class_names, with_class_names
from bothways.text.rows.column_names import match_columns, missing_column
from bothways.text.rows.text_files import ARROW

HUB_PREFIX = "hf:"
HUB_NAME = r"hf:(?P<name>[\w.-]+(/[\w.-]+)?)(:(?P<config>[^@:]+))?(@(?P<split>[\w.-]+))?"


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

    def rows(self, column: str | None = None) -> Iterator[RowOrError]:
        """Stream (location, values by column) of each row, or its error.

        column: the only column to read, or several, comma-separated, if the dataset declares its columns.
        """
        with _hub_errors(str(self)):
            dataset = self._load()
            if column is not None and dataset.features is not None:
                names = match_columns(column, dataset.features)
                if not names:
                    raise missing_column(str(self), column, dataset.features)
                dataset = dataset.select_columns([*names])

            features = {} if dataset.features is None else dataset.features.to_dict()
            located = ((RowLocation(self, number).with_id(row), row) for number, row in enumerate(dataset))
            yield from with_class_names(located, class_names(features))

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
