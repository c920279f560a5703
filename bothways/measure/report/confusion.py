"""Confusion matrix of a classifier; precision, recall and F1 of each label."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bothways.measure.metrics.intervals import wilson_interval
from bothways.measure.report.markup import Html, Section, data_element, element, isolate, join, scroll_frame, table

MAX_LABELS = 20  # beyond that a matrix is hard to read
MAX_PAIRS = 10


@dataclass(frozen=True)
class ConfusionMatrix(Section):
    """counts: number of texts by (gold, predicted) label indices. Sparse, since with many labels most pairs are 0."""

    labels: Sequence[str]
    counts: Mapping[tuple[int, int], int]
    heading = "Confusion matrix"

    @staticmethod
    def from_names(labels: Sequence[str], gold: Iterable[str], predicted: Iterable[str]) -> "ConfusionMatrix":
        """From the gold and predicted label of each text."""
        index_by_label = {label: index for index, label in enumerate(labels)}
        indices = (map(index_by_label.__getitem__, names) for names in (gold, predicted))
        return ConfusionMatrix(labels, Counter(zip(*indices, strict=True)))

    @property
    def scores(self) -> list["LabelScore"]:
        num_right = [self.counts.get((index, index), 0) for index in range(len(self.labels))]
        return [*map(LabelScore.from_counts, self.labels, num_right, self._num_gold, self._sums(1))]

    @cached_property
    def _num_gold(self) -> list[int]:
        return self._sums(0)

    def _sums(self, axis: int) -> list[int]:
        sums = [0] * len(self.labels)
        for pair, count in self.counts.items():
            sums[pair[axis]] += count
        return sums

    @property
    def wide(self) -> bool:
        return len(self.labels) > 4

    def body(self) -> Html:
        matrix = self._matrix() if len(self.labels) <= MAX_LABELS else Html()
        return join((matrix, self._pairs() if len(self.labels) > 2 else Html()))

    def _matrix(self) -> Html:
        caption = "Rows: gold labels. Columns: predicted labels. Percentages are of the row. Correct cells are framed."
        columns = [element("th", isolate(name), attributes={"scope": "col"}) for name in self.labels]
        corner = element("th", "gold", element("span.spread", "predicted →"), attributes={"scope": "col"})
        head = element("thead", element("tr", corner, *columns))
        body = element("tbody", *map(self._row, range(len(self.labels))))
        return scroll_frame(caption, element("table.matrix", head, body))

    def _row(self, gold: int) -> Html:
        counts = [self.counts.get((gold, predicted), 0) for predicted in range(len(self.labels))]
        total = self._num_gold[gold]
        head = element(
            "th.words", isolate(self.labels[gold]), element("span.spread", f"{total:,}"), attributes={"scope": "row"}
        )
        cells = (_cell(count, total, correct=predicted == gold) for predicted, count in enumerate(counts))
        return element("tr", head, *cells)

    def _pairs(self) -> Html:
        """The most frequent confusions."""
        pairs = [(count, *pair) for pair, count in self.counts.items() if count and pair[0] != pair[1]]
        most_frequent = sorted(pairs, key=lambda pair: (-pair[0], *pair[1:]))[:MAX_PAIRS]
        if not most_frequent:
            return element("p", "No labels were confused.")
        rows = [
            (
                isolate(self.labels[gold]),
                isolate(self.labels[predicted]),
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
    """support: number of texts with this gold label."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int

    @staticmethod
    def from_counts(label: str, correct: int, gold: int, predicted: int) -> "LabelScore":
        precision, recall = correct / max(1, predicted), correct / max(1, gold)
        return LabelScore(label, precision, recall, 2 * correct / max(1, gold + predicted), gold)

    @property
    def interval(self) -> str:
        """Wilson's 95 % interval of F1, over as many trials as the label is gold or predicted, on average."""
        trials = self.recall * self.support / self.f1 if self.f1 > 0 else self.support / 2
        low, high = wilson_interval(self.f1 * trials, trials)
        return f"{low:.0%} to {high:.0%}"


@dataclass(frozen=True)
class LabelScores(Section):
    """Precision, recall and F1 of every label."""

    scores: Sequence[LabelScore]
    heading = "Labels"
    wide = False

    def body(self) -> Html:
        rows = [
            (
                isolate(score.label),
                *(data_element(value, "share") for value in (score.precision, score.recall)),
                _gauge(score.f1),
                score.interval,
                f"{score.support:,}",
            )
            for score in self.scores
        ]
        caption = "Precision: correct share of predictions. Recall: share of gold labels found. Support: gold labels."
        return table(caption, ["Label", "Precision", "Recall", "F1", "95 % of F1", "Support"], rows)


def _gauge(value: float) -> Html:
    return element("span.gauge", data_element(value, "share"), attributes={"style": f"--share: {max(0.0, value):.3f}"})
