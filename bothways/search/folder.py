"""Documents in folders: walks them in order, without hidden, ignored (.gitignore) and unreadable files."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bothways.base.errors import MissingFile
from bothways.base.log import logger
from bothways.base.paths import RemotePath
from bothways.search.ignore_files import GIT, GITIGNORE, IgnoreFile, ignore_files_above, is_ignored
from bothways.search.readers import UNREAD_DOCUMENTS, has_reader
from bothways.text.rows.globs import Chooser
from bothways.text.rows.text_files import is_compressed

Identity = tuple[int, int] | str  # device and inode, or a URL


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A document. path: below the root as it was named. relative: to the root, with `/`."""

    root: Path
    path: Path
    relative: str
    size: int
    modified_ns: int


def find_documents(
    roots: Sequence[Path],
    *,
    glob: Sequence[str] = (),
    hidden: bool = False,
    skip: Path | None = None,
    skipped: Counter[str] | None = None,
) -> Iterator[FoundFile]:
    """The documents in folders, each once, sorted by path; a root that is a file is one, whatever its name.

    Links are followed if they lead to a file or folder in the roots that is not found without them.

    roots: folders or files.
    glob: patterns of .gitignore that choose files by their relative path: `*.md`, `docs/**`; with `!` they leave out
        files and folders; the last one that matches counts.
    hidden: include names that start with a dot (but not .git).
    skip: a folder that is left out, such as the folder of the index.
    skipped: incremented by the number of skipped files, folders and links by reason.

    MissingFile if a root is missing.

    >>> [file.relative for file in find_documents([Path("docs")], glob=["*.md", "!drafts/"])]
    ['guide.md', 'search/filters.md']
    """
    walk = _Walk(roots, glob, hidden=hidden, skipped=Counter() if skipped is None else skipped)
    if skip is not None and skip.exists():
        walk.is_new(_identity(skip.stat()))

    files: list[list[FoundFile]] = []
    reasons: list[Counter[str]] = []
    for index, root in enumerate(roots):
        before = Counter(walk.skipped)
        files.append([*walk.files(index, root)])
        reasons.append(walk.skipped - before)

    # Links come after all files that are reachable without links. Following one may find others, so the list grows.
    for folder, link in walk.links:
        files[folder.root] += walk.follow(folder, link)

    for root, root_files, skipped_files in zip(roots, files, reasons, strict=True):
        if skipped_files and not root_files:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in skipped_files.most_common())
            logger.warning(f"{root}: no document (left out: {counts}); name a file or another folder")

    for root_files in files:
        yield from sorted(root_files, key=lambda file: file.relative.split("/"))


def unread_documents(skipped: Counter[str]) -> dict[str, int]:
    """The numbers of skipped files by type, of documents of types without a reader."""
    unread = {}
    for reason, count in sorted(skipped.items()):
        suffix = reason.removeprefix("of type ")
        if suffix in UNREAD_DOCUMENTS:
            unread[suffix] = count
    return unread


@dataclass(frozen=True)
class _Folder:
    """A folder to walk.

    root: the index of the root that it is in.
    relative: to the root, ending in "/" unless it is empty.
    ignore_files: above it and in it, outermost first.
    """

    path: str
    root: int
    relative: str = ""
    ignore_files: tuple[IgnoreFile, ...] = ()

    def inner(self, name: str, path: str) -> "_Folder":
        return replace(self, path=path, relative=f"{self.relative}{name}/")


