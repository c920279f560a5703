"""Answers to requests: JSON, in pieces if it is large, and errors as one line of JSON."""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from bothways.base.errors import InputError
from bothways.base.io import SURROGATES
from bothways.serving.bodies import Refusal
from bothways.serving.inference_queue import QueueFull
from bothways.serving.metrics import RequestMetrics

METRICS = "request_metrics"  # the key of a request's RequestMetrics in its ASGI scope
LARGE_ANSWER = 50_000  # values; more are encoded in a thread
LONGEST_RETRY = 60  # seconds
CLOSE = {"connection": "close"}  # headers of an answer to a request that is not read to its end
LEFT = 499  # the status in the log if the client has left
SYSTEM_ONE_PATHS = re.compile(r"(/models/[^/]*)?/v1/systemone", re.DOTALL)  # whose errors have FastAPI's form
OPENAI_PATHS = re.compile(r"(/models/[^/]*)?/(v1(/.*)?|embeddings)", re.DOTALL)  # whose errors have OpenAI's form


async def answered(handler: Callable[[], Awaitable[Response]], request: Request) -> Response:
    """The response of a handler, or the response for its error."""
    metrics: RequestMetrics = request.scope[METRICS]
    try:
        return await handler()
    except ClientDisconnect:
        metrics.error_type = "Left"
        return Response(status_code=LEFT)
    except InputError as error:
        refusal = as_refusal(error)
        metrics.error_type = refusal.error_type
        return error_response(refusal, request.scope["path"])


def as_refusal(error: Exception) -> Refusal:
    """The refusal for any mistake of a client."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, QueueFull):  # the client may come back when there is room, by the speed so far
        seconds = min(LONGEST_RETRY, max(1, math.ceil(error.seconds)))
        return Refusal(429, str(error), headers={"retry-after": str(seconds)})
    return Refusal(422, str(error))


def error_response(error: Refusal, path: str) -> Response:
    """The answer for an error: one line, in the form that clients of this path expect."""
    message = " ".join(str(error).split())
    content: dict[str, Any]
    if SYSTEM_ONE_PATHS.fullmatch(path):
        content = _as_fastapi(error, message)
    elif OPENAI_PATHS.fullmatch(path):
        content = {"message": message, "code": error.status, "type": error.error_type}
    else:
        content = {"error": message, "error_type": error.error_type}
    return json_response(content, status=error.status, headers=error.headers)


def _as_fastapi(error: Refusal, message: str) -> dict[str, Any]:
    """An error in FastAPI's form, as transformers' server has it: of a wrong body, with the place of the mistake."""
    if error.status == 422:
        return {"detail": [{"loc": ["body", *error.place], "msg": message, "type": error.mistake}]}
    return {"detail": message, "error": message, "error_type": error.error_type}


def json_response(content: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    try:
        data = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:  # a lone surrogate, such as in the name of a file or of a label
        text = json.dumps(content, ensure_ascii=False, default=lambda array: array.tolist())
        data = SURROGATES.sub("\ufffd", text).encode()
    return Response(data, status, headers, "application/json")


# --- large answers ----------------------------------------------------------------------------------------------------


async def large_response(content: Any, headers: dict[str, str]) -> Response:
    """The response of a content that may be large: then it is encoded in a thread, in pieces, since the encoder does
    not let other threads run."""
    if not is_large(content):
        return json_response(content, headers=headers)
    data = await asyncio.to_thread(lambda: b"".join(encode_pieces(content)))
    return Response(data, 200, headers, "application/json")


def is_large(content: Any) -> bool:
    """Whether the lists and arrays of a content have more than LARGE_ANSWER values. Stops as soon as that is known."""
    number = 0
    waiting = [content]

    while waiting and number <= LARGE_ANSWER:
        part = waiting.pop()
        if isinstance(part, np.ndarray):
            number += part.size
        elif isinstance(part, dict):
            number += len(part)
            waiting += part.values()
        elif isinstance(part, list):
            number += len(part)
            waiting += part[: LARGE_ANSWER + 1]
    return number > LARGE_ANSWER


def encode_pieces(content: Any) -> Iterator[bytes]:
    """JSON of a content, a small part at a time."""
    if isinstance(content, dict) and is_large(content):
        yield b"{"
        for number, (name, value) in enumerate(content.items()):
            comma = b"," if number else b""
            yield comma + bytes(json_response(str(name)).body) + b":"
            yield from encode_pieces(value)
        yield b"}"

    elif (isinstance(content, list) or np.ndim(content) > 1) and is_large(content):
        yield b"["
        for number, value in enumerate(content):
            yield b"," if number else b""
            yield from encode_pieces(value)
        yield b"]"

    else:
        yield bytes(json_response(content).body)
