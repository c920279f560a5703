"""Search of an index over HTTP: POST /search. It shows passages of the index and reads no other file."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from bothways.base.errors import InputError
from bothways.search.matching import matching_sentence
from bothways.search.reranking import num_reranked, reordered
from bothways.search.spaces import open_vectors
from bothways.search.store import Hit, Store
from bothways.serving import calls
from bothways.serving.bodies import ReadingBody, SearchBody, as_body, wrong
from bothways.serving.limits import Limits
from bothways.serving.metrics import RequestMetrics
from bothways.serving.reply import METRICS, answered, json_response
from bothways.serving.request import ModelRequest, read_body
from bothways.serving.served_model import ServedModel
from bothways.tasks.classify.task import class_scores, label_probabilities
from bothways.tasks.rerank.decoding import Reranking

LONGEST_QUERY = 2000  # characters


class DocumentSearch:
    """The route. A store of an encoder's vectors is searched with a model of the server if it has the same vectors,
    else with the static vectors that are fitted to them, else with the encoder of the index."""

    def __init__(
        self, store: Store, models: Iterable[ServedModel], limits: Limits, reranker: ServedModel | None = None
    ) -> None:
        """The search of a store.

        store: the index.
        models: of the server.
        limits: of a body.
        reranker: orders the passages that a search has found. InputError if it reads no pairs.
        """
        if reranker is not None and (reranker.cannot_rank or "classes" not in reranker.model.backend.heads):
            raise InputError(f"rerank ({reranker.name}): reads no pairs of texts; name a reranker (finetune rerank)")

        self.store = store
        self.limits = limits
        self.reranker = reranker
        self.by_space = {served.fingerprint: served for served in models if served.fingerprint}

    def facts(self) -> dict[str, Any]:
        """Numbers of the index, and the model whose vectors were mapped if they were. It reads the database, so not in
        the event loop."""
        facts: dict[str, Any] = {"files": self.store.files, "passages": self.store.passages}
        mapped_from = self.store.mapped_from
        return facts if mapped_from is None else facts | {"mapped_from": mapped_from}

    async def respond(self, request: Request) -> Response:
        metrics: RequestMetrics = request.scope[METRICS]

        async def handle() -> Response:
            query = read_query(await read_body(request, self.limits))
            metrics.texts = 1
            started = time.monotonic()

            hits = await self._find(query, request, metrics)
            shown, passages = await asyncio.to_thread(self._show, hits, query)
            return json_response(
                {
                    "relevant": not all(hit["weak"] for hit in shown),
                    "hits": shown,
                    "passages": passages,
                    "seconds": round(time.monotonic() - started, 4),
                }
            )

        return await answered(handle, request)

    async def _find(self, query: SearchBody, request: Request, metrics: RequestMetrics) -> list[Hit]:
        """The best passages, in the order of the reranker if there is one."""
        vectors: Any = open_vectors
        fast = False
        if query.how != "words":
            vectors, fast = await self._vectors(query, request, metrics)
        top = query.top
        if self.reranker is not None:
            top = max(top, num_reranked(self.reranker.model.description.metadata))

        def search() -> list[Hit]:
            return self.store.search(
                query.query,
                top=top,
                how=query.how,
                vectors=vectors,
                fast=fast,
                globs=[query.glob] if query.glob else [],
                condition=query.filter or None,
                min_score=query.min_score,
            )

        hits = await asyncio.to_thread(search)
        if self.reranker is None or not hits:
            return hits
        return await self._reranked(ModelRequest(request, ReadingBody(), self.reranker, metrics=metrics), query, hits)

    async def _vectors(self, query: SearchBody, request: Request, metrics: RequestMetrics) -> tuple[Any, bool]:
        """How the models of the store are opened, and whether the query is read by static vectors."""
        expected, is_static = await asyncio.to_thread(self._space)
        if is_static or expected is None:
            return open_vectors, False

        served = self.by_space.get(expected)
        if served is None:
            return open_vectors, await asyncio.to_thread(self._static_space) == expected

        # The server has the encoder of the index, which needs no second copy.
        model_request = ModelRequest(request, ReadingBody(), served, metrics=metrics)
        (vector_H,) = await model_request.run(calls.embed, [(query.query, None)], normalize=True)
        computed = ComputedVector(expected, np.asarray(vector_H))
        return (lambda space, model: computed), False

    def _space(self) -> tuple[str | None, bool]:
        """The fingerprint of the encoder of the index, and whether static vectors are searched."""
        return self.store.database.get("encoder_fingerprint"), self.store.space() == "static"

    def _static_space(self) -> str | None:
        space: str | None = getattr(self._static_vectors(), "space", None)
        return space

    def _static_vectors(self) -> Any:
        return open_vectors("static", self.store.database.get("static_model"))

    async def _reranked(self, request: ModelRequest, query: SearchBody, hits: list[Hit]) -> list[Hit]:
        """The passages in the order of the reranker, which computes with the other requests to it."""
        model = request.served.model
        reranking = Reranking.of(model.description.metadata)

        read = hits[: reranking.passages]
        outputs = await request.run(class_scores, [(query.query, hit.text) for hit in read])

        scores = []
        for scores_C in outputs:
            if len(scores_C) == 1:
                scores.append(float(scores_C[0]))
            else:
                scores.append(float(label_probabilities(model, scores_C)[-1]))
        return reordered(hits, [*reranking.order(scores), *range(len(read), len(hits))], scores)

    def _show(self, hits: list[Hit], query: SearchBody) -> tuple[list[dict[str, Any]], int]:
        """The passages with the sentence that matches best, and the number of all passages."""
        shown = []
        for hit in hits[: query.top]:
            match = matching_sentence(hit.text, query.query, self.store.analyzer, self._static_vectors())
            shown.append(hit.to_json() | {"match": [*match]})
        return shown, self.store.passages


class ComputedVector:
    """The vector of one query, which a model of the server has computed."""

    def __init__(self, fingerprint: str, vector_H: np.ndarray) -> None:
        self.fingerprint = fingerprint
        self.vector_H = vector_H

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return self.vector_H[None]


def read_query(given: Mapping[str, Any]) -> SearchBody:
    """The fields of a body. Refusal if one is wrong."""
    body = as_body(SearchBody, given)
    if not body.query.strip() or len(body.query) > LONGEST_QUERY:
        raise wrong("query", body.query, f"a text of at most {LONGEST_QUERY:,} characters")
    return body
