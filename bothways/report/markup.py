"""HTML that is right by construction: every element is closed, and a string is escaped unless it is `Html` already."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Literal

Unit = Literal["share", "number"]  # shown as 91.2% or as 0.912

# Control characters have no place in HTML: they are shown as their Unicode pictures. A lone surrogate has no UTF-8.
_SHOWN = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
_SHOWN |= dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD)


class Html(str):
    """A piece of HTML. Whatever is made from one by ordinary string operations is plain text again, hence escaped."""


def escaped(text: str) -> Html:
    """The text as it must be written for a browser to show it."""
    return text if isinstance(text, Html) else Html(escape(text.translate(_SHOWN)))


def element(name: str, *content: str, attributes: Mapping[str, str | float] | None = None) -> Html:
    """`element("p.note", "1 < 2")` is `<p class="note">1 &lt; 2</p>`."""
    tag, _, classes = name.partition(".")
    given = {"class": classes.replace(".", " ")} if classes else {}
    pairs = "".join(f' {key}="{escaped(str(value))}"' for key, value in {**given, **(attributes or {})}.items())
    return Html(f"<{tag}{pairs}>{join(content)}</{tag}>")


def join(parts: Iterable[str]) -> Html:
    return Html("".join(map(escaped, parts)))


def isolated(text: str) -> Html:
    """A user's word among ours: its writing direction does not reach its neighbours, its language is its own."""
    return element("bdi", text, attributes={"lang": ""})


def written(value: float, unit: Unit) -> str:
    if not math.isfinite(value):
        return "undefined"
    if unit == "share":
        return f"{value:.1%}"
    return f"{value:,.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"


def figure(value: float, unit: Unit) -> Html:
    """A number to read, which also says its full precision to machines."""
    return element("data", written(value, unit), attributes={"value": repr(float(value))})


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> Html:
    """A table that scrolls within its frame where it is too wide. The first `words` columns hold words, the others
    numbers; the first cell heads its row."""
    kinds = ["words" if column < words else "numbers" for column in range(len(head))]

    def line(cells: Sequence[str]) -> Html:
        first = element(f"th.{kinds[0]}", cells[0], attributes={"scope": "row"})
        return element("tr", first, *(element(f"td.{k}", cell) for k, cell in zip(kinds[1:], cells[1:], strict=True)))

    titles = (element(f"th.{k}", t, attributes={"scope": "col"}) for k, t in zip(kinds, head, strict=True))
    parts = (element("thead", element("tr", *titles)), element("tbody", *map(line, rows)))
    return scrolling(caption, element("table", *parts))


def scrolling(caption: str, content: Html) -> Html:
    """What may be wide, in a frame that scrolls sideways, by keyboard too; its caption stays in view."""
    frame = element("div.scroll", content, attributes={"role": "region", "tabindex": 0, "aria-label": caption})
    return join((element("p.caption", caption), frame))
