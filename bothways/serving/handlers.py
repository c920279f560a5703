"""Handlers of the routes that need a model: a body is read, texts are computed, the answer is built.

Bodies and answers of /embed, /embed_all, /predict, /rerank, /similarity, /tokenize and /decode are as in Text
Embeddings Inference.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bothways.inference.explanation import word_cuts
from bothways.inference.reading import Rows
from bothways.serving import bodies, calls
from bothways.serving.request import FINGERPRINT, ModelRequest
from bothways.tasks import TASKS
from bothways.tasks.arrays import sigmoid
from bothways.tasks.classify.task import class_scores, label_probabilities
from bothways.tasks.task import Item, Route


def route_handler(route: Route) -> Callable[[ModelRequest], Awaitable[Any]]:
    """The handler of a task's route: an answer per text, or one if the body has one text that is not in a list."""

    async def handle(request: ModelRequest) -> Any:
        body = request.body
        items, is_single = body.items()

        options = {name: getattr(body, name) for name in route.options}
        for name in route.shares:
            # `compute` has defaults of its own for shares.
            if getattr(body, name) is not None:
                options[name] = getattr(body, name)

        # Only `shape` reads flags; as options they would keep texts out of a common batch.
        flags = {name: getattr(body, name) for name in route.flags}

        if route.reads == "sequences":
            _check_pairs(request, has_pairs=items[0][1] is not None)
            # With parameters, the client (huggingface_hub's InferenceClient) expects the lists of a hosted pipeline.
            is_single = is_single and not isinstance(body.parameters, dict)

        results = await request.run(route.compute, items, **options)
        answers = [route.shape(request.served.model, result, options | flags) for result in results]
        return answers[0] if is_single else answers

    return handle


def _check_pairs(request: ModelRequest, *, has_pairs: bool) -> None:
    """Refusal if the model reads single texts and these are pairs, or the other way round."""
    # None: a published model that does not say.
    if request.served.model.reads_pairs in (has_pairs, None):
        return

    # A list of two strings is a pair, as in Text Embeddings Inference.
    if has_pairs:
        expected = 'single texts; send one as "TEXT", several as [["FIRST"], ["SECOND"]]'
    else:
        expected = 'pairs of texts; send one as ["FIRST", "SECOND"], several as a list of such lists'
    raise bodies.Refusal(422, f"model {request.served.name!r} reads {expected}")


# --- vectors ----------------------------------------------------------------------------------------------------------


async def embed(request: ModelRequest) -> Any:
    """A vector per text; `inputs` are texts or lists of ids."""
    inputs = bodies.split_inputs(request.body.inputs)
    texts = _prompted(request, await _from_ids(request, inputs))
    return [*await embed_texts(request, texts, normalize=request.body.normalize)]


async def embed_all(request: ModelRequest) -> Any:
    """A vector per token of each text. Refusal if they have more numbers than an answer may have."""
    inputs = bodies.split_inputs(request.body.inputs)
    texts = _prompted(request, await _from_ids(request, inputs))

    served = request.served
    num_tokens = sum(await request.count_tokens(_singles(texts)))
    numbers = num_tokens * served.model.encoder.config.hidden_size
    if numbers > served.limits.max_numbers:
        raise bodies.Refusal(
            413, f"the vectors of all tokens have {numbers:,} numbers, too many for an answer; send less text"
        )

    request.headers[FINGERPRINT] = str(served.fingerprint)
    return await request.run(calls.embed_all, _singles(texts))


async def embeddings(request: ModelRequest) -> Any:
    """OpenAI's embeddings: float or base64, cut to `dimensions`."""
    inputs = bodies.split_inputs(request.body.input, "input")
    vectors = await embed_texts(request, _prompted(request, await _from_ids(request, inputs)))

    data = []
    for index, vector in enumerate(vectors):
        embedding: Any = vector
        if request.body.encoding_format == "base64":
            embedding = base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
        data.append({"object": "embedding", "index": index, "embedding": embedding})

    num_tokens = request.metrics.tokens
    return {
        "object": "list",
        "data": data,
        "model": request.served.name,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }


