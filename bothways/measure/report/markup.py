"""HTML builder: every element is closed, and strings are escaped unless they are `Html`."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Literal

Unit = Literal["share", "number"]  # 91.2% or 0.912

# Control characters are invalid in HTML: show their Unicode pictures. Lone surrogates cannot be encoded as UTF-8.
_REPLACEMENTS = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),
    0xFFFE: 0xFFFD,
    0xFFFF: 0xFFFD,
}


class Html(str):
    """A piece of HTML. String operations on it return plain strings, which are escaped again."""


def element(name: str, *content: str, attributes: Mapping[str, str | float] | None = None) -> Html:
    """An element with its content, escaped.

    name: of the element, with its classes after dots.
    content: text, or elements.
    attributes: the others, by name.

    >>> element("p.note", "1 < 2")
    '<p class="note">1 &lt; 2</p>'
    """
    tag, _, classes = name.partition(".")
    all_attributes: dict[str, str | float] = {}
    if classes:
        all_attributes["class"] = classes.replace(".", " ")
    all_attributes |= attributes or {}

    pairs = "".join(f' {key}="{escape_text(str(value))}"' for key, value in all_attributes.items())
    return Html(f"<{tag}{pairs}>{join(content)}</{tag}>")


def join(parts: Iterable[str]) -> Html:
    return Html("".join(map(escape_text, parts)))


def escape_text(text: str) -> Html:
    """Escape text for HTML; `Html` is returned unchanged."""
    if isinstance(text, Html):
        return text
    return Html(escape(text.translate(_REPLACEMENTS)))


def isolate(text: str) -> Html:
    """User text inside our text, with its own language and a direction that does not affect its surroundings."""
    return element("bdi", text, attributes={"lang": ""})


def isolate_label(name: str) -> Html:
    """A label as user text that a narrow table may break after the joints of a name: _ - . / :"""
    parts = re.split(r"(?<=[_\-./:])(?=[^_\-./:])", name)
    return element("bdi", Html("<wbr>".join(map(escape_text, parts))), attributes={"lang": ""})


def data_element(value: float, unit: Unit) -> Html:
    """A formatted number, with its full precision in an attribute."""
    return element("data", format_number(value, unit), attributes={"value": repr(float(value))})


def format_number(value: float, unit: Unit) -> str:
    if not math.isfinite(value):
        return "undefined"
    if unit == "share":
        return f"{value:.1%}"
    if 0 < abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:,.3f}"


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: int = 1,
    full: bool = False,
) -> Html:
    """A table that scrolls horizontally if it is too wide.

    caption: the line above it.
    head: the titles of the columns.
    rows: their cells; the first cell of a row is its header.
    words: number of leading text columns; the others hold numbers, which are never broken.
    full: as wide as its section.
    """
    kinds = ["words" if column < words else "numbers" for column in range(len(head))]
    titles = [
        element(f"th.{kind}", title, attributes={"scope": "col"}) for kind, title in zip(kinds, head, strict=True)
    ]

    def table_row(cells: Sequence[str]) -> Html:
        first = element(f"th.{kinds[0]}", cells[0], attributes={"scope": "row"})
        others = [element(f"td.{kind}", cell) for kind, cell in zip(kinds[1:], cells[1:], strict=True)]
        return element("tr", first, *others)

    content = element(
        "table.full" if full else "table",
        element("thead", element("tr", *titles)),
        element("tbody", *map(table_row, rows)),
    )
    return scroll_frame(caption, content)


def scroll_frame(caption: str, content: Html) -> Html:
    """Wide content in a frame that scrolls horizontally, by keyboard too. The caption stays in view."""
    attributes: dict[str, str | float] = {
        "role": "region",
        "tabindex": 0,  # the keyboard scrolls only what can have the focus
        "aria-label": caption,
    }
    frame = element("div.scroll", content, attributes=attributes)
    return join((element("p.caption", caption), frame))


class Section(ABC):
    """A section of the page. Wide ones take the full width; two others may share a row."""

    heading: str

    @property
    def wide(self) -> bool:
        return True

    @abstractmethod
    def body(self) -> Html:
        """The content below the heading."""
