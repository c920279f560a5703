"""Worst mistakes of text classification and regression, and likely label errors with the locations of their rows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bothways.base.errors import location_columns, short_locations
from bothways.measure.report.highlight import Highlight, render_opening, render_passage, render_text
from bothways.measure.report.markup import Html, Section, element, format_number, isolate, join, table

CONFIDENT_LEARNING = (
    "another label is more probable, with at least the average probability of the rows with that label (confident "
    "learning, Northcutt 2021)"
)
CREDIBLE = 0.1  # share of wrong labels; published datasets have 0 to 10 % (Northcutt 2021b)


@dataclass(frozen=True)
class WordSupport:
    """A word of a text, and what the score of the prediction loses without it."""

    word: str
    effect: float


WordsByTexts = Mapping[tuple[str, str | None], Sequence[WordSupport]]  # by the text and its second text


@dataclass(frozen=True)
class LabelMistake:
    """A text or pair with its location, a wrong predicted label and its probability.

    words: that support the wrong label most, the strongest first.
    """

    text: str
    gold: str
    predicted: str
    probability: float
    pair: str | None = None
    where: str = ""
    words: Sequence[WordSupport] = ()


@dataclass(frozen=True)
class LabelMistakes(Section):
    """All texts with a wrong label among `num_examined`. Shows the `max_shown` most confident ones."""

    cases: Sequence[LabelMistake]
    num_examined: int
    max_shown: int = 20
    heading = "Worst mistakes"

    @property
    def worst(self) -> list[LabelMistake]:
        """The cases that are shown."""
        return sorted(self.cases, key=lambda case: -case.probability)[: self.max_shown]

    def with_words(self, words: WordsByTexts) -> "LabelMistakes":
        """The same section, with the words that support its cases."""
        cases = [replace(case, words=words.get((case.text, case.pair), ())) for case in self.cases]
        return replace(self, cases=cases)

    def body(self) -> Html:
        worst = self.worst
        items = [_render_label_mistake(case) for case in worst]
        mistakes = render_mistakes(len(self.cases), self.num_examined, items, "most confident first")
        return join((mistakes, render_words_note(worst, "the probability of the predicted label loses")))


def _render_label_mistake(case: LabelMistake) -> Html:
    verdict = render_verdict(
        case.where,
        ("predicted", isolate(case.predicted), _percentage(case.probability)),
        ("gold", isolate(case.gold), ""),
    )
    words = [(support.word, f"{100 * support.effect:+.1f}") for support in case.words]
    return join((verdict, render_texts(case.text, case.pair), render_words(words)))


@dataclass(frozen=True)
class NumberMistake:
    """A text or pair with its location, and its gold and predicted number.

    words: that move the number away from gold most, the strongest first.
    """

    text: str
    gold: float
    predicted: float
    pair: str | None = None
    where: str = ""
    words: Sequence[WordSupport] = ()


@dataclass(frozen=True)
class NumberMistakes(Section):
    """All predictions of a regression. Shows the `max_shown` with the largest errors."""

    cases: Sequence[NumberMistake]
    max_shown: int = 20
    heading = "Largest errors"

    @property
    def worst(self) -> list[NumberMistake]:
        """The cases that are shown."""
        return sorted(self.cases, key=lambda case: -abs(case.gold - case.predicted))[: self.max_shown]

    def with_words(self, words: WordsByTexts) -> "NumberMistakes":
        """The same section, with the words that support its cases."""
        cases = [replace(case, words=words.get((case.text, case.pair), ())) for case in self.cases]
        return replace(self, cases=cases)

    def body(self) -> Html:
        worst = self.worst
        summary = f"{len(worst):,} of {len(self.cases):,}, largest error first."
        items = [element("li", _render_number_mistake(case)) for case in worst]
        note = render_words_note(worst, "the predicted number loses")
        return join((element("p", summary), element("ol.cases", *items), note))


def _render_number_mistake(case: NumberMistake) -> Html:
    error = case.predicted - case.gold
    error_text = f"{error:+.1e}" if 0 < abs(error) < 0.001 else f"{error:+,.3f}"
    verdict = render_verdict(
        case.where,
        ("predicted", format_number(case.predicted, "number"), ""),
        ("gold", format_number(case.gold, "number"), f" (error {error_text})"),
    )
    words = [(support.word, f"{support.effect:+,.3g}") for support in case.words]
    return join((verdict, render_texts(case.text, case.pair), render_words(words)))


@dataclass(frozen=True)
class LabelIssue:
    """A row whose label may be wrong, or a remark on a row.

    where: its location.
    text, pair: its text, or its two texts.
    label, suggested: its label, and the suggested one, with the probability of each if it is known.
    span: the part of the text that the label applies to; None for the whole text.
    is_likely: False if another label is only more probable.
    source: the model that suggests it, or without a suggestion the remark on the row.
    kind: the kind of remark.
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

        suggested = f"{self.suggested!r} {self.suggested_probability:.1%}"
        label = f"{self.label!r} {self.label_probability:.1%}"
        return f"{self.source}: {suggested}, {label}"


