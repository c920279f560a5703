"""Plot of benchmark results: tokens per second and latency over text length.

There is a column per batch size, and below them a bar chart of the user's own texts, if there are any.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.result import Measured, Timing
from bothways.measure.report.chart import log_ticks

DPI = 110
COLUMN, ROW = 3.6, 3.2  # inches per panel
LEFT, RIGHT, TOP, BOTTOM = 1.1, 2.6, 0.7, 0.6  # inches around the panels; the systems' names are at the right
COLOURS = ("#0b5fa5", "#c8102e", "#e8843b", "#5b8c2a", "#7b4ea3", "#3aa6a0", "#8a8a8a")  # ours first
QUANTITIES: tuple[tuple[str, str, Callable[[Timing], float]], ...] = (
    ("tokens per second", "linear", lambda one: one.tokens_per_second),
    ("milliseconds per call\n(line: median, shade: up to 95 %)", "log", lambda one: one.milliseconds(50)),
)
Colours = Mapping[str, str]


def draw(measured: Measured, file: Path) -> None:
    """Write a PNG, LEFT + COLUMN x (number of batch sizes) + RIGHT inches wide, at DPI pixels per inch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = [one for one in measured.timings if one.work.length]
    user_texts = [one for one in measured.timings if not one.work.length]
    sizes = sorted({one.work.texts_per_call for one in curves})
    rows = 3 if user_texts else 2
    width, height = LEFT + COLUMN * len(sizes) + RIGHT, TOP + ROW * rows + BOTTOM
    figure = pyplot.figure(figsize=(width, height))
    grid = figure.add_gridspec(
        rows,
        len(sizes),
        left=LEFT / width,
        right=1 - RIGHT / width,
        top=1 - TOP / height,
        bottom=BOTTOM / height,
        hspace=0.3,
        wspace=0.08,
    )
    colours = dict(zip(measured.setups, COLOURS * len(measured.setups), strict=False))
    for row in range(len(QUANTITIES)):
        panels = grid[row, :].subgridspec(1, len(sizes), wspace=0.08).subplots(sharey=True, squeeze=False)[0]
        _row_of_curves(panels, curves, sizes, colours, row=row)
    if user_texts:
        _bars(figure.add_subplot(grid[2, :]), user_texts, colours)
    figure.suptitle(_title(measured), x=LEFT / width, ha="left", fontsize=11)
    figure.savefig(file, dpi=DPI)
    pyplot.close(figure)


def _title(measured: Measured) -> str:
    return "{model}: model.{method}; threads: {threads}; {device}, {processor}".format(**measured.facts)


def _row_of_curves(
    panels: Sequence[Any], timings: Sequence[Timing], sizes: Sequence[int], colours: Colours, *, row: int
) -> None:
    """One quantity over lengths, a panel per batch size, with names at the right of the last panel."""
    name, scale, value = QUANTITIES[row]
    lengths = sorted({one.work.length for one in timings if one.work.length})
    for axis, size in zip(panels, sizes, strict=True):
        axis.set_xscale("log", base=2)
        axis.set_xticks(lengths, map(str, lengths))
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.set_title(f"{size:,} {'text' if size == 1 else 'texts'} per call", fontsize=10)
        axis.set_xlabel("tokens per text")
        here = [one for one in timings if one.work.texts_per_call == size]
        for order, (side, colour) in enumerate(colours.items()):
            curve = [one for one in here if one.side == side]
            style = {"color": colour, "linewidth": 2.4 if order == 0 else 1.3, "zorder": 9 - order}
            values = [value(one) for one in curve]
            axis.plot(lengths, values, marker="o", markersize=3.5, **style)
            if scale == "log":
                highest = [one.milliseconds(95) for one in curve]
                axis.fill_between(lengths, values, highest, color=colour, alpha=0.15, linewidth=0)
    if scale == "linear":
        panels[0].set_ylim(bottom=0)
        panels[0].yaxis.set_major_formatter("{x:,.0f}")
    else:
        set_log_scale(panels[0])
    panels[0].set_ylabel(name)
    ends = {
        one.side: value(one)
        for one in timings
        if (one.work.length, one.work.texts_per_call) == (lengths[-1], sizes[-1])
    }
    _names(panels[-1], ends, lengths[-1], colours)


def set_log_scale(axis: Any) -> None:
    """A logarithmic y axis with plain numbers at its ticks. Call it after drawing the data."""
    axis.set_yscale("log")
    ticks = log_ticks(*axis.get_ylim())
    axis.set_yticks(ticks, [f"{tick:,.10g}" for tick in ticks])
    axis.minorticks_off()


def _names(axis: Any, ends: Mapping[str, float], last: int, colours: Colours, room: float = 0.085) -> None:
    """Each system's name next to the end of its curve, without overlap. room: relative height of a name."""
    to_panel = axis.transData + axis.transAxes.inverted()
    heights = {side: float(to_panel.transform((last, value))[1]) for side, value in ends.items()}
    placed = -room
    for index, side in enumerate(sorted(heights, key=heights.__getitem__)):
        most = 1 - room * (len(heights) - 1 - index)  # leaves room for the names above
        placed = min(max(heights[side], placed + room), most)
        line = {"arrowstyle": "-", "color": colours[side], "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3}
        axis.annotate(
            side,
            xy=(last, ends[side]),
            xytext=(1.06, placed),
            textcoords="axes fraction",
            va="center",
            fontsize=9,
            color=colours[side],
            annotation_clip=False,
            arrowprops={**line, "relpos": (0, 0.5)},
        )


def _bars(axis: Any, timings: Sequence[Timing], colours: Colours) -> None:
    """Texts per second for the user's texts, all in one call."""
    size = max(one.work.texts_per_call for one in timings)
    here = [one for one in timings if one.work.texts_per_call == size]
    fastest = max(one.texts_per_second for one in here)
    for row, one in enumerate(reversed(here)):
        axis.barh(row, one.texts_per_second, color=colours[one.side], height=0.7)
        label = f"{one.side}: {one.texts_per_second:,.{0 if one.texts_per_second > 100 else 1}f}"
        axis.text(one.texts_per_second + 0.01 * fastest, row, label, va="center", fontsize=9, color=colours[one.side])
    axis.set_xlim(0, 1.45 * fastest)
    axis.set_yticks([])
    axis.grid(alpha=0.3, axis="x")
    axis.set_title(f"{here[0].work.texts}, {size:,} per call", fontsize=10)
    axis.set_xlabel("texts per second")
