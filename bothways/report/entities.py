"""Mistakes of a tagger in their text: entities that were missed, invented, given the wrong type or the wrong bounds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from bothways.report.highlight import Roles, Span, aside, legend, passage
from bothways.report.markup import Html, element, isolated, join
from bothways.report.mistakes import counted

Kind = Literal["right", "missed", "invented", "wrong type", "wrong bounds"]
KINDS: tuple[Kind, ...] = ("missed", "invented", "wrong type", "wrong bounds")
MOST_REGIONS = 8  # mistakes of one text that are shown with their surroundings


@dataclass(frozen=True)
class Region:
    """A stretch of text covered by entities that overlap: what they are, and what they were said to be."""

    start: int
    end: int
    gold: tuple[Span, ...]
    predicted: tuple[Span, ...]

    @property
    def kind(self) -> Kind:
        if self.gold == self.predicted:
            return "right"
        if not self.predicted:
            return "missed"
        if not self.gold:
            return "invented"
        bounds = [[(span.start, span.end) for span in spans] for spans in (self.gold, self.predicted)]
        return "wrong type" if bounds[0] == bounds[1] else "wrong bounds"


def regions(gold: Sequence[Span], predicted: Sequence[Span]) -> list[Region]:
    """All entities of a text, gathered where they overlap, in the order of the text."""
    found: list[Region] = []
    roles = [(span, True) for span in gold] + [(span, False) for span in predicted]
    for span, is_gold in sorted(roles, key=lambda role: role[0].start):
        ours = ((span,), ()) if is_gold else ((), (span,))
        if found and span.start < found[-1].end:
            last = found.pop()
            found.append(Region(last.start, max(last.end, span.end), last.gold + ours[0], last.predicted + ours[1]))
        else:
            found.append(Region(span.start, span.end, *ours))
    return found


@dataclass(frozen=True)
class TagMistake:
    """A text with its entities and those that were found in it, as spans in characters."""

    text: str
    gold: Sequence[Span]
    predicted: Sequence[Span]

    def __post_init__(self) -> None:
        for span in (*self.gold, *self.predicted):
            span.check(self.text)


@dataclass(frozen=True)
class TagMistakes:
    """All texts with a mistake among `examined`; the `most` with the most mistakes are shown."""

    cases: Sequence[TagMistake]
    examined: int
    most: int = 20
    heading: ClassVar[str] = "Mistaken entities"
    wide: ClassVar[bool] = True

    def body(self) -> Html:
        found = [(case, regions(case.gold, case.predicted)) for case in self.cases]
        kinds = Counter(region.kind for _, parts in found for region in parts)
        worst = sorted(found, key=lambda one: -sum(region.kind != "right" for region in one[1]))[: self.most]
        cases = [_case(case, parts) for case, parts in worst]
        told = counted(len(self.cases), self.examined, cases, "those with the most mistakes first")
        return join((legend([(kind, kinds[kind]) for kind in KINDS]), told))


def _case(case: TagMistake, parts: Sequence[Region]) -> Html:
    wrong = [region for region in parts if region.kind != "right"]
    roles: Roles = {
        "gold": [span for region in wrong for span in region.gold],
        "predicted": [span for region in wrong for span in region.predicted],
        "right": [span for region in parts if region.kind == "right" for span in region.gold],
    }
    focus = [Span(region.start, region.end) for region in wrong[:MOST_REGIONS]]
    text = passage(case.text, roles, focus, {region.end: _note(region) for region in parts})
    rest = len(wrong) - len(focus)
    return join((text, element("p.verdict", f"and {rest} more in this text") if rest else Html()))


def _note(region: Region) -> Html:
    """What stands behind a region: its type if it is right, else what is wrong with it."""
    is_, said = (isolated(" + ".join(span.label for span in spans)) for spans in (region.gold, region.predicted))
    if region.kind == "right":
        return aside("right", is_)
    if region.kind == "missed":
        return aside("wrong", "missed ", is_)
    if region.kind == "invented":
        return aside("wrong", "invented ", said)
    if is_ == said:
        return aside("wrong", "wrong bounds ", is_)
    return aside("wrong", f"{region.kind}: said ", said, ", is ", is_)
