"""Reranked search: the first passages of a search, in the order that a model of (query, passage) gives them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bothways.inference.ranking import RERANKED, rerank_order
from bothways.search.store import Hit, Store
from bothways.tasks.rerank.decoding import Reranking

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor


def search_reranked(store: Store, query: str, model: "Predictor | None", *, top: int, **options: Any) -> list[Hit]:
    """The best passages for a query, best first, after reranking.

    store: the index.
    query: a text.
    model: of (query, passage); None: the hits stay in the order of the search.
    top: at most so many passages.
    options: the other options of `Store.search`.

    InputError if the model reads no pairs.
    """
    if model is None:
        return store.search(query, top=top, **options)

    number = num_reranked(model.description.metadata)
    hits = store.search(query, top=max(top, number), **options)
    if not hits:
        return []
    return rerank(query, hits, model)[:top]


def num_reranked(metadata: Mapping[str, Any]) -> int:
    """How many passages a model reranks: as many as it was measured with, else RERANKED."""
    # A model that was measured on ten passages was never tried on the passages after them.
    return Reranking.of(metadata).passages or RERANKED


def rerank(query: str, hits: Sequence[Hit], model: "Predictor") -> list[Hit]:
    """Passages in the order that a model of (query, passage) gives them; see `reordered`."""
    order, scores = rerank_order(model, query, [hit.text for hit in hits])
    return reordered(hits, order, scores)


def reordered(hits: Sequence[Hit], order: Sequence[int], scores: Sequence[float]) -> list[Hit]:
    """Passages in another order, each with the score of the model.

    hits: in the order of the search.
    order: the indices of the hits, best first.
    scores: of the first hits; the model has not read the others, which keep their scores.
    """
    scored = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=False)]
    scored += hits[len(scores) :]
    return [scored[index] for index in order]
