"""The indexes of folders in the cache: made by `bothways search FOLDER`, listed and deleted by `bothways cache`."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from bothways.base.errors import InputError
from bothways.search.database import DATABASE, Database
from bothways.search.writing import writer_lock
from bothways.text.corpus.cache import cache_directory


@dataclass(frozen=True)
class CachedIndex:
    """An index in the cache. size: bytes. folders: which are indexed; empty if it is damaged."""

    path: Path
    size: int
    folders: tuple[str, ...] = ()
    passages: int = 0


def index_directory() -> Path:
    return cache_directory() / "search"


def cached_indexes() -> list[CachedIndex]:
    """The indexes in the cache, largest first."""
    folder = index_directory()
    if not folder.is_dir():
        return []
    indexes = [_describe(path) for path in folder.iterdir() if (path / DATABASE).is_file()]
    return sorted(indexes, key=lambda index: -index.size)


def _describe(path: Path) -> CachedIndex:
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    try:
        database = Database(path)
        try:
            with database.snapshot():
                folders = tuple(folder for (folder,) in database.execute("SELECT path FROM roots ORDER BY id"))
                passages = database.execute("SELECT count(*) FROM passages").fetchone()[0]
        finally:
            database.close()
    except InputError:
        return CachedIndex(path, size)
    return CachedIndex(path, size, folders, passages)


def clear_indexes() -> tuple[list[CachedIndex], list[CachedIndex]]:
    """Delete the indexes in the cache. Returns the deleted ones, and those skipped because they are being written."""
    deleted: list[CachedIndex] = []
    in_use: list[CachedIndex] = []
    for cached in cached_indexes():
        with writer_lock(cached.path) as is_free:
            if not is_free:
                in_use.append(cached)
                continue
            try:
                shutil.rmtree(cached.path)
            except OSError as error:
                raise InputError(f"{cached.path}: cannot be deleted ({error.strerror}); do it by hand") from None
            deleted.append(cached)
    return deleted, in_use
