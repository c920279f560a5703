"""Picture of a shrinking: score against speed, a point for each form of the model, as large as its weights."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bothways.log import logger

if TYPE_CHECKING:
    from bothways.compression.shrink import ShrinkPoint

DPI = 130
FLOAT, INT8, KEPT = "#0b5fa5", "#e8843b", "#c8102e"
LARGEST = 900  # area of the largest point, in square points of 1/72 inch


def draw_points(points: "Sequence[ShrinkPoint]", kept: int, metric: str, max_drop: float, file: Path) -> bool:
    """Write a PNG; False, with a message, if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        logger.info("no picture: pip install matplotlib")
        return False
    figure = Figure(figsize=(7.6, 4.8), layout="constrained")
    axis = figure.subplots()
    largest = max(point.size for point in points)
    for index, point in enumerate(points):
        colour = INT8 if "int8" in point.name else FLOAT
        axis.scatter(
            point.speed,
            100 * point.score,
            s=LARGEST * point.size / largest,
            color=colour,
            alpha=0.85,
            edgecolor=KEPT if index == kept else "white",
            linewidth=2.5 if index == kept else 1,
        )
        above, radius = colour == FLOAT, math.sqrt(LARGEST * point.size / largest) / 2
        label = f"{point.name.removesuffix(', int8')}\n{point.size / 1e6:.0f} MB" + (", kept" if index == kept else "")
        axis.annotate(
            label,
            (point.speed, 100 * point.score),
            xytext=(0, radius + 2) if above else (radius + 3, 0),
            textcoords="offset points",
            ha="center" if above else "left",
            va="bottom" if above else "center",
            fontsize=7.5,
        )
    for name, colour in (("floating point", FLOAT), ("int8", INT8)):
        axis.scatter([], [], s=60, color=colour, label=name)
    axis.axhline(
        100 * points[0].score - max_drop, color="0.6", linewidth=1, linestyle="--", label="largest loss allowed"
    )
    axis.set_xlabel("speed, relative to the model as it was")
    axis.set_ylabel(metric)
    axis.margins(0.26, 0.22)
    axis.grid(alpha=0.3)
    axis.legend(loc="lower left", fontsize=8, frameon=False)
    figure.savefig(file, dpi=DPI)
    return True