async def _from_ids(request: ModelRequest, inputs: Sequence[str | list[int]]) -> list[str]:
    """The inputs as texts, in their order; lists of ids are decoded, without special tokens."""
    lists = [entry for entry in inputs if not isinstance(entry, str)]
    if not lists:
        return cast(list[str], inputs)

    # Texts count too, and nothing is decoded for a request that is refused.
    request.served.check_number(inputs)
    decoded = iter(await _decode_all(request, lists, keep_special=False))
    return [entry if isinstance(entry, str) else next(decoded) for entry in inputs]


def _prompted(request: ModelRequest, texts: list[str]) -> list[str]:
    """The texts, each behind the prompt that the body names. Refusal if the model has no such prompt."""
    name = request.body.prompt_name
    if name is None:
        return texts

    prompts = request.served.prompts
    if not prompts:
        raise bodies.Refusal(
            422, f"`prompt_name` ({name!r:.40}): the model has no prompts; put the prompt into the text"
        )
    if not isinstance(name, str) or name not in prompts:
        raise bodies.wrong("prompt_name", name, f"one of {', '.join(prompts)}")

    # An empty text stays empty, so that it is refused.
    return [prompts[name] + text if text else "" for text in texts]


async def embed_texts(
    request: ModelRequest, texts: Sequence[str], *, normalize: bool = True
) -> list[NDArray[np.float32]]:
    """Vectors of texts, cut to `dimensions` of the body. The answer gets the fingerprint of their space in a header.

    request: its body is read for `dimensions`, its headers are extended.
    texts: with their prompts.
    normalize: whether the vectors get length 1.
    """
    size: int = request.served.model.encoder.config.hidden_size
    dimensions: int | None = request.body.dimensions
    if dimensions is not None and dimensions > size:
        raise bodies.wrong("dimensions", dimensions, f"a whole number from 1 to {size}")
    request.headers[FINGERPRINT] = str(request.served.fingerprint)

    vectors: list[Rows] = await request.run(calls.embed, _singles(texts), normalize=normalize)
    if dimensions is None:
        return vectors

    shortened = [np.ascontiguousarray(vector_H[:dimensions]) for vector_H in vectors]
    if not normalize:
        return shortened
    # The first part of a vector of length 1 is shorter than 1.
    return [vector / max(float(np.linalg.norm(vector)), 1e-12) for vector in shortened]


def _singles(texts: Sequence[str]) -> list[Item]:
    return [(text, None) for text in texts]


# --- scores of texts --------------------------------------------------------------------------------------------------


async def rerank(request: ModelRequest) -> Any:
    """The texts by their scores for a query, best first: scores of pairs or, of a model without classes, cosines."""
    body: bodies.RerankBody = request.body
    texts = body.texts

    if "classes" in request.served.model.backend.heads:
        outputs = await request.run(class_scores, [(body.query, text) for text in texts])
        scores = [_relevance(request, scores_C, is_raw=body.raw_scores) for scores_C in outputs]
    else:
        scores = await _cosines(request, body.query, *texts)

    ranks: list[dict[str, Any]] = []
    for index in sorted(range(len(texts)), key=lambda index: -scores[index]):
        text = {"text": texts[index]} if body.return_text else {}
        ranks.append({"index": index, **text, "score": scores[index]})
    return ranks


def _relevance(request: ModelRequest, scores_C: Rows, *, is_raw: bool) -> float:
    """The score of a pair, from the scores of its classes.

    Of two labels it is the probability of the second. Of one output it is the sigmoid in a reranker and in a published
    model, and the number itself in a regression. is_raw: the output itself, without probability or sigmoid.
    """
    model = request.served.model
    if len(scores_C) == 2:
        return float(scores_C[1] if is_raw else label_probabilities(model, scores_C)[1])

    has_logit = model.reads_pairs is None or model.task == "rerank"
    return float(sigmoid(scores_C)[0] if has_logit and not is_raw else scores_C[0])


