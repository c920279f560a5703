"""HTML builder: every element is closed, and strings are escaped unless they are `Html`."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Literal

Unit = Literal["share", "number"]  # 91.2% or 0.912

# Control characters are invalid in HTML: show their Unicode pictures. Lone surrogates cannot be encoded as UTF-8.
_REPLACEMENTS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
_REPLACEMENTS |= dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD)


class Html(str):
    """A piece of HTML. String operations on it return plain strings, which are escaped again."""


def escape_text(text: str) -> Html:
    """Escape text for HTML; `Html` is returned unchanged."""
    return text if isinstance(text, Html) else Html(escape(text.translate(_REPLACEMENTS)))


def element(name: str, *content: str, attributes: Mapping[str, str | float] | None = None) -> Html:
    """`element("p.note", "1 < 2")` is `<p class="note">1 &lt; 2</p>`."""
    tag, _, classes = name.partition(".")
    all_attributes = {**({"class": classes.replace(".", " ")} if classes else {}), **(attributes or {})}
    pairs = "".join(f' {key}="{escape_text(str(value))}"' for key, value in all_attributes.items())
    return Html(f"<{tag}{pairs}>{join(content)}</{tag}>")


def join(parts: Iterable[str]) -> Html:
    return Html("".join(map(escape_text, parts)))


def isolate(text: str) -> Html:
    """User text inside our text, with its own language and a direction that does not affect its surroundings."""
    return element("bdi", text, attributes={"lang": ""})


def isolate_label(name: str) -> Html:
    """A label as user text that a narrow table may break after the joints of a name: _ - . / :"""
    parts = re.split(r"(?<=[_\-./:])(?=[^_\-./:])", name)
    return element("bdi", Html("<wbr>".join(map(escape_text, parts))), attributes={"lang": ""})


def format_number(value: float, unit: Unit) -> str:
    if not math.isfinite(value):
        return "undefined"
    if unit == "share":
        return f"{value:.1%}"
    return f"{value:,.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"


def data_element(value: float, unit: Unit) -> Html:
    """A formatted number, with its full precision in an attribute."""
    return element("data", format_number(value, unit), attributes={"value": repr(float(value))})


def table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1, full: bool = False
) -> Html:
    """A table that scrolls horizontally if it is too wide. words: number of leading text columns; the others hold
    numbers, which are never broken. full: as wide as its section. The first cell of a row is its header."""
    kinds = ["words" if column < words else "numbers" for column in range(len(head))]

    def table_row(cells: Sequence[str]) -> Html:
        first = element(f"th.{kinds[0]}", cells[0], attributes={"scope": "row"})
        rest = (element(f"td.{kind}", cell) for kind, cell in zip(kinds[1:], cells[1:], strict=True))
        return element("tr", first, *rest)

    titles = (
        element(f"th.{kind}", title, attributes={"scope": "col"}) for kind, title in zip(kinds, head, strict=True)
    )
    parts = (element("thead", element("tr", *titles)), element("tbody", *map(table_row, rows)))
    return scroll_frame(caption, element("table.full" if full else "table", *parts))


def scroll_frame(caption: str, content: Html) -> Html:
    """Wide content in a frame that scrolls horizontally, by keyboard too. The caption stays in view."""
    frame = element("div.scroll", content, attributes={"role": "region", "tabindex": 0, "aria-label": caption})
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
