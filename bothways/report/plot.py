"""Curves of a run as a picture."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
# What a panel shows: title, key in metrics.jsonl, and a level to draw across it (a baseline), by its key in `levels`.
Panel = tuple[str, str, str | None]
PRETRAINING: tuple[Panel, ...] = (
    ("Perplexity of words guessed, held out", "perplexity", "unigram_perplexity"),
    ("Next-sentence accuracy, held out", "next_sentence_accuracy", "chance"),
    ("Sentence-order accuracy, held out", "sentence_order_accuracy", "chance"),
    ("Accuracy on replaced tokens, held out", "replaced_accuracy", "chance"),
)


def curves(rows: Rows, file: Path, *, title: str, levels: Mapping[str, float], metric: str = "") -> None:
    """Write a PNG with a panel for each quantity there is: training in grey (smoothed over it in blue), held-out in
    orange, a line for each seed.

    metric: key of the figure on dev that a fine-tuning run chose by; `levels` has its baseline as "baseline".
    """
    figure = drawn(rows, title=title, levels=levels, metric=metric)
    figure.savefig(file, dpi=110)


def drawn(rows: Rows, *, title: str, levels: Mapping[str, float], metric: str = "") -> "Figure":
    from matplotlib.figure import Figure

    own = ((f"{metric.replace('_', ' ')}, dev", metric, "baseline"),) if metric else PRETRAINING
    panels: list[Panel] = [("Loss", "loss", None), *own, ("Learning rate", "learning_rate", None)]
    panels = [panel for panel in panels if any(panel[1] in row for row in rows)]
    figure = Figure(figsize=(5.2 * len(panels), 3.6))
    for axis, (name, key, level) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for steps, values in by_seed(rows, "train", key):
            axis.plot(steps, values, color="0.75", linewidth=1, label="train")
            if key == "loss":
                axis.plot(steps, _smoothed(values), color="tab:blue", linewidth=1.5, label="train, smoothed", zorder=3)
        for steps, values in by_seed(rows, "heldout", key):
            axis.plot(steps, values, color="tab:orange", linewidth=1, marker="o", markersize=3, label="held out")
        if level and level in levels:
            axis.axhline(levels[level], color="tab:green", linestyle="--", linewidth=1, label=level.replace("_", " "))
        if key == "perplexity":
            axis.set_yscale("log")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        handles, names = axis.get_legend_handles_labels()
        once = dict(zip(names, handles, strict=True))  # of all seeds one
        axis.legend(once.values(), once.keys(), fontsize=8)
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    return figure


def by_seed(rows: Rows, split: str, key: str) -> Iterator[tuple[list[int], list[float]]]:
    """(steps, values) of each seed that has any."""
    found: dict[int, list[tuple[int, float]]] = {}
    for row in rows:
        if row["split"] == split and key in row:
            found.setdefault(row.get("seed", 0), []).append((row["step"], row[key]))
    for points in found.values():
        yield [step for step, _ in points], [value for _, value in points]


def _smoothed(values: Sequence[float], share: float = 0.05) -> list[float]:
    """A running mean that weighs the newest value by `share`, corrected at the start."""
    mean, weight, found = 0.0, 0.0, []
    for value in values:
        mean = (1 - share) * mean + share * value
        weight = (1 - share) * weight + share
        found.append(mean / weight)
    return found
