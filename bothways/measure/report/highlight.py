"""Text with highlighted spans (gold, predicted), shortened around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from bothways.measure.report.markup import Html, element, join

CONTEXT = 180  # characters on each side of a span
OPENING = 300  # characters shown of a text without spans, plus CONTEXT
MIN_OMITTED = 60  # shorter gaps are shown, since the note would take as much room


@dataclass(frozen=True)
class Highlight:
    """Characters text[start:end] with a label."""

    start: int
    end: int
    label: str = ""

    def check(self, text: str) -> None:
        if not 0 <= self.start < self.end <= len(text):
            raise ValueError(f"span {self.start}..{self.end} is outside of a text of {len(text)} characters")


SpanRole = Literal["gold", "predicted", "right"]  # right: gold and predicted agree
SpansByRole = Mapping[SpanRole, Sequence[Highlight]]


def render_passage(
    text: str, spans: SpansByRole, focus: Sequence[Highlight], notes: Mapping[int, Html] | None = None
) -> Html:
    """The text around `focus` with highlighted spans. notes: annotations by character position."""
    parts: list[Html] = []
    position = 0
    for start, end in visible_ranges(text, focus):
        parts += [omission(start - position), mark_spans(text, start, end, spans, notes or {})]
        position = end
    return render_text(*parts, omission(len(text) - position))


def render_text(*content: str) -> Html:
    """A paragraph of user text, with its own direction and language."""
    return element("p.text", *content, attributes={"dir": "auto", "lang": ""})


def annotation(style: str, *words: str) -> Html:
    """An English note within user text of any direction."""
    return element(f"small.{style}", *words, attributes={"lang": "en", "dir": "ltr"})


def omission(num_characters: int) -> Html:
    words = f" … {num_characters:,} character{'s' * (num_characters != 1)} left out … "
    return annotation("cut", words) if num_characters else Html()


def mark_spans(text: str, start: int, end: int, spans: SpansByRole, notes: Mapping[int, Html]) -> Html:
    """text[start:end], split wherever a span starts or ends."""
    bounds = {start, end, *notes}
    bounds.update(bound for group in spans.values() for span in group for bound in (span.start, span.end))
    inside = sorted(bound for bound in bounds if start <= bound <= end)
    parts: list[str] = []
    for left, right in pairwise(inside):
        roles = [role for role, group in spans.items() if any(span.start <= left < span.end for span in group)]
        piece = text[left:right]
        parts += [element(f"mark.{'.'.join(roles)}", piece) if roles else piece, notes.get(right, Html())]
    return join(parts)


def visible_ranges(text: str, focus: Sequence[Highlight]) -> list[tuple[int, int]]:
    """(start, end) of the shown parts: each span of `focus` with its context; without spans, the beginning."""
    ranges = [(0, 0)]
    for start, end in sorted((span.start, span.end) for span in focus) or [(0, 0)]:
        left, right = expand(text, start, end)
        if left - ranges[-1][1] < MIN_OMITTED:
            ranges[-1] = (ranges[-1][0], max(right, ranges[-1][1]))
        else:
            ranges.append((left, right))
    if len(text) - ranges[-1][1] < MIN_OMITTED:
        ranges[-1] = (ranges[-1][0], len(text))
    return [(start, end) for start, end in ranges if end > start]


def expand(text: str, start: int, end: int) -> tuple[int, int]:
    """Add up to CONTEXT characters on both sides of start..end, at word boundaries if possible."""
    left, right = max(start - CONTEXT, 0), min(end + CONTEXT, len(text))
    if left:
        left = text.find(" ", left, start) + 1 or left
    if right < len(text):
        right = max(text.rfind(" ", end, right), 0) or right
    return left, right


def render_opening(text: str) -> Html:
    """A text without spans: all of it, or its beginning."""
    return render_passage(text, {}, [Highlight(0, min(len(text), OPENING))])


def render_legend(counts: Sequence[tuple[str, int]]) -> Html:
    """The number of mistakes of each kind, and the meaning of the highlighting."""
    items = (element("li", element("strong", f"{count:,}"), f" {kind}") for kind, count in counts)
    gold, predicted = element("mark.gold", "Underlined"), element("mark.predicted", "shaded")
    return join((element("ul.counts", *items), element("p.legend", gold, ": gold; ", predicted, ": predicted.")))
