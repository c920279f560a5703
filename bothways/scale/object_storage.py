"""Object storage: paths of the schemes s3, gs and az, through obstore.

Credentials and options come from the environment, under the names of obstore: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL,
AWS_REQUEST_PAYER, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME, ... Requests are repeated after failures
that may pass, with longer and longer pauses.
"""

import errno
import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import cache
from pathlib import Path
from stat import S_IFDIR, S_IFREG
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from bothways.base.errors import InputError, MissingFile, StorageError, require, shorten
from bothways.base.paths import BLOCK, LocalCopy, RemotePath

T = TypeVar("T")
TRIES, PAUSE = 6, 0.1  # of a request, and seconds after the first, doubled each time
BACKOFF = {"init_backoff": timedelta(milliseconds=100)}  # then twice as long each time
CONTROL = re.compile("[\x00-\x1f\x7f]")  # characters that no key of obstore has
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Answers that a repetition may change, as obstore words them; it repeats those from 500 on by itself, up to 3 times.
TEMPORARY = re.compile(r"status code: (408|409|429|5\d\d)|HTTP error|timed? ?out|body|length|connection", re.I)


def _check_key(url: str, rest: str) -> None:
    """InputError for a key that a path or obstore would take for another one. rest: bucket and key; one slash at the
    end names a folder."""
    names = rest.removesuffix("/").split("/")
    if "" in names:
        raise InputError(
            f"{url}: a key with // is not that with /, and is not supported; write one slash, or copy the object to "
            "such a key"
        )
    for name in names:
        if name in (".", ".."):
            raise InputError(
                f"{url}: a key with the name {name!r} between slashes is not supported; leave it out, or copy the "
                "object to another key"
            )
    if CONTROL.search(rest):
        raise InputError(f"{url!r}: a key with control characters is not supported; copy the object to another key")


class Status(NamedTuple):
    """The part of os.stat_result that an object has. st_mtime_ns: to the second. e_tag: names the version."""

    st_size: int
    st_mode: int
    st_mtime_ns: int = 0
    st_ino: int = 0
    e_tag: str | None = None


class CloudPath(RemotePath):
    """A path in object storage: of an object, or of all objects below it."""

    array_storage = "bothways.scale.shards"

    _status: Status | None = None  # from a list, which is then the version that is read

    @classmethod
    def of_url(cls, url: str) -> "CloudPath":
        scheme, _, rest = url.partition("://")
        _check_key(url, rest)
        return cls(f"{scheme}:/{rest}")

    @property
    def _store(self) -> Any:
        return _open_store(f"{self.parts[0]}//{self.parts[1]}", os.getpid())

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        if self._status is None:
            try:
                self._status = _status(_request(self, lambda obstore: obstore.head(self._store, self.key)))
            except MissingFile:
                if not self.key or next(self._listed(), None) is None:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self)) from None
                return Status(0, S_IFDIR)
        return self._status

    def is_file(self, **options: Any) -> bool:
        try:
            return bool(self.key) and self.stat().st_mode == S_IFREG
        except FileNotFoundError:
            return False

    def is_dir(self, **options: Any) -> bool:
        return next(self._listed(), None) is not None

    def files(self) -> list["CloudPath"]:
        """All objects below this prefix, sorted, without the empty ones that stand for folders. MissingFile if the
        bucket does not exist."""
        listed = [*self._listed()]
        if any(not file.stat().st_size for file in listed):
            folders: set[tuple[str, ...]] = set()
            for file in listed:
                for end in range(len(self.parts) + 1, len(file.parts)):
                    folders.add(file.parts[:end])
            listed = [file for file in listed if file.stat().st_size or file.parts not in folders]
        return sorted(listed, key=str)

    def _listed(self) -> Iterator["CloudPath"]:
        prefix = f"{self.key}/" if self.key else None
        batches = iter(_request(self, lambda obstore: obstore.list(self._store, prefix)))
        while batch := _request(self, lambda _: next(batches, None)):
            for entry in batch:
                file = type(self)(*self.parts[:2], entry["path"])
                if file.parts != self.parts:  # the object KEY/, with which consoles show an empty folder
                    file._status = _status(entry)
                    yield file

    def open(self, mode: str = "rb", buffering: int = -1, **options: Any) -> Any:
        """A file to read bytes from, in blocks of BLOCK bytes. InputError if it is replaced meanwhile."""
        if mode != "rb":
            raise InputError(f"{self}: an object cannot be changed in place ({mode}); write a local file and upload it")
        return io.BufferedReader(_Reader(self), BLOCK)

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return bytes(file.read())

    def read_range(self, start: int, size: int) -> bytes:
        """`size` bytes from `start` on, of the version that `stat` has named."""
        status = self.stat()

        def read(obstore: Any) -> bytes:
            options = {"range": (start, start + size), "if_match": status.e_tag}
            data = bytes(obstore.get(self._store, self.key, options=options).bytes())
            if len(data) != size:
                raise ConnectionError(f"{len(data):,} of {size:,} bytes arrived")
            return data

        return _request(self, read) if size else b""

    def put(self, content: bytes | Path, *, create: bool = False) -> None:
        """Upload the object, from bytes or a local file. create: FileExistsError if it exists already, unless it
        has just this content, as after an upload whose answer was lost."""

        def write(obstore: Any) -> None:
            source = content if isinstance(content, bytes) else open(content, "rb")  # noqa: SIM115
            try:
                # A multipart upload would not be checked against an existing object until it is complete.
                options = {"mode": "create", "use_multipart": False} if create else {}
                obstore.put(self._store, self.key, source, **options)
            finally:
                if not isinstance(source, bytes):
                    source.close()

        try:
            _request(self, write)
        except FileExistsError:
            written = content if isinstance(content, bytes) else content.read_bytes()
            if type(self)(*self.parts).read_bytes() != written:
                raise
        self._status = None

    def download(self, is_read: Callable[[str], bool] = lambda name: True) -> LocalCopy:
        from bothways.scale import mirror

        return mirror.download(self, is_read)

    def download_files(self, names: Iterable[str]) -> LocalCopy:
        from bothways.scale import mirror

        return mirror.download_files(self, names)

    def mirrored(self, *, is_resumed: bool = False) -> AbstractContextManager[LocalCopy]:
        from bothways.scale import mirror

        return mirror.mirrored(self, is_resumed=is_resumed)

    def unlink(self, missing_ok: bool = True) -> None:
        _request(self, lambda obstore: obstore.delete(self._store, self.key))
        self._status = None