class _Walk:
    """A walk through roots, which comes to each file and folder once."""

    def __init__(
        self,
        roots: Sequence[Path],
        glob: Sequence[str],
        *,
        hidden: bool,
        skipped: Counter[str],
    ) -> None:
        self.roots = roots
        self.real_roots = [os.path.realpath(root) for root in roots if not isinstance(root, RemotePath)]
        self.is_hidden_included = hidden
        self.skipped = skipped
        self.seen: set[Identity] = set()  # files and folders
        self.chooser = Chooser.of(glob)
        self.links: list[tuple[_Folder, os.DirEntry[str]]] = []

    def files(self, index: int, root: Path) -> Iterator[FoundFile]:
        """The files below a root, without links; or the root, if it is a file."""
        if isinstance(root, RemotePath):
            yield from self._objects(index, root)
            return
        try:
            status = root.stat()
        except OSError as error:
            raise MissingFile(f"{root}: no such file or folder ({error.strerror}); check the path") from None

        if root.is_dir():
            yield from self._walk(_Folder(os.fspath(root), index, ignore_files=(*ignore_files_above(root),)))
        elif self.is_new(_identity(status)):
            yield FoundFile(
                root=root,
                path=root,
                relative=root.name,
                size=status.st_size,
                modified_ns=status.st_mtime_ns,
            )

    def _objects(self, index: int, root: RemotePath) -> Iterator[FoundFile]:
        """The files below a root in object storage, where no .gitignore counts."""
        if root.is_file():
            status = root.stat()
            yield FoundFile(
                root=root,
                path=root,
                relative=root.name,
                size=status.st_size,
                modified_ns=status.st_mtime_ns,
            )
        elif not root.is_dir():
            raise MissingFile(f"{root}: no such file or folder; check the path")

        for path in root.files():
            *parents, name = path.parts[len(root.parts) :]
            folder = _Folder(str(root), index)
            is_wanted = True
            for parent in parents:
                is_wanted = is_wanted and self._is_wanted(folder, parent, True)
                folder = folder.inner(parent, f"{folder.path}/{parent}")
            if is_wanted and self._is_wanted(folder, name, False):
                yield from self._file(folder, path)

    def _walk(self, folder: _Folder) -> Iterator[FoundFile]:
        folders = [folder]
        while folders:
            yield from self._entries(folders.pop(), folders)

    def _entries(self, folder: _Folder, folders: list[_Folder]) -> Iterator[FoundFile]:
        """The files in a folder. folders: receives the folders in it."""
        try:
            if not self.is_new(_identity(os.stat(folder.path))):
                return
            with os.scandir(folder.path) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            self.skipped["folder that cannot be read"] += 1
            return

        if any(entry.name == GITIGNORE for entry in entries):
            inner = IgnoreFile.read(folder.path, skip=len(folder.relative))
            folder = replace(folder, ignore_files=(*folder.ignore_files, *inner))

        for entry in entries:
            is_folder = _leads_to_folder(entry)  # of links too: a pattern may name folders only
            if not self._is_wanted(folder, entry.name, is_folder):
                continue

            if entry.is_symlink():
                self.links.append((folder, entry))
            elif is_folder:
                folders.append(folder.inner(entry.name, entry.path))
            else:
                yield from self._file(folder, entry)

    def _is_wanted(self, folder: _Folder, name: str, is_folder: bool) -> bool:
        relative = f"{folder.relative}{name}{'/' if is_folder else ''}"
        if name == GIT or (name.startswith(".") and not self.is_hidden_included):
            reason = "hidden"
        elif is_ignored(relative, folder.ignore_files):
            reason = "named in .gitignore"
        elif not self.chooser.chooses(relative):
            reason = "not chosen by a pattern"
        else:
            return True
        self.skipped[reason] += 1
        return False

    def _file(self, folder: _Folder, entry: "os.DirEntry[str] | RemotePath") -> Iterator[FoundFile]:
        path = entry if isinstance(entry, RemotePath) else Path(entry.path)
        if not entry.is_file():
            self.skipped["not a regular file"] += 1
            return
        if not has_reader(path):
            suffix = "".join(path.suffixes[-2:]) if is_compressed(path) else path.suffix
            self.skipped[f"of type {suffix.lower()}" if suffix else "without a type"] += 1
            return

        try:
            status = entry.stat()
        except OSError:  # removed meanwhile
            self.skipped["not a regular file"] += 1
            return
        if self.is_new(str(path) if isinstance(path, RemotePath) else _identity(status)):
            yield FoundFile(
                root=self.roots[folder.root],
                path=path,
                relative=folder.relative + entry.name,
                size=status.st_size,
                modified_ns=status.st_mtime_ns,
            )

    def follow(self, folder: _Folder, link: "os.DirEntry[str]") -> Iterator[FoundFile]:
        target = os.path.realpath(link.path)
        if not any(target == root or target.startswith(os.path.join(root, "")) for root in self.real_roots):
            self.skipped["link that leads out of the folders"] += 1
        elif not os.path.exists(target):
            self.skipped["broken link"] += 1
        elif link.is_dir():
            yield from self._walk(folder.inner(link.name, link.path))
        else:
            yield from self._file(folder, link)

    def is_new(self, identity: Identity) -> bool:
        is_new = identity not in self.seen
        self.seen.add(identity)
        return is_new


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _leads_to_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
