"""Globs of files, as in ripgrep: *.md, notes/**, !drafts/**."""

import re
from collections.abc import Sequence
from functools import lru_cache


def matches(name: str, globs: Sequence[str]) -> bool:
    """Whether the path of a file, relative to its folder and with /, passes globs.

    With ! in front a glob excludes; if there are others, one of them must match. A glob without / is for the name of
    the file in any folder. `*` stays within a name, `**` does not.
    """
    wanted = [glob for glob in globs if not glob.startswith("!")]
    unwanted = [glob[1:] for glob in globs if glob.startswith("!")]
    return (not wanted or any(_fits(name, glob) for glob in wanted)) and not any(_fits(name, glob) for glob in unwanted)


def _fits(name: str, glob: str) -> bool:
    return _pattern(glob).fullmatch(name if "/" in glob else name.rpartition("/")[2]) is not None


@lru_cache(256)
def _pattern(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]/]+\])", glob.removeprefix("/"))
    translated = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    return re.compile(
        "".join(
            translated.get(part)
            or (
                f"[{'^' if part[1] in '!^' else ''}{re.escape(part[1:-1].lstrip('!^'))}]".replace(r"\-", "-")
                if re.fullmatch(r"\[[^\]/]+\]", part)
                else re.escape(part)
            )
            for part in parts
        ),
        re.DOTALL,
    )
