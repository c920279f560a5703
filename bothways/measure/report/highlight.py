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
    text: str,
    spans: SpansByRole,
    focus: Sequence[Highlight],
    notes: Mapping[int, Html] | None = None,
) -> Html:
    """The text around some of its spans, highlighted.

    text: the whole text.
    spans: the highlighted spans, by role.
    focus: the spans that are shown with their context.
    notes: annotations by character position.
    """
    parts: list[Html] = []
    position = 0
    for start, end in visible_ranges(text, focus):
        parts.append(omission(start - position))
        parts.append(mark_spans(text, start, end, spans=spans, notes=notes or {}))
        position = end

    return render_text(*parts, omission(len(text) - position))


def visible_ranges(text: str, focus: Sequence[Highlight]) -> list[tuple[int, int]]:
    """(start, end) of the shown parts: each span of `focus` with its context; without spans, the beginning."""
    # Starts with an empty range, so that a short gap at the beginning is shown, too.
    ranges = [(0, 0)]
    for start, end in sorted((span.start, span.end) for span in focus) or [(0, 0)]:
        left, right = expand(text, start, end)
        last_left, last_right = ranges[-1]
        if left - last_right < MIN_OMITTED:
            ranges[-1] = (last_left, max(right, last_right))
        else:
            ranges.append((left, right))

    last_left, last_right = ranges[-1]
    if len(text) - last_right < MIN_OMITTED:
        ranges[-1] = (last_left, len(text))
    return [(start, end) for start, end in ranges if end > start]


def expand(text: str, start: int, end: int) -> tuple[int, int]:
    """Add up to CONTEXT characters on both sides of start..end, at word boundaries if possible."""
    left = max(start - CONTEXT, 0)
    right = min(end + CONTEXT, len(text))
    if left:
        left = text.find(" ", left, start) + 1 or left
    if right < len(text):
        right = max(text.rfind(" ", end, right), 0) or right
    return left, right


def omission(num_characters: int) -> Html:
    if not num_characters:
        return Html()
    noun = "character" if num_characters == 1 else "characters"
    return annotation("cut", f" … {num_characters:,} {noun} left out … ")


def mark_spans(text: str, start: int, end: int, spans: SpansByRole, notes: Mapping[int, Html]) -> Html:
    """text[start:end], split wherever a span starts or ends."""
    bounds = {start, end, *notes}
    for group in spans.values():
        for span in group:
            bounds |= {span.start, span.end}
    inside = sorted(bound for bound in bounds if start <= bound <= end)

    # Spans may overlap, so a piece between two bounds may have several roles.
    parts: list[str] = []
    for left, right in pairwise(inside):
        piece = text[left:right]
        roles = [role for role, group in spans.items() if any(span.start <= left < span.end for span in group)]
        if roles:
            parts.append(element(f"mark.{'.'.join(roles)}", piece))
        else:
            parts.append(piece)
        if right in notes:
            parts.append(notes[right])
    return join(parts)


def render_text(*content: str) -> Html:
    """A paragraph of user text, with its own direction and language."""
    return element("p.text", *content, attributes={"dir": "auto", "lang": ""})


def annotation(style: str, *words: str) -> Html:
    """An English note within user text of any direction."""
    # In a text from right to left, "missed LOC" would read "LOC missed" without its own direction.
    return element(f"small.{style}", *words, attributes={"lang": "en", "dir": "ltr"})


def render_opening(text: str) -> Html:
    """A text without spans: all of it, or its beginning."""
    return render_passage(text, {}, [Highlight(0, min(len(text), OPENING))])


def render_legend(counts: Sequence[tuple[str, int]]) -> Html:
    """The number of mistakes of each kind, and the meaning of the highlighting."""
    items = [element("li", element("strong", f"{count:,}"), f" {kind}") for kind, count in counts]
    gold = element("mark.gold", "Underlined")
    predicted = element("mark.predicted", "shaded")
    legend = element("p.legend", gold, ": gold; ", predicted, ": predicted.")
    return join((element("ul.counts", *items), legend))
