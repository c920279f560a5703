"""Curves of a run: training, learning rates per layer, text lengths; reliability (calibration), predicted numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from bothways.errors import format_count
from bothways.measure.metrics.classification import Bin
from bothways.measure.report.chart import CHARACTER_WIDTH, bar, build_axis, dot, figure, label, line, line_series, plot
from bothways.measure.report.markup import (
    Html,
    Section,
    Unit,
    data_element,
    element,
    format_number,
    join,
    table,
)

SIZE = (340, 236)  # size of a chart
X_RANGE, Y_RANGE = (46.0, 320.0), (196.0, 24.0)  # ranges of its axes
MAX_POINTS = 40  # longer lines are downsampled
MAX_DOTS = 30
MAX_BARS = 30

Points = list[tuple[float, float]]
SQUARE, SQUARE_Y = (340, 330), (288.0, 24.0)  # of a square chart
MAX_SCATTERED = 2000


@dataclass(frozen=True)
class TrainingCurves(Section):
    """Loss and metric over steps. rows: of metrics.jsonl, with step, split ("train" or "heldout"), loss, perhaps seed
    or fold, and the metric on held-out rows. metric: its key; name: its title; heldout: the name of that split."""

    rows: Sequence[Mapping[str, Any]]
    metric: str
    name: str
    unit: Unit = "share"
    heldout: str = "dev"
    heading = "Training"

    def body(self) -> Html:
        panels: tuple[tuple[str, str, str, Unit], ...] = (
            ("Loss, training", "train", "loss", "number"),
            (f"Loss, {self.heldout}", "heldout", "loss", "number"),
            (f"{self.name}, {self.heldout}", "heldout", self.metric, self.unit),
        )
        has_steps = any(row["step"] for row in self.rows)
        charts = [_panel(name, self._series(split, key), unit) for name, split, key, unit in panels if has_steps]
        if not any(charts):
            return element("p", "No steps were recorded.")
        return element("div.pictures", *charts)

    def _series(self, split: str, key: str) -> dict[str, Points]:
        """The recorded (step, value) points by the name of the seed or fold."""
        series: dict[str, Points] = {}
        for row in self.rows:
            if row["split"] == split and key in row:
                name = f"fold {row['fold'] + 1}" if "fold" in row else f"seed {row.get('seed', 0)}"
                series.setdefault(name, []).append((row["step"], row[key]))
        return series


def _panel(name: str, series: Mapping[str, Points], unit: Unit) -> Html:
    """A chart with a labelled line for each seed. Non-finite values are left out and counted."""
    finite = {seed: [point for point in points if math.isfinite(point[1])] for seed, points in series.items()}
    num_omitted = sum(map(len, series.values())) - sum(map(len, finite.values()))
    drawn = [(seed, downsample(points)) for seed, points in finite.items() if points]
    notes = [f"{name}: {num_omitted:,} non-finite values are left out."] if num_omitted else []
    if not drawn:
        return join(element("p", note) for note in notes)
    steps, values = zip(*(point for _, points in drawn for point in points), strict=True)
    label_width = 12 + CHARACTER_WIDTH * max(len(seed) for seed, _ in drawn)
    x_range = (X_RANGE[0], SIZE[0] - label_width)
    x = replace(build_axis("step", [0, *steps], x_range, max_ticks=4), high=max(steps))
    y = build_axis(name, values, Y_RANGE, unit)
    longest = max(map(len, finite.values()))
    if longest > MAX_POINTS:
        notes.append(f"Each point is the mean of up to {math.ceil(longest / MAX_POINTS)} records.")
    ends = "; ".join(
        f"{seed} ends at {format_number(points[-1][1], unit)}" for seed, points in finite.items() if points
    )
    lines = line_series(drawn, x, y, dots=longest <= MAX_DOTS)
    return figure(plot(name, f"Lines over steps: {ends}.", x, y, lines, size=SIZE), " ".join(notes))


def downsample(points: Points) -> Points:
    """At most MAX_POINTS points, each the mean of neighbours; the group sizes differ by one at most."""
    num_groups = min(len(points), MAX_POINTS)
    bounds = [group * len(points) // max(1, num_groups) for group in range(num_groups + 1)]
    groups = [points[start:end] for start, end in pairwise(bounds)]
    return [(fmean(step for step, _ in group), fmean(value for _, value in group)) for group in groups]


@dataclass(frozen=True)
class TokenLengths(Section):
    """A histogram of the number of tokens per text, special tokens included. Longer texts than `window` are split into
    windows, or truncated if `truncated`."""

    split: str
    sizes: Sequence[int]
    window: int
    truncated: bool = False
    heading = "Lengths"
    wide = False

    def body(self) -> Html:
        if not self.sizes:
            return element("p", f"The {self.split} split has no texts.")
        num_longer = sum(size > self.window for size in self.sizes)
        caption = f"{format_count(len(self.sizes), 'text')} of {self.split}: median {median(self.sizes):,.0f} tokens, "
        caption += f"longest {max(self.sizes):,}. "
        if num_longer:
            caption += f"{num_longer:,} ({num_longer / len(self.sizes):.1%}) are longer than {self.window:,} tokens "
            caption += "and are truncated." if self.truncated else "and are split into windows."
        else:
            caption += f"All fit into a window of {self.window:,} tokens."
        width, counts = histogram(self.sizes)
        if max(self.sizes) >= width * len(counts):
            caption += f" The last bar includes all longer texts, from {width * (len(counts) - 1):,} tokens on."
        return figure(self._chart(width, counts, caption), caption)

    def _chart(self, width: int, counts: Sequence[int], description: str) -> Html:
        end = width * len(counts)
        x = replace(build_axis("tokens", [0, end], X_RANGE, max_ticks=5), high=end)
        y = build_axis("texts", [0, max(counts)], Y_RANGE, max_ticks=4)
        shapes = []
        for left, count in zip(range(0, end, width), counts, strict=True):
            style = "over" if left >= self.window else "within"
            tooltip = f"from {left:,} tokens: {format_count(count, 'text')}"
            shapes.append(bar(x.at(left), x.at(left + width), y.at(count), y.start, style, tooltip))
        if self.window <= end:
            position = x.at(self.window)
            anchor, offset = ("end", -5) if position > SIZE[0] / 2 else ("start", 5)
            shapes.append(line((position, y.start), (position, y.end), "mark"))
            shapes.append(label((position + offset, y.end + 8), f"window {self.window:,}", anchor))
        return plot("Lengths in tokens", description, x, y, *shapes, size=SIZE)


def histogram(sizes: Sequence[int]) -> tuple[int, list[int]]:
    """(width, counts) of about MAX_BARS bars at most, of equal, round width. The last includes the longest 1 %."""
    percentile_99 = sorted(sizes)[math.ceil(0.99 * len(sizes)) - 1]
    width = max(1, round(build_axis("", [0, percentile_99], X_RANGE, max_ticks=MAX_BARS).step))
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
            position = (x.at(bin.confidence), y.at(bin.accuracy))
            shapes.append(line((position[0], y.at(bin.confidence)), position, "gap"))
            tooltip = f"{bin.count:,} predictions, confidence {bin.confidence:.1%}, accuracy {bin.accuracy:.1%}"
            radius = 3 + 7 * (bin.count / max_count) ** 0.5
            shapes.append(dot(position, "series0", radius=radius, tooltip=tooltip))
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
        values = [value for pair in pairs for value in pair]
        x, y = build_axis("gold", values, X_RANGE), build_axis("predicted", values, SQUARE_Y)
        exact = line((x.start, y.start), (x.end, y.end), "even")
        dots = (dot((x.at(gold), y.at(predicted)), "point", radius=2.5) for gold, predicted in pairs[::every])
        return figure(plot("Predicted against gold", caption, x, y, *dots, exact, size=SQUARE), caption)
