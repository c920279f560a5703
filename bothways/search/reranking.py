"""Reranked search: the first passages of a search, in the order that a model of (query, passage) gives them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bothways.inference.ranking import RERANKED, rerank_order
from bothways.search.store import Hit, Store
from bothways.tasks.rerank_decoding import Reranking

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor


def search_reranked(store: Store, query: str, model: "Predictor | None", *, top: int, **options: Any) -> list[Hit]:
    """The best passages for a query, best first, after reranking. model: None: as the search has them. options: those
    of `Store.search`. InputError if the model reads no pairs."""
    if model is None:
        return store.search(query, top=top, **options)
    hits = store.search(query, top=max(top, num_reranked(model.description.metadata)), **options)
    return rerank(query, hits, model)[:top] if hits else []


def num_reranked(metadata: Mapping[str, Any]) -> int:
    """How many passages a model reranks: as many as it was measured with, else RERANKED."""
    return Reranking.of(metadata).passages or RERANKED


def rerank(query: str, hits: Sequence[Hit], model: "Predictor") -> list[Hit]:
    """Passages in the order that a model of (query, passage) gives them; see `reordered`."""
    return reordered(hits, *rerank_order(model, query, [hit.text for hit in hits]))


def reordered(hits: Sequence[Hit], order: Sequence[int], scores: Sequence[float]) -> list[Hit]:
    """Passages in an order, as places, each with the score of the model; those after the first, which it has not read,
    keep theirs."""
    scored = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=False)]
    scored += hits[len(scores) :]
    return [scored[place] for place in order]
