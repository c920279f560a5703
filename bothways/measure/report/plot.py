"""Training curves (matplotlib): loss, metrics, learning rate."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bothways.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110
MetricRows = Sequence[Mapping[str, Any]]
NARROWEST, WIDEST = 1.0, 100.0  # records: a smoothed line follows waves longer than 2 pi times this width
# A panel: title, key in metrics.jsonl, and the key in `levels` of a horizontal line (a baseline).
Panel = tuple[str, str, str | None]
PRETRAINING: tuple[Panel, ...] = (
    ("Perplexity, held out", "perplexity", "unigram_perplexity"),
    ("Next-sentence accuracy, held out", "next_sentence_accuracy", "chance"),
    ("Sentence-order accuracy, held out", "sentence_order_accuracy", "chance"),
    ("Replaced-token accuracy, held out", "replaced_accuracy", "chance"),
)


def draw_curves(
    rows: MetricRows,
    *,
    title: str,
    levels: Mapping[str, float],
    metric: str = "",
    file: str | Path | None = None,
) -> "Figure":
    """A figure with a panel for each recorded quantity and a line for each seed; it shows itself in notebooks.

    Training is grey (smoothed: blue), held-out orange. metric: the key of the metric that fine-tuning selects by;
    `levels` has its baseline as "baseline". file: where to save it, in the format of its suffix.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(f"plots need the package {error.name}; pip install matplotlib") from None

    metric_panels = ((f"{metric.replace('_', ' ')}, dev", metric, "baseline"),) if metric else PRETRAINING
    panels: list[Panel] = [("Loss", "loss", None), *metric_panels, ("Learning rate", "learning_rate", None)]
    panels = [panel for panel in panels if any(panel[1] in row for row in rows)]
    if not panels:
        raise InputError(f"{title}: no metrics to plot")
    figure = Figure(figsize=(5.2 * len(panels), 3.6))
    for axis, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axis, panel, rows, levels)
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    # IPython shows only figures of pyplot by itself.
    figure._repr_png_ = partial(encode_png, figure)  # type: ignore[attr-defined]
    if file is not None:
        try:
            figure.savefig(file, dpi=DPI)
        except ValueError as error:  # a suffix without a format
            raise InputError(f"{file}: {error}") from None
    return figure


def _draw_panel(axis: Any, panel: Panel, rows: MetricRows, levels: Mapping[str, float]) -> None:
    name, key, level = panel
    for steps, values in points_by_seed(rows, "train", key):
        axis.plot(steps, values, color="0.75", linewidth=1, label="train")
        if key == "loss":
            axis.plot(steps, smooth(values), color="tab:blue", linewidth=1.5, label="train, smoothed", zorder=3)
    for steps, values in points_by_seed(rows, "heldout", key):
        axis.plot(steps, values, color="tab:orange", linewidth=1, marker="o", markersize=3, label="held out")
    if level and level in levels:
        axis.axhline(levels[level], color="tab:green", linestyle="--", linewidth=1, label=level.replace("_", " "))
    if key == "perplexity":
        set_log_scale(axis)
    axis.set_title(name, fontsize=10)
    axis.set_xlabel("step")
    axis.grid(alpha=0.3)
    handles, names = axis.get_legend_handles_labels()
    handle_by_name = dict(zip(names, handles, strict=True))  # one entry for all seeds
    axis.legend(handle_by_name.values(), handle_by_name.keys(), fontsize=8)


def encode_png(figure: "Figure") -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def points_by_seed(rows: MetricRows, split: str, key: str) -> Iterator[tuple[list[int], list[float]]]:
    """(steps, values) of each seed."""
    points_of_seed: dict[int, list[tuple[int, float]]] = {}
    for row in rows:
        if row["split"] == split and key in row:
            points_of_seed.setdefault(row.get("seed", 0), []).append((row["step"], row[key]))
    for points in points_of_seed.values():
        yield [step for step, _ in points], [value for _, value in points]


def smooth(values: Sequence[float]) -> list[float]:
    """A smooth line through the middle of a noisy curve: least squares with a penalty on curvature (Whittaker 1923).

    The residuals have mean 0, and straight lines stay as they are, so that unlike a moving average it does not lag
    behind a falling curve. Non-finite values are left out of the fit and are NaN in the result.
    """
    from scipy.linalg import solveh_banded

    values_N = np.asarray(values, np.float64)
    is_finite_N = np.isfinite(values_N)
    smoothed_N = np.full(len(values_N), np.nan)
    num_finite = int(is_finite_N.sum())
    if num_finite < 3:
        return [*values]
    width = min(max(NARROWEST, num_finite / 30), WIDEST)
    # The upper diagonals of I + width^4 D'D, where D takes second differences.
    penalty_3N = np.zeros((3, num_finite))
    second_difference = (1.0, -2.0, 1.0)
    for row, one in enumerate(second_difference):
        for column in range(row, 3):
            places = slice(column, column + num_finite - 2)
            penalty_3N[2 - column + row, places] += one * second_difference[column]
    diagonals_3N = width**4 * penalty_3N
    diagonals_3N[2] += 1
    smoothed_N[is_finite_N] = solveh_banded(diagonals_3N, values_N[is_finite_N])
    return [*map(float, smoothed_N)]


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers from low to high for a logarithmic axis: at most `most`, at least two, evenly spread.

    Over several decades 1, 2, 5, 10, 20, ..., or only powers of ten; within one decade multiples of a round step. low
    and high are positive.
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for leading in ((1, 2, 5), (1, 3), (1,)):
        ticks = [one * 10.0**decade for decade in decades for one in leading if low <= one * 10.0**decade <= high]
        if 3 <= len(ticks) <= most:
            return ticks
    if len(ticks) > most:
        return ticks[:: math.ceil(len(ticks) / most)]
    steps = (one * 10.0**decade for decade in range(decades[0] - 3, decades[-1] + 1) for one in (1, 2, 5))
    step = next((step for step in steps if (high - low) / step <= most - 1), high - low)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def set_log_scale(axis: Any) -> None:
    """A logarithmic y axis with plain numbers at its ticks. Call it after drawing the data."""
    axis.set_yscale("log")
    ticks = log_ticks(*axis.get_ylim())
    axis.set_yticks(ticks, [f"{tick:,.10g}" for tick in ticks])
    axis.minorticks_off()
