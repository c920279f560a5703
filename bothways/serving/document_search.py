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
from bothways.search.store import Hit, Store, hit_json
from bothways.serving import calls
from bothways.serving.bodies import read_choice, read_integer, read_share, read_text, wrong
from bothways.serving.exchange import Exchange, Record, answered, json_response, read_body
from bothways.serving.inference_queue import Limits
from bothways.serving.served_model import ServedModel
from bothways.tasks.classify import class_scores, label_probabilities
from bothways.tasks.rerank_decoding import Reranking

MOST_HITS, DEFAULT_HITS = 100, 10
LONGEST_QUERY = 2000  # characters
WAYS = ("hybrid", "words", "vectors")


class _Computed:
    """The vector of one query, which a model of the server has computed."""

    def __init__(self, fingerprint: str, vector_H: np.ndarray) -> None:
        self.fingerprint, self.vector_H = fingerprint, vector_H

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return self.vector_H[None]


class DocumentSearch:
    """The route. A store of an encoder's vectors is searched with a model of the server if it has the same vectors,
    else with the static vectors that are fitted to them, else with the encoder of the index."""

    def __init__(
        self, store: Store, models: Iterable[ServedModel], limits: Limits, reranker: ServedModel | None = None
    ) -> None:
        """reranker: orders what is found. InputError if it reads no pairs."""
        if reranker is not None and (reranker.cannot_rank or "classes" not in reranker.model.backend.heads):
            raise InputError(f"rerank ({reranker.name}): reads no pairs of texts; name a reranker (finetune rerank)")
        self.store, self.limits, self.reranker = store, limits, reranker
        self.by_space = {served.fingerprint: served for served in models if served.fingerprint}

    def facts(self) -> dict[str, int]:
        """Numbers of the index. It reads the database, so not in the event loop."""
        return {"files": self.store.files, "passages": self.store.passages}

    async def respond(self, request: Request) -> Response:
        record: Record = request.scope["record"]

        async def handle() -> Response:
            body = await read_body(request, self.limits)
            query, top = read_text(body, "query"), read_integer(body, "top", DEFAULT_HITS, 1, MOST_HITS)
            if not query.strip() or len(query) > LONGEST_QUERY:
                raise wrong("query", query, f"a text of at most {LONGEST_QUERY:,} characters")
            how = read_choice(body, "how", WAYS)
            globs, condition = _optional_text(body, "glob"), _optional_text(body, "filter")
            min_score = read_share(body, "min_score")
            record.texts, started = 1, time.monotonic()
            vectors, fast = await self._vectors(request, query, record) if how != "words" else (open_vectors, False)

            top = top or DEFAULT_HITS
            number = top
            if self.reranker is not None:
                number = max(top, num_reranked(self.reranker.model.description.metadata))

            def find() -> list[Hit]:
                return self.store.search(
                    query,
                    top=number,
                    how=how,  # type: ignore[arg-type]
                    vectors=vectors,
                    fast=fast,
                    globs=[globs] if globs else [],
                    condition=condition,
                    min_score=min_score,
                )

            def show(found: list[Hit]) -> tuple[list[dict[str, Any]], int]:
                return [self._shown(hit, query) for hit in found[:top]], self.store.passages

            found = await asyncio.to_thread(find)
            if self.reranker is not None and found:
                found = await self._reranked(Exchange(request, {}, self.reranker, record), query, found)
            hits, passages = await asyncio.to_thread(show, found)
            seconds = time.monotonic() - started
            facts = {"passages": passages, "seconds": round(seconds, 4)}
            return json_response({"relevant": not all(hit["weak"] for hit in hits), "hits": hits, **facts})

        return await answered(handle, request)

    async def _reranked(self, exchange: Exchange, query: str, hits: list[Hit]) -> list[Hit]:
        """The passages in the order of the reranker, which computes with the other requests to it."""
        model = exchange.served.model
        reranking = Reranking.of(model.description.metadata)
        read = hits[: reranking.passages]
        outputs = await exchange.run(class_scores, [(query, hit.text) for hit in read])
        scores = [
            float(scores_C[0] if len(scores_C) == 1 else label_probabilities(model, scores_C)[-1])
            for scores_C in outputs
        ]
        return reordered(hits, [*reranking.order(scores), *range(len(read), len(hits))], scores)

    async def _vectors(self, request: Request, query: str, record: Record) -> tuple[Any, bool]:
        """How the models of the store are opened, and whether the query is read by static vectors."""
        expected, is_static = await asyncio.to_thread(self._space)
        if is_static or expected is None:
            return open_vectors, False
        if served := self.by_space.get(expected):
            exchange = Exchange(request, {}, served, record)
            (vector_H,) = await exchange.run(calls.embed, [(query, None)], normalize=True)
            return (lambda space, model: _Computed(expected, np.asarray(vector_H))), False
        return open_vectors, await asyncio.to_thread(self._static_space) == expected

    def _space(self) -> tuple[str | None, bool]:
        """The fingerprint of the encoder of the index, and whether static vectors are searched."""
        return self.store.database.get("encoder_fingerprint"), self.store.space() == "static"

    def _static_space(self) -> str | None:
        static = open_vectors("static", self.store.database.get("static_model"))
        space: str | None = getattr(static, "space", None)
        return space

    def _shown(self, hit: Hit, query: str) -> dict[str, Any]:
        static = open_vectors("static", self.store.database.get("static_model"))
        return hit_json(hit) | {"match": [*matching_sentence(hit.text, query, self.store.analyzer, static)]}


def _optional_text(body: Mapping[str, Any], field: str) -> str | None:
    value = body.get(field)
    if value is not None and not isinstance(value, str):
        raise wrong(field, value, "a string")
    return value or None
