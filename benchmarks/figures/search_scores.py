"""Scores of hits: ROC curves, Brier scores, calibration, reliability, weak hits (benchmarks/search_scores.py).

An array WAY/SET/SIGNALS has the scores of the first hits of all queries, by a model of these signals that was fitted to
the other set; WAY/SET/best the best score among the hits of a query.
"""

from typing import Any

import numpy as np

from benchmarks.figures.scores import Figures, auroc, markdown
from benchmarks.measurements import Measurement

SETS = ("SciFact", "Cranfield")
WAYS = {
    "words": "words",
    "vectors, static": "vectors, static",
    "vectors, encoder": "vectors, bothways-en",
    "vectors, fast": "vectors, static queries",
    "hybrid, static": "both, static",
    "hybrid, encoder": "both, bothways-en",
    "hybrid, fast": "both, static queries",
}
PACKAGE = {
    "words": "bm25 share, word share",
    "vectors": "cosine",
    "hybrid": "cosine, bm25 share, word share",
}
TITLES = {
    "bm25 share, word share": "**BM25 and words: the package**",
    "cosine, bm25 share, word share": "**cosine, BM25 and words: the package**",
    "cosine": "raw cosine",
    "cosine in index": "cosine, in standard deviations of the query's cosines with the index",
    "bm25": "raw BM25",
    "score": "the score before, scaled among the candidates",
}
FACTS = ("best", "relevant", "own")  # arrays that are no scores of first hits
RELIABLE = {"hybrid, encoder": "both, bothways-en", "hybrid, static": "both, static"}
THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)


def figures(measurement: Measurement) -> Figures:
    values: dict[str, float] = {}
    rows = []
    for way, shown in WAYS.items():
        package = PACKAGE[way.partition(",")[0]]
        for signals in signals_of(measurement, way):
            if way == "words" and signals == "score":  # of words alone it is that of BM25
                continue
            found = {name: quality(measurement, way, name, signals) for name in SETS}
            values |= {f"{way}.{signals}.{name}.{key}": one[key] for name, one in found.items() for key in one}
            title = "**cosine: the package**" if package == signals == "cosine" else TITLES[signals]
            cells = ["; ".join(f"{found[name][key]:.3f}" for name in SETS) for key in ("auc", "brier", "ece")]
            rows.append([shown, title, *cells])

    head = ["search", "score from", f"AUC, {'; '.join(SETS)}", "Brier", "ECE"]
    tables = {
        "signals": markdown(head, rows),
        "reliability": reliability_table(measurement),
        "weak": weak_table(measurement),
    }
    return Figures(values, tables)


def signals_of(measurement: Measurement, way: str) -> list[str]:
    begin = f"{way}/{SETS[0]}/"
    names = [key.removeprefix(begin) for key in measurement.arrays if key.startswith(begin)]
    return [name for name in names if name not in FACTS]


def quality(measurement: Measurement, way: str, name: str, signals: str) -> dict[str, float]:
    predicted = measurement[f"{way}/{name}/{signals}"].astype(np.float64)
    relevant = measurement[f"{way}/{name}/relevant"]
    own = measurement[f"{way}/{name}/own"]
    return {
        "auc": auroc(predicted[own], predicted[~own]),
        "auc of relevant": auroc(predicted[own & relevant], predicted[own & ~relevant]),
        "brier": float(((predicted - relevant) ** 2).mean()),
        "ece": calibration_error(predicted, relevant),
    }


def calibration_error(predicted: np.ndarray, observed: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error, in bins of equal size. Hits of equal scores count as their mean, so that their order
    does not matter."""
    _, score_of_hit = np.unique(predicted, return_inverse=True)
    mean_of_score = np.bincount(score_of_hit, observed) / np.bincount(score_of_hit)
    observed = mean_of_score[score_of_hit]
    parts = np.array_split(np.argsort(predicted), bins)
    return float(sum(len(part) * abs(predicted[part].mean() - observed[part].mean()) for part in parts) / len(observed))


def reliability(measurement: Measurement, way: str) -> list[dict[str, Any]]:
    """Predicted and observed shares of relevant first hits of both sets, in tenths of the score that have hits."""
    package = PACKAGE[way.partition(",")[0]]
    scores = np.concatenate([measurement[f"{way}/{name}/{package}"] for name in SETS]).astype(np.float64)
    relevant = np.concatenate([measurement[f"{way}/{name}/relevant"] for name in SETS])
    tenths = np.minimum((scores * 10).astype(int), 9)
    rows = []
    for tenth in np.unique(tenths).tolist():
        part = tenths == tenth
        predicted, observed = float(scores[part].mean()), float(relevant[part].mean())
        rows.append({"from": tenth / 10, "hits": int(part.sum()), "predicted": predicted, "observed": observed})
    return rows


def reliability_table(measurement: Measurement) -> list[str]:
    columns = [
        {
            row["from"]: f"{row['hits']}; {row['predicted']:.2f}; {row['observed']:.2f}"
            for row in reliability(measurement, way)
        }
        for way in RELIABLE
    ]
    starts = sorted({start for column in columns for start in column})
    rows = [[f"{start:.1f} to {start + 0.1:.1f}", *(column.get(start, "") for column in columns)] for start in starts]
    return markdown(["score", *(f"{title}: hits; predicted; observed" for title in RELIABLE.values())], rows)


def weak_table(measurement: Measurement) -> list[str]:
    """For each threshold: relevant first hits below it, and queries all of whose hits are."""
    rows = []
    for way, title in RELIABLE.items():
        for threshold in THRESHOLDS:
            shares = [weak(measurement, way, name, threshold) for name in SETS]
            cells = ["; ".join(f"{100 * one[column]:.1f} %" for one in shares) for column in range(3)]
            rows.append([f"{threshold:.2f}, {title.removeprefix('both, ')}", *cells])
    head = [
        "threshold",
        f"relevant first hits below it, {'; '.join(SETS)}",
        "own queries with only weak hits",
        "foreign queries with only weak hits",
    ]
    return markdown(head, rows)


def weak(measurement: Measurement, way: str, name: str, threshold: float) -> tuple[float, float, float]:
    package = PACKAGE[way.partition(",")[0]]
    first = measurement[f"{way}/{name}/{package}"]
    best = measurement[f"{way}/{name}/best"]
    relevant = measurement[f"{way}/{name}/relevant"]
    own = measurement[f"{way}/{name}/own"]
    return (
        float((first[own & relevant] < threshold).mean()),
        float((best[own] < threshold).mean()),
        float((best[~own] < threshold).mean()),
    )
