"""The picture of a choice (SVG): the scores of candidates against their speeds."""

import math
from collections.abc import Sequence
from pathlib import Path

from bothways.measure.report.chart import Point, build_axis, dot, draw_picture, label, legend, line, plot
from bothways.measure.report.markup import Html
from bothways.shrink.measuring import Measured

PICTURE = (640, 420)  # width and height
CHART = (640, 390)
CORNER = (12, 30)  # of the chart in the picture
ACROSS = (50, 540)  # the ends of the axis of speed
UPWARDS = (316, 26)  # the ends of the axis of the score
LARGEST = 17.0  # radius of the largest dot
LINE_HEIGHT = 13
# Margins of the axes, as shares of their ranges: room for the names beside and above the dots.
SPEED_MARGIN = 0.26
SCORE_MARGIN = 0.22
COLOURS = {
    "floating point": "series0",
    "int8": "series1",
}


def draw(
    measured: Sequence[Measured],
    file: Path,
    *,
    kept: int,
    max_drop: float | None,
    metric: str,
    split: str,
) -> Path:
    """Write a picture (SVG) of score (%) against speed, relative to the unchanged model.

    The area of a dot is the size of the weights; int8 has another colour, and the dot of the candidate that is kept has
    a ring. A candidate whose score is no number is left out.

    measured: candidates; the first is the unchanged model.
    kept: index of the candidate that is kept.
    max_drop: points that may be lost, drawn as a line; None: any number.
    metric: of the scores.
    split: of the rows that the scores are measured on.
    """
    drawn = {index: row for index, row in enumerate(measured) if math.isfinite(row.score)}
    limits = []
    if 0 in drawn and max_drop is not None:
        limits.append(measured[0].score - max_drop)

    speeds = [row.speed for row in drawn.values()]
    scores = [row.score for row in drawn.values()]
    x = build_axis("speed, relative to the model as it was", widen(speeds, SPEED_MARGIN), ACROSS)
    y = build_axis(f"{metric} on {split} (%)", widen([*scores, *limits], SCORE_MARGIN), UPWARDS)

    shapes = [line((x.start, y.at(limit)), (x.end, y.at(limit)), "even") for limit in limits]
    largest = max(row.size for row in measured)
    for index, row in drawn.items():
        radius = LARGEST * math.sqrt(row.size / largest)
        shapes += draw_dot(row, (x.at(row.speed), y.at(row.score)), radius, is_kept=index == kept)
    shapes.append(draw_legend(has_limit=bool(limits)))

    title = f"{metric} against speed"
    description = "; ".join(map(str, measured))
    chart = plot(title, description, x, y, *shapes, size=CHART, corner=CORNER)
    draw_picture(title, chart, size=PICTURE).write(file)
    return file


def widen(values: Sequence[float], share: float) -> tuple[float, float]:
    """The lowest and highest value, with a margin at both ends: this share of the range, or 1 if all are equal."""
    low = min(values, default=0.0)
    high = max(values, default=0.0)
    margin = share * (high - low) or 1.0
    return low - margin, high + margin


def draw_dot(row: Measured, center: Point, radius: float, *, is_kept: bool) -> list[Html]:
    """A dot with name and size: above it, or to the right of int8."""
    left, top = center
    if "int8" in row.name:
        style = COLOURS["int8"]
        left = left + radius + 5
        top = top - 2
        anchor = "start"
    else:
        style = COLOURS["floating point"]
        top = top - radius - 18
        anchor = "middle"

    ring = ".kept" if is_kept else ""
    kept = ", kept" if is_kept else ""
    return [
        dot(center, f"{style}.form{ring}", radius=radius, tooltip=str(row)),
        label((left, top), row.name.removesuffix(", int8"), anchor),
        label((left, top + LINE_HEIGHT), f"{row.size / 1e6:.0f} MB{kept}", anchor),
    ]


def draw_legend(*, has_limit: bool) -> Html:
    samples = [(name, dot((12, 0), f"{style}.form", radius=5)) for name, style in COLOURS.items()]
    if has_limit:
        samples.append(("largest loss allowed", line((0, 0), (20, 0), "even")))
    return legend((50, 372), samples)
