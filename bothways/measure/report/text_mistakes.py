"""Mistakes in texts: of entities (NER; missed, spurious, wrong type or wrong boundaries), and of answers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bothways.measure.report.highlight import (
    Highlight,
    SpansByRole,
    annotation,
    render_legend,
    render_passage,
    render_text,
)
from bothways.measure.report.markup import Html, Section, element, isolate, join
from bothways.measure.report.mistakes import render_location, render_mistakes, render_verdict

RegionKind = Literal["right", "missed", "spurious", "wrong type", "wrong boundaries"]
MISTAKE_KINDS: tuple[RegionKind, ...] = (
    "missed",
    "spurious",
    "wrong type",
    "wrong boundaries",
)
MAX_REGIONS = 8  # mistakes of one text that are shown in context
AnswerMistakeKind = Literal["partly right", "elsewhere", "no answer given", "answered but has no answer"]
KINDS: tuple[AnswerMistakeKind, ...] = (
    "partly right",
    "elsewhere",
    "no answer given",
    "answered but has no answer",
)


@dataclass(frozen=True)
class Region:
    """A stretch of text covered by overlapping gold and predicted entities."""

    start: int
    end: int
    gold: tuple[Highlight, ...]
    predicted: tuple[Highlight, ...]

    @property
    def kind(self) -> RegionKind:
        if self.gold == self.predicted:
            return "right"
        if not self.predicted:
            return "missed"
        if not self.gold:
            return "spurious"

        gold_bounds = [(span.start, span.end) for span in self.gold]
        predicted_bounds = [(span.start, span.end) for span in self.predicted]
        return "wrong type" if gold_bounds == predicted_bounds else "wrong boundaries"


def group_regions(gold: Sequence[Highlight], predicted: Sequence[Highlight]) -> list[Region]:
    """Group overlapping entities of a text into regions, in text order."""
    regions: list[Region] = []
    entities = [Region(span.start, span.end, gold=(span,), predicted=()) for span in gold]
    entities += [Region(span.start, span.end, gold=(), predicted=(span,)) for span in predicted]

    for entity in sorted(entities, key=lambda entity: entity.start):
        # An entity that starts inside a region may also reach beyond it, and join it with the next one.
        if regions and entity.start < regions[-1].end:
            last = regions.pop()
            entity = Region(
                start=last.start,
                end=max(last.end, entity.end),
                gold=last.gold + entity.gold,
                predicted=last.predicted + entity.predicted,
            )
        regions.append(entity)
    return regions


@dataclass(frozen=True)
class TagMistake:
    """A text with its location, and its gold and predicted entities as character spans."""

    text: str
    gold: Sequence[Highlight]
    predicted: Sequence[Highlight]
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
        legend = render_legend([(kind, counts[kind]) for kind in MISTAKE_KINDS])

        worst = sorted(grouped, key=lambda case: -_count_wrong(case[1]))[: self.max_shown]
        items = [_render_tag_mistake(case, regions) for case, regions in worst]
        mistakes = render_mistakes(len(self.cases), self.num_examined, items, "most mistakes first")
        return join((legend, mistakes))


def _count_wrong(regions: Sequence[Region]) -> int:
    return sum(region.kind != "right" for region in regions)


def _render_tag_mistake(case: TagMistake, regions: Sequence[Region]) -> Html:
    wrong = [region for region in regions if region.kind != "right"]
    spans: SpansByRole = {
        "gold": [span for region in wrong for span in region.gold],
        "predicted": [span for region in wrong for span in region.predicted],
        "right": [span for region in regions if region.kind == "right" for span in region.gold],
    }
    focus = [Highlight(region.start, region.end) for region in wrong[:MAX_REGIONS]]
    notes = {region.end: _render_note(region) for region in regions}

    parts = []
    if case.where:
        parts.append(element("p.verdict", render_location(case.where)))
    parts.append(render_passage(case.text, spans, focus, notes))
    if len(wrong) > len(focus):
        parts.append(element("p.verdict", f"and {len(wrong) - len(focus)} more in this text"))
    return join(parts)


def _render_note(region: Region) -> Html:
    """The annotation after a region: its type if it is right, else the kind of mistake."""
    gold = isolate(" + ".join(span.label for span in region.gold))
    predicted = isolate(" + ".join(span.label for span in region.predicted))
    if region.kind == "right":
        return annotation("right", gold)
    if region.kind == "missed":
        return annotation("wrong", "missed ", gold)
    if region.kind == "spurious":
        return annotation("wrong", "spurious ", predicted)
    if gold == predicted:
        return annotation("wrong", "wrong boundaries ", gold)
    return annotation("wrong", f"{region.kind}: predicted ", predicted, ", gold ", gold)


@dataclass(frozen=True)
class AnswerMistake:
    """A wrong answer.

    question, passage: the question, and the text that has the answer.
    gold: the accepted answers; empty if the question has none.
    predicted: None for "no answer".
    f1: word F1 of the prediction.
    where: the location of the question.
    """

    question: str
    passage: str
    gold: Sequence[Highlight]
    predicted: Highlight | None
    f1: float
    where: str = ""

    def __post_init__(self) -> None:
        for span in (*self.gold, *self.predicted_spans):
            span.check(self.passage)

    @property
    def predicted_spans(self) -> tuple[Highlight, ...]:
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
        legend = render_legend([(kind, counts[kind]) for kind in KINDS])

        worst = sorted(self.cases, key=lambda case: case.f1)[: self.max_shown]
        items = [_render_answer(case) for case in worst]
        mistakes = render_mistakes(len(self.cases), self.num_examined, items, "lowest F1 first")
        return join((legend, mistakes))


def _render_answer(case: AnswerMistake) -> Html:
    # Annotators often give the same words; each is shown once.
    answers = dict.fromkeys(case.passage[span.start : span.end] for span in case.gold)
    gold = isolate(" / ".join(answers)) if answers else "no answer"
    predicted: str = "no answer"
    if case.predicted is not None:
        predicted = isolate(case.passage[case.predicted.start : case.predicted.end])

    verdict = render_verdict(
        case.where,
        ("predicted", predicted, ""),
        ("gold", gold, f" (F1 {case.f1:.1%})"),
    )
    spans: SpansByRole = {
        "gold": case.gold,
        "predicted": case.predicted_spans,
    }
    passage = render_passage(case.passage, spans, (*case.gold, *case.predicted_spans))
    return join((render_text(element("strong", case.question)), verdict, passage))
