"""Reads the values that an SVG picture shows: the positions of its lines and dots, by the labels of its ticks."""

import math
import re
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def charts_of(svg):
    """The charts of a picture by their title, in order."""
    root = ElementTree.fromstring(svg)
    return {one.title: one for one in map(Chart, root.iter(f"{SVG}svg")) if one.title and one.y_ticks}


class Chart:
    """legend: its names. texts: (text, position) of all other labels. x_ticks, y_ticks: (value, position)."""

    def __init__(self, node):
        self.node = node
        self.title = node.findtext(f"{SVG}title")
        self.legend = [one.findtext(f"{SVG}text") for one in node.iterfind(f"{SVG}g[@class='legend']")]
        self.texts = [
            (one.text, (float(one.get("x")), float(one.get("y"))), one.get("class"))
            for one in node.iterfind(f"{SVG}text")
        ]
        places = [one for one in self.texts if one[2] in ("middle", "end") and number(one[0]) is not None]
        bottom = max((place[1] for _, place, kind in places if kind == "middle"), default=0)
        self.x_ticks = [(number(text), x) for text, (x, y), kind in places if kind == "middle" and y == bottom]
        self.y_ticks = [(number(text), y - 4) for text, (_, y), kind in places if kind == "end"]  # labels are 4 below
        self.x_name, self.y_name = (
            next((text for text, _, kind in self.texts if kind == name), None) for name in ("middle name", "name")
        )

    def lines(self, style, *, is_log=False):
        """The (x, y) values of each line of a style."""
        nodes = self.node.iterfind(f"{SVG}polyline[@class='{style}']")
        places = [[tuple(map(float, pair.split(","))) for pair in one.get("points").split()] for one in nodes]
        return [[self.value(place, is_log) for place in one] for one in places]

    def dots(self, style, *, is_log=False):
        """The (x, y) values of all dots of a style."""
        nodes = self.node.iterfind(f"{SVG}circle[@class='{style}']")
        return [self.value((float(one.get("cx")), float(one.get("cy"))), is_log) for one in nodes]

    def value(self, place, is_log=False):
        return between(self.x_ticks, place[0]), between(self.y_ticks, place[1], is_log)


def number(text):
    """The value of a tick label; None of another text."""
    if not re.fullmatch(r"-?[\d.,]+(e[+-]?\d+)?%?", text or ""):
        return None
    return float(text.rstrip("%").replace(",", "")) * (0.01 if text.endswith("%") else 1)


def between(ticks, position, is_log=False):
    """The value at a position, from the first and last tick."""
    (low, start), (high, end) = ticks[0], ticks[-1]
    part = (position - start) / (end - start)
    return low * (high / low) ** part if is_log else low + part * (high - low)


def is_standalone(svg):
    """Whether a viewer needs nothing else: no variables, no other files, a white ground, and no NaN as a position."""
    root = ElementTree.fromstring(svg)
    ground = root.find(f"{SVG}rect")
    size = [root.get(name) for name in ("width", "height")]
    assert [ground.get(name) for name in ("width", "height", "fill")] == [*size, "#ffffff"]
    assert math.prod(map(int, size)) > 0
    return not re.search(r"var\(|url\(|https?://(?!www\.w3\.org/2000/svg\")|@import|[\",]nan|nan,", svg)
