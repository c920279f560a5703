"""Reranking: the order that a model of (query, passage) gives to the passages that a search has found.

Reranking is off by default: models that were trained on web searches can spoil the ranking of other documents.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bothways.base.errors import InputError
from bothways.tasks import TASKS
from bothways.tasks.rerank.decoding import Reranking

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

RERANKED = 50  # passages that are ordered anew, unless the model was measured with fewer
PAIR_HEAD = "classes"  # of models that read a text and its pair


def pair_relevance(model: "Predictor", query: str, texts: Sequence[str]) -> list[float]:
    """A score for each (query, text): the number of a reranker or regression model, or the probability of a
    classifier's last label (1, yes, relevant). InputError if the model reads no pairs."""
    if TASKS[model.task].head != PAIR_HEAD:
        raise InputError(
            f"rerank needs a reranker (finetune rerank) or another model of text pairs (finetune regress or classify); "
            f"this one is for {model.task}"
        )
    if not texts:
        return []

    queries = [query] * len(texts)
    if not model.labels:
        return [float(score) for score in model.regress(queries, list(texts))]
    last = model.labels[-1]
    return [prediction.scores[last] for prediction in model.classify(queries, list(texts))]


def rerank_order(model: "Predictor", query: str, texts: Sequence[str]) -> tuple[list[int], list[float]]:
    """The order of texts that a search has found, as their indices, and the scores of the texts that the model has
    read: all, or the first of them, if the model was measured so. The others follow in the order of the search.

    texts: in the order of the search.

    InputError if the model reads no pairs.
    """
    reranking = Reranking.of(model.description.metadata)
    read = texts[: reranking.passages]
    scores = pair_relevance(model, query, read)
    order = [*reranking.order(scores), *range(len(read), len(texts))]
    return order, scores