class _Reader(io.RawIOBase):
    def __init__(self, path: CloudPath) -> None:
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self.path = path
        self.size = path.stat().st_size
        self.position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def tell(self) -> int:
        return self.position

    def readall(self) -> bytes:  # the base class reads a few kB at a time
        blocks = range(self.position, self.size, BLOCK)
        self.position = max(self.position, self.size)
        return b"".join(self.path.read_range(start, min(BLOCK, self.size - start)) for start in blocks)

    def readinto(self, buffer: Any) -> int:
        size: int = max(0, min(len(buffer), self.size - self.position))
        buffer[:size] = self.path.read_range(self.position, size)
        self.position += size
        return size


# --- requests ---------------------------------------------------------------------------------------------------------


def _status(described: Any) -> Status:
    seconds = described["last_modified"].timestamp()
    return Status(described["size"], S_IFREG, int(seconds * 1e9), e_tag=described["e_tag"])


@cache
def _open_store(bucket: str, process: int) -> Any:  # connections do not survive a fork
    obstore = _obstore(bucket)
    endpoint = next(filter(None, map(os.environ.get, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"))), "")
    try:
        return obstore.store.from_url(
            bucket,
            config={"endpoint": endpoint} if endpoint and bucket.startswith("s3:") else None,
            client_options={"allow_http": urlsplit(endpoint).hostname in LOOPBACK, "timeout": timedelta(minutes=2)},
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=60), "backoff": BACKOFF},
        )
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise StorageError(f"{bucket}: {_first_line(error)}; check the environment variables of its access") from None


def _obstore(place: object) -> Any:
    require(place, "obstore")
    import obstore
    import obstore.store

    return obstore


def _request(path: CloudPath, make: Callable[[Any], T]) -> T:
    """The result of `make(obstore)`, with up to TRIES attempts."""
    obstore, failed = _obstore(path), 0
    kinds = obstore.exceptions
    while True:
        try:
            return make(obstore)
        except FileNotFoundError as error:
            reason = _first_line(error)
            if "NoSuchUpload" not in str(error):  # a multipart upload was completed, but the answer was lost
                raise MissingFile(f"{path}: no such object; check its name, and that of the bucket") from None
        except (kinds.AlreadyExistsError, kinds.PreconditionError) as error:
            if "status code: 409" in str(error):  # another request for the same object is under way
                reason = _first_line(error)
            elif isinstance(error, kinds.AlreadyExistsError):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
            else:
                raise StorageError(f"{path}: replaced while it was read; run the command again") from None
        except (kinds.PermissionDeniedError, kinds.UnauthenticatedError):
            raise StorageError(f"{path}: access denied; check the credentials and what they allow") from None
        except (kinds.BaseError, ConnectionError, OSError) as error:
            reason = _first_line(error)
            if "invalid path" in str(error):  # in a list
                raise InputError(f"{path}: {shorten(reason, 120)}; copy that object to another key") from None
            if "NoSuchBucket" in str(error):
                raise MissingFile(f"{path}: no such bucket; check its name") from None
            if "builder error" in str(error):
                raise StorageError(
                    f"{path}: plain http is for this machine only; name an endpoint with https"
                ) from None
            if not TEMPORARY.search(str(error)) and not isinstance(error, ConnectionError):
                raise StorageError(f"{path}: {reason}; check the name, the endpoint and the credentials") from None
        failed += 1
        if failed == TRIES:
            raise StorageError(f"{path}: not reached in {TRIES} attempts ({reason}); check the network and try again")
        time.sleep(PAUSE * 2**failed)


def _first_line(error: BaseException) -> str:
    return shorten(str(error).partition("\n")[0].partition(": <?xml")[0] or type(error).__name__, 160)
