"""Rows whose labels may be wrong, with the places where they stand, so that they can be found and mended."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bothways.report.highlight import Span, block, passage
from bothways.report.markup import Html, element, isolated, join
from bothways.report.mistakes import texts

CONFIDENT_LEARNING = (
    "it is as sure of another label as it usually is where that one is right (confident learning, Northcutt 2021)"
)

CREDIBLE = 0.1  # share of rows with wrong labels; published sets have 0 to 10 % (Northcutt 2021b)


@dataclass(frozen=True)
class LabelIssue:
    """A row: file and line, its text (perhaps a pair), the label it has and the one that is likelier.

    given_probability, probability: how likely the two are, where the model tells; span: what of the text the label is
    of, where it is not of all.
    """

    where: str
    text: str
    given: str
    suggested: str
    given_probability: float | None = None
    probability: float | None = None
    pair: str | None = None
    span: Span | None = None


@dataclass(frozen=True)
class LabelIssues:
    """All doubtful rows among `examined`, none of which the model was trained on; the first `most` are shown, and where
    the others stand. note: which rows were not looked at, and why; reason: what makes a row
    doubtful."""

    cases: Sequence[LabelIssue]
    examined: int
    note: str = ""
    reason: str = CONFIDENT_LEARNING
    most: int = 30
    heading: ClassVar[str] = "Likely label errors"
    wide: ClassVar[bool] = True

    @property
    def are_credible(self) -> bool:
        """Whether there are some, and few enough that the labels and not the model are the likelier cause."""
        return 0 < len(self.cases) <= CREDIBLE * self.examined

    def body(self) -> Html:
        note = f" ({self.note})" if self.note else ""
        if not self.cases:
            return element("p", f"No label looks wrong among {self.examined:,} rows{note}.")
        places = dict.fromkeys(case.where for case in self.cases)
        words = (
            f"{len(places):,} of {self.examined:,} rows{note} may be labelled wrongly. Each was read by a model that "
            f"was not trained on it: {self.reason}. Some of them are wrong labels, some are mistakes of the model; "
            "look before you correct them."
        )
        if not self.are_credible:
            words += " There are so many that most of them will be mistakes of the model."
        shown = self.cases[: self.most]
        intro = element("p", words, f" Shown: {len(shown):,}, the most doubtful first.")
        cases = element("ol.cases", *(element("li", _doubt(case)) for case in shown))
        listed = block(", ".join(short_places([*places])))
        return join((intro, cases, element("details", element("summary", "All rows, by file and line"), listed)))


def _doubt(case: LabelIssue) -> Html:
    verdict = element(
        "p.verdict", element("strong", isolated(short_places([case.where])[0])), ": labelled ",
        element("strong.is", isolated(case.given)), _sure(case.given_probability), ", likelier ",
        element("strong.said", isolated(case.suggested)), _sure(case.probability),
    )  # fmt: skip
    if case.span is None:
        return join((verdict, texts(case.text, case.pair)))
    return join((verdict, passage(case.text, {"gold": [case.span]}, [case.span])))


def _sure(probability: float | None) -> str:
    return "" if probability is None else f" ({probability:.1%})"


def short_places(places: Sequence[str]) -> list[str]:
    """Without their directory, if all are of one."""
    paths = [Path(place) for place in places]
    return [path.name for path in paths] if len({path.parent for path in paths}) == 1 else [*places]
