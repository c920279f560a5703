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
DIRECTORIES = "stores", "shards", "models"  # in the cache: the last two of what is in object storage
WEIGHTS = ".safetensors"  # the end of the name of a file of weights
LARGE_BYTES = 5e9  # bytes; above this, pre-training reports the size of the cache


@dataclass(frozen=True)
class CachedStore:
    """A token store in the cache, the copy of a model, or the weights of a packed model in float32.

    size: bytes. modified: date and time. corpus: the paths it was read from; empty if it is damaged or unfinished.
    statistics: documents, tokens and megabytes of text; empty for models and weights.
    """

    path: Path
    size: int
    modified: str
    corpus: list[str] = field(default_factory=list)
    statistics: dict[str, Any] = field(default_factory=dict)


def cached_stores(folder: Path) -> list[CachedStore]:
    """The stores in a directory, newest first; other files are ignored."""
    files = folder.iterdir() if folder.is_dir() else ()
    paths = [path for path in files if STORE_NAME.fullmatch(path.name) and path.is_dir()]
    return [_describe(path) for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)]


def clear_cache(folder: Path) -> tuple[list[CachedStore], list[CachedStore]]:
    """Delete the stores in a directory. Returns those deleted, and those skipped because a run is building them."""
    deleted: list[CachedStore] = []
    in_use: list[CachedStore] = []
    for store in cached_stores(folder):
        with try_lock(folder / store.path.name.strip(".").removesuffix(".unfinished")) as is_locked:
            if is_locked:
                try:
                    shutil.rmtree(store.path)
                except OSError as error:
                    raise InputError(f"{store.path}: cannot be deleted ({error.strerror}); do it by hand") from None
            (deleted if is_locked else in_use).append(store)
    return deleted, in_use


def cached_weights() -> list[CachedStore]:
    """The weights in float32 of packed models, newest first, and what a killed process has left of such."""
    folder = unpacked_directory()
    files = [*folder.glob(f"*{WEIGHTS}"), *folder.glob(".*.tmp")]
    return [_describe_weights(file) for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)]


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
    modified = datetime.fromtimestamp(file.stat().st_mtime).isoformat(" ", "minutes")
    try:
        with safe_open(file, framework="numpy") as opened:
            source = (opened.metadata() or {})["source"]
    except (OSError, SafetensorError, KeyError):
        return CachedStore(file, file.stat().st_size, modified)
    return CachedStore(file, file.stat().st_size, modified, [source])


def _describe(path: Path) -> CachedStore:
    size = sum(_disk_use(file) for file in path.rglob("*") if file.is_file())
    modified = datetime.fromtimestamp(path.stat().st_mtime).isoformat(" ", "minutes")
    try:
        if (index := path / VERSIONS).exists():
            return CachedStore(path, size, modified, [str(json.loads(index.read_bytes())["source"])])
        metadata = json.loads((path / METADATA_FILE).read_bytes())
        counts, corpus = metadata["counts"], [str(name) for name in metadata["notes"].get("corpus", [])]
        statistics = {"documents": counts["documents"] - 1, "tokens": counts["ids"], "megabytes": metadata["megabytes"]}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return CachedStore(path, size, modified)
    return CachedStore(path, size, modified, corpus, statistics)


def _disk_use(file: Path) -> int:
    status = file.stat()
    return min(status.st_size, status.st_blocks * 512)  # a store that is fetched in part has holes
