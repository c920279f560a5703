"""Ignored files: the patterns of .gitignore files, nested and above a folder."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bothways.base.errors import InputError
from bothways.text.data.globs import GlobPattern, parse_pattern, split_path
from bothways.text.data.text_encodings import decode_marked

GIT = ".git"
GITIGNORE = ".gitignore"


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The patterns of a .gitignore. A path relative to the root of the search is relative to its folder without its
    first `skip` characters (below the root), or after `prefix` (above the root)."""

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
        matching = (one for one in reversed(self.patterns) if one.matches(names, is_folder, least=least))
        last = next(matching, None)
        return None if last is None else not last.is_negated

    def without(self, folder: str) -> "IgnoreFile":
        """The file without the patterns that ignore a folder, or all that is in it."""
        names, _ = split_path(folder)
        kept = [one for one in self.patterns if one.is_negated or not one.matches(names, True, least=0)]
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
    """By the innermost file that has a matching pattern. relative: to the root, ending in "/" for a folder. The folders
    above it are not ignored."""
    answers = (file.ignores(relative, least=least) for file in reversed(ignore_files))
    return next((answer for answer in answers if answer is not None), False)


def ignore_files_above(root: Path) -> list[IgnoreFile]:
    """The .gitignore files in the folders above a root, up to the top of its git repository, if it is in one, outermost
    first."""
    root = root.absolute()
    folders = [root, *root.parents]
    top = next((index for index, folder in enumerate(folders) if (folder / GIT).exists()), 0)
    above = [
        file
        for folder in reversed(folders[1 : top + 1])
        for file in IgnoreFile.read(os.fspath(folder), prefix=f"{root.relative_to(folder).as_posix()}/")
    ]
    # Who names a folder wants it: what ignores the folder itself does not count, other patterns do.
    return [file.without(file.prefix) for file in above] if is_ignored("", above, least=0) else above
