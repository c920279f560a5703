"""Named arrays in a directory: written atomically, memory-mapped, verified by checksums."""

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
CHECKSUM_BYTES = 1 << 26  # bytes per checksum
Contents: TypeAlias = tuple[dict[str, np.ndarray], dict[str, Any]]


class DamagedStore(Exception):
    """The files of a store are missing or have changed since they were written."""


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a store, waiting for other processes. The system releases it if the process dies."""
    import fcntl  # missing on Windows, where only stores in memory work

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
    """Lock a store without waiting: True inside the block if the lock was acquired, False if another process has it."""
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
    """A temporary directory that replaces `folder` if the block succeeds. The caller must hold the lock."""
    with ExitStack() as stack:
        with _write_errors(folder):
            remove_leftovers(folder)
            temporary = stack.enter_context(atomic_directory(folder, marker=METADATA_FILE))
        yield temporary
        with _write_errors(folder):
            stack.close()


def append_array(file: Path, array: np.ndarray) -> None:
    with _write_errors(file), file.open("ab") as opened:
        opened.write(array.tobytes())


def write_metadata(folder: Path, dtypes: Mapping[str, np.dtype], metadata: Mapping[str, Any]) -> Contents:
    """Write the metadata of a directory whose arrays are complete, with their sizes, dtypes and checksums.

    Returns what `read_arrays` will return.
    """
    arrays = {name: _memory_map(folder / name, dtype) for name, dtype in dtypes.items()}
    complete = {
        **metadata,
        "counts": {name: len(array) for name, array in arrays.items()},
        "dtypes": {name: dtype.str for name, dtype in dtypes.items()},
        "checksums": {name: checksums(array) for name, array in arrays.items()},
    }
    with _write_errors(folder):
        (folder / METADATA_FILE).write_text(json.dumps({**complete, "checksum": digest(complete)}, indent=1))
    return arrays, complete


def read_arrays(folder: Path) -> Contents:
    """The arrays by name, and the metadata. DamagedStore names a file that has changed since it was written."""
    try:
        metadata = json.loads((folder / METADATA_FILE).read_text())
        checksum = metadata.pop("checksum")
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        metadata = checksum = None
    if metadata is None or checksum != digest(metadata):
        raise DamagedStore(f"{METADATA_FILE} differs from what was written")
    arrays = {}
    for name, dtype in metadata["dtypes"].items():
        try:
            arrays[name] = _memory_map(folder / name, np.dtype(dtype))
        except (OSError, ValueError):
            raise DamagedStore(f"{name} is missing or cut short") from None
        if checksums(arrays[name]) != metadata["checksums"][name]:
            raise DamagedStore(f"{name} differs from its checksums")
    return arrays, metadata


def checksums(array: np.ndarray) -> list[str]:
    """SHA-256 of each CHECKSUM_BYTES of an array, computed on all cores."""
    data = np.ascontiguousarray(array).view(np.uint8).data
    with ThreadPoolExecutor() as pool:
        return list(
            pool.map(
                lambda start: sha256(data[start : start + CHECKSUM_BYTES]).hexdigest(),
                range(0, len(data), CHECKSUM_BYTES),
            )
        )


def digest(value: Any) -> str:
    """A hash of a JSON value: 16 hexadecimal digits."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _memory_map(file: Path, dtype: np.dtype) -> np.ndarray:
    return np.asarray(np.memmap(file, dtype, mode="r"))  # indexing a plain array is faster


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: the token store cannot be written ({error.strerror}); free space or name another directory"
        ) from error
