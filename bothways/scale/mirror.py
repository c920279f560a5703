"""Outputs in object storage: written to a local copy, from which each file and directory is uploaded when it is
complete.

What is read again, such as a run that resumes, is fetched first. The marker of a directory, the file without
which readers ignore the others, is uploaded last. metrics.jsonl, which grows, is uploaded in numbered pieces.
"""

import json
import logging
import os
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from bothways.base import io
from bothways.base.errors import InputError, flag
from bothways.base.paths import VERSIONS, LocalCopy, RemotePath

logger = logging.getLogger("bothways")  # of log.py, which is below
CLAIM = ".claim"
GROWING = "metrics.jsonl"


@contextmanager
def mirrored(target: RemotePath, *, is_resumed: bool = False) -> Iterator[LocalCopy]:
    """A local copy of a file or directory in object storage, with which it is brought in line: after each write through
    `io`, and at the end. Of several processes on a machine the first does it. InputError if another process has the
    target, unless `is_resumed`."""
    local = _copy(target, "outputs")
    if os.environ.get("RANK", "0") not in ("", "0"):
        yield local
        return

    mirror = _Mirror(target, local)
    mirror.claim(is_resumed)
    io.WRITTEN.append(mirror.publish)
    try:
        mirror.fetch()
        yield local
    finally:
        io.WRITTEN.remove(mirror.publish)
        try:
            mirror.finish()
        finally:
            mirror.release()
        if not [*local.parent.glob(f".{local.name}.*partial*")]:  # of a file that --resume completes
            shutil.rmtree(local.parent, ignore_errors=True)


def download(source: RemotePath, is_read: Callable[[str], bool] = lambda name: True) -> LocalCopy:
    """A local copy of a directory, such as a model, or of a file; only files that have changed are fetched. is_read:
    whether the file of a relative name will be read; of others there are only the folders."""
    local = _copy(source, "models")
    _fetch(source, local, is_read)
    return local


def download_files(folder: RemotePath, names: Iterable[str]) -> LocalCopy:
    """A local copy of those files of a folder that exist, which may be among many others."""
    local = _copy(folder, "files")
    local.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(names):
        file = folder / name
        if file.is_file():
            _fetch_file(file, local / name)
        else:
            (local / name).unlink(missing_ok=True)
    return local


def _copy(target: RemotePath, kind: str) -> LocalCopy:
    folder = io.cache_directory().absolute() / kind / sha256(str(target).encode()).hexdigest()[:16]
    local = folder / target.name
    LocalCopy.urls[str(local)] = str(target)
    LocalCopy.urls[str(folder)] = str(target.parent)
    return LocalCopy(local)


def _fetch(
    source: RemotePath, local: Path, is_read: Callable[[str], bool] = lambda name: True
) -> dict[str, tuple[int, int]]:
    """Make a directory, or a file, equal to the one in object storage, as far as it is read. Returns the state of each
    file by relative key."""
    index = local.with_name(VERSIONS)  # the versions that were fetched last
    old = io.read_json(index)["files"] if index.exists() else {}
    objects = {file.key.removeprefix(source.key).lstrip("/"): file for file in source.files()}
    if not objects and source.is_file():
        objects = {"": source}
    pieces = [objects.pop(name) for name in sorted(objects) if name.startswith(f"{GROWING}/")]

    versions: dict[str, str] = {}
    states: dict[str, tuple[int, int]] = {}
    local.parent.mkdir(parents=True, exist_ok=True)
    for name, file in objects.items():
        if not is_read(name):
            (local / name).parent.mkdir(parents=True, exist_ok=True)
            if name in old:
                versions[name] = old[name]  # of a copy that may be there
            continue

        path = local / name if name else local
        versions[name] = file.stat().e_tag or ""
        if old.get(name) != versions[name] or not path.is_file():
            _fetch_file(file, path)
        states[name] = _state(path)

    _delete_others(local, {*objects})
    if pieces:
        generation = pieces[-1].name.partition("-")[0]
        newest = [piece for piece in pieces if piece.name.startswith(generation)]
        (local / GROWING).write_bytes(b"".join(piece.read_bytes() for piece in newest))
    index.write_text(json.dumps({"source": str(source), "files": versions}))
    return states


def _delete_others(local: Path, names: set[str]) -> None:
    """Delete what an earlier copy had: other files than these, and folders without one of them."""
    folders: set[str] = set()
    for name in names:
        *parents, _ = name.split("/")
        for end in range(1, len(parents) + 1):
            folders.add(os.path.join(local, *parents[:end]))

    for path in sorted(local.rglob("*"), reverse=True):  # those in a folder before it
        if path.is_file() and path.relative_to(local).as_posix() not in names:
            path.unlink()
        elif path.is_dir() and os.fspath(path) not in folders:
            with suppress(OSError):  # a file has been written into it
                path.rmdir()


