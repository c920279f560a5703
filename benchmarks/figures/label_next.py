"""Labels saved by choosing the texts (benchmarks/label_next.py)."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from benchmarks.figures.scores import Figures, markdown
from benchmarks.measurements import Measurement

STEP = 20  # labels of a round
METHODS = {"clusters": "`--label-next`", "gradients": "BADGE"}


def figures(measurement: Measurement) -> Figures:
    """Accuracy with the labels of all rounds, and how many labels at random have the same."""
    values: dict[str, float] = {}
    rows = []
    for name, pool in measurement.about["pools"].items():
        random_DR = accuracies(measurement, f"{name}/random")
        last = accuracies(measurement, f"{name}/clusters").shape[1] - 1
        cells, needed = [mean_and_deviation(random_DR[:, last])], []
        for method in METHODS:
            accuracies_DR = accuracies(measurement, f"{name}/{method}")
            gains_D = accuracies_DR[:, last] - random_DR[:, last]
            error = float(gains_D.std(ddof=1) / len(gains_D) ** 0.5)
            labels = labels_needed(random_DR.mean(0).tolist(), float(accuracies_DR[:, last].mean()))

            values |= {f"{name}.{method}.gain": float(gains_D.mean()), f"{name}.{method}.gain.error": error}
            values[f"{name}.{method}.labels"] = labels
            values[f"{name}.{method}.saved"] = 100 * (1 - STEP * (last + 1) / labels)
            cells.append(f"{mean_and_deviation(accuracies_DR[:, last])} ({gains_D.mean():+.1f} +- {error:.1f})")
            needed.append(f"{labels:.0f}")
        num_test = measurement[f"{name}/random"].shape[-1]
        rows.append([f"{name} ({pool:,}, {num_test:,})", *cells, *needed])

    titles = [*METHODS.values()]
    head = ["set (pool, test)", "random", *titles, f"labels at random for {titles[0]}", f"for {titles[1]}"]
    return Figures(values, {"labels": markdown(head, rows)})


def accuracies(measurement: Measurement, name: str) -> np.ndarray:
    """In percent, [draws, rounds]."""
    return 100 * measurement[name].mean(-1)


def mean_and_deviation(values_D: np.ndarray) -> str:
    return f"{values_D.mean():.1f} +- {values_D.std(ddof=1):.1f}"


def labels_needed(curve: Sequence[float], wanted: float) -> float:
    """The first number of labels at which the curve of random choice reaches an accuracy, between two rounds; infinite
    if it does not."""
    for number, (low, high) in enumerate(pairwise(curve), 1):
        if low < wanted <= high:
            return STEP * (number + (wanted - low) / (high - low))
    return float("inf") if wanted > curve[0] else float(STEP)
