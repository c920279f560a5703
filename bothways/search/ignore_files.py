"""Ignored files: the patterns of .gitignore files, nested and above a folder, by pathspec."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bothways.errors import InputError, flag
from bothways.text.data.text_encodings import decode_marked

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

GIT = ".git"
GITIGNORE = ".gitignore"


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The patterns of a .gitignore. A path relative to the root of the search is relative to its folder without its
    first `skip` characters (below the root), or after `prefix` (above the root)."""

    patterns: "GitIgnoreSpec"
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
        lines = re.split("\r\n?|\n", text)
        try:
            yield cls(compile_patterns(lines), prefix, skip)
        except InputError:
            yield cls(compile_patterns([line for line in lines if _is_pattern(line)]), prefix, skip)

    def without(self, path: str) -> "IgnoreFile":
        """The file without the patterns that ignore a path."""
        kept = [one for one in self.patterns.patterns if not (one.include and one.match_file(path))]
        return replace(self, patterns=type(self.patterns)(kept))


def is_ignored(relative: str, ignore_files: Sequence[IgnoreFile]) -> bool:
    """By the innermost file that has a matching pattern. relative: to the root, ending in "/" for a folder."""
    answers = (file.patterns.check_file(file.prefix + relative[file.skip :]).include for file in reversed(ignore_files))
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
    return [file.without(file.prefix) for file in above] if is_ignored("", above) else above


def choose(patterns: "GitIgnoreSpec", relative: str, default: bool) -> bool:
    """The result of the last pattern that matches a path: True, or False if it starts with `!`. Without a match, the
    default."""
    chosen = patterns.check_file(relative).include
    return default if chosen is None else chosen


def matches(relative: str, glob: Sequence[str]) -> bool:
    """Whether the path of a file is chosen by patterns, as `find_documents` chooses it."""
    needs_match = any(not pattern.startswith("!") for pattern in glob)
    return choose(compile_patterns(glob), relative, not needs_match)


def compile_patterns(lines: Sequence[str]) -> "GitIgnoreSpec":
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except (ValueError, re.error) as error:
        raise InputError(f"{flag('glob')} {' '.join(lines)!r}: not a pattern ({error}); write it like *.md") from None


def _is_pattern(line: str) -> bool:
    try:
        compile_patterns([line])
    except InputError:
        return False
    return True