def _fetch_file(file: RemotePath, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.fetched")
    with file.open() as remote, temporary.open("wb") as opened:
        shutil.copyfileobj(remote, opened, 1 << 24)
    temporary.replace(path)


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


class _Mirror:
    """Uploads what is written below `local`. uploaded: the state of each file in object storage, by relative name."""

    def __init__(self, target: RemotePath, local: LocalCopy) -> None:
        self.target = target
        self.local = local
        self.uploaded: dict[str, tuple[int, int]] = {}
        # Of the file that grows.
        self.generation = 0
        self.pieces = 0
        self.size = 0
        self.claimed = b""

    @property
    def claim_object(self) -> RemotePath:
        """Made with "create": of several processes one makes it."""
        claim: RemotePath = self.target.with_name(f".{self.target.name}{CLAIM}")
        return claim

    def claim(self, is_resumed: bool) -> None:
        count = 1
        if is_resumed and self.claim_object.is_file():
            owner = json.loads(self.claim_object.read_bytes())
            count = owner["count"] + 1
            logger.warning(f"{self.target}: taking over from process {owner['process']} on {owner['host']}")
            self.claim_object.unlink()
        self.claimed = json.dumps({"host": socket.gethostname(), "process": os.getpid(), "count": count}).encode()
        try:
            self.claim_object.put(self.claimed, create=True)
        except FileExistsError:
            owner = json.loads(self.claim_object.read_bytes())
            raise InputError(
                f"{self.target}: is being written by process {owner['process']} on {owner['host']}; wait for it, or if "
                f"it has ended, take over with {flag('resume', True)}"
            ) from None

    def fetch(self) -> None:
        """Start from the content of object storage. Local files of an earlier process are deleted, since they may never
        have been uploaded. Only rows of a file that --resume completes stay."""
        self.local.with_name(VERSIONS).unlink(missing_ok=True)
        if self.local.is_dir():
            shutil.rmtree(self.local)
        self.local.unlink(missing_ok=True)
        self.uploaded = _fetch(self.target, self.local)
        pieces = [file.name for file in (self.target / GROWING).files()]
        if pieces:
            generation, _, piece = pieces[-1].partition("-")
            self.generation = int(generation)
            self.pieces = int(piece) + 1
            self.size = (self.local / GROWING).stat().st_size

    def publish(self, path: Path, marker: str) -> None:
        """Upload a file, or a directory and its marker last. Called when it is complete on disk."""
        if not path.is_relative_to(self.local):
            return
        self._upload_pieces(is_rewritten=path == self.local / GROWING)
        if path.is_dir():
            self._upload_files(path, marker)
        elif path.name != GROWING:
            self._upload_file(path)
        for name in [name for name in self.uploaded if not (self.local / name).exists()]:
            self._delete(name)

    def finish(self) -> None:
        """Upload the files of a directory that are not there yet; or a file, and the files that are named after it."""
        if self.local.is_dir():
            self._upload_pieces()
            self._upload_files(self.local, "bothways.json")
        for path in sorted(self.local.parent.glob(f"{self.local.name}*")):
            if path.is_file() and (path.name != self.local.name or self.uploaded.get("") != _state(path)):
                self.target.with_name(path.name).put(Path(os.fspath(path)))

    def release(self) -> None:
        if self.claim_object.is_file() and self.claim_object.read_bytes() == self.claimed:
            self.claim_object.unlink()

    def _upload_files(self, directory: Path, marker: str) -> None:
        """The files of a directory, the marker last; first of all the marker of an older one is deleted."""
        files = [path for path in directory.rglob("*") if path.is_file() and not _is_temporary(path, self.local)]
        changed = [path for path in files if self.uploaded.get(self._name(path)) != _state(path)]
        old = self._name(directory / marker)
        is_replaced = old in self.uploaded and directory / marker in changed
        if is_replaced and len(changed) > 1 and directory != self.local:
            self._delete(old)
        for path in sorted(changed, key=lambda path: (path.name == marker, path)):
            if path != self.local / GROWING:
                self._upload_file(path)

    def _upload_file(self, path: Path) -> None:
        name = self._name(path)
        state = _state(path)  # before the upload: a file that changes meanwhile is uploaded again
        target = self.target if name == "." else self.target / name
        target.put(Path(os.fspath(path)))
        self.uploaded[name] = state

    def _upload_pieces(self, *, is_rewritten: bool = False) -> None:
        """Upload what was appended since the last piece; of a file that is rewritten, the first piece of its next
        generation."""
        file = self.local / GROWING
        if not file.is_file():
            return
        old: list[RemotePath] = []
        if is_rewritten:
            old = [*(self.target / GROWING).files()]
            self.generation += 1
            self.pieces = 0
            self.size = 0

        with Path(os.fspath(file)).open("rb") as opened:
            opened.seek(self.size)
            content = opened.read()
        if content or is_rewritten:
            (self.target / GROWING / f"{self.generation:06}-{self.pieces:06}").put(content)
            self.pieces += 1
            self.size += len(content)
        for piece in old:
            piece.unlink()

    def _delete(self, name: str) -> None:
        (self.target / name).unlink()
        del self.uploaded[name]

    def _name(self, path: Path) -> str:
        return path.relative_to(self.local).as_posix()


def _is_temporary(path: Path, above: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(above).parts)
