"""Charts of a run: learning rates per layer, text lengths; reliability (calibration), predicted numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from bothways.base.errors import format_count
from bothways.measure.metrics.classification import Bin
from bothways.measure.report.chart import bar, build_axis, dot, figure, label, line, plot
from bothways.measure.report.markup import Html, Section, data_element, element, join, table

# Size of a chart, and the ranges of its axes.
SIZE = (340, 236)
X_RANGE = (46.0, 320.0)
Y_RANGE = (196.0, 24.0)
# Size of a square chart, and the range of its second axis.
SQUARE = (340, 330)
SQUARE_Y = (288.0, 24.0)

MAX_BARS = 30
MAX_SCATTERED = 2000


@dataclass(frozen=True)
class TokenLengths(Section):
    """A histogram of the number of tokens per text, special tokens included.

    split: the name of the split.
    sizes: the number of tokens of each text.
    window: longer texts are split into windows of so many tokens.
    truncated: longer texts are truncated instead.
    """

    split: str
    sizes: Sequence[int]
    window: int
    truncated: bool = False
    heading = "Lengths"
    wide = False

    def body(self) -> Html:
        if not self.sizes:
            return element("p", f"The {self.split} split has no texts.")

        width, counts = histogram(self.sizes)
        caption = self._caption(last_bar=width * (len(counts) - 1), end=width * len(counts))
        return figure(self._chart(width, counts, caption), caption)

    def _caption(self, *, last_bar: int, end: int) -> str:
        """last_bar, end: the tokens at which the last bar starts and ends."""
        count = format_count(len(self.sizes), "text")
        longest = max(self.sizes)
        caption = f"{count} of {self.split}: median {median(self.sizes):,.0f} tokens, longest {longest:,}. "

        num_longer = sum(size > self.window for size in self.sizes)
        if num_longer:
            share = num_longer / len(self.sizes)
            caption += f"{num_longer:,} ({share:.1%}) are longer than {self.window:,} tokens "
            caption += "and are truncated." if self.truncated else "and are split into windows."
        else:
            caption += f"All fit into a window of {self.window:,} tokens."

        if longest >= end:
            caption += f" The last bar includes all longer texts, from {last_bar:,} tokens on."
        return caption

    def _chart(self, width: int, counts: Sequence[int], description: str) -> Html:
        end = width * len(counts)
        x = replace(build_axis("tokens", [0, end], X_RANGE, max_ticks=5), high=end)
        y = build_axis("texts", [0, max(counts)], Y_RANGE, max_ticks=4)

        shapes = []
        for left, count in zip(range(0, end, width), counts, strict=True):
            shapes.append(
                bar(
                    x.at(left),
                    x.at(left + width),
                    y.at(count),
                    bottom=y.start,
                    style="over" if left >= self.window else "within",
                    tooltip=f"from {left:,} tokens: {format_count(count, 'text')}",
                )
            )

        if self.window <= end:
            position = x.at(self.window)
            shapes.append(line((position, y.start), (position, y.end), "mark"))
            # The words stand on the side that has more room.
            anchor, offset = ("end", -5) if position > SIZE[0] / 2 else ("start", 5)
            shapes.append(label((position + offset, y.end + 8), f"window {self.window:,}", anchor))
        return plot("Lengths in tokens", description, x, y, *shapes, size=SIZE)


def histogram(sizes: Sequence[int]) -> tuple[int, list[int]]:
    """(width, counts) of about MAX_BARS bars at most, of equal, round width. The last includes the longest 1 %."""
    percentile_99 = sorted(sizes)[math.ceil(0.99 * len(sizes)) - 1]
    axis = build_axis("", [0, percentile_99], X_RANGE, max_ticks=MAX_BARS)
    width = max(1, round(axis.step))

    counts = [0] * (percentile_99 // width + 1)
    for size in sizes:
        counts[min(size // width, len(counts) - 1)] += 1
    return width, counts


@dataclass(frozen=True)
class ReliabilityDiagram(Section):
    """Accuracy by confidence (Guo 2017). ece: expected calibration error over the bins."""

    bins: Sequence[Bin]
    ece: float
    heading = "Reliability"
    wide = False

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
        y = build_axis("accuracy", [low, 1.0], SQUARE_Y, "share")
        shapes = [line((x.start, y.start), (x.end, y.end), "even")]

        for bin in bins:
            left = x.at(bin.confidence)
            top = y.at(bin.accuracy)
            shapes.append(line((left, y.at(bin.confidence)), (left, top), "gap"))
            radius = 3 + 7 * (bin.count / max_count) ** 0.5  # the area of a dot grows with its predictions
            tooltip = f"{bin.count:,} predictions, confidence {bin.confidence:.1%}, accuracy {bin.accuracy:.1%}"
            shapes.append(dot((left, top), "series0", radius=radius, tooltip=tooltip))

        shapes.append(label((x.start + 10, y.end + 18), "underconfident", "name"))
        shapes.append(label((x.end - 8, y.start - 12), "overconfident", "end.name"))
        return plot("Reliability diagram", description, x, y, *shapes, size=SQUARE)


@dataclass(frozen=True)
class ScatterPlot(Section):
    """Gold and predicted numbers, in the same order."""

    gold: Sequence[float]
    predicted: Sequence[float]
    heading = "Predicted and gold"
    wide = False

    def body(self) -> Html:
        all_pairs = list(zip(self.gold, self.predicted, strict=True))
        pairs = [pair for pair in all_pairs if all(map(math.isfinite, pair))]
        if not pairs:
            return element("p", "There are no numbers to compare.")

        every = math.ceil(len(pairs) / MAX_SCATTERED)
        caption = f"Each dot is a text; on the dashed line the prediction is exact. {format_count(len(pairs), 'text')}"
        caption += "." if every == 1 else f"; one in {every} is drawn."
        if len(pairs) < len(all_pairs):
            caption += f" {len(all_pairs) - len(pairs):,} non-finite predictions are left out."

        # Both axes have the same ends, so that the line of exact predictions is the diagonal.
        values = [value for pair in pairs for value in pair]
        x = build_axis("gold", values, X_RANGE)
        y = build_axis("predicted", values, SQUARE_Y)
        exact = line((x.start, y.start), (x.end, y.end), "even")
        dots = []
        for gold, predicted in pairs[::every]:
            dots.append(dot((x.at(gold), y.at(predicted)), "point", radius=2.5))
        return figure(plot("Predicted against gold", caption, x, y, *dots, exact, size=SQUARE), caption)
