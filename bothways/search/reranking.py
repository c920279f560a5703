"""A second ranking of the best passages, by a model that reads the query and a passage together.

It is off by default: models that were trained on web searches can spoil the ranking of other documents.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bothways.errors import InputError

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

RERANKED = 50  # passages that are ordered anew


def pair_relevance(model: "Predictor", query: str, texts: Sequence[str]) -> list[float]:
    """A score for each (query, text): the number of a regression model, or the probability of a classifier's last label
    (1, yes, relevant). InputError if the model reads no pairs."""
    if model.task not in ("regress", "classify"):
        raise InputError(
            f"rerank needs a model of text pairs (finetune regress or classify); this one is for {model.task}"
        )
    if not texts:
        return []
    pairs = [query] * len(texts), list(texts)
    if model.task == "regress":
        return [float(score) for score in model.regress(*pairs)]
    last = model.labels[-1]
    return [prediction.scores[last] for prediction in model.classify(*pairs)]
