"""Handlers of the routes that need a model: a body is read, texts are computed, the answer is built.

Bodies and answers of /embed, /embed_all, /predict, /rerank, /similarity, /tokenize and /decode are those of Text
Embeddings Inference.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bothways.inference.reading import Rows
from bothways.serving import bodies, calls
from bothways.serving.exchange import FINGERPRINT, Exchange
from bothways.tasks.arrays import sigmoid
from bothways.tasks.classify import class_scores, label_probabilities
from bothways.tasks.task import Item, Route


def route_handler(route: Route) -> Callable[[Exchange], Awaitable[Any]]:
    """The handler of a task's route."""

    async def handle(exchange: Exchange) -> Any:
        body = exchange.body
        items, is_single = bodies.READERS[route.reads](body)
        options: dict[str, Any] = {
            name: bodies.read_integer(body, name, *bounds) for name, bounds in route.options.items()
        }
        options |= {name: share for name in route.shares if (share := bodies.read_share(body, name)) is not None}
        flags = {name: bodies.read_bool(body, name, False) for name in route.flags}
        if route.reads == "sequences":
            _check_pairs(exchange, has_pairs=items[0][1] is not None)
            # With parameters, the client (huggingface_hub's InferenceClient) expects the lists of a hosted pipeline.
            is_single = is_single and not isinstance(exchange.body.get("parameters"), dict)
        results = await exchange.run(route.compute, items, **options)
        shaped = [route.shape(exchange.served.model, result, options | flags) for result in results]
        return shaped[0] if is_single else shaped

    return handle


async def embed(exchange: Exchange) -> Any:
    texts, _ = bodies.read_inputs(exchange.body)
    normalize = bodies.read_bool(exchange.body, "normalize", True)
    strings = _prompted(exchange, await _from_ids(exchange, texts))
    return [*await embed_texts(exchange, strings, normalize=normalize)]


async def embed_all(exchange: Exchange) -> Any:
    texts, _ = bodies.read_inputs(exchange.body)
    strings = _prompted(exchange, await _from_ids(exchange, texts))
    served = exchange.served
    numbers = sum(await exchange.count_tokens(_singles(strings))) * served.model.encoder.config.hidden_size
    if numbers > served.limits.max_numbers:
        raise bodies.Refusal(
            413, f"the vectors of all tokens have {numbers:,} numbers, too many for an answer; send less text"
        )
    exchange.headers[FINGERPRINT] = str(served.fingerprint)
    return await exchange.run(calls.embed_all, _singles(strings))


async def rerank(exchange: Exchange) -> Any:
    body, served = exchange.body, exchange.served
    query = bodies.read_text(body, "query")
    texts = body.get("texts")
    if not bodies.is_list_of(texts, str):
        raise bodies.wrong("texts", texts, "a list of strings")
    if not texts:
        raise bodies.Refusal(400, "`texts` is empty; give at least one text")
    is_raw, with_text = bodies.read_bool(body, "raw_scores", False), bodies.read_bool(body, "return_text", False)
    if "classes" in served.model.backend.heads:
        pairs = await exchange.run(class_scores, [(query, text) for text in texts])
        scores = [_relevance(exchange, scores_C, is_raw=is_raw) for scores_C in pairs]
    else:
        scores = await _cosines(exchange, query, *texts)
    order = sorted(range(len(texts)), key=lambda index: -scores[index])
    return [
        {"index": index, **({"text": texts[index]} if with_text else {}), "score": scores[index]} for index in order
    ]


async def similarity(exchange: Exchange) -> Any:
    inputs = bodies.read_object(exchange.body.get("inputs"), "`inputs`")
    source, sentences = bodies.read_text(inputs, "source_sentence"), inputs.get("sentences")
    if not bodies.is_list_of(sentences, str):
        raise bodies.wrong("sentences", sentences, "a list of strings")
    if not sentences:
        raise bodies.Refusal(400, "`sentences` is empty; give at least one text")
    parameters = exchange.body.get("parameters")
    if parameters is not None:
        exchange.body = {**exchange.body, **bodies.read_object(parameters, "`parameters`")}
    return await _cosines(exchange, *_prompted(exchange, [source, *sentences]))


async def tokenize(exchange: Exchange) -> Any:
    texts, _ = bodies.read_strings(exchange.body, "inputs")
    with_special = bodies.read_bool(exchange.body, "add_special_tokens", True)
    texts = _prompted(exchange, texts)
    await exchange.count_tokens(_singles(texts))  # the limits

    def split() -> list[list[dict[str, Any]]]:
        return [_tokens(exchange, text, with_special=with_special) for text in texts]

    return await asyncio.to_thread(split)


async def decode(exchange: Exchange) -> Any:
    ids = exchange.body.get("ids")
    lists = [ids] if bodies.is_ids(ids) else ids
    if not isinstance(lists, list) or not all(map(bodies.is_ids, lists)):
        raise bodies.wrong("ids", ids, "a list of ids, or a list of such lists")
    if not ids:
        raise bodies.Refusal(400, "`ids` is empty; give at least one id")
    skip = bodies.read_bool(exchange.body, "skip_special_tokens", True)
    return await _decode_all(exchange, lists, keep_special=not skip)


