"""Mistakes in texts: of entities (NER; missed, spurious, wrong type or wrong boundaries), and of answers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bothways.measure.report import highlight
from bothways.measure.report.markup import Html, Section, element, isolate, join
from bothways.measure.report.mistakes import render_location, render_mistakes, render_verdict

RegionKind = Literal["right", "missed", "spurious", "wrong type", "wrong boundaries"]
MISTAKE_KINDS: tuple[RegionKind, ...] = ("missed", "spurious", "wrong type", "wrong boundaries")
MAX_REGIONS = 8  # mistakes of one text that are shown in context
AnswerMistakeKind = Literal["partly right", "elsewhere", "no answer given", "answered but has no answer"]
KINDS: tuple[AnswerMistakeKind, ...] = ("partly right", "elsewhere", "no answer given", "answered but has no answer")


@dataclass(frozen=True)
class Region:
    """A stretch of text covered by overlapping gold and predicted entities."""

    start: int
    end: int
    gold: tuple[highlight.Highlight, ...]
    predicted: tuple[highlight.Highlight, ...]

    @property
    def kind(self) -> RegionKind:
        if self.gold == self.predicted:
            return "right"
        if not self.predicted:
            return "missed"
        if not self.gold:
            return "spurious"
        gold_bounds, predicted_bounds = (
            [(span.start, span.end) for span in spans] for spans in (self.gold, self.predicted)
        )
        return "wrong type" if gold_bounds == predicted_bounds else "wrong boundaries"


def group_regions(gold: Sequence[highlight.Highlight], predicted: Sequence[highlight.Highlight]) -> list[Region]:
    """Group overlapping entities of a text into regions, in text order."""
    regions: list[Region] = []
    entities = [(span, True) for span in gold] + [(span, False) for span in predicted]
    for span, is_gold in sorted(entities, key=lambda entity: entity[0].start):
        new_gold, new_predicted = ((span,), ()) if is_gold else ((), (span,))
        if regions and span.start < regions[-1].end:
            last = regions.pop()
            end = max(last.end, span.end)
            regions.append(Region(last.start, end, last.gold + new_gold, last.predicted + new_predicted))
        else:
            regions.append(Region(span.start, span.end, new_gold, new_predicted))
    return regions


@dataclass(frozen=True)
class TagMistake:
    """A text with its location, and its gold and predicted entities as character spans."""

    text: str
    gold: Sequence[highlight.Highlight]
    predicted: Sequence[highlight.Highlight]
    where: str = ""

    def __post_init__(self) -> None:
        for span in (*self.gold, *self.predicted):
            span.check(self.text)


@dataclass(frozen=True)
class TagMistakes(Section):
    """All texts with mistakes among `num_examined`. Shows the `max_shown` with the most mistakes."""

    cases: Sequence[TagMistake]
    num_examined: int
    max_shown: int = 20
    heading = "Entity mistakes"

    def body(self) -> Html:
        grouped = [(case, group_regions(case.gold, case.predicted)) for case in self.cases]
        counts = Counter(region.kind for _, regions in grouped for region in regions)
        worst = sorted(grouped, key=lambda pair: -sum(region.kind != "right" for region in pair[1]))[: self.max_shown]
        items = [_render_case(case, regions) for case, regions in worst]
        mistakes = render_mistakes(len(self.cases), self.num_examined, items, "most mistakes first")
        return join((highlight.render_legend([(kind, counts[kind]) for kind in MISTAKE_KINDS]), mistakes))


def _render_case(case: TagMistake, regions: Sequence[Region]) -> Html:
    wrong = [region for region in regions if region.kind != "right"]
    spans: highlight.SpansByRole = {
        "gold": [span for region in wrong for span in region.gold],
        "predicted": [span for region in wrong for span in region.predicted],
        "right": [span for region in regions if region.kind == "right" for span in region.gold],
    }
    focus = [highlight.Highlight(region.start, region.end) for region in wrong[:MAX_REGIONS]]
    text = highlight.render_passage(case.text, spans, focus, {region.end: _render_note(region) for region in regions})
    num_hidden = len(wrong) - len(focus)
    place = element("p.verdict", render_location(case.where)) if case.where else Html()
    return join((place, text, element("p.verdict", f"and {num_hidden} more in this text") if num_hidden else Html()))


def _render_note(region: Region) -> Html:
    """The annotation after a region: its type if it is right, else the kind of mistake."""
    gold, predicted = (isolate(" + ".join(span.label for span in spans)) for spans in (region.gold, region.predicted))
    if region.kind == "right":
        return highlight.annotation("right", gold)
    if region.kind == "missed":
        return highlight.annotation("wrong", "missed ", gold)
    if region.kind == "spurious":
        return highlight.annotation("wrong", "spurious ", predicted)
    if gold == predicted:
        return highlight.annotation("wrong", "wrong boundaries ", gold)
    return highlight.annotation("wrong", f"{region.kind}: predicted ", predicted, ", gold ", gold)


@dataclass(frozen=True)
class AnswerMistake:
    """A wrong answer. gold: the accepted answers; empty if the question has none. predicted: None for "no answer".

    f1: word F1 of the prediction. where: the location of the question.
    """

    question: str
    passage: str
    gold: Sequence[highlight.Highlight]
    predicted: highlight.Highlight | None
    f1: float
    where: str = ""

    def __post_init__(self) -> None:
        for span in (*self.gold, *self.predicted_spans):
            span.check(self.passage)

    @property
    def predicted_spans(self) -> tuple[highlight.Highlight, ...]:
        return () if self.predicted is None else (self.predicted,)

    @property
    def kind(self) -> AnswerMistakeKind:
        if self.predicted is None:
            return "no answer given"
        if not self.gold:
            return "answered but has no answer"
        return "partly right" if self.f1 > 0 else "elsewhere"


@dataclass(frozen=True)
class AnswerMistakes(Section):
    """All wrong answers to `num_examined` questions. Shows the `max_shown` with the lowest F1."""

    cases: Sequence[AnswerMistake]
    num_examined: int
    max_shown: int = 20
    heading = "Wrong answers"

    def body(self) -> Html:
        counts = Counter(case.kind for case in self.cases)
        worst = sorted(self.cases, key=lambda case: case.f1)[: self.max_shown]
        items = [_render_answer(case) for case in worst]
        mistakes = render_mistakes(len(self.cases), self.num_examined, items, "lowest F1 first")
        return join((highlight.render_legend([(kind, counts[kind]) for kind in KINDS]), mistakes))


def _render_answer(case: AnswerMistake) -> Html:
    answers = dict.fromkeys(case.passage[span.start : span.end] for span in case.gold)  # without duplicates
    gold = isolate(" / ".join(answers)) if answers else "no answer"
    predicted = isolate(case.passage[case.predicted.start : case.predicted.end]) if case.predicted else "no answer"
    verdict = render_verdict(case.where, ("predicted", predicted, ""), ("gold", gold, f" (F1 {case.f1:.1%})"))
    spans: highlight.SpansByRole = {"gold": case.gold, "predicted": case.predicted_spans}
    text = highlight.render_passage(case.passage, spans, (*case.gold, *case.predicted_spans))
    return join((highlight.render_text(element("strong", case.question)), verdict, text))
