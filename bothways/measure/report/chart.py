"""Charts as SVG: axes, lines, dots, bars, legends; and a frame for SVG files.

Drawn here, since matplotlib took 0.8 s for the curves of a run, a sixth of the time of the runs of our tests
(docs/LOG.md).
Lengths are in units of the view box, about one pixel.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bothways.base.errors import InputError
from bothways.base.io import write_atomic
from bothways.measure.report.markup import Html, Unit, element, join
from bothways.measure.report.style import LIGHT, PICTURE_STYLE

NUM_SERIES_STYLES = 6  # line styles in style.py, each with a colour and a dash pattern
# Of a legend: entries in a row, width and height of an entry.
COLUMNS = 3
COLUMN = 108
ROW = 18

Point = tuple[float, float]
Size = tuple[int, int]


@dataclass(frozen=True)
class Axis:
    """Maps values low..high to coordinates start..end, with a tick every `step`, or on a logarithmic scale."""

    name: str
    low: float
    high: float
    step: float
    start: float
    end: float
    unit: Unit = "number"
    is_log: bool = False

    def at(self, value: float) -> float:
        low = self.low
        high = self.high
        if self.is_log:
            low, high, value = map(math.log, (low, high, value))
        fraction = (value - low) / (high - low)
        return round(self.start + fraction * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        if self.is_log:
            return log_ticks(self.low, self.high)

        first = round(self.low / self.step)
        last = math.floor(self.high / self.step + 1e-6)
        return [multiple * self.step for multiple in range(first, last + 1)]

    def format_tick(self, tick: float) -> str:
        """A tick label with enough decimals to distinguish neighbours; with three digits if that would be too long."""
        if self.is_log:
            return f"{tick:,.10g}"

        scale = 100 if self.unit == "share" else 1
        decimals = max(0, -math.floor(math.log10(self.step * scale) + 1e-9))
        if decimals > 4:
            return f"{tick:.1e}".replace("e-0", "e-") if tick else "0"
        if abs(self.high) >= 1e5:
            return f"{tick:.3g}"
        percent = "%" if self.unit == "share" else ""
        return f"{tick * scale:,.{decimals}f}{percent}"


def build_axis(
    name: str,
    values: Sequence[float],
    ends: tuple[float, float],
    unit: Unit = "number",
    *,
    max_ticks: int = 5,
) -> Axis:
    """An axis over the values, with round ends and steps of 1, 2 or 5 times a power of ten.

    name: its title.
    values: the values that it covers.
    ends: its coordinates.
    unit: of the values.
    max_ticks: the number of steps at most, before the ends are rounded.
    """
    low = min(values)
    high = max(values)
    if low == high == 0:
        high = 1.0
    elif low == high:
        low, high = sorted((0.9 * low, low))

    # Steps and ends allow for rounding: 0.3 / 0.1 is less than 3.
    min_step = (high - low) / max_ticks
    power = 10.0 ** math.floor(math.log10(min_step))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= min_step * (1 - 1e-9))
    return Axis(
        name=name,
        low=math.floor(low / step + 1e-9) * step,
        high=math.ceil(high / step - 1e-9) * step,
        step=step,
        start=ends[0],
        end=ends[1],
        unit=unit,
    )


def log_ticks(low: float, high: float) -> list[float]:
    """At most 7 round numbers from low to high, for a logarithmic axis: 1, 2, 5, 10, ..., or numbers with the same
    first digit. Below a factor of ten they may be multiples of a round step. Both ends are positive."""
    ticks = []
    for decade in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for first in (1, 2, 5):
            tick = first * 10.0**decade
            if low <= tick <= high:
                ticks.append(tick)

    if len(ticks) < 3:
        linear = build_axis("", (low, high), (0, 1))
        return [tick for tick in linear.ticks() if low <= tick <= high]
    if len(ticks) <= 7:
        return ticks
    # A multiple of three keeps the first digit.
    return ticks[:: 3 * math.ceil(len(ticks) / 21)]


def plot(
    title: str,
    description: str,
    x: Axis,
    y: Axis,
    *shapes: Html,
    size: Size,
    corner: Point = (0, 0),
) -> Html:
    """A chart with both axes.

    title: of the chart.
    description: for screen readers.
    x, y: the axes.
    shapes: the content, in the coordinates of the axes.
    size: (width, height).
    corner: the upper left one, in a picture.
    """
    view = {
        **view_box(size),
        "x": corner[0],
        "y": corner[1],
        "role": "img",
    }
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *draw_grid(x, y),
        *draw_labels(x, y),
        *shapes,  # last: above the grid
        attributes=view,
    )


def draw_grid(x: Axis, y: Axis) -> Iterator[Html]:
    """A line across the chart for each tick of y, and the axis of x with its ticks."""
    for tick in y.ticks():
        height = y.at(tick)
        yield line((x.start, height), (x.end, height), "grid")
    for tick in x.ticks():
        position = x.at(tick)
        yield line((position, y.start), (position, y.start + 4), "axis")
    yield line((x.start, y.start), (x.end, y.start), "axis")


def draw_labels(x: Axis, y: Axis) -> Iterator[Html]:
    """The values of the ticks, and the names of the axes; the name of y stands above its upper end."""
    for tick in y.ticks():
        yield label((x.start - 6, y.at(tick) + 4), y.format_tick(tick), "end")
    for tick in x.ticks():
        yield label((x.at(tick), y.start + 17), x.format_tick(tick), "middle")
    yield label(((x.start + x.end) / 2, y.start + 33), x.name, "middle.name")
    yield label((0, y.end - 13), y.name, "name")


def view_box(size: Size) -> dict[str, str | float]:
    width, height = size
    return {
        "viewBox": f"0 0 {width} {height}",
        "width": width,
        "height": height,
    }


def line(start: Point, end: Point, style: str) -> Html:
    ends = {
        "x1": start[0],
        "y1": start[1],
        "x2": end[0],
        "y2": end[1],
    }
    return element(f"line.{style}", attributes=ends)


def polyline(points: Iterable[Point], style: str) -> Html:
    positions = " ".join(f"{left},{top}" for left, top in points)
    return element(f"polyline.{style}", attributes={"points": positions})


def label(position: Point, text: str, style: str = "") -> Html:
    left, top = position
    return element(f"text.{style}", text, attributes={"x": round(left, 1), "y": round(top, 1)})


def dot(position: Point, style: str, *, radius: float, tooltip: str = "") -> Html:
    title = [element("title", tooltip)] if tooltip else []
    circle = {
        "cx": position[0],
        "cy": position[1],
        "r": round(radius, 1),
    }
    return element(f"circle.{style}", *title, attributes=circle)


def bar(left: float, right: float, top: float, bottom: float, style: str, tooltip: str) -> Html:
    """A bar, one unit narrower than its interval to leave a gap."""
    sides = {
        "x": left,
        "y": top,
        "width": round(max(right - left - 1, 0.5), 1),
        "height": round(bottom - top, 1),
    }
    return element(f"rect.{style}", element("title", tooltip), attributes=sides)


def legend(position: Point, samples: Sequence[tuple[str, Html]]) -> Html:
    """Names in rows of COLUMNS, each after its sample, which is drawn between (0, 0) and (20, 0)."""
    entries = []
    for index, (name, sample) in enumerate(samples):
        row, column = divmod(index, COLUMNS)
        left = position[0] + COLUMN * column
        top = position[1] + ROW * row
        entries.append(
            element(
                "g.legend",
                sample,
                label((26, 4), name),
                attributes={"transform": f"translate({left:g},{top:g})"},
            )
        )
    return join(entries)


def figure(chart: Html, caption: str) -> Html:
    below = element("figcaption", caption) if caption else Html()
    return element("figure", chart, below)


@dataclass(frozen=True)
class Picture:
    """A picture on a white ground, which shows itself in notebooks. svg: the content of its file."""

    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:
        return self.svg

    def write(self, file: str | Path | None) -> "Picture":
        """The picture itself, written atomically to a file, if one is named. InputError if it is not .svg."""
        if file is None:
            return self
        if Path(file).suffix != ".svg":
            raise InputError(f"{file}: the picture is an SVG; name a file that ends in .svg")

        write_atomic(Path(file), self.svg)
        return self


def draw_picture(title: str, *charts: Html, size: Size) -> Picture:
    """Charts in a view box of (width, height), with a title above them."""
    width, height = size
    ground = element("rect", attributes={"width": width, "height": height, "fill": LIGHT["ground"]})
    svg = element(
        "svg.picture",
        element("title", title),
        element("style", Html(PICTURE_STYLE)),
        ground,
        label((width / 2, 22), title, "middle.title"),
        *charts,
        attributes={**view_box(size), "xmlns": "http://www.w3.org/2000/svg"},
    )
    return Picture(svg)
