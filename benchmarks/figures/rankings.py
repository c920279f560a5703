"""nDCG@10 of kept rankings (benchmarks/search_rankings.py)."""

from collections import defaultdict

import numpy as np

from benchmarks.figures.scores import Stated
from benchmarks.measurements import Measurement
from bothways.measure.metrics.ranking_metrics import ranking_intervals, ranking_scores

TOP = 10


def ndcg(measurement: Measurement, name: str, way: str) -> Stated:
    """The nDCG@10 of a way to search a set, as a fraction. name: of the set; way: the name of its array after it."""
    qrels: dict[str, dict[str, float]] = defaultdict(dict)
    judged = zip(measurement[f"{name}/gold"].tolist(), measurement[f"{name}/grades"].tolist(), strict=True)
    for (query, document), grade in judged:
        qrels[str(query)][str(document)] = grade

    best_QT = measurement[f"{name}/{way}"]
    found = {
        str(query): [str(slot) for slot in best_T[best_T >= 0]] for query, best_T in enumerate(np.asarray(best_QT))
    }
    value = ranking_scores(qrels, found, k=TOP)[f"ndcg@{TOP}"]
    low, high = ranking_intervals(qrels, found, k=TOP)[f"ndcg@{TOP}"]
    return Stated(value, low, high)
