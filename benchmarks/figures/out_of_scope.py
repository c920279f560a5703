"""Texts of none of the classes (benchmarks/out_of_scope.py)."""

import numpy as np

from benchmarks.figures.scores import Figures, auroc, markdown, share, with_bounds
from benchmarks.measurements import Measurement

KEPT = 0.95
TITLES = {
    "greatest probability": "greatest probability",
    "entropy": "entropy",
    "cosine, nearest text": "cosine of the nearest training text",
    "cosine, three nearest": "mean cosine of the three nearest",
    "in_scope": "`in_scope`",
}


def figures(measurement: Measurement) -> Figures:
    values = with_bounds("accuracy", share(measurement["gold"] == measurement["predicted"]), 100)
    rows = []
    for name, title in TITLES.items():
        inside_N, outside_M = measurement[f"inside/{name}"], measurement[f"outside/{name}"]
        values[f"{name}.refused"] = 100 * float(np.mean(outside_M < np.quantile(inside_N, 1 - KEPT)))
        values[f"{name}.auroc"] = auroc(inside_N, outside_M)
        rows.append([title, f"{values[f'{name}.refused']:.1f} %", f"{values[f'{name}.auroc']:.3f}"])

    values["kept"] = 100 * float(measurement["inside kept"].mean())
    values["refused"] = 100 * float(1 - measurement["outside kept"].mean())
    threshold = f"{values['refused']:.1f} %, and {values['kept']:.1f} % kept"
    rows.append(["`in_scope=0.95`, the threshold from training", threshold, ""])
    return Figures(values, {"scores": markdown(["score", "refused", "AUROC"], rows)})
