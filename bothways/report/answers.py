"""Mistakes in question answering, highlighted in the passages."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from bothways.report.highlight import Highlight, SpansByRole, render_legend, render_passage, render_text
from bothways.report.markup import Html, element, isolate, join
from bothways.report.mistakes import render_location, render_mistakes

AnswerMistakeKind = Literal["partly right", "elsewhere", "no answer given", "answered but has no answer"]
KINDS: tuple[AnswerMistakeKind, ...] = ("partly right", "elsewhere", "no answer given", "answered but has no answer")


@dataclass(frozen=True)
class AnswerMistake:
    """A wrong answer. gold: the accepted answers; empty if the question has none. predicted: None for "no answer".

    f1: word F1 of the prediction. where: the location of the question.
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
class AnswerMistakes:
    """All wrong answers to `num_examined` questions. Shows the `max_shown` with the lowest F1."""

    cases: Sequence[AnswerMistake]
    num_examined: int
    max_shown: int = 20
    heading: ClassVar[str] = "Wrong answers"
    wide: ClassVar[bool] = True

    def body(self) -> Html:
        counts = Counter(case.kind for case in self.cases)
        worst = sorted(self.cases, key=lambda case: case.f1)[: self.max_shown]
        items = [_render_case(case) for case in worst]
        mistakes = render_mistakes(len(self.cases), self.num_examined, items, "lowest F1 first")
        return join((render_legend([(kind, counts[kind]) for kind in KINDS]), mistakes))


def _render_case(case: AnswerMistake) -> Html:
    answers = dict.fromkeys(case.passage[span.start : span.end] for span in case.gold)  # without duplicates
    gold = isolate(" / ".join(answers)) if answers else "no answer"
    predicted = isolate(case.passage[case.predicted.start : case.predicted.end]) if case.predicted else "no answer"
    verdict = element(
        "p.verdict",
        render_location(case.where),
        "predicted ",
        element("strong.predicted", predicted),
        ", gold ",
        element("strong.gold", gold),
        f" (F1 {case.f1:.1%})",
    )
    spans: SpansByRole = {"gold": case.gold, "predicted": case.predicted_spans}
    text = render_passage(case.passage, spans, (*case.gold, *case.predicted_spans))
    return join((render_text(element("strong", case.question)), verdict, text))
