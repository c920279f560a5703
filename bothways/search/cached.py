"""Indexes in the cache, which `bothways search FOLDER` makes: where they are, their sizes, and deleting them."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from bothways.corpus.cache import cache_directory
from bothways.errors import InputError
from bothways.search.database import DATABASE, Database
from bothways.search.writing import writer_lock


@dataclass(frozen=True)
class CachedIndex:
    """An index in the cache. size: bytes. folders: what it is of; empty if it is damaged."""

    path: Path
    size: int
    folders: tuple[str, ...] = ()
    passages: int = 0


def index_directory() -> Path:
    """The directory of the indexes in the cache."""
    return cache_directory() / "search"


def cached_indexes() -> list[CachedIndex]:
    """The indexes in the cache, largest first."""
    folder = index_directory()
    paths = [path for path in folder.iterdir() if (path / DATABASE).is_file()] if folder.is_dir() else []
    return sorted(map(_describe, paths), key=lambda one: -one.size)


def clear_indexes() -> tuple[list[CachedIndex], list[CachedIndex]]:
    """Delete the indexes in the cache. Returns those deleted, and those skipped because they are being written."""
    deleted: list[CachedIndex] = []
    in_use: list[CachedIndex] = []
    for one in cached_indexes():
        with writer_lock(one.path) as is_free:
            if is_free:
                try:
                    shutil.rmtree(one.path)
                except OSError as error:
                    raise InputError(f"{one.path}: cannot be deleted ({error.strerror}); do it by hand") from None
            (deleted if is_free else in_use).append(one)
    return deleted, in_use


def _describe(path: Path) -> CachedIndex:
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    try:
        database = Database(path)
        try:
            with database.snapshot():
                folders = tuple(folder for (folder,) in database.execute("SELECT path FROM roots ORDER BY id"))
                return CachedIndex(path, size, folders, database.execute("SELECT count(*) FROM passages").fetchone()[0])
        finally:
            database.close()
    except InputError:
        return CachedIndex(path, size)
