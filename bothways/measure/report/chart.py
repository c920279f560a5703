"""Charts as inline SVG: axes, lines, dots, bars.

Lengths are in units of the view box, about one pixel.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bothways.measure.report.markup import Html, Unit, element, join

NUM_SERIES_STYLES = 6  # line styles in style.py, each with a colour and a dash pattern
LINE_HEIGHT = 13.0
CHARACTER_WIDTH = 6.6  # approximate

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """Maps values low..high to coordinates start..end, with a tick every `step`."""

    name: str
    low: float
    high: float
    step: float
    start: float
    end: float
    unit: Unit = "number"

    def at(self, value: float) -> float:
        fraction = (value - self.low) / (self.high - self.low)
        return round(self.start + fraction * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        first, last = round(self.low / self.step), math.floor(self.high / self.step + 1e-6)
        return [multiple * self.step for multiple in range(first, last + 1)]

    def format_tick(self, tick: float) -> str:
        """A tick label with enough decimals to distinguish neighbours; with three digits if that would be too long."""
        scale = 100 if self.unit == "share" else 1
        decimals = max(0, -math.floor(math.log10(self.step * scale) + 1e-9))
        if decimals > 4 or abs(self.high) >= 1e5:
            return f"{tick:.3g}"
        return f"{tick * scale:,.{decimals}f}" + ("%" if self.unit == "share" else "")


def build_axis(
    name: str, values: Sequence[float], ends: tuple[float, float], unit: Unit = "number", *, max_ticks: int = 5
) -> Axis:
    """An axis over the values, with round ends and steps of 1, 2 or 5 times a power of ten."""
    low, high = min(values), max(values)
    if low == high:
        low, high = sorted((0.9 * low, low)) if low else (0.0, 1.0)
    min_step = (high - low) / max_ticks
    power = 10.0 ** math.floor(math.log10(min_step))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= min_step * (1 - 1e-9))
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Axis(name, low, high, step, *ends, unit)


def plot(title: str, description: str, x: Axis, y: Axis, *shapes: Html, size: tuple[int, int]) -> Html:
    """A chart of (width, height) with both axes. The description is for screen readers."""
    grid = [
        *(line((x.start, y.at(tick)), (x.end, y.at(tick)), "grid") for tick in y.ticks()),
        *(line((x.at(tick), y.start), (x.at(tick), y.start + 4), "axis") for tick in x.ticks()),
        line((x.start, y.start), (x.end, y.start), "axis"),
    ]
    labels = [
        *(label((x.start - 6, y.at(tick) + 4), y.format_tick(tick), "end") for tick in y.ticks()),
        *(label((x.at(tick), y.start + 17), x.format_tick(tick), "middle") for tick in x.ticks()),
        label(((x.start + x.end) / 2, y.start + 33), x.name, "middle.name"),
        label((0, y.end - 13), y.name, "name"),
    ]
    titles = (element("title", title), element("desc", description))
    view = {"viewBox": f"0 0 {size[0]} {size[1]}", "role": "img"}
    return element("svg", *titles, *grid, *labels, *shapes, attributes=view)


def line(start: Point, end: Point, style: str) -> Html:
    ends = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
    return element(f"line.{style}", attributes=ends)


def label(position: Point, text: str, style: str = "") -> Html:
    return element(f"text.{style}", text, attributes={"x": round(position[0], 1), "y": round(position[1], 1)})


def dot(position: Point, style: str, *, radius: float, tooltip: str = "") -> Html:
    title = (element("title", tooltip),) if tooltip else ()
    return element(f"circle.{style}", *title, attributes={"cx": position[0], "cy": position[1], "r": round(radius, 1)})


def bar(left: float, right: float, top: float, bottom: float, style: str, tooltip: str) -> Html:
    """A bar, one unit narrower than its interval to leave a gap."""
    sides = {"x": left, "y": top, "width": round(max(right - left - 1, 0.5), 1), "height": round(bottom - top, 1)}
    return element(f"rect.{style}", element("title", tooltip), attributes=sides)


def line_series(series: Sequence[tuple[str, Sequence[Point]]], x: Axis, y: Axis, *, dots: bool) -> Html:
    """Named lines through (x, y) points, with their names at the right ends, spread so that none overlap."""
    ends = [y.at(points[-1][1]) for _, points in series]
    shapes: list[Html] = []
    for index, ((name, points), label_y) in enumerate(zip(series, spread_labels(ends, y.end, y.start), strict=True)):
        style = f"series{index % NUM_SERIES_STYLES}"
        positions = [(x.at(step), y.at(value)) for step, value in points]
        path = " ".join(f"{left},{top}" for left, top in positions)
        shapes.append(element(f"polyline.{style}", attributes={"points": path}))
        shapes += [dot(position, style, radius=2.5) for position in (positions if dots else positions[-1:])]
        shapes.append(label((positions[-1][0] + 7, label_y + 4), name, style))
    return join(shapes)


def spread_labels(heights: Sequence[float], top: float, bottom: float) -> list[float]:
    """Move label heights at least a line apart, within top..bottom as long as there is room."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    moved = list(heights)
    previous = top - LINE_HEIGHT
    for index in order:
        previous = moved[index] = max(moved[index], previous + LINE_HEIGHT)
    following = bottom + LINE_HEIGHT
    for index in reversed(order):
        following = moved[index] = min(moved[index], following - LINE_HEIGHT)
    return moved


def figure(chart: Html, caption: str) -> Html:
    return element("figure", chart, element("figcaption", caption) if caption else Html())
