"""Named arrays in a directory: written beside and renamed, so that they are there whole or not at all; memory-mapped,
and compared with their checksums when they are opened."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bothways.errors import InputError
from bothways.io import atomic_directory, remove_leftovers
from bothways.log import logger

METADATA_FILE = "store.json"
CHECKSUM_BYTES = 1 << 26  # bytes under one checksum
Contents: TypeAlias = tuple[dict[str, np.ndarray], dict[str, Any]]


class DamagedStore(Exception):
    """The files are not what was written."""


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """One process at a time. The system takes the lock from a process that ends, however it ends."""
    import fcntl  # not on Windows, where stores in memory work

    with _write_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock_file(folder).open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info(f"{folder}: another process is building this token store; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def try_lock(folder: Path) -> Iterator[bool]:
    """Whether the lock is this process's inside; False where another has it."""
    import fcntl

    with _lock_file(folder).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


@contextmanager
def replace_directory(folder: Path) -> Iterator[Path]:
    """An empty directory that takes the folder's place if the body ends well. Only for who holds the lock."""
    with ExitStack() as stack:
        with _write_errors(folder):
            remove_leftovers(folder)
            beside = stack.enter_context(atomic_directory(folder, marker=METADATA_FILE))
        yield beside
        with _write_errors(folder):
            stack.close()


def append_array(file: Path, array: np.ndarray) -> None:
    with _write_errors(file), file.open("ab") as opened:
        opened.write(array.tobytes())


def write_metadata(folder: Path, dtypes: Mapping[str, np.dtype], facts: Mapping[str, Any]) -> Contents:
    """What `read` will find in a directory in which all arrays have been written: adds their checksums to the facts."""
    arrays = {name: _memory_map(folder / name, dtype) for name, dtype in dtypes.items()}
    kept = {
        **facts,
        "counts": {name: len(array) for name, array in arrays.items()},
        "dtypes": {name: dtype.str for name, dtype in dtypes.items()},
        "checksums": {name: checksums(array) for name, array in arrays.items()},
    }
    with _write_errors(folder):
        (folder / METADATA_FILE).write_text(json.dumps({**kept, "checksum": digest(kept)}, indent=1))
    return arrays, kept


def read_arrays(folder: Path) -> Contents:
    """The arrays by name, and the facts. Damaged says what differs from what was written."""
    try:
        facts = json.loads((folder / METADATA_FILE).read_text())
        written = facts.pop("checksum")
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        facts = written = None
    if facts is None or written != digest(facts):
        raise DamagedStore(f"{METADATA_FILE} is not as it was written")
    arrays = {}
    for name, dtype in facts["dtypes"].items():
        try:
            arrays[name] = _memory_map(folder / name, np.dtype(dtype))
        except (OSError, ValueError):
            raise DamagedStore(f"{name} is missing or cut short") from None
        if checksums(arrays[name]) != facts["checksums"][name]:
            raise DamagedStore(f"{name} differs from its checksums")
    return arrays, facts


def checksums(array: np.ndarray) -> list[str]:
    """Of each PART of an array's bytes, by all cores."""
    data = np.ascontiguousarray(array).view(np.uint8).data
    with ThreadPoolExecutor() as pool:
        return list(
            pool.map(
                lambda start: sha256(data[start : start + CHECKSUM_BYTES]).hexdigest(),
                range(0, len(data), CHECKSUM_BYTES),
            )
        )


def digest(value: Any) -> str:
    """Names a value that JSON can hold."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _memory_map(file: Path, dtype: np.dtype) -> np.ndarray:
    """A file as an array, read where it is touched."""
    return np.asarray(np.memmap(file, dtype, mode="r"))  # a plain array: faster to index


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: the token store cannot be written ({error.strerror}); free space or name another directory"
        ) from error
