"""RTF as text, by striprtf. What it misreads is put right: binary data, deleted text and footnotes before it sees a
file, and afterwards characters beyond U+FFFF, which RTF writes as two numbers.
"""

import re
from collections.abc import Iterator

TOKEN = re.compile(
    r"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?|(?P<hex>\\'[0-9a-fA-F]{2})|(?P<symbol>\\.)|(?P<brace>[{}])|"
    r"(?P<text>[^\\{}]+)|\\",
    re.DOTALL,
)
SHOWN = frozenset("par line tab cell nestcell row page sect u emdash endash bullet lquote rquote".split())


def rtf_to_text(content: str) -> str:
    """The text of an RTF file, whose bytes are given as Latin-1. ValueError, LookupError or TypeError if it is
    damaged."""
    from striprtf.striprtf import rtf_to_text as convert

    text = str(convert("".join(_readable(content)), errors="replace"))
    # Two numbers of a character beyond U+FFFF have become two surrogates.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _readable(content: str) -> Iterator[str]:
    """The content without binary data and deleted text, and with footnotes as text in brackets."""
    place = 0
    is_deleted = False
    closing = ""  # what ends the text of this group
    outer: list[tuple[bool, str]] = []
    while match := TOKEN.match(content, place):
        place = match.end()
        token = match[0]
        word = match["word"]
        if token == "{":
            outer.append((is_deleted, closing))
            closing = ""
            yield token
        elif token == "}":
            yield closing + token
            is_deleted, closing = outer.pop() if outer else (False, "")
        elif word == "bin":
            place += max(0, int(match["number"] or 0))
        elif word in ("deleted", "plain"):
            is_deleted = word == "deleted" and match["number"] != "0"
            yield token if word == "plain" else ""
        elif word == "footnote":
            closing = "" if is_deleted else "]"
            yield "" if is_deleted else " ["
        elif not is_deleted or (word and word not in SHOWN):
            yield token
