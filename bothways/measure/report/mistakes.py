"""Worst mistakes of text classification and regression, and likely label errors with the locations of their rows."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from bothways.base.errors import location_columns, short_locations
from bothways.measure.report.highlight import Highlight, render_opening, render_passage, render_text
from bothways.measure.report.markup import Html, Section, element, format_number, isolate, join, table

CONFIDENT_LEARNING = (
    "another label is more probable, with at least the average probability of the rows with that label (confident "
    "learning, Northcutt 2021)"
)
CREDIBLE = 0.1  # share of wrong labels; published datasets have 0 to 10 % (Northcutt 2021b)


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


def render_verdict(where: str, *labels: tuple[str, str, str], names: Sequence[str] = ("predicted", "gold")) -> Html:
    """One line: a location, and each label after its name. labels: (role, which sets the colour, label, a note)."""
    first, second = (
        (f"{name} ", element(f"strong.{role}", label), note)
        for name, (role, label, note) in zip(names, labels, strict=True)
    )
    return element("p.verdict", render_location(where), *first, ", ", *second)


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
class LabelMistakes(Section):
    """All texts with a wrong label among `num_examined`. Shows the `max_shown` most confident ones."""

    cases: Sequence[LabelMistake]
    num_examined: int
    max_shown: int = 20
    heading = "Worst mistakes"

    def body(self) -> Html:
        worst = sorted(self.cases, key=lambda case: -case.probability)[: self.max_shown]
        items = [_render_label_mistake(case) for case in worst]
        return render_mistakes(len(self.cases), self.num_examined, items, "most confident first")


def _render_label_mistake(case: LabelMistake) -> Html:
    predicted = "predicted", isolate(case.predicted), _percentage(case.probability)
    verdict = render_verdict(case.where, predicted, ("gold", isolate(case.gold), ""))
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
class NumberMistakes(Section):
    """All predictions of a regression. Shows the `max_shown` with the largest errors."""

    cases: Sequence[NumberMistake]
    max_shown: int = 20
    heading = "Largest errors"

    def body(self) -> Html:
        worst = sorted(self.cases, key=lambda case: -abs(case.gold - case.predicted))[: self.max_shown]
        summary = f"{len(worst):,} of {len(self.cases):,}, largest error first."
        items = (element("li", _render_number_mistake(case)) for case in worst)
        return join((element("p", summary), element("ol.cases", *items)))


def _render_number_mistake(case: NumberMistake) -> Html:
    error = case.predicted - case.gold
    error_text = f"{error:+,.3f}" if not error or abs(error) >= 0.001 else f"{error:+.1e}"
    predicted, gold = (format_number(value, "number") for value in (case.predicted, case.gold))
    verdict = render_verdict(case.where, ("predicted", predicted, ""), ("gold", gold, f" (error {error_text})"))
    return join((verdict, render_texts(case.text, case.pair)))


@dataclass(frozen=True)
class LabelIssue:
    """A row: location, text or pair, its label and the suggested one, with their probabilities if known.

    span: the part of the text that the label applies to; None for the whole text. is_likely: False if another label is
    only more probable. source: the model that suggests it, or without a suggestion the remark on the row. kind: of the
    remark.
    """

    where: str
    text: str
    label: str
    suggested: str
    label_probability: float | None = None
    suggested_probability: float | None = None
    pair: str | None = None
    span: Highlight | None = None
    is_likely: bool = True
    source: str = ""
    kind: str = "label"

    @property
    def order(self) -> float:
        """Smaller for more suspicious rows: the label's probability; minus an answer's, or the error of a number."""
        if self.label_probability is not None:
            return self.label_probability
        if self.suggested_probability is not None:
            return -self.suggested_probability
        return -abs(float(self.label) - float(self.suggested))

    @property
    def why(self) -> str:
        """The reason for the suggestion, in one line."""
        if self.label_probability is None or self.suggested_probability is None:
            return f"{self.source}: {self.suggested}" if self.suggested else self.source
        suggested, own = (f"{p:.1%}" for p in (self.suggested_probability, self.label_probability))
        return f"{self.source}: {self.suggested!r} {suggested}, {self.label!r} {own}"


@dataclass(frozen=True)
class LabelIssues(Section):
    """All suspicious rows among `num_examined` rows that the model was not trained on, the most suspicious first.

    note: the rows that were not examined, with the reason. criterion: the condition for a label issue. Shows
    `max_shown` rows in full, and the others by location.
    """

    cases: Sequence[LabelIssue]
    num_examined: int
    note: str = ""
    criterion: str = CONFIDENT_LEARNING
    max_shown: int = 30
    heading = "Likely label errors"

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


@dataclass(frozen=True)
class RowRemarks(Section):
    """Remarks of one kind on rows. Shows the first `max_shown`."""

    heading: str
    cases: Sequence[LabelIssue]
    max_shown: int = 30

    def body(self) -> Html:
        rows = [
            [short, case.text[:200], case.label, case.why]
            for case, short in zip(self.cases, short_locations([case.where for case in self.cases]), strict=True)
        ]
        caption = f"{len(rows):,} rows. Shown: {min(len(rows), self.max_shown):,}."
        return table(caption, ["Row", "Text", "Label", "Remark"], rows[: self.max_shown], words=4)


def issue_columns(
    cases: Sequence[LabelIssue], *, among: Sequence[str] = (), parts: Collection[str] = ()
) -> dict[str, list[Any]]:
    """Label issues as the columns of a table; with start and end, the characters of a labelled part of a text.

    among: the locations of all rows that were examined. parts: "pair" if they have second texts, "span" if parts of
    texts are labelled. With these, a table without issues has the columns of one with some.
    """
    columns: dict[str, list[Any]] = {**location_columns([case.where for case in cases], among)}
    columns["text"] = [case.text for case in cases]
    if "pair" in parts or any(case.pair is not None for case in cases):
        columns["pair"] = [case.pair for case in cases]
    if "span" in parts or any(case.span is not None for case in cases):
        columns["start"] = [None if case.span is None else case.span.start for case in cases]
        columns["end"] = [None if case.span is None else case.span.end for case in cases]
    names = ("label", "suggested", "label_probability", "suggested_probability", "is_likely", "why")
    return columns | {name: [getattr(case, name) for case in cases] for name in names}


def _render_issue(case: LabelIssue) -> Html:
    label = "gold", isolate(case.label), _percentage(case.label_probability)
    suggested = "predicted", isolate(case.suggested), _percentage(case.suggested_probability)
    verdict = render_verdict(case.where, label, suggested, names=("labelled", "suggested"))
    if case.span is None:
        return join((verdict, render_texts(case.text, case.pair)))
    return join((verdict, render_passage(case.text, {"gold": [case.span]}, [case.span])))


def _percentage(probability: float | None) -> str:
    return "" if probability is None else f" ({probability:.1%})"
