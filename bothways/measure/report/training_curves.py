"""Training curves (loss, metrics, learning rate): in the report page, and as a separate picture."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from bothways.base.errors import InputError
from bothways.measure.report import chart
from bothways.measure.report.chart import COLUMNS, NUM_SERIES_STYLES, ROW, Axis, Picture, Point, build_axis, legend
from bothways.measure.report.curves import SIZE, X_RANGE, Y_RANGE
from bothways.measure.report.markup import Html, Section, Unit, element, format_number, join

MAX_POINTS, MAX_DOTS = 40, 30  # longer lines of the page are smoothed, or have no dots
PANEL, TOP = (365, 292), 30  # size of a panel of the picture, with the place of the title above it
NARROWEST, WIDEST = 1.0, 100.0  # records: a smoothed line follows waves longer than 2 pi times this width

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
    """Loss and metric over steps. rows: of metrics.jsonl, with step, split ("train" or "heldout"), loss, perhaps seed
    or fold, and the metric on held-out rows. metric: its key; name: its title; heldout: the name of that split."""

    rows: MetricRows
    metric: str
    name: str
    unit: Unit = "share"
    heldout: str = "dev"
    heading: str = "Training"

    def body(self) -> Html:
        panels: tuple[tuple[str, str, str, Unit], ...] = (
            ("Loss, training", "train", "loss", "number"),
            (f"Loss, {self.heldout}", "heldout", "loss", "number"),
            (f"{self.name}, {self.heldout}", "heldout", self.metric, self.unit),
        )
        has_steps = any(row["step"] for row in self.rows)
        charts = [_panel(self.rows, *panel) for panel in panels if has_steps]
        return element("div.pictures", *charts) if any(charts) else element("p", "No steps were recorded.")


def points_by_seed(rows: MetricRows, split: str, key: str) -> dict[str, Points]:
    """The recorded (step, value) points by the name of the seed or fold."""
    series: dict[str, Points] = {}
    for row in rows:
        if row["split"] == split and key in row:
            name = f"fold {row['fold'] + 1}" if "fold" in row else f"seed {row.get('seed', 0)}"
            series.setdefault(name, []).append((row["step"], row[key]))
    return series


def _panel(rows: MetricRows, name: str, split: str, key: str, unit: Unit) -> Html:
    """A chart with a labelled line for each seed. Non-finite values are left out and counted."""
    series = points_by_seed(rows, split, key)
    finite = {seed: [point for point in points if math.isfinite(point[1])] for seed, points in series.items()}
    num_omitted = sum(map(len, series.values())) - sum(map(len, finite.values()))
    longest = max(map(len, finite.values()), default=0)
    drawn = {seed: smooth(points) if longest > MAX_POINTS else points for seed, points in finite.items() if points}
    notes = [f"{name}: {num_omitted:,} non-finite values are left out."] if num_omitted else []
    if not drawn:
        return join(element("p", note) for note in notes)
    notes += ["The lines are smoothed."] * (longest > MAX_POINTS)
    ends = "; ".join(f"{seed} ends at {format_number(finite[seed][-1][1], unit)}" for seed in drawn)
    lines = [
        Lines(seed, f"series{index % NUM_SERIES_STYLES}", [points], longest <= MAX_DOTS)
        for index, (seed, points) in enumerate(drawn.items())
    ]
    return chart.figure(draw_panel(name, f"Lines over steps: {ends}.", lines, unit), " ".join(notes))


class Lines(NamedTuple):
    """Lines through (step, value) points that look alike, and their name in the legend."""

    name: str
    style: str
    all_points: Sequence[Points]
    has_dots: bool = False


def draw_panel(
    name: str, description: str, lines: Sequence[Lines], unit: Unit, *, is_log: bool = False, corner: Point = (0, 0)
) -> Html:
    """A chart of lines over steps, with a legend. A non-finite value is a gap."""
    points = [point for one in lines for points in one.all_points for point in points]
    values, last = [value for _, value in points if math.isfinite(value)] or [1.0], max(step for step, _ in points)
    x = replace(build_axis("step", [0, last], X_RANGE, max_ticks=4), high=last or 1)
    y = build_axis(name, values, Y_RANGE, unit)
    if is_log:
        y = replace(y, low=0.95 * min(values), high=1.05 * max(values), is_log=True)
    shapes, samples = list[Html](), list[tuple[str, Html]]()
    for kind, style, all_points, has_dots in lines:
        parts = [part for points in all_points for part in finite_parts(points, x, y)]
        shapes += [chart.polyline(thin(part), style) for part in parts]
        shapes += [chart.dot(position, style, radius=2.5) for part in parts for position in part if has_dots]
        marks = [chart.dot((10, 0), style, radius=2.5)] * has_dots
        samples.append((kind, join((chart.polyline([(0, 0), (20, 0)], style), *marks))))
    size = (SIZE[0], SIZE[1] + ROW * math.ceil(len(lines) / COLUMNS))
    return chart.plot(name, description, x, y, *shapes, legend((10, SIZE[1] + 8), samples), size=size, corner=corner)


def finite_parts(points: Points, x: Axis, y: Axis) -> Iterator[list[Point]]:
    """The positions of a line, in parts between which values are not finite."""
    for is_finite, part in groupby(points, lambda point: math.isfinite(point[1])):
        if is_finite:
            yield [(x.at(step), y.at(value)) for step, value in part]


def thin(positions: Sequence[Point]) -> Iterator[Point]:
    """Of each unit of width the first, highest, lowest and last position, which look like all."""
    for _, group in groupby(positions, lambda position: round(position[0])):
        column = [*dict.fromkeys(group)]
        by_height = sorted(column, key=lambda position: position[1])
        yield from (one for one in column if one in (column[0], by_height[0], by_height[-1], column[-1]))


def draw_curves(
    rows: MetricRows, *, title: str, levels: Mapping[str, float], metric: str = "", unit: Unit = "share"
) -> Picture:
    """A picture with a panel for each recorded quantity and a line for each seed or fold.

    Training is grey (smoothed: blue), held-out orange. metric: the key of the metric that fine-tuning selects by, in
    `unit`; `levels` has its baseline as "baseline".
    """
    of_metric: Panel = (f"{metric.replace('_', ' ')}, dev", metric, "baseline", unit)
    middle = (of_metric,) if metric else PRETRAINING
    panels: list[Panel] = [("Loss", "loss", "", "number"), *middle, ("Learning rate", "learning_rate", "", "number")]
    panels = [panel for panel in panels if any(panel[1] in row for row in rows)]
    if not panels:
        raise InputError(f"{title}: no metrics to plot")
    charts = [_draw_panel(panel, rows, levels, 10 + index * PANEL[0]) for index, panel in enumerate(panels)]
    return chart.draw_picture(title, *charts, size=(10 + PANEL[0] * len(panels), PANEL[1]))


def _draw_panel(panel: Panel, rows: MetricRows, levels: Mapping[str, float], left: float) -> Html:
    name, key, level, unit = panel
    train, heldout = ([*points_by_seed(rows, split, key).values()] for split in ("train", "heldout"))
    smoothed, last = [smooth(one) for one in train if key == "loss"], max(row["step"] for row in rows if key in row)
    flat = [[(step, levels[level]) for step in (0, last)]] if level in levels else []
    lines = [
        Lines("train", "series0" if key == "learning_rate" else "train", train),
        Lines("held out", "heldout", heldout, has_dots=True),
        Lines("smoothed", "series0", smoothed),
        Lines(level.replace("_", " "), "level", flat),
    ]
    lines = [one for one in lines if one.all_points]
    description = f"Lines over steps: {', '.join(one.name for one in lines)}."
    return draw_panel(name, description, lines, unit, is_log=key == "perplexity", corner=(left, TOP))


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
    factors, values, smoothed = [(0.0, 0.0, 0.0)] * 2, [0.0, 0.0], [0.0, 0.0]
    for index, (_, value) in enumerate(finite):
        (d_2, _, second_2), (d_1, first_1, second_1) = factors[-2:]
        d = 1 + penalty * (1, 5, 6)[min(index, len(finite) - 1 - index, 2)] - first_1**2 * d_1 - second_2**2 * d_2
        beside = -2 if index in (0, len(finite) - 2) else -4
        factors.append((d, (penalty * beside - d_1 * first_1 * second_1) / d, penalty / d))
        values.append(value - first_1 * values[-1] - second_2 * values[-2])
    for (d, first, second), value in zip(factors[:1:-1], values[:1:-1], strict=True):
        smoothed.append(value / d - first * smoothed[-1] - second * smoothed[-2])
    at_step = dict(zip((step for step, _ in finite), smoothed[:1:-1], strict=True))
    return [(step, at_step.get(step, math.nan)) for step, _ in points]
