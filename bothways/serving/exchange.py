"""A request and its answer: the body is read within limits, texts go through the model's queue, errors become JSON."""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from bothways.base.errors import InputError
from bothways.base.io import SURROGATES
from bothways.base.log import logger
from bothways.serving.bodies import Body, Refusal, read_bool, read_choice, read_object
from bothways.serving.calls import Call
from bothways.serving.inference_queue import Limits, QueueFull, Ticket
from bothways.serving.served_model import ServedModel
from bothways.tasks.task import Item
from bothways.tasks.windows import Long

LONG_TEXT = 20_000  # characters; more are counted in a thread
LARGE_ANSWER = 50_000  # values; more are encoded in a thread
FINGERPRINT, TRUNCATED = "x-vector-space", "x-truncated-texts"
LONGEST_RETRY = 60  # seconds
CLOSE = {"connection": "close"}  # headers of an answer to a request that is not read to its end
LEFT = 499  # the status in the log if the client has left
OPENAI_PATHS = re.compile(r"(/models/[^/]*)?/(v1(/.*)?|embeddings)", re.DOTALL)  # whose errors have OpenAI's form


@dataclass
class Record:
    """Facts about a request for the log and the metrics."""

    model: str = ""
    texts: int = 0
    tokens: int = 0
    error_type: str = ""
    queue_seconds: float | None = None
    inference_seconds: float | None = None


@dataclass
class Exchange:
    """A request to a model. headers: of the answer."""

    request: Request
    body: Body
    served: ServedModel
    record: Record
    headers: dict[str, str] = field(default_factory=dict)

    async def run(self, compute: Callable[..., Any], items: Sequence[Item], **options: Any) -> list[Any]:
        """The results of a function of calls.py for these texts, computed with those of other requests."""
        if self.body.get("truncate") is not None and read_bool(self.body, "truncate", False):
            read_choice(self.body, "truncation_direction", ("Right", "right"))
            long: Long | None = "truncate"
        else:
            long = None
        call = Call(compute, long, tuple(sorted(options.items())))
        tokens = await self.count_tokens(items)
        if truncated := self.served.count_truncated(items, tokens, call):
            self.headers[TRUNCATED] = str(truncated)
        self.record.texts += len(items)
        self.record.tokens += sum(tokens)
        ticket = self.served.submit(call, items, tokens)
        results = await self._result(ticket)
        self.record.queue_seconds = (self.record.queue_seconds or 0.0) + ticket.began - ticket.arrived
        self.record.inference_seconds = (self.record.inference_seconds or 0.0) + ticket.seconds
        return results

    async def count_tokens(self, items: Sequence[Item]) -> list[int]:
        """Tokens of each text. Refusal if they are more than is allowed, before any are counted if there are too many
        texts. Long texts are counted in a thread."""
        self.served.check_number(items)
        if sum(len(text or "") for item in items for text in item) > LONG_TEXT:
            return await asyncio.to_thread(self.served.count_tokens, items)
        return self.served.count_tokens(items)

    async def _result(self, ticket: Ticket) -> list[Any]:
        """The results of a ticket; it is cancelled if the client leaves."""
        future: asyncio.Future[Any] = asyncio.wrap_future(ticket.future)
        leaving: asyncio.Future[Any] = asyncio.ensure_future(_client_left(self.request))
        try:
            await asyncio.wait([future, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                raise ClientDisconnect
            return future.result()
        except (InputError, ClientDisconnect):
            raise
        except Exception as error:
            logger.error(f"{self.served.name}: {type(error).__name__}: {error}")
            raise Refusal(424, f"model {self.served.name!r} could not compute this ({type(error).__name__})") from error
        finally:
            leaving.cancel()
            self.served.queue.cancel(ticket)


async def _client_left(request: Request) -> None:
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def read_body(request: Request, limits: Limits) -> Body:
    """The JSON object of a request. Refusal if it is too large, too slow, of another type, or not JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, f"the content type ({kind or 'none'}) must be application/json")
    too_large = Refusal(413, f"the body has more than {limits.max_body:,} bytes; send less", headers=CLOSE)
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length) > limits.max_body:
        raise too_large
    data = bytearray()
    try:
        async with asyncio.timeout(limits.read_timeout):
            async for chunk in request.stream():
                data += chunk
                if len(data) > limits.max_body:
                    raise too_large
    except TimeoutError:
        message = f"the body did not arrive within {limits.read_timeout:g} seconds"
        raise Refusal(408, message, headers=CLOSE) from None
    try:
        return read_object(orjson.loads(data))
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"the body is not JSON: {error}", "Validation") from None


def json_response(content: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    try:
        data = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:  # a lone surrogate, such as of a file's name or of a label
        text = json.dumps(content, ensure_ascii=False, default=lambda array: array.tolist())
        data = SURROGATES.sub("\ufffd", text).encode()
    return Response(data, status, headers, "application/json")


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
        one = waiting.pop()
        if isinstance(one, np.ndarray):
            number += one.size
        elif isinstance(one, dict | list):
            number += len(one)
            waiting += one.values() if isinstance(one, dict) else one[: LARGE_ANSWER + 1]
    return number > LARGE_ANSWER


def encode_pieces(content: Any) -> Iterator[bytes]:
    """JSON of a content, a small part at a time."""
    if isinstance(content, dict) and is_large(content):
        yield b"{"
        for number, (name, value) in enumerate(content.items()):
            yield b"," * (number > 0) + bytes(json_response(str(name)).body) + b":"
            yield from encode_pieces(value)
        yield b"}"
    elif (isinstance(content, list) or np.ndim(content) > 1) and is_large(content):
        yield b"["
        for number, value in enumerate(content):
            yield b"," * (number > 0)
            yield from encode_pieces(value)
        yield b"]"
    else:
        yield bytes(json_response(content).body)


def error_response(error: Refusal, path: str) -> Response:
    """The answer for an error: one line, in the form that clients of this path expect."""
    message = " ".join(str(error).split())
    if OPENAI_PATHS.fullmatch(path):
        content: dict[str, Any] = {"message": message, "code": error.status, "type": error.error_type}
    else:
        content = {"error": message, "error_type": error.error_type}
    return json_response(content, status=error.status, headers=error.headers)


def as_refusal(error: Exception) -> Refusal:
    """The refusal for any mistake of a client."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, QueueFull):
        seconds = min(LONGEST_RETRY, max(1, math.ceil(error.seconds)))
        return Refusal(429, str(error), headers={"retry-after": str(seconds)})
    return Refusal(422, str(error))


async def answered(handler: Callable[[], Awaitable[Response]], request: Request) -> Response:
    """The response of a handler, or that of its error."""
    record: Record = request.scope["record"]
    try:
        return await handler()
    except ClientDisconnect:
        record.error_type = "Left"
        return Response(status_code=LEFT)
    except InputError as error:
        refusal = as_refusal(error)
        record.error_type = refusal.error_type
        return error_response(refusal, request.scope["path"])
