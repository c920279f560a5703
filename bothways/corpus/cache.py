"""The token stores that pre-training keeps in the user's cache: where they are, how large, and how to delete them."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bothways.corpus.arrays import METADATA_FILE, try_lock
from bothways.errors import InputError

STORE_NAME = re.compile(r"\.?[0-9a-f]{16}(\.unfinished)?")  # of a store's directory, and of one that was being built
LARGE_BYTES = 5e9  # bytes, from which on pre-training says how large they are together


@dataclass(frozen=True)
class CachedStore:
    """A token store on disk. size: bytes; made: day and time; corpus: the paths it was read from. facts: documents,
    tokens, and the MB of text; none of a store that is damaged or was not finished."""

    path: Path
    size: int
    made: str
    corpus: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def cache_directory() -> Path:
    """Where what can be made again is kept: `bothways` in $XDG_CACHE_HOME or ~/.cache, or $BOTHWAYS_CACHE itself."""
    if given := os.environ.get("BOTHWAYS_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bothways"


def cached_stores(folder: Path) -> list[CachedStore]:
    """The stores in a directory, the newest first. What else stands there is left alone."""
    found = sorted(_store_directories(folder), key=lambda path: path.stat().st_mtime, reverse=True)
    return [_describe(path) for path in found]


def clear_cache(folder: Path) -> tuple[list[CachedStore], list[CachedStore]]:
    """Delete the stores in a directory: those that are gone, and those left since a run is building them just now."""
    gone: list[CachedStore] = []
    left: list[CachedStore] = []
    for kept in cached_stores(folder):
        with try_lock(folder / kept.path.name.strip(".").removesuffix(".unfinished")) as is_held:
            if is_held:
                try:
                    shutil.rmtree(kept.path)
                except OSError as error:
                    raise InputError(f"{kept.path}: cannot be deleted ({error.strerror}); do it by hand") from None
            (gone if is_held else left).append(kept)
    return gone, left


def _store_directories(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if STORE_NAME.fullmatch(path.name) and path.is_dir())


def _describe(path: Path) -> CachedStore:
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    made = datetime.fromtimestamp(path.stat().st_mtime).isoformat(" ", "minutes")
    try:
        told = json.loads((path / METADATA_FILE).read_bytes())
        counts, corpus = told["counts"], [str(name) for name in told["notes"].get("corpus", [])]
        facts = {"documents": counts["documents"] - 1, "tokens": counts["ids"], "megabytes": told["megabytes"]}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return CachedStore(path, size, made)
    return CachedStore(path, size, made, corpus, facts)
