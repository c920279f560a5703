"""Likely label errors (confident learning), with the locations of the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bothways.errors import short_locations
from bothways.report.highlight import Highlight, render_passage, render_text
from bothways.report.markup import Html, element, isolate, join
from bothways.report.mistakes import render_location, render_texts

CONFIDENT_LEARNING = (
    "it gives another label at least the average probability of the rows with that label (confident learning, "
    "Northcutt 2021)"
)
CREDIBLE = 0.1  # share of wrong labels; published datasets have 0 to 10 % (Northcutt 2021b)


@dataclass(frozen=True)
class LabelIssue:
    """A row: location, text or pair, its label and the suggested one, with their probabilities if known.

    span: the part of the text that the label applies to; None for the whole text.
    """

    where: str
    text: str
    label: str
    suggested: str
    label_probability: float | None = None
    suggested_probability: float | None = None
    pair: str | None = None
    span: Highlight | None = None


@dataclass(frozen=True)
class LabelIssues:
    """All suspicious rows among `num_examined` rows that the model was not trained on, the most suspicious first.

    note: the rows that were not examined, with the reason. criterion: the condition for a label issue. Shows
    `max_shown` rows in full, and the others by location.
    """

    cases: Sequence[LabelIssue]
    num_examined: int
    note: str = ""
    criterion: str = CONFIDENT_LEARNING
    max_shown: int = 30
    heading: ClassVar[str] = "Likely label errors"
    wide: ClassVar[bool] = True

    @property
    def are_credible(self) -> bool:
        """Whether there are any issues, and few enough that most are probably wrong labels and not model errors."""
        return 0 < len(self.cases) <= CREDIBLE * self.num_examined

    def body(self) -> Html:
        note = f" ({self.note})" if self.note else ""
        if not self.cases:
            return element("p", f"No label looks wrong among {self.num_examined:,} rows{note}.")
        locations = dict.fromkeys(case.where for case in self.cases)
        summary = (
            f"{len(locations):,} of {self.num_examined:,} rows{note} may be labelled wrongly. A model that was not "
            f"trained on these rows disagrees: {self.criterion}. Some are label errors, some are mistakes of the "
            "model; check them before you correct them."
        )
        if not self.are_credible:
            summary += " These are too many: most are probably mistakes of the model."
        shown = self.cases[: self.max_shown]
        intro = element("p", summary, f" Shown: {len(shown):,}, the most suspicious first.")
        items = element("ol.cases", *(element("li", _render_issue(case)) for case in shown))
        listed = render_text("; ".join(short_locations([*locations])))
        return join((intro, items, element("details", element("summary", "All rows"), listed)))


def _render_issue(case: LabelIssue) -> Html:
    verdict = element(
        "p.verdict",
        render_location(case.where),
        "labelled ",
        element("strong.gold", isolate(case.label)),
        _percentage(case.label_probability),
        ", suggested ",
        element("strong.predicted", isolate(case.suggested)),
        _percentage(case.suggested_probability),
    )
    if case.span is None:
        return join((verdict, render_texts(case.text, case.pair)))
    return join((verdict, render_passage(case.text, {"gold": [case.span]}, [case.span])))


def _percentage(probability: float | None) -> str:
    return "" if probability is None else f" ({probability:.1%})"
