"""Predictions against the truth as a picture: is it as often right as it says; are its numbers near."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bothways.metrics.classification import Bin
from bothways.report.chart import axis, dot, label, line, plot, shown
from bothways.report.markup import Html, element, figure, join, table

SIZE = (340, 330)  # of a picture; ACROSS and DOWN are where its axes lie
ACROSS, DOWN = (46.0, 320.0), (288.0, 24.0)
MOST_DOTS = 2000


@dataclass(frozen=True)
class ReliabilityDiagram:
    """Is it right as often as it says (Guo 2017)? `ece` is the expected calibration error over the bins."""

    bins: Sequence[Bin]
    ece: float
    heading: ClassVar[str] = "Reliability"
    wide: ClassVar[bool] = False

    def body(self) -> Html:
        rows = [
            (figure(one.confidence, "share"), figure(one.accuracy, "share"), f"{one.count:,}")
            for one in self.bins
            if one.count
        ]
        if not rows:
            return element("p", "There are no predictions.")
        words = (
            f"Expected calibration error {self.ece:.1%}. A dot is a group of predictions, larger where there are more; "
            "on the dashed line it is right exactly as often as it says."
        )
        numbers = table("Groups of predictions.", ["Certainty", "Right", "Predictions"], rows)
        details = element("details", element("summary", "The same in numbers"), numbers)
        return join((shown(self._picture(words), words), details))

    def _picture(self, words: str) -> Html:
        bins = [one for one in self.bins if one.count]
        low = min(value for one in bins for value in (one.confidence, one.accuracy))
        most = max(one.count for one in bins)
        x, y = axis("certainty", [low, 1.0], ACROSS, "share"), axis("share that is right", [low, 1.0], DOWN, "share")
        found = [line((x.start, y.start), (x.end, y.end), "even")]
        for one in bins:
            place = (x.at(one.confidence), y.at(one.accuracy))
            found.append(line((place[0], y.at(one.confidence)), place, "gap"))
            told = f"{one.count:,} predictions, {one.confidence:.1%} certain, {one.accuracy:.1%} right"
            found.append(dot(place, "series0", radius=3 + 7 * (one.count / most) ** 0.5, told=told))
        found.append(label((x.start + 10, y.end + 18), "right more often than it says", "name"))
        found.append(label((x.end - 8, y.start - 12), "right less often", "end.name"))
        return plot("Reliability diagram", words, x, y, *found, size=SIZE)


@dataclass(frozen=True)
class ScatterPlot:
    """Gold and predicted numbers, in the same order."""

    gold: Sequence[float]
    predicted: Sequence[float]
    heading: ClassVar[str] = "Predicted and gold"
    wide: ClassVar[bool] = False

    def body(self) -> Html:
        given = list(zip(self.gold, self.predicted, strict=True))
        pairs = [pair for pair in given if all(map(math.isfinite, pair))]
        if not pairs:
            return element("p", "There are no numbers to compare.")
        every = math.ceil(len(pairs) / MOST_DOTS)
        words = f"Each dot is a text; on the dashed line the prediction is exact. {len(pairs):,} texts"
        words += "." if every == 1 else f", of which one in {every} is drawn."
        if len(pairs) < len(given):
            words += f" {len(given) - len(pairs):,} predictions that are no numbers are left out."
        values = [value for pair in pairs for value in pair]
        x, y = axis("gold", values, ACROSS), axis("predicted", values, DOWN)
        exact = line((x.start, y.start), (x.end, y.end), "even")
        dots = (dot((x.at(gold), y.at(predicted)), "point", radius=2.5) for gold, predicted in pairs[::every])
        return shown(plot("Predicted against gold", words, x, y, *dots, exact, size=SIZE), words)
