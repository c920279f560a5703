"""Charts as inline SVG: round scales, a grid, labelled lines. Lengths are in units of the view box, about one pixel."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bothways.report.markup import Html, Unit, element, join

SERIES = 6  # line styles in style.py; each is a colour and a dash
LINE_HEIGHT = 13.0
LETTER = 6.6  # how wide one is, about


@dataclass(frozen=True)
class Axis:
    """Values from low to high, at places from `start` to `end` of the picture; marked every `step`."""

    name: str
    low: float
    high: float
    step: float
    start: float
    end: float
    unit: Unit = "number"

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        first, last = round(self.low / self.step), math.floor(self.high / self.step + 1e-6)
        return [number * self.step for number in range(first, last + 1)]

    def written(self, tick: float) -> str:
        """With as many decimals as tell neighbours apart; briefly where that would be long."""
        scale = 100 if self.unit == "share" else 1
        decimals = max(0, -math.floor(math.log10(self.step * scale) + 1e-9))
        if decimals > 4 or abs(self.high) >= 1e5:
            return f"{tick:.3g}"
        return f"{tick * scale:,.{decimals}f}" + ("%" if self.unit == "share" else "")


def axis(
    name: str, values: Sequence[float], place: tuple[float, float], unit: Unit = "number", *, most: int = 5
) -> Axis:
    """An axis over these values whose ends and steps are round: 1, 2 or 5 times a power of ten."""
    low, high = min(values), max(values)
    if low == high:
        low, high = sorted((0.9 * low, low)) if low else (0.0, 1.0)
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Axis(name, low, high, step, *place, unit)


def plot(title: str, description: str, x: Axis, y: Axis, *shapes: Html, size: tuple[int, int]) -> Html:
    """A picture of this width and height with both axes; what it shows is also told in words."""
    grid = [
        *(line((x.start, y.at(tick)), (x.end, y.at(tick)), "grid") for tick in y.ticks()),
        *(line((x.at(tick), y.start), (x.at(tick), y.start + 4), "axis") for tick in x.ticks()),
        line((x.start, y.start), (x.end, y.start), "axis"),
    ]
    words = [
        *(label((x.start - 6, y.at(tick) + 4), y.written(tick), "end") for tick in y.ticks()),
        *(label((x.at(tick), y.start + 17), x.written(tick), "middle") for tick in x.ticks()),
        label(((x.start + x.end) / 2, y.start + 33), x.name, "middle.name"),
        label((0, y.end - 13), y.name, "name"),
    ]
    told = (element("title", title), element("desc", description))
    view = {"viewBox": f"0 0 {size[0]} {size[1]}", "role": "img"}
    return element("svg", *told, *grid, *words, *shapes, attributes=view)


def line(start: tuple[float, float], end: tuple[float, float], style: str) -> Html:
    ends = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
    return element(f"line.{style}", attributes=ends)


def label(place: tuple[float, float], text: str, style: str = "") -> Html:
    return element(f"text.{style}", text, attributes={"x": round(place[0], 1), "y": round(place[1], 1)})


def dot(place: tuple[float, float], style: str, *, radius: float, told: str = "") -> Html:
    """`told` appears when a pointer rests on it."""
    words = (element("title", told),) if told else ()
    return element(f"circle.{style}", *words, attributes={"cx": place[0], "cy": place[1], "r": round(radius, 1)})


def bar(left: float, right: float, top: float, bottom: float, style: str, told: str) -> Html:
    """A rectangle that stands on `bottom`, with a hair's breadth to its neighbour."""
    sides = {"x": left, "y": top, "width": round(max(right - left - 1, 0.5), 1), "height": round(bottom - top, 1)}
    return element(f"rect.{style}", element("title", told), attributes=sides)


def lines(series: Sequence[tuple[str, Sequence[tuple[float, float]]]], x: Axis, y: Axis, *, dots: bool) -> Html:
    """Named lines through (x, y) points, each with its name at its end, none over another."""
    ends = [y.at(points[-1][1]) for _, points in series]
    found: list[Html] = []
    for number, ((name, points), height) in enumerate(zip(series, apart(ends, y.end, y.start), strict=True)):
        style = f"series{number % SERIES}"
        places = [(x.at(step), y.at(value)) for step, value in points]
        path = " ".join(f"{across},{down}" for across, down in places)
        found.append(element(f"polyline.{style}", attributes={"points": path}))
        found += [dot(place, style, radius=2.5) for place in (places if dots else places[-1:])]
        found.append(label((places[-1][0] + 7, height + 4), name, style))
    return join(found)


def apart(heights: Sequence[float], top: float, bottom: float) -> list[float]:
    """Heights moved so that a line of text fits between any two, inside top and bottom as long as there is room."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    moved = list(heights)
    lowest = top - LINE_HEIGHT
    for place in order:
        lowest = moved[place] = max(moved[place], lowest + LINE_HEIGHT)
    highest = bottom + LINE_HEIGHT
    for place in reversed(order):
        highest = moved[place] = min(moved[place], highest - LINE_HEIGHT)
    return moved


def shown(picture: Html, caption: str) -> Html:
    """A picture with what is to be said of it."""
    words = element("figcaption", caption) if caption else Html()
    return element("figure", picture, words)
