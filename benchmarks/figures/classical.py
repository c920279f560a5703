"""Simple models side by side, without fine-tuning (benchmarks/classical.py)."""

import numpy as np

from benchmarks.figures.scores import Figures, markdown
from benchmarks.measurements import Measurement
from bothways.tasks.embed.scoring import pair_scores

NUMBERS = ("500", "8")  # rows, and rows of each class


def figures(measurement: Measurement) -> Figures:
    values: dict[str, float] = {}
    gold_N = measurement["gold"]
    rows = []
    for name in (key.removesuffix("/cosines") for key in measurement.arrays if key.endswith("/cosines")):
        cells = []
        for number in NUMBERS:
            accuracies_D = 100 * (measurement[f"{name}/{number}"] == gold_N).mean(1)
            deviation = float(np.std(accuracies_D, ddof=1))
            values |= {f"{name}.{number}": float(accuracies_D.mean()), f"{name}.{number}.std": deviation}
            cells.append(f"{accuracies_D.mean():.1f} +- {deviation:.1f}")

        scores = pair_scores(measurement["similarity"].tolist(), measurement[f"{name}/cosines"].tolist())
        values[f"{name}.sts"] = scores["spearman"]
        rows.append([name, *cells, f"{scores['spearman']:.3f}"])
    head = ["", "SST-2 dev, 500 rows", "SST-2 dev, 8 rows a class", "STS-B test, Spearman of the cosine"]
    return Figures(values, {"models": markdown(head, rows)})
