"""Pages of docs/guide, read by the tests that hold their sentences and tables."""

import re
from pathlib import Path

GUIDES = Path(__file__).parent.parent / "docs" / "guide"


def guide(page):
    return (GUIDES / f"{page}.md").read_text(encoding="utf-8")


def words_of(page):
    """The text of a page in one line."""
    return " ".join(guide(page).split())


def table_of(page, header):
    """The rows of the table whose header begins with these cells, each a list of its cells."""
    lines = guide(page).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {header}"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows


def code_in(text):
    """What stands between backquotes."""
    return re.findall(r"`([^`\n]+)`", text)
