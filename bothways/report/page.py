"""The page a run leaves for people: one HTML file that needs nothing else, no script and no network, on any screen or
paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from bothways.io import write_atomic
from bothways.report.markup import Html, element, isolated, join
from bothways.report.scores import ScoreSummary, ScoreTable, headline
from bothways.report.style import STYLE

# Should an escape ever be forgotten, the browser still runs nothing and fetches nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
META = Html(
    f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
)


class Section(Protocol):
    """A section of the page. `wide` ones take the whole width; two others may stand side by side."""

    heading: ClassVar[str]

    @property
    def wide(self) -> bool: ...

    def body(self) -> Html: ...


@dataclass(frozen=True)
class Page:
    """All that is said of a run, its parts in the order given. The first score is the headline; warnings are what its
    reader must know; facts tell how it was made (model, data files, settings, versions)."""

    title: str
    subtitle: str
    scores: Sequence[ScoreSummary]
    parts: Sequence[Section] = ()
    warnings: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    command: str = ""


def write(page: Page, file: Path) -> None:
    """The old file or the new one, never half of it."""
    write_atomic(file, render(page))


def render(page: Page) -> str:
    """The whole file as text."""
    parts: list[Section] = [ScoreTable(page.scores), *page.parts, Provenance(page.facts, page.command)]
    head = element("head", META, element("title", page.title), element("style", Html(STYLE)))
    sections = (_section(f"part{number}", part) for number, part in enumerate(parts))
    body = element("body", _header(page), _contents(parts), element("main", *sections))
    return f"<!doctype html>\n{element('html', head, body, attributes={'lang': 'en'})}\n"


def _header(page: Page) -> Html:
    titles = (element("h1", isolated(page.title)), element("p.subtitle", isolated(page.subtitle)))
    return element("header", *titles, headline(page.scores), _warnings(page.warnings))


def _warnings(warnings: Sequence[str]) -> Html:
    if not warnings:
        return Html()
    return element(
        "div.warnings", element("h2", "Please note"), element("ul", *(element("li", line) for line in warnings))
    )


def _contents(parts: Sequence[Section]) -> Html:
    links = (
        element("li", element("a", part.heading, attributes={"href": f"#part{number}"}))
        for number, part in enumerate(parts)
    )
    return element("nav", element("ul", *links), attributes={"aria-label": "Contents"})


def _section(name: str, part: Section) -> Html:
    return element(
        f"section.{'wide' if part.wide else 'half'}", element("h2", part.heading), part.body(), attributes={"id": name}
    )


@dataclass(frozen=True)
class Provenance:
    """Where the model comes from."""

    facts: Sequence[tuple[str, str]]
    command: str
    heading: ClassVar[str] = "How it was made"
    wide: ClassVar[bool] = True

    def body(self) -> Html:
        rows = (part for name, value in self.facts for part in (element("dt", name), element("dd", isolated(value))))
        command = element("pre", element("code", self.command)) if self.command else Html()
        return join((element("dl.facts", *rows), command))
