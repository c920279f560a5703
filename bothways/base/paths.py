"""Places that are read and written: local paths, and URLs, of which each scheme has a class of paths.

What the library needs of a path outside the local file system is a `RemotePath`: it lists, reads, writes once, and
makes local copies. The schemes of object storage are in scale/object_storage.py.
"""

import os
import re
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bothways.base.errors import InputError
from bothways.base.registry import Registry

URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/{1,3}(?!/)(.+)", re.DOTALL)  # Path makes s3:/x of s3://x
BLOCK = 1 << 23  # bytes that are read at a time
VERSIONS = ".versions.json"  # next to a local copy: where it is from, and the version of each file


class RemotePath(type(Path())):  # type: ignore[misc]
    """A path whose text is a URL: of an object, or of all objects below it. An object is never changed in place.

    Methods raise the exceptions of `Path`, and InputError with one line for what cannot be reached.
    """

    array_storage: str  # the module that stores arrays there, with the functions of text/corpus/array_files.py

    @classmethod
    @abstractmethod
    def of_url(cls, url: str) -> "RemotePath":
        """The path of a URL, such as s3://bucket/key. InputError if no object can have it."""

    def __str__(self) -> str:
        text = "/".join(self.parts)
        return text.replace(":/", "://", 1) if self.parts[0].endswith(":") else text

    def __fspath__(self) -> str:
        raise InputError(f"{self}: is read from local files only; copy it to a local path")

    @property
    def key(self) -> str:
        """The name in the bucket."""
        return "/".join(self.parts[2:])

    def absolute(self) -> "RemotePath":
        return self

    def resolve(self, strict: bool = False) -> "RemotePath":
        return self

    def is_symlink(self) -> bool:
        return False

    def exists(self, **options: Any) -> bool:
        return bool(self.is_file() or self.is_dir())

    @abstractmethod
    def files(self) -> list[Any]:
        """All objects below this prefix, sorted. MissingFile if the bucket does not exist."""

    @abstractmethod
    def open(self, mode: str = "rb", buffering: int = -1, **options: Any) -> Any:
        """A file to read bytes from. InputError if it is replaced meanwhile."""

    @abstractmethod
    def read_range(self, start: int, size: int) -> bytes:
        """`size` bytes from `start` on, of the version that `stat` has named."""

    @abstractmethod
    def put(self, content: bytes | Path, *, create: bool = False) -> None:
        """Write the object, from bytes or a local file. create: FileExistsError if it exists already, unless it has
        just this content."""

    @abstractmethod
    def download(self, is_read: Callable[[str], bool] = lambda name: True) -> "LocalCopy":
        """A local copy of a directory, such as a model, or of a file; only files that have changed are fetched.
        is_read: whether the file of a relative name will be read; of others there are only the folders."""

    @abstractmethod
    def download_files(self, names: Iterable[str]) -> "LocalCopy":
        """A local copy of those files of a folder that exist, which may be among many others."""

    @abstractmethod
    def mirrored(self, *, is_resumed: bool = False) -> AbstractContextManager["LocalCopy"]:
        """A local copy of a file or directory, with which it is brought in line: after each write through `io`, and at
        the end. InputError if another process has the target, unless `is_resumed`."""


SCHEMES = Registry[type[RemotePath]](
    "scheme",
    "bothways.schemes",
    {
        "s3": "bothways.scale.object_storage:CloudPath",
        "gs": "bothways.scale.object_storage:CloudPath",
        "az": "bothways.scale.object_storage:CloudPath",
    },
)


def as_path(place: str | os.PathLike[str]) -> Path:
    """The path of a place: an object or a prefix of objects for a URL of object storage, else a local path, also for
    file:///PATH. InputError for other URLs, and for keys that would become the keys of other objects."""
    if isinstance(place, RemotePath | LocalCopy):
        return place

    text = os.fspath(place)
    url = URL.fullmatch(text)
    if url is None:
        scheme, colon, _ = text.partition(":/")
        if colon and scheme in SCHEMES.entries:
            raise InputError(f"{text}: names no bucket; write it like {scheme}://BUCKET/KEY")
        return Path(place)

    scheme, rest = url.groups()
    if scheme == "file":
        return Path("/", rest)
    if scheme not in SCHEMES:
        schemes = ", ".join(f"{name}://" for name in SCHEMES)
        raise InputError(f"{scheme}://{rest}: only {schemes} and file:// are supported; copy it to a local path")
    return SCHEMES[scheme].of_url(f"{scheme}://{rest}")


class LocalCopy(type(Path())):  # type: ignore[misc]
    """A local path of a copy of what is in object storage; its text is the URL. urls: by local directory."""

    urls: dict[str, str] = {}  # noqa: RUF012

    def __fspath__(self) -> str:
        return os.path.join(*self.parts)

    def __str__(self) -> str:
        local = os.fspath(self)
        for root, url in self.urls.items():
            if local == root or local.startswith(root + os.sep):
                return url + local[len(root) :]
        return local

    def rglob(self, pattern: str, **options: Any) -> Iterator["LocalCopy"]:
        return map(type(self), Path(os.fspath(self)).rglob(pattern, **options))

    def glob(self, pattern: str, **options: Any) -> Iterator["LocalCopy"]:
        return map(type(self), Path(os.fspath(self)).glob(pattern, **options))


def local_place(place: str | os.PathLike[str]) -> Path:
    """The path of a place to read from; of one in object storage, the path of a local copy."""
    path = as_path(place)
    return path.download() if isinstance(path, RemotePath) else path


@contextmanager
def local_file(path: Path) -> Iterator[Path]:
    """The file; of an object a copy, which is deleted afterwards, and for which errors name the object."""
    if not isinstance(path, RemotePath):
        yield path
        return

    with TemporaryDirectory(prefix="bothways-") as folder:
        copy = Path(folder, path.name)
        with path.open() as remote, copy.open("wb") as opened:
            shutil.copyfileobj(remote, opened, BLOCK)
        try:
            yield copy
        except InputError as error:
            raise type(error)(str(error).replace(str(copy), str(path))) from None


def with_copies(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a verb, for settings whose output may be in object storage."""

    @wraps(function)
    def run(settings: Any, *rest: Any, **options: Any) -> Any:
        out = getattr(settings, "out", None)
        if not isinstance(out, RemotePath) or getattr(settings, "writes_parts", False):
            return function(settings, *rest, **options)

        with out.mirrored(is_resumed=getattr(settings, "resume", False)) as local:
            return function(replace(settings, out=local), *rest, **options)

    return run
