"""Docstrings as reStructuredText: they are written as plain text with `code` in single backticks."""

import re
from collections.abc import Sequence


def to_rst(lines: Sequence[str]) -> list[str]:
    """Paragraphs with every special character escaped, except code in backticks; indented lines as literal blocks."""
    rst: list[str] = []
    is_literal = False
    for line in lines:
        is_indented = line.startswith(" ")
        if is_indented and not is_literal:
            rst += ["", "::", ""]
        elif is_literal and line and not is_indented:
            rst.append("")
        is_literal = is_indented or (is_literal and not line)
        rst.append(line if is_literal else escape(line))
    return rst


def escape(text: str) -> str:
    pieces = re.split(r"(`+[^`]+`+)", text)
    return "".join(
        f"``{piece.strip('`')}``" if index % 2 else re.sub(r"([\\*_|`<>:\[\]-])", r"\\\1", piece)
        for index, piece in enumerate(pieces)
    )
