"""Training curves (loss, metrics, learning rate): in the report page, and as a separate picture."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from bothways.base.errors import InputError
from bothways.measure.report.chart import (
    COLUMNS,
    NUM_SERIES_STYLES,
    ROW,
    Axis,
    Picture,
    Point,
    build_axis,
    dot,
    draw_picture,
    figure,
    legend,
    plot,
    polyline,
)
from bothways.measure.report.curves import SIZE, X_RANGE, Y_RANGE
from bothways.measure.report.markup import Html, Section, Unit, element, format_number, join

MAX_POINTS = 40  # longer lines of the page are smoothed: raw curves of three seeds covered each other (docs/LOG.md)
MAX_DOTS = 30  # longer lines of the page have no dots
PANEL = (365, 292)  # size of a panel of the picture, with the title above it
TOP = 30  # room for the title
LEFT = 10  # of the first panel
# Records: a smoothed line follows waves longer than 2 pi times this width.
NARROWEST = 1.0
WIDEST = 100.0

Points = list[tuple[float, float]]
MetricRows = Sequence[Mapping[str, Any]]
# A panel: title, key in metrics.jsonl, the key in `levels` of a horizontal line (a baseline), and the unit.
Panel = tuple[str, str, str, Unit]
PRETRAINING: tuple[Panel, ...] = (
    ("Perplexity, held out", "perplexity", "unigram_perplexity", "number"),
    ("Next-sentence accuracy, held out", "next_sentence_accuracy", "chance", "share"),
    ("Sentence-order accuracy, held out", "sentence_order_accuracy", "chance", "share"),
    ("Replaced-token accuracy, held out", "replaced_accuracy", "chance", "share"),
)


@dataclass(frozen=True)
class TrainingCurves(Section):
    """Loss and metric over steps.

    rows: the rows of metrics.jsonl, with step, split ("train" or "heldout"), loss, perhaps seed or fold, and the metric
        on held-out rows.
    metric: the key of the metric.
    name: its title.
    heldout: the name of the held-out split.
    """

    rows: MetricRows
    metric: str
    name: str
    unit: Unit = "share"
    heldout: str = "dev"
    heading: str = "Training"

    def body(self) -> Html:
        charts = []
        if any(row["step"] for row in self.rows):
            charts = [
                _draw_chart(self.rows, "Loss, training", "train", key="loss", unit="number"),
                _draw_chart(self.rows, f"Loss, {self.heldout}", "heldout", key="loss", unit="number"),
                _draw_chart(self.rows, f"{self.name}, {self.heldout}", "heldout", key=self.metric, unit=self.unit),
            ]
        if not any(charts):
            return element("p", "No steps were recorded.")
        return element("div.pictures", *charts)


def _draw_chart(rows: MetricRows, name: str, split: str, *, key: str, unit: Unit) -> Html:
    """A chart with a labelled line for each seed. Non-finite values are left out and counted."""
    series = points_by_seed(rows, split, key)
    finite = {seed: [point for point in points if math.isfinite(point[1])] for seed, points in series.items()}

    notes = []
    num_omitted = sum(map(len, series.values())) - sum(map(len, finite.values()))
    if num_omitted:
        notes.append(f"{name}: {num_omitted:,} non-finite values are left out.")
    finite = {seed: points for seed, points in finite.items() if points}
    if not finite:
        return join(element("p", note) for note in notes)

    longest = max(map(len, finite.values()))
    drawn = finite
    if longest > MAX_POINTS:
        drawn = {seed: smooth(points) for seed, points in finite.items()}
        notes.append("The lines are smoothed.")

    lines = [
        Lines(
            name=seed,
            style=f"series{index % NUM_SERIES_STYLES}",
            all_points=[points],
            has_dots=longest <= MAX_DOTS,
        )
        for index, (seed, points) in enumerate(drawn.items())
    ]

    ends = "; ".join(f"{seed} ends at {format_number(points[-1][1], unit)}" for seed, points in finite.items())
    panel = draw_panel(name, f"Lines over steps: {ends}.", lines, unit=unit)
    return figure(panel, " ".join(notes))


def points_by_seed(rows: MetricRows, split: str, key: str) -> dict[str, Points]:
    """The recorded (step, value) points by the name of the seed or fold."""
    series: dict[str, Points] = {}
    for row in rows:
        if row["split"] == split and key in row:
            name = f"fold {row['fold'] + 1}" if "fold" in row else f"seed {row.get('seed', 0)}"
            series.setdefault(name, []).append((row["step"], row[key]))
    return series


class Lines(NamedTuple):
    """Lines through (step, value) points that look alike, and their name in the legend."""

    name: str
    style: str
    all_points: Sequence[Points]
    has_dots: bool = False


def draw_panel(
    name: str,
    description: str,
    lines: Sequence[Lines],
    unit: Unit,
    *,
    is_log: bool = False,
    corner: Point = (0, 0),
) -> Html:
    """A chart of lines over steps, with a legend. A non-finite value is a gap.

    name: its title.
    description: for screen readers.
    lines: the lines, each with an entry in the legend.
    unit: the unit of their values.
    is_log: whether the axis of the values is logarithmic.
    corner: the upper left corner, in a picture.
    """
    points = [point for line in lines for points in line.all_points for point in points]
    values = [value for _, value in points if math.isfinite(value)] or [1.0]
    last = max(step for step, _ in points)

    x = replace(build_axis("step", [0, last], X_RANGE, max_ticks=4), high=last or 1)
    y = build_axis(name, values, Y_RANGE, unit)
    if is_log:
        y = replace(y, low=0.95 * min(values), high=1.05 * max(values), is_log=True)

    shapes: list[Html] = []
    samples: list[tuple[str, Html]] = []
    for line in lines:
        parts = [part for points in line.all_points for part in finite_parts(points, x, y)]
        shapes += [polyline(thin(part), line.style) for part in parts]
        sample = [polyline([(0, 0), (20, 0)], line.style)]
        if line.has_dots:
            shapes += [dot(position, line.style, radius=2.5) for part in parts for position in part]
            sample.append(dot((10, 0), line.style, radius=2.5))
        samples.append((line.name, join(sample)))

    width, height = SIZE
    names = legend((10, height + 8), samples)
    size = (width, height + ROW * math.ceil(len(lines) / COLUMNS))
    return plot(name, description, x, y, *shapes, names, size=size, corner=corner)


def finite_parts(points: Points, x: Axis, y: Axis) -> Iterator[list[Point]]:
    """The positions of a line, in parts between which values are not finite."""
    for is_finite, part in groupby(points, key=lambda point: math.isfinite(point[1])):
        if is_finite:
            yield [(x.at(step), y.at(value)) for step, value in part]


def thin(positions: Sequence[Point]) -> Iterator[Point]:
    """Of each unit of width the first, highest, lowest and last position, which look like all."""
    for _, group in groupby(positions, key=lambda position: round(position[0])):
        column = [*dict.fromkeys(group)]
        by_height = sorted(column, key=lambda position: position[1])
        seen = (column[0], by_height[0], by_height[-1], column[-1])
        yield from (position for position in column if position in seen)


def draw_curves(
    rows: MetricRows,
    *,
    title: str,
    levels: Mapping[str, float],
    metric: str = "",
    unit: Unit = "share",
) -> Picture:
    """A picture with a panel for each recorded quantity and a line for each seed or fold.

    Training is grey (smoothed: blue), held-out orange.

    rows: the rows of metrics.jsonl.
    title: the title of the picture.
    levels: values that are drawn as horizontal lines, by name; "baseline" is the level of `metric`.
    metric: the key of the metric that fine-tuning selects by; "" for pre-training.
    unit: the unit of the metric.

    InputError if nothing is recorded.
    """
    panels: list[Panel] = [("Loss", "loss", "", "number")]
    if metric:
        panels.append((f"{metric.replace('_', ' ')}, dev", metric, "baseline", unit))
    else:
        panels += PRETRAINING
    panels.append(("Learning rate", "learning_rate", "", "number"))
    panels = [panel for panel in panels if any(panel[1] in row for row in rows)]
    if not panels:
        raise InputError(f"{title}: no metrics to plot")

    width, height = PANEL
    charts = [_draw_panel(panel, rows, levels, left=LEFT + index * width) for index, panel in enumerate(panels)]
    return draw_picture(title, *charts, size=(LEFT + width * len(panels), height))


def _draw_panel(panel: Panel, rows: MetricRows, levels: Mapping[str, float], *, left: float) -> Html:
    name, key, level, unit = panel
    # Losses over candidates are lower than losses over all words: no line leads from one to the other.
    kinds = _divide_by_candidates(rows) if key == "loss" else [rows]
    train = [points for kind in kinds for points in points_by_seed(kind, "train", key).values()]
    heldout = [*points_by_seed(rows, "heldout", key).values()]

    # Of the training curves, only the loss is noisy.
    smoothed = [smooth(points) for points in train] if key == "loss" else []
    flat = []
    if level in levels:
        last = max(row["step"] for row in rows if key in row)
        flat.append([(0, levels[level]), (last, levels[level])])

    lines = [
        Lines("train", "series0" if key == "learning_rate" else "train", train),
        Lines("held out", "heldout", heldout, has_dots=True),
        Lines("smoothed", "series0", smoothed),
        Lines(level.replace("_", " "), "level", flat),
    ]
    lines = [line for line in lines if line.all_points]
    if key == "loss" and any("candidates" in row for row in rows):
        name = f"{name} (training: first over candidates, at last over all words)"
    description = f"Lines over steps: {', '.join(line.name for line in lines)}."
    return draw_panel(name, description, lines, unit=unit, is_log=key == "perplexity", corner=(left, TOP))


def _divide_by_candidates(rows: MetricRows) -> list[list[Mapping[str, Any]]]:
    """The rows of training steps in parts, each with losses over candidates or with losses over all words."""
    train = [row for row in rows if row["split"] == "train"]
    return [list(part) for _, part in groupby(train, key=lambda row: "candidates" in row)]


def smooth(points: Points) -> Points:
    """A smooth line through the middle of a noisy curve: least squares with a penalty on curvature (Whittaker 1923).

    The residuals have mean 0, and straight lines stay as they are, so that unlike a moving average it does not lag
    behind a falling curve. Non-finite values are left out of the fit and are NaN in the result.
    """
    finite = [point for point in points if math.isfinite(point[1])]
    if len(finite) < 4:
        return points

    penalty = min(max(NARROWEST, len(finite) / 30), WIDEST) ** 4
    # I + penalty D'D, where D takes second differences, is factored into L diag(d) L'; L has two diagonals below 1.
    # Two rows of zeros before the first row, so that every row has two neighbours.
    factors = [(0.0, 0.0, 0.0)] * 2
    values = [0.0, 0.0]
    last = len(finite) - 1
    for index, (_, value) in enumerate(finite):
        d_2, _, second_2 = factors[-2]
        d_1, first_1, second_1 = factors[-1]
        # The entries of D'D in this row: on the diagonal, and beside it.
        diagonal = (1, 5, 6)[min(index, last - index, 2)]
        beside = -2 if index in (0, last - 1) else -4
        d = 1 + penalty * diagonal - first_1**2 * d_1 - second_2**2 * d_2
        first = (penalty * beside - d_1 * first_1 * second_1) / d
        second = penalty / d
        factors.append((d, first, second))
        values.append(value - first_1 * values[-1] - second_2 * values[-2])

    # Back from the last row: L' x = values / d.
    smoothed = [0.0, 0.0]
    for (d, first, second), value in zip(factors[:1:-1], values[:1:-1], strict=True):
        smoothed.append(value / d - first * smoothed[-1] - second * smoothed[-2])

    steps = [step for step, _ in finite]
    at_step = dict(zip(steps, smoothed[:1:-1], strict=True))
    return [(step, at_step.get(step, math.nan)) for step, _ in points]
