"""Named arrays in a directory: written atomically, memory-mapped, verified by checksums."""

import json
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from bothways.base.errors import InputError
from bothways.base.file_lock import acquire_lock
from bothways.base.io import atomic_directory, remove_leftovers
from bothways.base.log import logger
from bothways.base.paths import RemotePath

METADATA_FILE = "store.json"
CHECKSUM_BYTES = 1 << 26  # bytes per checksum
Contents: TypeAlias = tuple[dict[str, Any], dict[str, Any]]  # arrays by name, and metadata


class StoredArray(Protocol):
    """An array that is read in parts: in memory, on the local disk, or in object storage."""

    @property
    def dtype(self) -> np.dtype: ...

    def __len__(self) -> int: ...

    def __getitem__(self, where: Any) -> np.ndarray:
        """where: a slice, or an array of integers from 0 on."""
        ...


class DamagedStore(Exception):
    """The files of a store are missing or have changed since they were written."""


def storage_of(folder: Path) -> Any:
    """The module that stores arrays in a folder: this one, or the module of a URL's scheme.

    It has `build_folder`, `array_writer` and `read_arrays`.
    """
    if isinstance(folder, RemotePath):
        return import_module(folder.array_storage)
    return sys.modules[__name__]


def build_folder(folder: Path) -> Path:
    """The local folder whose lock a process has that builds a store."""
    return folder


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a store, waiting for other processes. The system releases it if the process dies."""
    with _write_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        opened = lock_file(folder).open("w")

    with opened:
        if not acquire_lock(opened, is_waiting=False):
            logger.info(f"{folder}: another process is building this token store; waiting for it")
            acquire_lock(opened)
        yield


@contextmanager
def try_lock(folder: Path) -> Iterator[bool]:
    """Lock a store without waiting: True inside the block if the lock was acquired, False if another process has it."""
    with lock_file(folder).open("w") as opened:
        yield acquire_lock(opened, is_waiting=False)


def lock_file(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


class ArrayWriter:
    """Writes arrays in parts to a directory, with their metadata last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, name: str, array: np.ndarray) -> None:
        file = self.folder / name
        with _write_errors(file), file.open("ab") as opened:
            opened.write(array.tobytes())

    def finish(self, dtypes: Mapping[str, np.dtype], metadata: Mapping[str, Any]) -> Contents:
        """Write the metadata, with the sizes, dtypes and checksums of the arrays.

        Returns the arrays and the metadata, as `read_arrays` does later.
        """
        arrays = {name: _memory_map(self.folder / name, dtype) for name, dtype in dtypes.items()}
        counts = {name: len(array) for name, array in arrays.items()}
        sums = {name: checksums(array) for name, array in arrays.items()}
        content, complete = describe(dtypes, counts, sums, metadata)

        with _write_errors(self.folder):
            (self.folder / METADATA_FILE).write_text(content)
        return arrays, complete


@contextmanager
def array_writer(folder: Path) -> Iterator[ArrayWriter]:
    """Writes to a temporary directory, which replaces `folder` if the block succeeds. The caller must hold the lock."""
    with ExitStack() as stack:
        with _write_errors(folder):
            remove_leftovers(folder)
            temporary = stack.enter_context(atomic_directory(folder, marker=METADATA_FILE))

        yield ArrayWriter(temporary)

        with _write_errors(folder):
            stack.close()


def describe(
    dtypes: Mapping[str, np.dtype],
    counts: Mapping[str, int],
    sums: Mapping[str, list[str]],
    metadata: Mapping[str, Any],
) -> tuple[str, dict[str, Any]]:
    """The content of METADATA_FILE, and the metadata that `parse` reads from it.

    dtypes, counts, sums: type, length and checksums of each array.
    metadata: further values.
    """
    complete = {
        **metadata,
        "counts": {**counts},
        "dtypes": {name: dtype.str for name, dtype in dtypes.items()},
        "checksums": {**sums},
    }
    content = json.dumps({**complete, "checksum": digest(complete)}, indent=1)
    return content, complete


def parse(content: bytes) -> dict[str, Any]:
    """The metadata of arrays. DamagedStore if it has changed since it was written."""
    try:
        metadata = json.loads(content)
        checksum = metadata.pop("checksum")
    except (ValueError, LookupError, AttributeError, TypeError):
        metadata = None
        checksum = None

    if metadata is None or checksum != digest(metadata):
        raise DamagedStore(f"{METADATA_FILE} differs from what was written")
    return cast(dict[str, Any], metadata)


def read_arrays(folder: Path) -> Contents:
    """The arrays by name, and the metadata. DamagedStore names a file that has changed since it was written."""
    file = folder / METADATA_FILE
    metadata = parse(file.read_bytes() if file.is_file() else b"")

    arrays = {}
    for name, dtype in metadata["dtypes"].items():
        try:
            array = _memory_map(folder / name, np.dtype(dtype))
        except (OSError, ValueError):
            raise DamagedStore(f"{name} is missing or cut short") from None
        if checksums(array) != metadata["checksums"][name]:
            raise DamagedStore(f"{name} differs from its checksums")
        arrays[name] = array

    return arrays, metadata


def checksums(array: np.ndarray) -> list[str]:
    """SHA-256 of each CHECKSUM_BYTES of an array, computed on all cores."""
    data = np.ascontiguousarray(array).view(np.uint8).data

    def checksum(start: int) -> str:
        return sha256(data[start : start + CHECKSUM_BYTES]).hexdigest()

    # sha256 reads 560 to 760 MB/s on one core, twice as much as blake2b (docs/LOG.md), and does not hold Python's lock.
    with ThreadPoolExecutor() as pool:
        return list(pool.map(checksum, range(0, len(data), CHECKSUM_BYTES)))


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
