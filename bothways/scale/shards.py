"""Token stores in object storage: arrays in shards, of which as many as fit are on the local disk too.

METADATA_FILE is the file of a local store (array_files.py). Array NAME is in the objects NAME-00000, NAME-00001, ... of
CHECKSUM_BYTES. Of the ids, PAGE bytes can be read alone: the array `pages` has a CRC-32 of each page.
"""

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from threading import Condition
from typing import Any
from weakref import finalize
from zlib import crc32

import numpy as np

from bothways.base.errors import InputError
from bothways.base.file_lock import acquire_lock
from bothways.base.io import cache_bytes, cache_directory
from bothways.base.log import logger
from bothways.base.paths import BLOCK, RemotePath
from bothways.text.corpus import array_files

PAGE = 1 << 14  # bytes
FILLED = 0.8  # of the cache is for shards, so that the other arrays of stores that are opened later find room
DISK_BLOCK = 4096  # bytes
PAUSE = 0.1  # seconds between looks at what another process has fetched
READERS = 16  # requests for pages at a time
CHECKSUM = np.dtype(np.uint32)


class ShardWriter:
    """Uploads arrays, which arrive in parts, in shards: one while the next one fills."""

    def __init__(self, folder: RemotePath, pool: ThreadPoolExecutor) -> None:
        self.folder = folder
        self.pool = pool
        # By array: the bytes that fill no shard yet, the bytes of all shards, and the checksum of each shard.
        self.rest = defaultdict[str, bytearray](bytearray)
        self.sizes = defaultdict[str, int](int)
        self.checksums = defaultdict[str, list[str]](list)
        self.pending = pool.submit(int)

    def append(self, name: str, array: np.ndarray) -> None:
        rest = self.rest[name]
        rest += array.tobytes()
        while len(rest) >= array_files.CHECKSUM_BYTES:
            self._put(name, bytes(rest[: array_files.CHECKSUM_BYTES]))
            del rest[: array_files.CHECKSUM_BYTES]

    def finish(self, dtypes: Mapping[str, np.dtype], metadata: Mapping[str, Any]) -> array_files.Contents:
        """Upload what is left, and the metadata last. Returns the result of `read_arrays`."""
        for name in (*dtypes, "pages"):
            if self.rest[name]:
                self._put(name, bytes(self.rest[name]))
        self.pending.result()

        dtypes = {**dtypes, "pages": CHECKSUM}
        counts = {name: self.sizes[name] // dtype.itemsize for name, dtype in dtypes.items()}
        content, _ = array_files.describe(dtypes, counts, self.checksums, metadata)
        (self.folder / array_files.METADATA_FILE).put(content.encode())
        return read_arrays(self.folder)

    def _put(self, name: str, data: bytes) -> None:
        shard = self.folder / f"{name}-{len(self.checksums[name]):05}"
        self.checksums[name].append(sha256(data).hexdigest())
        self.sizes[name] += len(data)
        if name == "ids":
            sums = [crc32(data[start : start + PAGE]) for start in range(0, len(data), PAGE)]
            self.append("pages", np.array(sums, CHECKSUM))
        self.pending.result()
        self.pending = self.pool.submit(shard.put, data)


@contextmanager
def array_writer(folder: Path) -> Iterator[ShardWriter]:
    """Writes a store, which is complete when its metadata is there."""
    assert isinstance(folder, RemotePath)
    metadata = folder / array_files.METADATA_FILE
    if metadata.is_file():
        metadata.unlink()
    with ThreadPoolExecutor(1) as pool:
        yield ShardWriter(folder, pool)


def build_folder(folder: Path) -> Path:
    """The local folder whose lock a process has that builds a store."""
    return local_folder(folder).with_suffix(".build")


def local_folder(folder: Path) -> Path:
    """Where the local part of a store is. Stores of the same text and tokenizer have one name, so they share it."""
    return Path(cache_directory().absolute(), "shards", folder.name)


def read_arrays(folder: RemotePath) -> array_files.Contents:
    """The arrays by name, and the metadata. All but the ids are fetched whole. DamagedStore if a part is missing or has
    changed, InputError if what must be local exceeds the bound of the cache."""
    objects = {file.name: file for file in folder.files()}
    file = objects.pop(array_files.METADATA_FILE, None)
    content = file.read_bytes() if file else b""
    metadata = array_files.parse(content)
    parts = {name: _Parts(name, objects, metadata) for name in metadata["counts"]}

    space = _Space(local_folder(folder))
    copy = space.folder / array_files.METADATA_FILE
    if space.reserve(copy, 0, len(content)):
        copy.write_bytes(content)  # for `bothways cache`

    local = {name: part.fetch(space) for name, part in parts.items() if name != "ids"}
    ids = ShardedArray(parts["ids"], local.pop("pages"), space)
    return {"ids": ids, **local}, metadata


class _Parts:
    """The shards of an array. DamagedStore if one is missing, or not as long as it was."""

    def __init__(self, name: str, objects: Mapping[str, RemotePath], metadata: Mapping[str, Any]) -> None:
        self.name = name
        self.dtype = np.dtype(metadata["dtypes"][name])
        self.count = int(metadata["counts"][name])
        self.checksums = metadata["checksums"][name]
        self.num_bytes = self.count * self.dtype.itemsize
        self.starts = range(0, self.num_bytes, array_files.CHECKSUM_BYTES)
        self.sizes = [min(array_files.CHECKSUM_BYTES, self.num_bytes - start) for start in self.starts]

        self.files: list[RemotePath] = []
        for number, size in enumerate(self.sizes):
            file = objects.get(f"{name}-{number:05}")
            if file is None or file.stat().st_size != size:
                raise array_files.DamagedStore(f"{name} lacks a shard")
            self.files.append(file)

    def fetch(self, space: "_Space") -> np.ndarray:
        """The whole array, on the local disk."""
        target = space.folder / self.name
        with nullcontext() if self._is_at(target) else space.filling():
            if not self._is_at(target):  # another process may have fetched it meanwhile
                target.unlink(missing_ok=True)
                if not space.reserve(target, 0, self.num_bytes):
                    raise InputError(
                        f"{self.files[0].parent}: {self.name} takes {self.num_bytes / 1e9:.2f} GB, more than the cache "
                        f"may still hold; raise BOTHWAYS_CACHE_GB"
                    )
                for number in range(len(self.files)):
                    for _ in self.copy(number, target):
                        pass
        return np.asarray(np.memmap(target, self.dtype, mode="r"))

    def _is_at(self, target: Path) -> bool:
        if not target.exists() or target.stat().st_size != self.num_bytes:
            return False
        return bool(array_files.checksums(np.memmap(target, np.uint8, mode="r")) == self.checksums)

    def copy(self, number: int, target: Path) -> Iterator[None]:
        """Write a shard where it belongs in a local file; yields after each BLOCK. DamagedStore if it has changed."""
        checksum = sha256()
        with target.open("r+b") as opened:
            opened.seek(self.starts[number])
            for start in range(0, self.sizes[number], BLOCK):
                data = self.files[number].read_range(start, min(BLOCK, self.sizes[number] - start))
                opened.write(data)
                checksum.update(data)
                yield
        if checksum.hexdigest() != self.checksums[number]:
            raise array_files.DamagedStore(f"{self.files[number]} differs from its checksum")


class ShardedArray:
    """An array in object storage, indexed as one in memory: by slices, and by arrays of integers from 0 on.

    Shards are fetched in the background, in their order, into a file with holes, until the cache is full. What is not
    there is read in pages. InputError if a page differs from its checksum.
    """

    def __init__(self, parts: _Parts, pages: np.ndarray, space: "_Space") -> None:
        self.parts = parts
        self.pages = pages
        self.space = space
        self.dtype = parts.dtype
        self.file = space.folder / parts.name
        flags = space.folder / "present"
        if not space.reserve(flags, 0, len(parts.files)):
            raise InputError(f"{parts.files[0].parent}: the cache is full; raise BOTHWAYS_CACHE_GB")

        for file, size in ((self.file, parts.num_bytes), (flags, len(parts.files))):
            with file.open("ab") as opened:
                opened.truncate(size)
        self.local = np.asarray(np.memmap(self.file, self.dtype, mode="r"))
        self.present = np.memmap(flags, np.uint8, mode="r+")  # of each shard, shared with other processes
        # Shards that an earlier process has fetched may have been damaged since.
        for number in np.flatnonzero(self.present):
            start = array_files.CHECKSUM_BYTES * number // self.dtype.itemsize
            end = array_files.CHECKSUM_BYTES * (number + 1) // self.dtype.itemsize
            if array_files.checksums(self.local[start:end]) != [parts.checksums[number]]:
                self.present[number] = 0

        self.progress = Condition()
        self.process = os.getpid()
        self.filled = 0
        self.pool = ThreadPoolExecutor(1)
        self.blocks = self._fill()
        self._go_on()

    def __len__(self) -> int:
        return self.parts.count

    @property
    def is_local(self) -> bool:
        return bool(self.present.all())

    def __getitem__(self, where: Any) -> np.ndarray:
        per_shard = array_files.CHECKSUM_BYTES // self.dtype.itemsize
        per_page = PAGE // self.dtype.itemsize
        if isinstance(where, slice):
            start, stop, _ = where.indices(len(self))
            shards = slice(start // per_shard, -(-stop // per_shard))
            self._wait(shards.stop)
            if stop <= start or self.present[shards].all():
                return self.local[start:stop]

            page_numbers = np.arange(start // per_page, -(-stop // per_page))
            read = self._read(page_numbers).ravel()
            return read[start % per_page :][: stop - start]

        where = np.asarray(where)
        is_there = self.present[where // per_shard].astype(bool)
        values: np.ndarray = self.local[np.where(is_there, where, 0)]
        if not is_there.all():
            missing = where[~is_there]
            pages, index = np.unique(missing // per_page, return_inverse=True)
            values[~is_there] = self._read(pages)[index.reshape(missing.shape), missing % per_page]
        return values

    def _read(self, pages: np.ndarray) -> np.ndarray:
        """These pages, which are sorted. [pages, PAGE // itemsize]"""
        read = np.zeros((len(pages), PAGE), np.uint8)
        are_apart = (np.diff(pages) != 1) | (pages[1:] % (BLOCK // PAGE) == 0)
        runs = np.split(np.arange(len(pages)), np.flatnonzero(are_apart) + 1)

        with ThreadPoolExecutor(READERS) as pool:
            for run, data in zip(runs, pool.map(lambda run: self._read_run(pages[run]), runs), strict=True):
                read[run[0] : run[-1] + 1].reshape(-1)[: len(data)] = np.frombuffer(data, np.uint8)
        return read.view(self.dtype)

    def _read_run(self, pages: np.ndarray) -> bytes:
        number, start = divmod(int(pages[0]) * PAGE, array_files.CHECKSUM_BYTES)
        size = min(len(pages) * PAGE, self.parts.sizes[number] - start)
        for _ in range(2):  # it may have changed on its way
            data = self.parts.files[number].read_range(start, size)
            sums = [crc32(data[first : first + PAGE]) for first in range(0, size, PAGE)]
            if sums == self.pages[pages].tolist():
                return data
        raise InputError(f"{self.parts.files[number]}: differs from its checksum; delete it and run the command again")

    # Filling the cache. A task fetches one block and orders the next, so that the process can end between them.

    def _go_on(self) -> None:
        if next(self.blocks, self) is not self:
            with suppress(RuntimeError):  # the process ends
                self.pool.submit(self._go_on)

    def _fill(self) -> Iterator[None]:
        yield
        try:
            while not self.is_local:
                with self.space.filling(is_waiting=False) as is_alone:
                    if is_alone:
                        yield from self._fetch_shards()
                        break
                time.sleep(PAUSE)
                yield
                self._tell(int(self.present.argmin()))  # another process fetches them
        except (InputError, OSError, array_files.DamagedStore) as error:
            logger.warning(f"{error}; what is not in the cache is read from object storage each time")
        finally:
            self._tell(len(self.present))

    def _fetch_shards(self) -> Iterator[None]:
        for number in range(len(self.present)):
            if not self.present[number]:
                start = self.parts.starts[number]
                size = self.parts.sizes[number]
                if not self.space.reserve(self.file, start, size, share=FILLED):
                    break
                yield from self.parts.copy(number, self.file)
                self.present[number] = 1
            self._tell(number + 1)

    def _tell(self, filled: int) -> None:
        with self.progress:
            self.filled = filled
            self.progress.notify_all()

    def _wait(self, shards: int) -> None:
        """Wait until the first `shards` are there, as far as they fit, rather than read them twice."""
        if self.process == os.getpid():  # else it is forked, without the thread
            with self.progress:
                self.progress.wait_for(lambda: self.filled >= shards)


class _Space:
    """The folder of a store in the cache, in use while this exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with self._all():
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
            descriptor = os.open(array_files.lock_file(folder), os.O_RDWR | os.O_CREAT)
            finalize(self, os.close, descriptor)
            acquire_lock(descriptor, is_shared=True)

    def reserve(self, file: Path, start: int, size: int, *, share: float = 1.0) -> bool:
        """Take so much disk for a part of a file, unless the cache would exceed this share of its bound. Stores that
        no process uses are deleted for it, the ones first that were used longest ago."""
        bound = share * cache_bytes()
        taken = -(-size // DISK_BLOCK) * DISK_BLOCK
        with self._all():
            others = [path for path in self.folder.parent.iterdir() if path.is_dir() and path != self.folder]
            others.sort(key=lambda path: path.stat().st_mtime)
            used = _disk_use(self.folder.parent)
            while used + taken > bound and others:
                other = others.pop(0)
                with array_files.try_lock(other) as is_unused:
                    if is_unused:
                        shutil.rmtree(other)
                used = _disk_use(self.folder.parent)
            if used + taken > bound:
                return False

            with file.open("ab") as opened:
                os.posix_fallocate(opened.fileno(), start, size)
            return True

    @contextmanager
    def filling(self, *, is_waiting: bool = True) -> Iterator[bool]:
        """Yields whether this process has the lock of filling, which one process has at a time."""
        with self.folder.with_name(f".{self.folder.name}.filling").open("w") as opened:
            yield acquire_lock(opened, is_waiting=is_waiting)

    @contextmanager
    def _all(self) -> Iterator[None]:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with (self.folder.parent / ".lock").open("w") as opened:
            acquire_lock(opened)
            yield


def _disk_use(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
