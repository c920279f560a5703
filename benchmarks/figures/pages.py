"""Pages that state figures: their tables, the sentences with numbers, and what a page should say instead.

A table that is written from a measurement has a comment above it: `<!-- figures: few-examples/frozen -->`. A sentence
is a template of docs/measurements/pages.toml: text with {names} of values, which the page must contain with their
numbers. Each other table of README.md, docs/RESULTS.md and docs/model.md is named there, with the reason why nothing
computes it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures.scores import Table

MARK = re.compile(r"<!-- figures: ([\w./-]+) -->")
PLACE = re.compile(r"\{([^{}]+)\}")
NUMBER = r"[-+]?[\d.,]*\d"


@dataclass(frozen=True)
class PageTable:
    """A table of a page.

    heading: the heading above it.
    line: the number of its first line, from 1.
    lines: all of its lines.
    source: the name of the table that it is written from; "" if it is not.
    """

    heading: str
    line: int
    lines: Table
    source: str


def tables_of(text: str) -> Iterator[PageTable]:
    """The tables of a page, in order. Blocks of code are no tables."""
    lines = text.split("\n")
    heading = ""
    source = ""
    in_code = False
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code and line.startswith("#"):
            heading = line.lstrip("#").strip()
        elif not in_code and (mark := MARK.fullmatch(line.strip())):
            source = mark[1]
        elif not in_code and line.startswith("|"):
            end = index
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            yield PageTable(heading, index + 1, lines[index:end], source)
            source = ""
            index = end
            continue
        index += 1


# --- tables -----------------------------------------------------------------------------------------------------------


def wrong_cells(name: str, table: PageTable, expected: Table) -> Iterator[str]:
    """A message for each cell of a table that is not what the measurement says."""
    if len(table.lines) != len(expected):
        yield f"{name}:{table.line}: {len(table.lines)} lines, should be {len(expected)} ({table.source})"
        return

    for number, (line, right) in enumerate(zip(table.lines, expected, strict=True), table.line):
        if line == right:
            continue
        cells, right_cells = line.split("|"), right.split("|")
        if len(cells) != len(right_cells):
            yield f"{name}:{number}: {line.strip()}, should be {right.strip()} ({table.source})"
            continue
        for cell, right_cell in zip(cells, right_cells, strict=True):
            if cell != right_cell:
                yield f"{name}:{number}: {cell.strip()}, should be {right_cell.strip()} ({table.source})"


def with_tables(text: str, tables: Mapping[str, Table]) -> str:
    """The page with its marked tables as the measurements have them."""
    lines = text.split("\n")
    for table in reversed([*tables_of(text)]):
        if table.source in tables:
            lines[table.line - 1 : table.line - 1 + len(table.lines)] = tables[table.source]
    return "\n".join(lines)


# --- sentences --------------------------------------------------------------------------------------------------------


def pattern(template: str) -> re.Pattern[str]:
    """The template with any number in each place, and any white space where it has some."""
    parts = PLACE.split(template)
    written = [
        f"({NUMBER})" if index % 2 else r"\s+".join(map(re.escape, re.split(r"\s+", part)))
        for index, part in enumerate(parts)
    ]
    return re.compile("".join(written))


def wrong_numbers(name: str, text: str, template: str, values: Mapping[str, float]) -> Iterator[str]:
    """A message for each number of a sentence that is not what the measurements say, or that the sentence is gone."""
    found = [*pattern(template).finditer(text)]
    if not found:
        yield f"{name}: no such sentence: {template}"
        return

    places = PLACE.findall(template)
    for match in found:
        for group, place in enumerate(places, 1):
            key, _, form = place.partition("|")
            if key not in values:
                yield f"docs/measurements/pages.toml: no value {key}, in: {template}"
                continue
            right = format(values[key], form)
            if match[group] != right:
                line = text.count("\n", 0, match.start(group)) + 1
                yield f"{name}:{line}: {match[group]}, should be {right} ({key})"


def lines_with(text: str, template: str) -> set[int]:
    """The numbers of the lines that a sentence is on."""
    lines = set()
    for match in pattern(template).finditer(text):
        first = text.count("\n", 0, match.start()) + 1
        lines |= {*range(first, first + match[0].count("\n") + 1)}
    return lines


def read_pages(root: Path) -> dict[str, str]:
    """The text of README.md and of each page of the documentation, by its path in the repository."""
    files = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}
