"""The worst mistakes on whole texts: the surest of the wrong labels, the furthest of the wrong numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bothways.report.highlight import opening
from bothways.report.markup import Html, element, isolated, join, written


def counted(wrong: int, examined: int, cases: Sequence[Html], order: str) -> Html:
    """How many mistakes there are, of how many, and which of them are shown; then those."""
    if not wrong:
        return element("p", f"None of {examined:,} went wrong.")
    words = f"{wrong:,} of {examined:,} ({wrong / examined:.1%}) went wrong. Shown: {len(cases):,}, {order}."
    return join((element("p", words), element("ol.cases", *(element("li", case) for case in cases))))


def texts(text: str, pair: str | None) -> Html:
    return join(opening(one) for one in (text, pair) if one is not None)


@dataclass(frozen=True)
class LabelMistake:
    """A text (perhaps a pair) that was given the wrong label, and how sure the model was of it."""

    text: str
    gold: str
    predicted: str
    probability: float
    pair: str | None = None


@dataclass(frozen=True)
class LabelMistakes:
    """Everything that went wrong among `examined` texts; the surest `most` are shown."""

    cases: Sequence[LabelMistake]
    examined: int
    most: int = 20
    heading: ClassVar[str] = "Worst mistakes"
    wide: ClassVar[bool] = True

    def body(self) -> Html:
        worst = sorted(self.cases, key=lambda case: -case.probability)[: self.most]
        return counted(len(self.cases), self.examined, list(map(_mistake, worst)), "the surest first")


def _mistake(case: LabelMistake) -> Html:
    said, is_, sure = isolated(case.predicted), isolated(case.gold), f" ({case.probability:.1%} sure), is "
    verdict = element("p.verdict", "said ", element("strong.said", said), sure, element("strong.is", is_))
    return join((verdict, texts(case.text, case.pair)))


@dataclass(frozen=True)
class NumberMistake:
    """A text (perhaps a pair) and how far off its number is."""

    text: str
    gold: float
    predicted: float
    pair: str | None = None


@dataclass(frozen=True)
class NumberMistakes:
    """Predicted numbers; the `most` that are furthest off are shown."""

    cases: Sequence[NumberMistake]
    most: int = 20
    heading: ClassVar[str] = "Furthest off"
    wide: ClassVar[bool] = True

    def body(self) -> Html:
        worst = sorted(self.cases, key=lambda case: -abs(case.gold - case.predicted))[: self.most]
        words = f"{len(worst):,} of {len(self.cases):,}, the furthest first."
        return join((element("p", words), element("ol.cases", *(element("li", _miss(case)) for case in worst))))


def _miss(case: NumberMistake) -> Html:
    said, is_ = (
        element("strong.said", written(case.predicted, "number")),
        element("strong.is", written(case.gold, "number")),
    )
    by = case.predicted - case.gold
    off = f" (off by {by:+,.3f})" if not by or abs(by) >= 0.001 else f" (off by {by:+.1e})"
    return join((element("p.verdict", "said ", said, ", is ", is_, off), texts(case.text, case.pair)))
