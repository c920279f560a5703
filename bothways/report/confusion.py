"""Which labels a classifier confuses, and how it does on each."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from bothways.metrics.intervals import wilson_interval
from bothways.report.markup import Html, element, figure, isolated, join, scrolling, table

MOST_LABELS = 20  # of a matrix that can be read
MOST_PAIRS = 10


@dataclass(frozen=True)
class ConfusionMatrix:
    """How often each label was taken for which, by the places (gold, predicted) of both; pairs that never were are not
    there, since of very many labels nearly all are not."""

    labels: Sequence[str]
    counts: Mapping[tuple[int, int], int]
    heading: ClassVar[str] = "Confusion matrix"

    @staticmethod
    def from_indices(labels: Sequence[str], gold: Iterable[int], predicted: Iterable[int]) -> "ConfusionMatrix":
        """From the labels' places."""
        return ConfusionMatrix(labels, Counter(zip(gold, predicted, strict=True)))

    @property
    def scores(self) -> list["LabelScore"]:
        """Those of each label."""
        return [
            LabelScore.from_counts(label, self.counts.get((place, place), 0), self._gold[place], self._given[place])
            for place, label in enumerate(self.labels)
        ]

    @cached_property
    def _gold(self) -> list[int]:
        return self._sums(0)

    @cached_property
    def _given(self) -> list[int]:
        return self._sums(1)

    def _sums(self, side: int) -> list[int]:
        sums = [0] * len(self.labels)
        for pair, count in self.counts.items():
            sums[pair[side]] += count
        return sums

    @property
    def wide(self) -> bool:
        return len(self.labels) > 4

    def body(self) -> Html:
        matrix = self._matrix() if len(self.labels) <= MOST_LABELS else Html()
        return join((matrix, self._pairs() if len(self.labels) > 2 else Html()))

    def _matrix(self) -> Html:
        caption = (
            "Rows: gold label. Columns: predicted label. Percentages are shares of the row; right answers are framed."
        )
        columns = [element("th", isolated(name), attributes={"scope": "col"}) for name in self.labels]
        corner = element("th", "gold", element("span.spread", "predicted →"), attributes={"scope": "col"})
        head = element("thead", element("tr", corner, *columns))
        body = element("tbody", *map(self._row, range(len(self.labels))))
        return scrolling(caption, element("table.matrix", head, body))

    def _row(self, gold: int) -> Html:
        counts = [self.counts.get((gold, place), 0) for place in range(len(self.labels))]
        total = self._gold[gold]
        head = element(
            "th.words", isolated(self.labels[gold]), element("span.spread", f"{total:,}"), attributes={"scope": "row"}
        )
        return element("tr", head, *(_cell(count, total, right=place == gold) for place, count in enumerate(counts)))

    def _pairs(self) -> Html:
        """The commonest confusions."""
        pairs = [(count, *pair) for pair, count in self.counts.items() if count and pair[0] != pair[1]]
        worst = sorted(pairs, key=lambda pair: (-pair[0], *pair[1:]))[:MOST_PAIRS]
        if not worst:
            return element("p", "No label was taken for another.")
        rows = [
            (
                isolated(self.labels[gold]),
                isolated(self.labels[predicted]),
                f"{count:,}",
                f"{count / self._gold[gold]:.1%}",
            )
            for count, gold, predicted in worst
        ]
        head = ["Gold", "Taken for", "Texts", "Of this label"]
        return table(f"The {len(worst)} commonest of {len(pairs)} kinds of confusion.", head, rows, words=2)


def _cell(count: int, total: int, *, right: bool) -> Html:
    share = count / total if total else 0.0
    return element(
        "td.right" if right else "td.wrong",
        f"{count:,}",
        element("span.spread", f"{share:.1%}"),
        attributes={"style": f"--share: {share:.3f}"},
    )


@dataclass(frozen=True)
class LabelScore:
    label: str
    precision: float
    recall: float
    f1: float
    support: int

    @staticmethod
    def from_counts(label: str, right: int, gold: int, given: int) -> "LabelScore":
        """From how often it was right, is gold, and was given."""
        return LabelScore(label, right / max(1, given), right / max(1, gold), 2 * right / max(1, gold + given), gold)

    @property
    def interval(self) -> str:
        trials = self.recall * self.support / self.f1 if self.f1 > 0 else self.support / 2
        low, high = wilson_interval(self.f1 * trials, trials)
        return f"{low:.0%} to {high:.0%}"


@dataclass(frozen=True)
class LabelScores:
    """Every label by itself; support is how often it is gold. The interval of an F1 is Wilson's, of a share of as many
    decisions as the label was gold or predicted, on average."""

    scores: Sequence[LabelScore]
    heading: ClassVar[str] = "Labels"
    wide: ClassVar[bool] = False

    def body(self) -> Html:
        rows = [
            (
                isolated(one.label),
                *(figure(value, "share") for value in (one.precision, one.recall)),
                _gauge(one.f1),
                one.interval,
                f"{one.support:,}",
            )
            for one in self.scores
        ]
        caption = "Precision: how many of those it names are right. Recall: how many of those there are it finds."
        return table(caption, ["Label", "Precision", "Recall", "F1", "95 % of F1", "Support"], rows)


def _gauge(share: float) -> Html:
    return element("span.gauge", figure(share, "share"), attributes={"style": f"--share: {max(0.0, share):.3f}"})
