"""Curves of a run as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# What a panel shows: title, key in metrics.jsonl, and a level to draw across it (a baseline), by its key in the run's
# notes.
PANELS = (
    ("Loss (nats)", "loss", None),
    ("Perplexity of words guessed, held out", "perplexity", "unigram_perplexity"),
    ("Next-sentence accuracy, held out", "next_sentence_accuracy", "chance"),
    ("Sentence-order accuracy, held out", "sentence_order_accuracy", "chance"),
    ("Accuracy on replaced tokens, held out", "replaced_accuracy", "chance"),
    ("Accuracy, dev", "accuracy", "majority"),
    ("Learning rate", "rate", None),
)


def curves(rows: Sequence[Mapping[str, Any]], file: Path, *, title: str, levels: Mapping[str, float]) -> None:
    """Write a PNG with a panel for each quantity there is: training in grey (smoothed over it in blue), held-out in
    orange."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [panel for panel in PANELS if any(panel[1] in row for row in rows)]
    figure, axes = pyplot.subplots(1, len(panels), figsize=(5.2 * len(panels), 3.6), squeeze=False)
    for axis, (name, key, level) in zip(axes[0], panels, strict=True):
        for split, colour in (("train", "0.75"), ("heldout", "tab:orange")):
            points = [(row["step"], row[key]) for row in rows if row["split"] == split and key in row]
            if points:
                steps, values = zip(*points, strict=True)
                marker = "o" if split == "heldout" else None
                axis.plot(steps, values, color=colour, marker=marker, markersize=3, linewidth=1, label=split)
                if split == "train" and key == "loss":
                    axis.plot(steps, _smoothed(values), color="tab:blue", linewidth=1.5, label="train, smoothed")
        if level and level in levels:
            axis.axhline(levels[level], color="tab:green", linestyle="--", linewidth=1, label=level.replace("_", " "))
        if key == "perplexity":
            axis.set_yscale("log")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def _smoothed(values: Sequence[float], share: float = 0.05) -> list[float]:
    """A running mean that weighs the newest value by `share`, corrected at the start."""
    mean, weight, found = 0.0, 0.0, []
    for value in values:
        mean = (1 - share) * mean + share * value
        weight = (1 - share) * weight + share
        found.append(mean / weight)
    return found
