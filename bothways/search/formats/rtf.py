"""RTF as text, by striprtf. Its misreadings are put right: binary data, deleted text and footnotes before it sees a
file, and afterwards characters beyond U+FFFF, which RTF writes as two numbers.
"""

import re
from collections.abc import Iterator

TOKEN = re.compile(
    r"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?|(?P<hex>\\'[0-9a-fA-F]{2})|(?P<symbol>\\.)|(?P<brace>[{}])|"
    r"(?P<text>[^\\{}]+)|\\",
    re.DOTALL,
)
# Control words that stand for text.
TEXT_WORDS = frozenset(
    (
        "par",
        "line",
        "tab",
        "cell",
        "nestcell",
        "row",
        "page",
        "sect",
        "u",
        "emdash",
        "endash",
        "bullet",
        "lquote",
        "rquote",
    )
)


def rtf_to_text(content: str) -> str:
    """The text of an RTF file, whose bytes are given as Latin-1. ValueError, LookupError or TypeError if it is
    damaged."""
    from striprtf.striprtf import rtf_to_text as convert

    text = str(convert("".join(_readable(content)), errors="replace"))
    # Two numbers of a character beyond U+FFFF have become two surrogates.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _readable(content: str) -> Iterator[str]:
    """The content without binary data and deleted text, and with footnotes as text in brackets."""
    position = 0
    is_deleted = False
    closing = ""  # what ends the text of this group
    outer: list[tuple[bool, str]] = []  # is_deleted and closing of the groups around this one

    while True:
        match = TOKEN.match(content, position)
        if not match:
            return
        position = match.end()
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
            position += max(0, int(match["number"] or 0))  # bytes that may look like anything
        elif word in ("deleted", "plain"):
            is_deleted = word == "deleted" and match["number"] != "0"
            if word == "plain":
                yield token
        elif word == "footnote":
            if not is_deleted:
                yield " ["
            closing = "" if is_deleted else "]"
        elif not is_deleted or (word and word not in TEXT_WORDS):
            yield token