async def attention(exchange: Exchange) -> Any:
    text = bodies.read_text(exchange.body, "inputs")
    layer, head = (bodies.read_integer(exchange.body, name, None, 0) for name in ("layer", "head"))
    return (await exchange.run(calls.attention, _singles([text]), layer=layer, head=head))[0]


async def embed_texts(exchange: Exchange, texts: Sequence[str], *, normalize: bool = True) -> list[NDArray[np.float32]]:
    """Vectors of texts, cut to `dimensions` of the body, with the fingerprint of their space in a header."""
    size: int = exchange.served.model.encoder.config.hidden_size
    dimensions = bodies.read_integer(exchange.body, "dimensions", None, 1, size)
    exchange.headers[FINGERPRINT] = str(exchange.served.fingerprint)
    vectors: list[Rows] = await exchange.run(calls.embed, _singles(texts), normalize=normalize)
    if dimensions is None:
        return vectors
    cut = [np.ascontiguousarray(vector_H[:dimensions]) for vector_H in vectors]
    return [part / max(float(np.linalg.norm(part)), 1e-12) for part in cut] if normalize else cut


async def _cosines(exchange: Exchange, source: str, *others: str) -> list[float]:
    first, *rest = await embed_texts(exchange, [source, *others])
    return [float(first @ other) for other in rest]


def _singles(texts: Sequence[str]) -> list[Item]:
    return [(text, None) for text in texts]


def _prompted(exchange: Exchange, texts: list[str]) -> list[str]:
    """The texts with the prompt that the body names."""
    name, prompts = exchange.body.get("prompt_name"), exchange.served.prompts
    if name is None:
        return texts
    if not prompts:
        raise bodies.Refusal(
            422, f"`prompt_name` ({name!r:.40}): the model has no prompts; put the prompt into the text"
        )
    if not isinstance(name, str) or name not in prompts:
        raise bodies.wrong("prompt_name", name, f"one of {', '.join(prompts)}")
    return [text and prompts[name] + text for text in texts]  # an empty one stays so, and is refused


async def _from_ids(exchange: Exchange, inputs: Sequence[str | list[int]]) -> list[str]:
    """The texts; ids are decoded, without special tokens."""
    lists = [one for one in inputs if not isinstance(one, str)]
    if not lists:
        return [one for one in inputs if isinstance(one, str)]
    exchange.served.check_number(inputs)
    decoded = iter(await _decode_all(exchange, lists, keep_special=False))
    return [one if isinstance(one, str) else next(decoded) for one in inputs]


async def _decode_all(exchange: Exchange, lists: Sequence[Sequence[int]], *, keep_special: bool) -> list[str]:
    """The texts of lists of ids, within the limits, in a thread."""
    exchange.served.check_ids(lists)
    return await asyncio.to_thread(lambda: [_decode(exchange, one, keep_special=keep_special) for one in lists])


def _decode(exchange: Exchange, ids: Sequence[int], *, keep_special: bool) -> str:
    tokenizer = exchange.served.model.tokenizer
    if ids and not 0 <= min(ids) <= max(ids) < len(tokenizer):
        raise bodies.Refusal(422, f"ids must be from 0 to {len(tokenizer) - 1:,}")
    return tokenizer.decode(ids, keep_special=keep_special)


def _check_pairs(exchange: Exchange, *, has_pairs: bool) -> None:
    if exchange.served.model.reads_pairs not in (has_pairs, None):
        # A list of two strings is a pair, as in Text Embeddings Inference.
        expected = (
            'single texts; send one as "TEXT", several as [["FIRST"], ["SECOND"]]'
            if has_pairs
            else 'pairs of texts; send one as ["FIRST", "SECOND"], several as a list of such lists'
        )
        raise bodies.Refusal(422, f"model {exchange.served.name!r} reads {expected}")


def _relevance(exchange: Exchange, scores_C: Rows, *, is_raw: bool) -> float:
    """The score of a pair: a regression's number, the probability of the second of two labels, or, of a reranker and of
    a published model with one output, its sigmoid."""
    model = exchange.served.model
    if len(scores_C) == 2:
        return float(scores_C[1] if is_raw else label_probabilities(model, scores_C)[1])
    has_logit = model.reads_pairs is None or model.task == "rerank"
    return float(sigmoid(scores_C)[0] if has_logit and not is_raw else scores_C[0])


def _tokens(exchange: Exchange, text: str, *, with_special: bool) -> list[dict[str, Any]]:
    encoding = exchange.served.model.tokenizer.encode(text)
    rows = zip(encoding.ids, encoding.tokens, encoding.sequence_ids, encoding.offsets, strict=True)
    return [
        {
            "id": index,
            "text": token,
            "special": sequence is None,
            "start": None if sequence is None else start,
            "stop": None if sequence is None else stop,
        }
        for index, token, sequence, (start, stop) in rows
        if with_special or sequence is not None
    ]


async def embeddings(exchange: Exchange) -> Any:
    """OpenAI's embeddings: float or base64, cut to `dimensions`."""
    texts, _ = bodies.read_inputs(exchange.body, "input")
    encoding = bodies.read_choice(exchange.body, "encoding_format", ("float", "base64"))
    vectors = await embed_texts(exchange, _prompted(exchange, await _from_ids(exchange, texts)))
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": vector
            if encoding == "float"
            else base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii"),
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": exchange.record.tokens, "total_tokens": exchange.record.tokens}
    return {"object": "list", "data": data, "model": exchange.served.name, "usage": usage}
