"""A request to a model: its body is read within limits, and its texts go through the model's queue."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from bothways.base.errors import InputError
from bothways.base.log import logger
from bothways.serving.bodies import Refusal, wrong
from bothways.serving.calls import Call
from bothways.serving.inference_queue import QueuedRequest
from bothways.serving.limits import Limits
from bothways.serving.metrics import RequestMetrics
from bothways.serving.reply import CLOSE
from bothways.serving.served_model import ServedModel
from bothways.tasks.task import Item
from bothways.tasks.windows import Long

LONG_TEXT = 20_000  # characters; more are counted in a thread
# Headers of answers.
FINGERPRINT = "x-vector-space"
TRUNCATED = "x-truncated-texts"


async def read_body(request: Request, limits: Limits) -> dict[str, Any]:
    """The JSON object of a request. Refusal if it is too large, too slow, of another type, or not JSON."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise Refusal(415, f"the content type ({content_type or 'none'}) must be application/json")

    too_large = Refusal(413, f"the body has more than {limits.max_body:,} bytes; send less", headers=CLOSE)
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length) > limits.max_body:
        raise too_large

    # A body in chunks has no length in its head, so bytes are counted too.
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
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"the body is not JSON: {error}", "Validation") from None
    if not isinstance(body, dict):
        raise wrong("the body", body, "a JSON object")
    return body


@dataclass
class ModelRequest:
    """A request to a model.

    http: the request as it came.
    body: a struct of its route.
    served: the model.
    metrics: for the log and the metrics.
    headers: of the answer.
    """

    http: Request
    body: Any
    served: ServedModel
    metrics: RequestMetrics
    headers: dict[str, str] = field(default_factory=dict)

    async def run(
        self, compute: Callable[..., Any], items: Sequence[Item], *, with_each: Sequence[str] = (), **options: Any
    ) -> list[Any]:
        """The results of a function of calls.py for these texts, computed with the texts of other requests.

        compute: the function.
        items: texts, or pairs of texts.
        with_each: what is read with each of them, for the number of tokens.
        options: of the function; texts of other requests share a batch if their options are equal.
        """
        call = Call(compute, self._long(), tuple(sorted(options.items())))
        tokens = await self.count_tokens(items, with_each)
        num_truncated = self.served.count_truncated(items, tokens, call)
        if num_truncated:
            self.headers[TRUNCATED] = str(num_truncated)
        self.metrics.texts += len(items)
        self.metrics.tokens += sum(tokens)

        queued = self.served.submit(call, items, tokens)
        results = await self._results(queued)
        self.metrics.add_batches(waited=queued.began - queued.arrived, computed=queued.seconds)
        return results

    async def count_tokens(self, items: Sequence[Item], with_each: Sequence[str] = ()) -> list[int]:
        """Tokens of each text and of what is read with it. Refusal if they are more than is allowed, before any are
        counted if there are too many texts. Long texts are counted in a thread."""
        self.served.check_number(items)
        num_characters = sum(map(len, with_each))
        for text, second_text in items:
            num_characters += len(text) + len(second_text or "")
        if num_characters > LONG_TEXT:
            return await asyncio.to_thread(self.served.count_tokens, items, with_each)
        return self.served.count_tokens(items, with_each)

    def _long(self) -> Long | None:
        """How long texts are read, if the body says so."""
        if not self.body.truncate:
            return None
        if self.body.truncation_direction not in (None, "Right", "right"):
            raise wrong("truncation_direction", self.body.truncation_direction, "one of Right, right")
        return "truncate"

    async def _results(self, queued: QueuedRequest) -> list[Any]:
        """The results of a request in the queue; it is cancelled if the client leaves."""
        future: asyncio.Future[Any] = asyncio.wrap_future(queued.future)
        leaving: asyncio.Future[Any] = asyncio.ensure_future(_client_left(self.http))

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
            self.served.queue.cancel(queued)


async def _client_left(request: Request) -> None:
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