async def similarity(request: ModelRequest) -> Any:
    """The cosine of the first text and each of the others."""
    inputs: bodies.ComparedSentences = request.body.inputs
    return await _cosines(request, *_prompted(request, [inputs.source_sentence, *inputs.sentences]))


async def _cosines(request: ModelRequest, source: str, *others: str) -> list[float]:
    first, *rest = await embed_texts(request, [source, *others])
    return [float(first @ other) for other in rest]


# --- tokens -----------------------------------------------------------------------------------------------------------


async def tokenize(request: ModelRequest) -> Any:
    """The tokens of each text."""
    body: bodies.TokenizeBody = request.body
    texts = _prompted(request, [body.inputs] if isinstance(body.inputs, str) else body.inputs)
    # The counts are not needed here: this refuses texts beyond the limits.
    await request.count_tokens(_singles(texts))

    def split() -> list[list[dict[str, Any]]]:
        return [_tokens(request, text, with_special=body.add_special_tokens) for text in texts]

    return await asyncio.to_thread(split)


def _tokens(request: ModelRequest, text: str, *, with_special: bool) -> list[dict[str, Any]]:
    encoding = request.served.model.tokenizer.encode(text)
    rows = zip(encoding.ids, encoding.tokens, encoding.sequence_ids, encoding.offsets, strict=True)

    tokens = []
    for index, token, sequence, (start, stop) in rows:
        is_special = sequence is None
        if is_special and not with_special:
            continue

        tokens.append(
            {
                "id": index,
                "text": token,
                "special": is_special,
                "start": None if is_special else start,
                "stop": None if is_special else stop,
            }
        )
    return tokens


async def decode(request: ModelRequest) -> Any:
    """The text of each list of ids."""
    body: bodies.DecodeBody = request.body
    return await _decode_all(request, body.lists(), keep_special=not body.skip_special_tokens)


async def _decode_all(request: ModelRequest, lists: Sequence[Sequence[int]], *, keep_special: bool) -> list[str]:
    """The texts of lists of ids, within the limits, in a thread."""
    request.served.check_ids(lists)

    def decode_lists() -> list[str]:
        return [_decode(request, ids, keep_special=keep_special) for ids in lists]

    return await asyncio.to_thread(decode_lists)


def _decode(request: ModelRequest, ids: Sequence[int], *, keep_special: bool) -> str:
    tokenizer = request.served.model.tokenizer
    if ids and not 0 <= min(ids) <= max(ids) < len(tokenizer):
        raise bodies.Refusal(422, f"ids must be from 0 to {len(tokenizer) - 1:,}")
    return tokenizer.decode(ids, keep_special=keep_special)


async def explain(request: ModelRequest) -> Any:
    """The effect of each word of a text (or pair) on what the model predicts. Refusal if it has too many tokens."""
    body: bodies.ExplainBody = request.body
    item: Item = (body.inputs, None) if isinstance(body.inputs, str) else (body.inputs[0], body.inputs[1])
    model = request.served.model
    if TASKS[model.task].head == "classes":
        _check_pairs(request, has_pairs=item[1] is not None)

    (num_tokens,) = await request.count_tokens([item])
    if num_tokens > calls.EXPLAIN_TOKENS:
        raise bodies.Refusal(
            413, f"the text has {num_tokens:,} tokens; explain is for at most {calls.EXPLAIN_TOKENS}, shorten it"
        )

    # The text is read again for each of its words.
    words = [cut for text in item if text for cut in word_cuts(text)]
    read = " ".join(filter(None, item))
    (explanation,) = await request.run(calls.explain, [item], with_each=[read] * len(words), label=body.label)
    return explanation


async def attention(request: ModelRequest) -> Any:
    """The weights with which the tokens of a text read from each other, in one head of one layer."""
    body: bodies.AttentionBody = request.body
    (weights,) = await request.run(calls.attention, _singles([body.inputs]), layer=body.layer, head=body.head)
    return weights
