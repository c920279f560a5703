"""The directory of a model: where it is, and its files, each of which is read once. No torch."""

from collections.abc import Callable
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from bothways.base.errors import InputError, MissingFile, flag
from bothways.base.io import Files, find_backup, stat_files
from bothways.base.log import logger
from bothways.base.paths import RemotePath
from bothways.model.checkpoint import hub
from bothways.model.checkpoint.description import (
    ADAPTER_CONFIG,
    CONFIG,
    METADATA_FILE,
    NOT_DELIVERED,
    check_metadata,
    read_metadata,
)
from bothways.model.checkpoint.sentence_transformers import DENSE, MODULES, POOLING, TRANSFORMER

Result = TypeVar("Result")
TRIES = 10  # attempts to read a directory that is being replaced
FILE_ENDINGS = (".json", ".safetensors", ".bin", ".model", "vocab.txt", "merges.txt")  # files that are read
STATIC = "model2vec"  # model_type of static vectors


def locate(place: str | PathLike[str]) -> Path:
    """The directory for a path or a name on the hub (hub.py)."""
    if not isinstance(place, RemotePath) and (Path(place) / CONFIG).is_file():
        return Path(place)
    return hub.locate(place)


class Directory(Files):
    """The directory of a model for a path or a name on the hub: the path itself, the model of a run, the backup of a
    save that was cut off, or files in the Hugging Face cache (hub.py).

    place: the path or the files in the cache.
    warn: is called with lines about ignored or unusual content.

    InputError if there is no model.
    """

    def __init__(self, place: str | PathLike[str], warn: Callable[[str], None] = logger.warning) -> None:
        self.place = locate(place)
        self.warn = warn

        for candidate in (self.place, self.place / "model"):
            super().__init__(candidate)
            if self.has(CONFIG) or self.is_adapter or self._is_static:
                return
            old = find_backup(candidate)
            if old is not None:
                warn(f"{candidate}: a save was cut off; using the last good checkpoint, {old}")
                super().__init__(old)
                return

        raise _no_model(self.place)

    @property
    def is_adapter(self) -> bool:
        """Whether it holds an adapter (adapter.py) and no whole model."""
        return self.has(ADAPTER_CONFIG) and not self.has(CONFIG) and (self.path / ADAPTER_CONFIG).is_file()

    @property
    def _is_static(self) -> bool:
        # sentence-transformers writes no model_type for static vectors.
        return self.has(MODULES) and "StaticEmbedding" in str(self.value(MODULES))

    @property
    def format(self) -> str:
        """The name of its format (formats/__init__.py), or the model_type of a family."""
        if self.is_adapter:
            is_ours = self.json(METADATA_FILE).get("adapter")
            return "bothways-adapter" if is_ours else "peft"
        if self._is_static:
            return STATIC
        model_type = self.config.get("model_type")
        return str(self.config.get("bothways_format", model_type))

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return self.json(CONFIG)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The content of bothways.json."""
        if not self.has(METADATA_FILE):
            return {}
        return check_metadata(self.json(METADATA_FILE), self.path / METADATA_FILE)

    @property
    def commit(self) -> str | None:
        """OWNER/NAME@COMMIT for files in the cache of the hub; None for others."""
        if "snapshots" not in self.path.absolute().parts:
            return None
        return hub.commit_of(self.path)


def _no_model(directory: Path) -> InputError:
    if directory.is_file():
        return InputError(f"{directory}: a file; pass the directory that contains it")
    if not directory.exists():
        return MissingFile(f"{directory}: no such directory; pass a checkpoint or a run")

    metadata = read_metadata(directory / METADATA_FILE)
    model_metadata = read_metadata(directory / "model" / METADATA_FILE)
    reason = model_metadata.get(NOT_DELIVERED, metadata.get(NOT_DELIVERED))
    if reason:
        return MissingFile(f"{directory}: {reason}")
    if metadata.get("status", "done") != "done":
        return MissingFile(
            f"{directory}: an unfinished run, without a model yet; resume it: the same bothways {metadata['verb']} "
            f"command with {flag('resume', True)}"
        )
    return MissingFile(f"{directory}: {CONFIG} not found; pass a checkpoint directory in the Hugging Face layout")


def read_unchanged(place: str | PathLike[str], read: Callable[[Directory], Result]) -> Result:
    """The result of `read` for a directory. If the directory is replaced meanwhile, it is read again, so that two
    checkpoints are never mixed; InputError after TRIES times. Warnings are logged once."""
    path = locate(place)
    folders: list[Path] = []
    for root in (path, path / "model"):
        folders += [root, root / TRANSFORMER, root / POOLING, root / DENSE]

    for _ in range(TRIES):
        lines: list[str] = []
        results: list[Result] = []
        failure: Exception | None = None
        before = stat_files(folders, FILE_ENDINGS)
        try:
            results.append(read(Directory(path, lines.append)))
        except (InputError, OSError) as error:
            failure = error

        # An error counts only if nothing has changed: it may come from files of two checkpoints.
        if stat_files(folders, FILE_ENDINGS) != before:
            continue

        for line in lines:
            logger.warning(line)
        if failure is not None:
            raise failure
        return results[0]

    raise InputError(f"{path}: replaced {TRIES} times while it was read; load it when no other process is writing it")
