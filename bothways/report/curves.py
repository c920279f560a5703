"""How the training went: curves, layer-wise rates, and how long the texts are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median
from typing import Any, ClassVar

from bothways.report.chart import LETTER, axis, bar, label, line, lines, plot, shown
from bothways.report.markup import Html, Unit, element, isolated, join, table, written

SIZE = (340, 236)  # of a picture; ACROSS and DOWN are where its axes lie
ACROSS, DOWN = (46.0, 320.0), (196.0, 24.0)
MOST_POINTS = 40  # a line of more is drawn through means of neighbours
MOST_DOTS = 30
BARS = 30

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class TrainingCurves:
    """Rows of metrics.jsonl: step, split ("train" or "heldout"), loss, perhaps seed; held-out ones also the metric."""

    rows: Sequence[Mapping[str, Any]]
    metric: str  # its key in the rows
    name: str
    unit: Unit = "share"
    heldout: str = "dev"
    heading: ClassVar[str] = "Training"
    wide: ClassVar[bool] = True

    def body(self) -> Html:
        asked: tuple[tuple[str, str, str, Unit], ...] = (
            ("Loss, training", "train", "loss", "number"),
            (f"Loss, {self.heldout}", "heldout", "loss", "number"),
            (f"{self.name}, {self.heldout}", "heldout", self.metric, self.unit),
        )
        trained = any(row["step"] for row in self.rows)
        pictures = [_panel(name, self._series(split, key), unit) for name, split, key, unit in asked if trained]
        if not any(pictures):
            return element("p", "No steps were recorded.")
        return element("div.pictures", *pictures)

    def _series(self, split: str, key: str) -> dict[str, Points]:
        """The recorded (step, value) of each seed or fold, by its name."""
        found: dict[str, Points] = {}
        for row in self.rows:
            if row["split"] == split and key in row:
                name = f"fold {row['fold'] + 1}" if "fold" in row else f"seed {row.get('seed', 0)}"
                found.setdefault(name, []).append((row["step"], row[key]))
        return found


def _panel(name: str, series: Mapping[str, Points], unit: Unit) -> Html:
    """A line a seed, with room for its name at its end; what is not a number is left out and counted."""
    sound = {seed: [point for point in points if math.isfinite(point[1])] for seed, points in series.items()}
    broken = sum(map(len, series.values())) - sum(map(len, sound.values()))
    drawn = [(seed, thinned(points)) for seed, points in sound.items() if points]
    notes = [f"{name}: {broken:,} values that are no numbers are left out."] if broken else []
    if not drawn:
        return join(element("p", note) for note in notes)
    steps, values = zip(*(point for _, points in drawn for point in points), strict=True)
    room = 12 + LETTER * max(len(seed) for seed, _ in drawn)
    x = replace(axis("step", [0, *steps], (ACROSS[0], SIZE[0] - room), most=4), high=max(steps))
    y = axis(name, values, DOWN, unit)
    most = max(map(len, sound.values()))
    if most > MOST_POINTS:
        notes.append(f"Each point is the mean of up to {math.ceil(most / MOST_POINTS)} records.")
    ends = "; ".join(f"{seed} ends at {written(points[-1][1], unit)}" for seed, points in sound.items() if points)
    drawing = lines(drawn, x, y, dots=most <= MOST_DOTS)
    return shown(plot(name, f"Lines over steps: {ends}.", x, y, drawing, size=SIZE), " ".join(notes))


def thinned(points: Points) -> Points:
    """At most MOST_POINTS, each the mean of a run of neighbours, their lengths one apart at most."""
    number = min(len(points), MOST_POINTS)
    bounds = [part * len(points) // max(1, number) for part in range(number + 1)]
    parts = [points[start:end] for start, end in pairwise(bounds)]
    return [(fmean(step for step, _ in part), fmean(value for _, value in part)) for part in parts]


@dataclass(frozen=True)
class LearningRates:
    """The learning rate of each part of the model, from the input to the head: (name, rate, parameters); rate 0 is
    frozen."""

    rates: Sequence[tuple[str, float, int]]
    heading: ClassVar[str] = "Learning rates"
    wide: ClassVar[bool] = False

    def body(self) -> Html:
        rows = [
            (isolated(name), f"{rate:.2e}" if rate else "frozen", f"{parameters:,}")
            for name, rate, parameters in self.rates
        ]
        total = sum(parameters for _, _, parameters in self.rates)
        return table(f"Peak rate of each part; {total:,} parameters.", ["Part", "Rate", "Parameters"], rows)


@dataclass(frozen=True)
class TokenLengths:
    """How many tokens the texts of a split have, specials included; longer ones than `window` are read in windows,
    or `cut` there."""

    split: str
    sizes: Sequence[int]
    window: int
    cut: bool = False
    heading: ClassVar[str] = "Lengths"
    wide: ClassVar[bool] = False

    def body(self) -> Html:
        if not self.sizes:
            return element("p", f"There are no texts of {self.split}.")
        longer = sum(size > self.window for size in self.sizes)
        words = f"{len(self.sizes):,} texts of {self.split}: median {median(self.sizes):,.0f} tokens, "
        words += f"longest {max(self.sizes):,}. "
        if longer:
            words += f"{longer:,} ({longer / len(self.sizes):.1%}) are longer than {self.window:,} tokens and are "
            words += "cut there." if self.cut else "read in windows; none is cut."
        else:
            words += f"All fit into one window of {self.window:,}."
        width, counts = histogram(self.sizes)
        if max(self.sizes) >= width * len(counts):
            words += f" The last bar holds all of {width * (len(counts) - 1):,} or more."
        return shown(self._picture(width, counts, words), words)

    def _picture(self, width: int, counts: Sequence[int], words: str) -> Html:
        edge = width * len(counts)
        x = replace(axis("tokens", [0, edge], ACROSS, most=5), high=edge)
        y = axis("texts", [0, max(counts)], DOWN, most=4)
        shapes = []
        for left, count in zip(range(0, edge, width), counts, strict=True):
            style = "over" if left >= self.window else "within"
            told = f"from {left:,} tokens: {count:,} texts"
            shapes.append(bar(x.at(left), x.at(left + width), y.at(count), y.start, style, told))
        if self.window <= edge:
            place = x.at(self.window)
            side, away = ("end", -5) if place > SIZE[0] / 2 else ("start", 5)
            shapes.append(line((place, y.start), (place, y.end), "mark"))
            shapes.append(label((place + away, y.end + 8), f"window {self.window:,}", side))
        return plot("Lengths in tokens", words, x, y, *shapes, size=SIZE)


def histogram(sizes: Sequence[int]) -> tuple[int, list[int]]:
    """(width, counts) of at most about BARS bars of equal, round width; the last also holds the longest hundredth."""
    usual = sorted(sizes)[math.ceil(0.99 * len(sizes)) - 1]
    width = max(1, round(axis("", [0, usual], ACROSS, most=BARS).step))
    counts = [0] * (usual // width + 1)
    for size in sizes:
        counts[min(size // width, len(counts) - 1)] += 1
    return width, counts
