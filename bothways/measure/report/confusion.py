"""Confusion matrix of a classifier; precision, recall and F1 of each label."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bothways.measure.metrics.intervals import wilson_interval
from bothways.measure.report.markup import (
    Html,
    Section,
    data_element,
    element,
    isolate,
    isolate_label,
    join,
    scroll_frame,
    table,
)

MAX_LABELS = 20  # beyond that a matrix is hard to read
MAX_PAIRS = 10
# Labels, and characters of a label, of a section that may take half the page.
MAX_HALF = 4
MAX_HALF_NAME = 14


@dataclass(frozen=True)
class ConfusionMatrix(Section):
    """counts: number of texts by (gold, predicted) label indices. Sparse, since with many labels most pairs are 0."""

    labels: Sequence[str]
    counts: Mapping[tuple[int, int], int]

    @staticmethod
    def from_names(labels: Sequence[str], gold: Iterable[str], predicted: Iterable[str]) -> "ConfusionMatrix":
        """From the gold and predicted label of each text."""
        index_by_label = {label: index for index, label in enumerate(labels)}
        counts = Counter(
            (index_by_label[gold_label], index_by_label[label])
            for gold_label, label in zip(gold, predicted, strict=True)
        )
        return ConfusionMatrix(labels, counts)

    @property
    def scores(self) -> list["LabelScore"]:
        num_predicted = self._sums(1)
        return [
            LabelScore.from_counts(
                label,
                correct=self.counts.get((index, index), 0),
                gold=self._num_gold[index],
                predicted=num_predicted[index],
            )
            for index, label in enumerate(self.labels)
        ]

    @cached_property
    def _num_gold(self) -> list[int]:
        return self._sums(0)

    def _sums(self, axis: int) -> list[int]:
        sums = [0] * len(self.labels)
        for pair, count in self.counts.items():
            sums[pair[axis]] += count
        return sums

    @property
    def heading(self) -> str:  # type: ignore[override]
        """Without a matrix the section does not promise one."""
        return "Confusion matrix" if self._has_matrix else "Most frequent confusions"

    @property
    def wide(self) -> bool:
        return len(self.labels) > MAX_HALF

    @property
    def _has_matrix(self) -> bool:
        return len(self.labels) <= MAX_LABELS

    def body(self) -> Html:
        parts = []
        if self._has_matrix:
            parts.append(self._matrix())
        if len(self.labels) > 2:  # of two labels the matrix shows all confusions
            parts.append(self._pairs())
        return join(parts)

    def _matrix(self) -> Html:
        caption = "Rows: gold labels. Columns: predicted labels. Percentages are of the row. Correct cells are framed."

        corner = element("th", "gold", element("span.spread", "predicted →"), attributes={"scope": "col"})
        columns = [element("th", isolate(name), attributes={"scope": "col"}) for name in self.labels]
        head = element("thead", element("tr", corner, *columns))
        body = element("tbody", *map(self._row, range(len(self.labels))))
        return scroll_frame(caption, element("table.matrix", head, body))

    def _row(self, gold: int) -> Html:
        total = self._num_gold[gold]
        head = element(
            "th.words",
            isolate(self.labels[gold]),
            element("span.spread", f"{total:,}"),
            attributes={"scope": "row"},
        )
        cells = [
            _cell(self.counts.get((gold, predicted), 0), total, correct=predicted == gold)
            for predicted in range(len(self.labels))
        ]
        return element("tr", head, *cells)

    def _pairs(self) -> Html:
        """The most frequent confusions."""
        pairs = [
            (count, gold, predicted) for (gold, predicted), count in self.counts.items() if count and gold != predicted
        ]
        most_frequent = sorted(pairs, key=lambda pair: (-pair[0], *pair[1:]))[:MAX_PAIRS]
        if not most_frequent:
            return element("p", "No labels were confused.")

        rows = [
            (
                isolate_label(self.labels[gold]),
                isolate_label(self.labels[predicted]),
                f"{count:,}",
                f"{count / self._num_gold[gold]:.1%}",
            )
            for count, gold, predicted in most_frequent
        ]
        head = ["Gold", "Predicted", "Texts", "Of gold"]
        return table(f"The {len(most_frequent)} most frequent of {len(pairs)} confusions.", head, rows, words=2)


def _cell(count: int, total: int, *, correct: bool) -> Html:
    fraction = count / total if total else 0.0
    return element(
        "td.right" if correct else "td.wrong",
        f"{count:,}",
        element("span.spread", f"{fraction:.1%}"),
        attributes={"style": f"--share: {fraction:.3f}"},
    )


@dataclass(frozen=True)
class LabelScore:
    """Precision, recall and F1 of a label. support: number of texts with this gold label."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int

    @staticmethod
    def from_counts(label: str, correct: int, gold: int, predicted: int) -> "LabelScore":
        """From numbers of texts: with this label rightly predicted, with this gold label, with this predicted label."""
        return LabelScore(
            label=label,
            precision=correct / max(1, predicted),
            recall=correct / max(1, gold),
            f1=2 * correct / max(1, gold + predicted),
            support=gold,
        )

    @property
    def interval(self) -> str:
        """Wilson's 95 % interval of F1, over as many trials as the label is gold or predicted, on average."""
        trials = self.recall * self.support / self.f1 if self.f1 > 0 else self.support / 2
        low, high = wilson_interval(self.f1 * trials, trials)
        return f"{low:.0%} to {high:.0%}"


@dataclass(frozen=True)
class LabelScores(Section):
    """F1, precision and recall of every label: the lowest F1 first, and last the labels without a gold text."""

    scores: Sequence[LabelScore]
    heading = "Labels"

    @property
    def wide(self) -> bool:
        longest = max((len(score.label) for score in self.scores), default=0)
        return len(self.scores) > MAX_HALF or longest > MAX_HALF_NAME

    def body(self) -> Html:
        # Among equals, the label with more texts is the safer finding.
        ordered = sorted(self.scores, key=lambda score: (score.support == 0, score.f1, -score.support))

        rows = [
            (
                isolate_label(score.label),
                _gauge(score.f1),
                score.interval,
                data_element(score.precision, "share"),
                data_element(score.recall, "share"),
                f"{score.support:,}",
            )
            for score in ordered
        ]

        caption = "Precision: correct share of predictions. Recall: share of gold labels found. Support: gold labels."
        if len(rows) > 1:
            caption = f"Lowest F1 first. {caption}"
        head = ["Label", "F1", "95 % of F1", "Precision", "Recall", "Support"]
        return table(caption, head, rows, full=self.wide)


def _gauge(value: float) -> Html:
    style = f"--share: {max(0.0, value):.3f}"
    return element("span.gauge", data_element(value, "share"), attributes={"style": style})
