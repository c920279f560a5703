"""Options named when one asks (benchmarks/decide.py)."""

import numpy as np

from benchmarks.figures.scores import Figures, Stated, markdown, share, with_bounds
from benchmarks.measurements import Measurement
from bothways.measure.metrics import reliability

ALLOWED_ERROR = 0.05
TITLES = {
    "SST-2": "SST-2, dev",
    "support": "support messages",
    "ACL-ARC": "ACL-ARC, dev and test",
    "CLINC150 domains": "CLINC150, domains, test",
}


def automated(best_N: np.ndarray, right_N: np.ndarray) -> float:
    """The largest share of the most certain answers of which at most ALLOWED_ERROR are wrong."""
    order = np.argsort(-best_N, kind="stable")
    errors = (~right_N[order]).cumsum() / np.arange(1, len(order) + 1)
    allowed = np.flatnonzero(errors <= ALLOWED_ERROR)
    return float((allowed[-1] + 1) / len(order)) if len(allowed) else 0.0


def figures(measurement: Measurement) -> Figures:
    values: dict[str, float] = {}
    rows = []
    for name in (key.removesuffix("/gold") for key in measurement.arrays if key.endswith("/gold")):
        gold_N = measurement[f"{name}/gold"]
        most = float(np.bincount(gold_N).max() / len(gold_N))
        values[f"{name}.most frequent"] = 100 * most
        accuracies: dict[str, Stated] = {}
        for method in ("vectors", "decide"):
            probabilities_NC = measurement[f"{name}/{method}"]
            right_N = probabilities_NC.argmax(1) == gold_N
            best_N = probabilities_NC.max(1)
            accuracies[method] = share(right_N)
            values |= with_bounds(f"{name}.{method}", accuracies[method], 100)
            values[f"{name}.{method}.calibration"] = reliability(best_N.tolist(), right_N.tolist()).error
            values[f"{name}.{method}.automated"] = 100 * automated(best_N, right_N)

        both = [f"{name}.{method}" for method in ("vectors", "decide")]
        rows.append(
            [
                f"{TITLES[name]}, {len(gold_N):,}",
                str(probabilities_NC.shape[1]),
                f"{100 * most:.1f}",
                accuracies["vectors"].percent(),
                accuracies["decide"].percent(),
                ", ".join(f"{values[f'{key}.calibration']:.3f}" for key in both),
                ", ".join(f"{values[f'{key}.automated']:.0f}" for key in both) + " %",
            ]
        )
    head = [
        "texts",
        "options",
        "most frequent",
        "vectors alone",
        "`decide`",
        "calibration error: vectors, `decide`",
        "automated at 5 % error: vectors, `decide`",
    ]
    return Figures(values, {"sets": markdown(head, rows)})
