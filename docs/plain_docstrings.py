"""Docstrings as reStructuredText: they are written as plain text with `code` in single backticks."""

import re
from collections.abc import Sequence


def to_rst(lines: Sequence[str]) -> list[str]:
    """Escape every character that means something in reStructuredText; indented lines keep their line breaks.

    A single backtick pair becomes a literal.
    """
    rst: list[str] = []
    for line in lines:
        text = escape(line.strip())
        if not text:
            rst.append("")
        elif line.startswith(" "):
            if rst and rst[-1] and not rst[-1].startswith("| "):
                rst.append("")
            rst.append(f"| {text}")
        else:
            if rst and rst[-1].startswith("| "):
                rst.append("")
            rst.append(text)
    return rst


def escape(text: str) -> str:
    pieces = re.split(r"(`+[^`]+`+)", text)
    return "".join(
        f"``{piece.strip('`')}``" if index % 2 else re.sub(r"([\\*_|`<>:\[\]-])", r"\\\1", piece)
        for index, piece in enumerate(pieces)
    )
