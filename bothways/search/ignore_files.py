"""Ignored files: the patterns of .gitignore files, nested and above a folder."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bothways.base.errors import InputError
from bothways.text.rows.globs import GlobPattern, parse_pattern, split_path
from bothways.text.rows.text_encodings import decode_marked

GIT = ".git"
GITIGNORE = ".gitignore"


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The patterns of a .gitignore.

    They are relative to its folder, while paths are given relative to the root of the search.

    patterns: in the order of the file.
    prefix: of a folder above the root: goes before a path.
    skip: of a folder below the root: the number of the first characters of a path that are left out.
    """

    patterns: Sequence[GlobPattern]
    prefix: str = ""
    skip: int = 0

    @classmethod
    def read(cls, folder: str, *, prefix: str = "", skip: int = 0) -> Iterator["IgnoreFile"]:
        """The .gitignore of a folder, if it can be read. Lines that are not patterns are left out."""
        path = os.path.join(folder, GITIGNORE)
        if not os.path.isfile(path):
            return
        try:
            text = decode_marked(Path(path).read_bytes(), "surrogateescape")
        except OSError:
            return

        yield cls([*_patterns_of(re.split("\r\n?|\n", text))], prefix, skip)

    def ignores(self, relative: str, *, least: int = 1) -> bool | None:
        """By the last pattern that matches a path itself; None: no pattern does. least: as in `GlobPattern.matches`."""
        names, is_folder = split_path(self.prefix + relative[self.skip :])
        for pattern in reversed(self.patterns):
            if pattern.matches(names, is_folder, least=least):
                return not pattern.is_negated
        return None

    def without(self, folder: str) -> "IgnoreFile":
        """The file without the patterns that ignore a folder, or all that is in it."""
        names, _ = split_path(folder)
        kept = []
        for pattern in self.patterns:
            if pattern.is_negated or not pattern.matches(names, True, least=0):
                kept.append(pattern)
        return replace(self, patterns=kept)


def _patterns_of(lines: Sequence[str]) -> Iterator[GlobPattern]:
    for line in lines:
        try:
            pattern = parse_pattern(line)
        except InputError:
            continue
        if pattern is not None:
            yield pattern


def is_ignored(relative: str, ignore_files: Sequence[IgnoreFile], *, least: int = 1) -> bool:
    """Whether a path is ignored, by the innermost file that has a matching pattern.

    relative: the path below the root, ending in "/" for a folder; the folders above it are not ignored.
    ignore_files: outermost first.
    least: as in `GlobPattern.matches`.
    """
    for file in reversed(ignore_files):
        answer = file.ignores(relative, least=least)
        if answer is not None:
            return answer
    return False


def ignore_files_above(root: Path) -> list[IgnoreFile]:
    """The .gitignore files in the folders above a root, up to the top of its git repository, if it is in one, outermost
    first."""
    root = root.absolute()
    folders = [root, *root.parents]
    top = next((index for index, folder in enumerate(folders) if (folder / GIT).exists()), 0)

    above: list[IgnoreFile] = []
    for folder in reversed(folders[1 : top + 1]):
        prefix = f"{root.relative_to(folder).as_posix()}/"
        above += IgnoreFile.read(os.fspath(folder), prefix=prefix)

    # Who names a folder wants it: patterns that ignore the folder itself do not count, other patterns do.
    if is_ignored("", above, least=0):
        return [file.without(file.prefix) for file in above]
    return above
