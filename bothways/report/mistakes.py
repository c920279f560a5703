"""Worst mistakes of text classification and regression."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bothways.errors import short_locations
from bothways.report.highlight import render_opening
from bothways.report.markup import Html, element, format_number, isolate, join


def render_mistakes(num_wrong: int, num_examined: int, items: Sequence[Html], order: str) -> Html:
    """The number of mistakes and a list of those shown."""
    if not num_wrong:
        return element("p", f"No mistakes in {num_examined:,}.")
    summary = f"{num_wrong:,} of {num_examined:,} ({num_wrong / num_examined:.1%}) are wrong."
    summary += f" Shown: {len(items):,}, {order}."
    return join((element("p", summary), element("ol.cases", *(element("li", item) for item in items))))


def render_location(where: str) -> Html:
    """The location of a row before a colon; nothing for ""."""
    return join((element("strong", isolate(short_locations([where])[0])), ": ")) if where else Html()


def render_texts(text: str, pair: str | None) -> Html:
    return join(map(render_opening, [text] if pair is None else [text, pair]))


@dataclass(frozen=True)
class LabelMistake:
    """A text or pair with its location, a wrong predicted label and its probability."""

    text: str
    gold: str
    predicted: str
    probability: float
    pair: str | None = None
    where: str = ""


@dataclass(frozen=True)
class LabelMistakes:
    """All texts with a wrong label among `num_examined`. Shows the `max_shown` most confident ones."""

    cases: Sequence[LabelMistake]
    num_examined: int
    max_shown: int = 20
    heading: ClassVar[str] = "Worst mistakes"
    wide: ClassVar[bool] = True

    def body(self) -> Html:
        worst = sorted(self.cases, key=lambda case: -case.probability)[: self.max_shown]
        items = [_render_label_mistake(case) for case in worst]
        return render_mistakes(len(self.cases), self.num_examined, items, "most confident first")


def _render_label_mistake(case: LabelMistake) -> Html:
    verdict = element(
        "p.verdict",
        render_location(case.where),
        "predicted ",
        element("strong.predicted", isolate(case.predicted)),
        f" ({case.probability:.1%}), gold ",
        element("strong.gold", isolate(case.gold)),
    )
    return join((verdict, render_texts(case.text, case.pair)))


@dataclass(frozen=True)
class NumberMistake:
    """A text or pair with its location, and its gold and predicted number."""

    text: str
    gold: float
    predicted: float
    pair: str | None = None
    where: str = ""


@dataclass(frozen=True)
class NumberMistakes:
    """All predictions of a regression. Shows the `max_shown` with the largest errors."""

    cases: Sequence[NumberMistake]
    max_shown: int = 20
    heading: ClassVar[str] = "Largest errors"
    wide: ClassVar[bool] = True

    def body(self) -> Html:
        worst = sorted(self.cases, key=lambda case: -abs(case.gold - case.predicted))[: self.max_shown]
        summary = f"{len(worst):,} of {len(self.cases):,}, largest error first."
        items = (element("li", _render_number_mistake(case)) for case in worst)
        return join((element("p", summary), element("ol.cases", *items)))


def _render_number_mistake(case: NumberMistake) -> Html:
    error = case.predicted - case.gold
    error_text = f"{error:+,.3f}" if not error or abs(error) >= 0.001 else f"{error:+.1e}"
    verdict = element(
        "p.verdict",
        render_location(case.where),
        "predicted ",
        element("strong.predicted", format_number(case.predicted, "number")),
        ", gold ",
        element("strong.gold", format_number(case.gold, "number")),
        f" (error {error_text})",
    )
    return join((verdict, render_texts(case.text, case.pair)))
