"""Reliability diagram (calibration), and scatter plot of predicted and gold numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bothways.errors import format_count
from bothways.metrics.classification import Bin
from bothways.report.chart import build_axis, dot, figure, label, line, plot
from bothways.report.markup import Html, data_element, element, join, table

SIZE = (340, 330)  # size of a chart
X_RANGE, Y_RANGE = (46.0, 320.0), (288.0, 24.0)  # ranges of its axes
MAX_DOTS = 2000


@dataclass(frozen=True)
class ReliabilityDiagram:
    """Accuracy by confidence (Guo 2017). ece: expected calibration error over the bins."""

    bins: Sequence[Bin]
    ece: float
    heading: ClassVar[str] = "Reliability"
    wide: ClassVar[bool] = False

    def body(self) -> Html:
        rows = [
            (data_element(bin.confidence, "share"), data_element(bin.accuracy, "share"), f"{bin.count:,}")
            for bin in self.bins
            if bin.count
        ]
        if not rows:
            return element("p", "There are no predictions.")
        caption = (
            f"Expected calibration error: {self.ece:.1%}. Each dot is a bin of predictions; larger dots have more. On "
            "the dashed line, accuracy equals confidence."
        )
        numbers = table("Predictions by confidence.", ["Confidence", "Accuracy", "Predictions"], rows)
        details = element("details", element("summary", "Show the numbers"), numbers)
        return join((figure(self._chart(caption), caption), details))

    def _chart(self, description: str) -> Html:
        bins = [bin for bin in self.bins if bin.count]
        low = min(value for bin in bins for value in (bin.confidence, bin.accuracy))
        max_count = max(bin.count for bin in bins)
        x = build_axis("confidence", [low, 1.0], X_RANGE, "share")
        y = build_axis("accuracy", [low, 1.0], Y_RANGE, "share")
        shapes = [line((x.start, y.start), (x.end, y.end), "even")]
        for bin in bins:
            position = (x.at(bin.confidence), y.at(bin.accuracy))
            shapes.append(line((position[0], y.at(bin.confidence)), position, "gap"))
            tooltip = f"{bin.count:,} predictions, confidence {bin.confidence:.1%}, accuracy {bin.accuracy:.1%}"
            radius = 3 + 7 * (bin.count / max_count) ** 0.5
            shapes.append(dot(position, "series0", radius=radius, tooltip=tooltip))
        shapes.append(label((x.start + 10, y.end + 18), "underconfident", "name"))
        shapes.append(label((x.end - 8, y.start - 12), "overconfident", "end.name"))
        return plot("Reliability diagram", description, x, y, *shapes, size=SIZE)


@dataclass(frozen=True)
class ScatterPlot:
    """Gold and predicted numbers, in the same order."""

    gold: Sequence[float]
    predicted: Sequence[float]
    heading: ClassVar[str] = "Predicted and gold"
    wide: ClassVar[bool] = False

    def body(self) -> Html:
        all_pairs = list(zip(self.gold, self.predicted, strict=True))
        pairs = [pair for pair in all_pairs if all(map(math.isfinite, pair))]
        if not pairs:
            return element("p", "There are no numbers to compare.")
        every = math.ceil(len(pairs) / MAX_DOTS)
        caption = f"Each dot is a text; on the dashed line the prediction is exact. {format_count(len(pairs), 'text')}"
        caption += "." if every == 1 else f"; one in {every} is drawn."
        if len(pairs) < len(all_pairs):
            caption += f" {len(all_pairs) - len(pairs):,} non-finite predictions are left out."
        values = [value for pair in pairs for value in pair]
        x, y = build_axis("gold", values, X_RANGE), build_axis("predicted", values, Y_RANGE)
        exact = line((x.start, y.start), (x.end, y.end), "even")
        dots = (dot((x.at(gold), y.at(predicted)), "point", radius=2.5) for gold, predicted in pairs[::every])
        return figure(plot("Predicted against gold", caption, x, y, *dots, exact, size=SIZE), caption)
