"""The packaged English model (benchmarks/english.py): vectors, masked words, next sentences, ten sentences."""

import numpy as np

from benchmarks.figures.rankings import ndcg
from benchmarks.figures.scores import Figures, Stated, share, with_bounds
from benchmarks.measurements import Measurement
from bothways.measure.metrics import perplexity
from bothways.tasks.embed.scoring import pair_scores


def vectors(measurement: Measurement) -> Figures:
    values: dict[str, float] = {}
    for name in ("model", "teacher"):
        scores = pair_scores(measurement["sts/gold"].tolist(), measurement[f"sts/{name}"].tolist())
        low, high = scores["spearman_interval"]
        values |= with_bounds(f"sts.{name}", Stated(scores["spearman"], low, high))
        values |= with_bounds(f"scifact.{name}", ndcg(measurement, "scifact", name))
    return Figures(values, {})


def words(measurement: Measurement) -> Figures:
    loss_M = measurement["loss"]
    values = {"perplexity": perplexity(float(loss_M.mean(dtype=np.float64))), "masks": float(len(loss_M))}
    return Figures({**values, **with_bounds("first", share(measurement["right"]), 100)}, {})


def next_sentence(measurement: Measurement) -> Figures:
    gold = measurement["gold"]
    chance = 100 * max(gold.mean(), 1 - gold.mean())
    right = share(measurement["predicted"] == gold)
    return Figures({"chance": chance, "pairs": float(len(gold)), **with_bounds("accuracy", right, 100)}, {})


def fills(measurement: Measurement) -> Figures:
    places = measurement["places"]
    return Figures({"right": float((places == 0).sum()), "sentences": float(len(places))}, {})
