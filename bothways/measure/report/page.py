"""Report page of a run: one self-contained HTML file without scripts, for screen and print."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bothways.base.io import SURROGATES, to_json, write_atomic
from bothways.measure.report.markup import Html, Section, element, isolate, join
from bothways.measure.report.score_tables import ScoreSummary, ScoreTable, render_headline
from bothways.measure.report.style import STYLE

# Defence in depth: even if some text were not escaped, the browser would run and fetch nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
META = Html(
    f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
)
KINDS = {  # of columns whose values CSV turns into texts
    "time": datetime,
    "date": date,
    "bool": bool,
}
BYTE_ORDER_MARK = "\ufeff"  # without it Excel reads UTF-8 as another encoding


@dataclass(frozen=True)
class Page:
    """The content of a report.

    title, subtitle: its head.
    scores: the metric of the first is the headline, if there are scores.
    sections: in their order; see `pair_halves`.
    warnings: lines above the contents.
    facts: (name, value) pairs about the run, such as model, data files, settings and versions.
    command: the command that reproduces the run.
    origin: the heading of the facts and the command.
    files: (name, description) of files next to the page.
    has_score_table: False leaves the table of all scores out.
    """

    title: str
    subtitle: str
    scores: Sequence[ScoreSummary]
    sections: Sequence[Section] = ()
    warnings: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    command: str = ""
    origin: str = "How this model was trained"
    files: Sequence[tuple[str, str]] = ()
    has_score_table: bool = True


def write(page: Page, file: Path) -> None:
    """Write the page atomically."""
    write_atomic(file, render(page))


def render(page: Page) -> str:
    sections: list[Section] = []
    if page.scores and page.has_score_table:
        sections.append(ScoreTable(page.scores))
    sections += page.sections
    sections.append(Provenance(page.facts, page.command, page.origin))
    sections = pair_halves(sections)

    head = element("head", META, element("title", page.title), element("style", Html(STYLE)))
    rendered = [_render_section(f"part{index}", section) for index, section in enumerate(sections)]
    body = element("body", _render_header(page), _render_contents(sections), element("main", *rendered))
    return f"<!doctype html>\n{element('html', head, body, attributes={'lang': 'en'})}\n"


def pair_halves(sections: Sequence[Section]) -> list[Section]:
    """The sections in their order, except that a half one without a neighbour takes the next half one to its side."""
    rest = list(sections)
    paired: list[Section] = []
    while rest:
        section = rest.pop(0)
        paired.append(section)
        if section.wide:
            continue

        neighbour = next((index for index, other in enumerate(rest) if not other.wide), None)
        if neighbour is not None:
            paired.append(rest.pop(neighbour))
    return paired


def _render_header(page: Page) -> Html:
    links = [
        element("p", element("a", name, attributes={"href": quote(name)}), f": {description}")
        for name, description in page.files
    ]
    return element(
        "header",
        element("h1", isolate(page.title)),
        element("p.subtitle", isolate(page.subtitle)),
        render_headline(page.scores),
        *links,
        _render_warnings(page.warnings),
    )


def _render_warnings(warnings: Sequence[str]) -> Html:
    if not warnings:
        return Html()
    items = [element("li", warning) for warning in warnings]
    return element("div.warnings", element("h2", "Please note"), element("ul", *items))


def _render_contents(sections: Sequence[Section]) -> Html:
    links = [
        element("li", element("a", section.heading, attributes={"href": f"#part{index}"}))
        for index, section in enumerate(sections)
    ]
    return element("nav", element("ul", *links), attributes={"aria-label": "Contents"})


def _render_section(name: str, section: Section) -> Html:
    width = "wide" if section.wide else "half"
    heading = element("h2", section.heading)
    return element(f"section.{width}", heading, section.body(), attributes={"id": name})


@dataclass(frozen=True)
class Provenance(Section):
    """Facts about the run, and the command to reproduce it."""

    facts: Sequence[tuple[str, str]]
    command: str
    heading: str

    def body(self) -> Html:
        cells = []
        for name, value in self.facts:
            cells.append(element("dt", name))
            cells.append(element("dd", isolate(value)))
        facts = element("dl.facts", *cells)

        command = element("pre", element("code", self.command)) if self.command else Html()
        return join((facts, command))


def write_predictions(columns: Mapping[str, Sequence[Any]], file: Path) -> None:
    """Write columns with their names as CSV (RFC 4180; UTF-8 with a byte-order mark), atomically. Lists become JSON."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(map(_cell, columns))
    for row in zip(*columns.values(), strict=True):
        writer.writerow(map(_cell, row))
    write_atomic(file, BYTE_ORDER_MARK + buffer.getvalue())


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = to_json(value)
    if isinstance(value, str):
        return SURROGATES.sub("\ufffd", value)
    return value


def column_kinds(columns: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """The kind (KINDS) of each column whose values CSV turns into texts; missing values are of every kind."""
    kinds = {}
    for name, values in columns.items():
        filled = [value for value in values if value is not None]
        for kind, type_ in KINDS.items():
            # A time is a date for isinstance; times come first in KINDS.
            if filled and all(isinstance(value, type_) for value in filled):
                kinds[name] = kind
                break
    return kinds
