"""Training curves as a PNG (matplotlib): loss, metrics, learning rate."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MetricRows = Sequence[Mapping[str, Any]]
# A panel: title, key in metrics.jsonl, and the key in `levels` of a horizontal line (a baseline).
Panel = tuple[str, str, str | None]
PRETRAINING: tuple[Panel, ...] = (
    ("Perplexity, held out", "perplexity", "unigram_perplexity"),
    ("Next-sentence accuracy, held out", "next_sentence_accuracy", "chance"),
    ("Sentence-order accuracy, held out", "sentence_order_accuracy", "chance"),
    ("Replaced-token accuracy, held out", "replaced_accuracy", "chance"),
)


def save_curves(rows: MetricRows, file: Path, *, title: str, levels: Mapping[str, float], metric: str = "") -> None:
    """Write a PNG with a panel for each recorded quantity and a line for each seed.

    Training is grey (smoothed: blue), held-out orange. metric: the key of the metric that fine-tuning selects by;
    `levels` has its baseline as "baseline".
    """
    draw_curves(rows, title=title, levels=levels, metric=metric).savefig(file, dpi=110)


def draw_curves(rows: MetricRows, *, title: str, levels: Mapping[str, float], metric: str = "") -> "Figure":
    from matplotlib.figure import Figure

    metric_panels = ((f"{metric.replace('_', ' ')}, dev", metric, "baseline"),) if metric else PRETRAINING
    panels: list[Panel] = [("Loss", "loss", None), *metric_panels, ("Learning rate", "learning_rate", None)]
    panels = [panel for panel in panels if any(panel[1] in row for row in rows)]
    figure = Figure(figsize=(5.2 * len(panels), 3.6))
    for axis, (name, key, level) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for steps, values in points_by_seed(rows, "train", key):
            axis.plot(steps, values, color="0.75", linewidth=1, label="train")
            if key == "loss":
                axis.plot(steps, _smooth(values), color="tab:blue", linewidth=1.5, label="train, smoothed", zorder=3)
        for steps, values in points_by_seed(rows, "heldout", key):
            axis.plot(steps, values, color="tab:orange", linewidth=1, marker="o", markersize=3, label="held out")
        if level and level in levels:
            axis.axhline(levels[level], color="tab:green", linestyle="--", linewidth=1, label=level.replace("_", " "))
        if key == "perplexity":
            axis.set_yscale("log")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        handles, names = axis.get_legend_handles_labels()
        handle_by_name = dict(zip(names, handles, strict=True))  # one entry for all seeds
        axis.legend(handle_by_name.values(), handle_by_name.keys(), fontsize=8)
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    return figure


def points_by_seed(rows: MetricRows, split: str, key: str) -> Iterator[tuple[list[int], list[float]]]:
    """(steps, values) of each seed."""
    points_of_seed: dict[int, list[tuple[int, float]]] = {}
    for row in rows:
        if row["split"] == split and key in row:
            points_of_seed.setdefault(row.get("seed", 0), []).append((row["step"], row[key]))
    for points in points_of_seed.values():
        yield [step for step, _ in points], [value for _, value in points]


def _smooth(values: Sequence[float], weight: float = 0.05) -> list[float]:
    """An exponential moving average with bias correction. weight: weight of the newest value."""
    mean, total_weight, smoothed = 0.0, 0.0, []
    for value in values:
        mean = (1 - weight) * mean + weight * value
        total_weight = (1 - weight) * total_weight + weight
        smoothed.append(mean / total_weight)
    return smoothed
