"""Decisions with examples (benchmarks/decide_examples.py)."""

import numpy as np

from benchmarks.figures.scores import Figures, markdown, of_labels, with_bounds
from benchmarks.measurements import Measurement

KEPT = 0.95
TITLES = {
    "support": "support messages, 8 a class",
    "banking10": "BANKING77, 10 a class",
    "banking": "BANKING77, all",
    "clinc": "CLINC150, all",
}
OUTSIDE = "clinc"  # the set with texts out of scope


def figures(measurement: Measurement) -> Figures:
    values: dict[str, float] = {}
    rows = []
    for name, number in measurement.about["rows"].items():
        gold_N = measurement[f"{name}/gold"]
        answers = {
            key.removeprefix(f"{name}/"): predicted_N
            for key, predicted_N in measurement.arrays.items()
            if key.startswith(f"{name}/") and key.count("/") == 1 and key != f"{name}/gold"
        }
        stated = {method: of_labels(gold_N, [predicted_N]) for method, predicted_N in answers.items()}
        for method, one in stated.items():
            values |= with_bounds(f"{name}.{method}", one, 100)
        rows.append(
            [
                f"{TITLES[name]} ({number:,} rows, {len(gold_N):,} test rows)",
                stated["decide"].percent(),
                f"{100 * stated['scikit-learn'].value:.1f}",
                f"{measurement.about['figures']['seconds'][name]:.0f}",
            ]
        )
    if f"{OUTSIDE}/gold" in measurement.arrays:
        values |= out_of_scope(measurement)
    return Figures(values, {"examples": markdown(["rows", "`finetune decide`", "scikit-learn", "seconds"], rows)})


def out_of_scope(measurement: Measurement) -> dict[str, float]:
    """Texts out of scope that are none of the options, and texts in scope that keep one, in percent."""
    values = {}
    for method in ("decide", "scikit-learn"):
        scores = {
            part: measurement[f"{OUTSIDE}/none/{part}/{method}"].astype(np.float64)
            for part in ("validation", "test", "outside")
        }
        limit = np.quantile(scores["validation"], KEPT)
        values[f"none.{method}.recall"] = 100 * float((scores["outside"] > limit).mean())
        values[f"none.{method}.kept"] = 100 * float((scores["test"] <= limit).mean())
    values["none.default.recall"] = 100 * float(measurement[f"{OUTSIDE}/refused/outside"].mean())
    values["none.default.kept"] = 100 - 100 * float(measurement[f"{OUTSIDE}/refused/test"].mean())
    return values
