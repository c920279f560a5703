"""Mistakes of a reader in their passage: answers that are elsewhere, only partly right, missing, or made up."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from bothways.report.highlight import Span, block, legend, passage
from bothways.report.markup import Html, element, isolated, join
from bothways.report.mistakes import counted

Kind = Literal["partly right", "elsewhere", "no answer given", "answered where there is none"]
KINDS: tuple[Kind, ...] = ("partly right", "elsewhere", "no answer given", "answered where there is none")


@dataclass(frozen=True)
class AnswerMistake:
    """A question whose answer is not one of `gold` (none: it has no answer). `predicted` is None where none was given.
    f1 is that of the two as words."""

    question: str
    passage: str
    gold: Sequence[Span]
    predicted: Span | None
    f1: float

    def __post_init__(self) -> None:
        for span in (*self.gold, *self.answers):
            span.check(self.passage)

    @property
    def answers(self) -> tuple[Span, ...]:
        return () if self.predicted is None else (self.predicted,)

    @property
    def kind(self) -> Kind:
        if self.predicted is None:
            return "no answer given"
        if not self.gold:
            return "answered where there is none"
        return "partly right" if self.f1 > 0 else "elsewhere"


@dataclass(frozen=True)
class AnswerMistakes:
    """All questions answered wrongly among `examined`; the `most` with the lowest F1 are shown, equal ones in the order
    given."""

    cases: Sequence[AnswerMistake]
    examined: int
    most: int = 20
    heading: ClassVar[str] = "Mistaken answers"
    wide: ClassVar[bool] = True

    def body(self) -> Html:
        kinds = Counter(case.kind for case in self.cases)
        worst = sorted(self.cases, key=lambda case: case.f1)[: self.most]
        cases = counted(len(self.cases), self.examined, list(map(_case, worst)), "the lowest F1 first")
        return join((legend([(kind, kinds[kind]) for kind in KINDS]), cases))


def _case(case: AnswerMistake) -> Html:
    answers = dict.fromkeys(case.passage[span.start : span.end] for span in case.gold)  # several may read the same
    is_ = isolated(" / ".join(answers)) if answers else "nothing"
    said = isolated(case.passage[case.predicted.start : case.predicted.end]) if case.predicted else "nothing"
    verdict = element(
        "p.verdict", "said ", element("strong.said", said), ", is ", element("strong.is", is_), f" (F1 {case.f1:.1%})"
    )
    text = passage(case.passage, {"gold": case.gold, "predicted": case.answers}, (*case.gold, *case.answers))
    return join((block(element("strong", case.question)), verdict, text))