@dataclass(frozen=True)
class LabelIssues(Section):
    """All suspicious rows among rows that the model was not trained on.

    cases: the most suspicious first.
    num_examined: the number of rows.
    note: the rows that were not examined, with the reason.
    criterion: the condition for a label issue.
    max_shown: the number of rows that are shown in full; the others are listed by location.
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

        first = self.cases[: self.max_shown]
        intro = element("p", summary, f" Shown: {len(first):,}, the most suspicious first.")
        items = element("ol.cases", *(element("li", _render_issue(case)) for case in first))

        all_rows = render_text("; ".join(short_locations([*locations])))
        details = element("details", element("summary", "All rows"), all_rows)
        return join((intro, items, details))


def _render_issue(case: LabelIssue) -> Html:
    verdict = render_verdict(
        case.where,
        ("gold", isolate(case.label), _percentage(case.label_probability)),
        ("predicted", isolate(case.suggested), _percentage(case.suggested_probability)),
        names=("labelled", "suggested"),
    )
    if case.span is None:
        text = render_texts(case.text, case.pair)
    else:
        text = render_passage(case.text, {"gold": [case.span]}, [case.span])
    return join((verdict, text))


@dataclass(frozen=True)
class RowRemarks(Section):
    """Remarks of one kind on rows. Shows the first `max_shown`."""

    heading: str
    cases: Sequence[LabelIssue]
    max_shown: int = 30

    def body(self) -> Html:
        # All locations decide how each is shortened, not only the locations that are shown.
        locations = short_locations([case.where for case in self.cases])
        rows = [
            [location, case.text[:200], case.label, case.why]
            for location, case in zip(locations, self.cases, strict=True)
        ][: self.max_shown]
        caption = f"{len(self.cases):,} rows. Shown: {len(rows):,}."
        return table(caption, ["Row", "Text", "Label", "Remark"], rows, words=4)


def issue_columns(
    cases: Sequence[LabelIssue],
    *,
    among: Sequence[str] = (),
    parts: Collection[str] = (),
) -> dict[str, list[Any]]:
    """Label issues as the columns of a table; with start and end, the characters of a labelled part of a text.

    cases: the issues.
    among: the locations of all rows that were examined.
    parts: "pair" if they have second texts, "span" if parts of texts are labelled.

    With `among` and `parts`, a table without issues has the columns of a table with some.
    """
    columns: dict[str, list[Any]] = {**location_columns([case.where for case in cases], among)}

    columns["text"] = [case.text for case in cases]
    if "pair" in parts or any(case.pair is not None for case in cases):
        columns["pair"] = [case.pair for case in cases]
    if "span" in parts or any(case.span is not None for case in cases):
        columns["start"] = [None if case.span is None else case.span.start for case in cases]
        columns["end"] = [None if case.span is None else case.span.end for case in cases]

    columns["label"] = [case.label for case in cases]
    columns["suggested"] = [case.suggested for case in cases]
    columns["label_probability"] = [case.label_probability for case in cases]
    columns["suggested_probability"] = [case.suggested_probability for case in cases]
    columns["is_likely"] = [case.is_likely for case in cases]
    columns["why"] = [case.why for case in cases]
    return columns


def render_mistakes(num_wrong: int, num_examined: int, items: Sequence[Html], order: str) -> Html:
    """The number of mistakes, and a list of the mistakes that are shown.

    num_wrong, num_examined: the numbers of mistakes and of cases.
    items: the mistakes that are shown.
    order: the words for their order.
    """
    if not num_wrong:
        return element("p", f"No mistakes in {num_examined:,}.")

    summary = f"{num_wrong:,} of {num_examined:,} ({num_wrong / num_examined:.1%}) are wrong."
    summary += f" Shown: {len(items):,}, {order}."
    cases = element("ol.cases", *(element("li", item) for item in items))
    return join((element("p", summary), cases))


def render_verdict(
    where: str,
    *labels: tuple[str, str, str],
    names: Sequence[str] = ("predicted", "gold"),
) -> Html:
    """One line: a location, and each label after its name.

    where: the location of the row.
    labels: two of (role, which sets the colour, label, a note).
    names: the words before the labels.
    """
    parts: list[str] = []
    for name, (role, label, note) in zip(names, labels, strict=True):
        separator = ", " if parts else ""
        parts += [separator, f"{name} ", element(f"strong.{role}", label), note]
    return element("p.verdict", render_location(where), *parts)


def render_location(where: str) -> Html:
    """The location of a row before a colon; nothing for ""."""
    if not where:
        return Html()
    short = short_locations([where])[0]
    return join((element("strong", isolate(short)), ": "))


def render_texts(text: str, pair: str | None) -> Html:
    texts = [text] if pair is None else [text, pair]
    return join(map(render_opening, texts))


def render_words(words: Sequence[tuple[str, str]]) -> Html:
    """Words with their effects in one line; nothing without words."""
    if not words:
        return Html()
    parts: list[str] = []
    for word, effect in words:
        parts += [", " if parts else "", element("strong", isolate(word)), f" {effect}"]
    return element("p.verdict", "words: ", *parts)


def render_words_note(cases: Sequence[LabelMistake | NumberMistake], loses: str) -> Html:
    """What the words mean; nothing if no case has some. loses: what loses the effect, as words."""
    if not any(case.words for case in cases):
        return Html()
    unit = ", in points" if "probability" in loses else ""
    return element("p.legend", f"Words: what {loses} without the word{unit}, in the model of the run.")


def _percentage(probability: float | None) -> str:
    return "" if probability is None else f" ({probability:.1%})"
