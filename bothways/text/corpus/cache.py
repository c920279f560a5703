"""The cache of token stores, unpacked weights, and what is fetched from object storage: contents, and clearing it."""

import json
import re
import shutil
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from bothways.base.errors import InputError
from bothways.base.io import cache_directory as cache_directory
from bothways.base.io import unpacked_directory
from bothways.base.paths import VERSIONS
from bothways.text.corpus.array_files import METADATA_FILE, try_lock

STORE_NAME = re.compile(r"\.?[0-9a-f]{16}(\.unfinished)?")  # a store's directory, or an unfinished one
DIRECTORIES = (  # in the cache
    "stores",
    "shards",  # of stores in object storage
    "models",  # copies of models in object storage
)
WEIGHTS = ".safetensors"  # the end of the name of a file of weights
LARGE_BYTES = 5e9  # bytes; above this, pre-training reports the size of the cache


@dataclass(frozen=True)
class CachedStore:
    """A token store in the cache, the copy of a model, or the weights of a packed model in float32.

    path: its file or directory.
    size: bytes.
    modified: date and time.
    corpus: the paths it was read from; empty if it is damaged or unfinished.
    statistics: documents, tokens and megabytes of text; empty for models and weights.
    """

    path: Path
    size: int
    modified: str
    corpus: list[str] = field(default_factory=list)
    statistics: dict[str, Any] = field(default_factory=dict)


def cached_stores(folder: Path) -> list[CachedStore]:
    """The stores in a directory, newest first; other files are ignored."""
    if not folder.is_dir():
        return []

    paths = [path for path in folder.iterdir() if STORE_NAME.fullmatch(path.name) and path.is_dir()]
    newest_first = sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
    return [_describe(path) for path in newest_first]


def clear_cache(folder: Path) -> tuple[list[CachedStore], list[CachedStore]]:
    """Delete the stores in a directory. Returns those deleted, and those skipped because a run is building them."""
    deleted: list[CachedStore] = []
    in_use: list[CachedStore] = []
    for store in cached_stores(folder):
        store_name = store.path.name.strip(".").removesuffix(".unfinished")
        with try_lock(folder / store_name) as is_locked:
            # A run that builds the store holds the lock.
            if not is_locked:
                in_use.append(store)
                continue
            try:
                shutil.rmtree(store.path)
            except OSError as error:
                raise InputError(f"{store.path}: cannot be deleted ({error.strerror}); do it by hand") from None
            deleted.append(store)
    return deleted, in_use


def cached_weights() -> list[CachedStore]:
    """The weights in float32 of packed models, newest first, with unfinished files of killed processes."""
    folder = unpacked_directory()
    files = [*folder.glob(f"*{WEIGHTS}"), *folder.glob(".*.tmp")]
    newest_first = sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)
    return [_describe_weights(file) for file in newest_first]


def clear_weights() -> list[CachedStore]:
    """Delete the weights in float32 of packed models: the next process that needs them writes them again."""
    deleted = cached_weights()
    for weights in deleted:
        try:
            weights.path.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"{weights.path}: cannot be deleted ({error.strerror}); do it by hand") from None
    return deleted


def _describe_weights(file: Path) -> CachedStore:
    try:
        with safe_open(file, framework="numpy") as opened:
            corpus = [(opened.metadata() or {})["source"]]
    except (OSError, SafetensorError, KeyError):  # unfinished, or of another program
        corpus = []
    return CachedStore(path=file, size=file.stat().st_size, modified=_modified(file), corpus=corpus)


def _describe(path: Path) -> CachedStore:
    corpus: list[str] = []
    statistics: dict[str, Any] = {}
    try:
        index = path / VERSIONS
        if index.exists():  # a copy of files in object storage
            corpus = [str(json.loads(index.read_bytes())["source"])]
        else:
            metadata = json.loads((path / METADATA_FILE).read_bytes())
            counts = metadata["counts"]
            statistics = {
                "documents": counts["documents"] - 1,
                "tokens": counts["ids"],
                "megabytes": metadata["megabytes"],
            }
            corpus = [str(name) for name in metadata["notes"].get("corpus", [])]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # damaged or unfinished
        corpus = []
        statistics = {}

    return CachedStore(
        path=path,
        size=sum(_disk_use(file) for file in path.rglob("*") if file.is_file()),
        modified=_modified(path),
        corpus=corpus,
        statistics=statistics,
    )


def _modified(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime).isoformat(" ", "minutes")


def _disk_use(file: Path) -> int:
    # A store that is fetched in part has holes, which take no space.
    status = file.stat()
    return min(status.st_size, status.st_blocks * 512)
