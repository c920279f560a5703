"""Stretches of a text marked in it: gold underlined, predicted shaded, so that neither needs its colour. Long texts are
cut to the surroundings of what is marked, and say so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from bothways.report.markup import Html, element, join

AROUND = 180  # characters of context on each side
OPENING = 300  # characters shown of a text with nothing marked, and AROUND more
SAVED = 60  # a cut must leave out at least this many, or it hides less than it costs


@dataclass(frozen=True)
class Span:
    """text[start:end], in characters; what it is said to be."""

    start: int
    end: int
    label: str = ""

    def check(self, text: str) -> None:
        if not 0 <= self.start < self.end <= len(text):
            raise ValueError(f"the span {self.start}..{self.end} does not lie in a text of {len(text)} characters")


Role = Literal["gold", "predicted", "right"]  # right: both, hence nothing to look at
Roles = Mapping[Role, Sequence[Span]]


def passage(text: str, roles: Roles, focus: Sequence[Span], notes: Mapping[int, Html] | None = None) -> Html:
    """The surroundings of `focus`, marked; notes stand behind the character positions they are given for."""
    found: list[Html] = []
    seen = 0
    for start, end in surroundings(text, focus):
        found += [left_out(start - seen), pieces(text, start, end, roles, notes or {})]
        seen = end
    return block(*found, left_out(len(text) - seen))


def block(*content: str) -> Html:
    """A user's text: in its own direction and language, breaking where it must."""
    return element("p.text", *content, attributes={"dir": "auto", "lang": ""})


def aside(style: str, *words: str) -> Html:
    """Our words within a user's text, whichever way that runs."""
    return element(f"small.{style}", *words, attributes={"lang": "en", "dir": "ltr"})


def left_out(number: int) -> Html:
    words = f" … {number:,} character{'s' * (number != 1)} left out … "
    return aside("cut", words) if number else Html()


def pieces(text: str, start: int, end: int, roles: Roles, notes: Mapping[int, Html]) -> Html:
    """text[start:end], cut wherever a mark begins or ends."""
    bounds = {start, end, *notes, *(bound for of in roles.values() for span in of for bound in (span.start, span.end))}
    inside = sorted(bound for bound in bounds if start <= bound <= end)
    found: list[str] = []
    for left, right in pairwise(inside):
        names = [role for role, of in roles.items() if any(span.start <= left < span.end for span in of)]
        piece = text[left:right]
        found += [element(f"mark.{'.'.join(names)}", piece) if names else piece, notes.get(right, Html())]
    return join(found)


def surroundings(text: str, focus: Sequence[Span]) -> list[tuple[int, int]]:
    """(start, end) of what is shown, in order: each span of `focus` with its context; without one, the beginning."""
    found = [(0, 0)]
    for start, end in sorted((span.start, span.end) for span in focus) or [(0, 0)]:
        left, right = context(text, start, end)
        if left - found[-1][1] < SAVED:
            found[-1] = (found[-1][0], max(right, found[-1][1]))
        else:
            found.append((left, right))
    if len(text) - found[-1][1] < SAVED:
        found[-1] = (found[-1][0], len(text))
    return [(start, end) for start, end in found if end > start]


def context(text: str, start: int, end: int) -> tuple[int, int]:
    """Up to AROUND characters on both sides of start..end, from space to space where there is one."""
    left, right = max(start - AROUND, 0), min(end + AROUND, len(text))
    if left:
        left = text.find(" ", left, start) + 1 or left
    if right < len(text):
        right = max(text.rfind(" ", end, right), 0) or right
    return left, right


def opening(text: str) -> Html:
    """A text with nothing marked: whole, or its first lines."""
    return passage(text, {}, [Span(0, min(len(text), OPENING))])


def legend(kinds: Sequence[tuple[str, int]]) -> Html:
    """How many mistakes there are of each kind, and how to read the marks."""
    counts = (element("li", element("strong", f"{count:,}"), f" {kind}") for kind, count in kinds)
    gold, predicted = element("mark.gold", "Underlined"), element("mark.predicted", "shaded")
    return join((element("ul.counts", *counts), element("p.legend", gold, " is gold, ", predicted, " was predicted.")))
