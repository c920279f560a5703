"""Middleware: request id, host and origin checks, API key, limit of requests in flight; then access log and metrics.

The server answers only requests for its own host names, so that a page of another site cannot reach it under a name
that resolves to its address (DNS rebinding). It refuses pages of other origins, since there is no CORS. Metrics are in
the text format of Prometheus, with the names of Text Embeddings Inference, and a few more.
"""

import hmac
import ipaddress
import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bothways.base.errors import flag
from bothways.serving.bodies import Refusal
from bothways.serving.exchange import CLOSE, LEFT, Record, error_response
from bothways.serving.inference_queue import Limits

REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
HEALTH = frozenset({"/health", "/ping"})  # GET without a Host header too, as checks of HTTP/1.0 do
OPEN_PATHS = HEALTH | {"/", "/metrics", "/docs", "/openapi.json"}  # GET without a key
PART = 1 << 18  # bytes of an answer that are written at once
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SIZES = tuple(1 << power for power in range(13))
TOKENS = tuple(1 << power for power in range(4, 18))
FILLS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)


class Metrics:
    """Counters and histograms of a server; one registry each, so that servers of one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def histogram(name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, meaning, ["model"], buckets=buckets, registry=self.registry)

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(name, meaning, ["model", *labels], registry=self.registry)

        self.requests = counter("te_request_count", "Requests to a model", "method")
        self.successes = counter("te_request_success", "Requests that were answered with status 200", "method")
        self.failures = counter("te_request_failure", "Requests that were refused or failed, by reason", "err")
        self.duration = histogram("te_request_duration", "Seconds of a request", SECONDS)
        self.queued = histogram("te_request_queue_duration", "Seconds that a request waited", SECONDS)
        self.inferred = histogram("te_request_inference_duration", "Seconds of a request's batches", SECONDS)
        self.batch_size = histogram("te_batch_next_size", "Texts of a batch", SIZES)
        self.batch_tokens = histogram("te_batch_next_tokens", "Tokens of a batch", TOKENS)
        self.batch_fill = histogram("te_batch_fill", "Tokens of a batch as a fraction of its budget", FILLS)
        self.tokens = counter("te_tokens", "Tokens that were computed")
        self.busy = counter("te_inference_seconds", "Seconds in which the model computed")
        self.speed = Gauge("te_tokens_per_second", "Speed of the last batch", ["model"], registry=self.registry)
        self.queue_size = Gauge("te_queue_size", "Requests that wait", ["model"], registry=self.registry)
        self.queue_tokens = Gauge("te_queue_tokens", "Tokens that wait", ["model"], registry=self.registry)

    def watch(self, model: str, *, queue_size: Callable[[], float], queue_tokens: Callable[[], float]) -> None:
        """Read the queue of a model whenever metrics are asked for."""
        self.queue_size.labels(model).set_function(queue_size)
        self.queue_tokens.labels(model).set_function(queue_tokens)

    def on_batch(self, model: str, budget: int) -> Callable[[int, int, float], None]:
        """The callback of a model's queue after each batch, with its texts, tokens and seconds."""

        def record(texts: int, tokens: int, seconds: float) -> None:
            self.batch_size.labels(model).observe(texts)
            self.batch_tokens.labels(model).observe(tokens)
            self.batch_fill.labels(model).observe(min(1.0, tokens / budget))
            self.tokens.labels(model).inc(tokens)
            self.busy.labels(model).inc(seconds)
            self.speed.labels(model).set(tokens / max(seconds, 1e-6))

        return record

    def text(self) -> bytes:
        """All metrics. The client library ends names of counters in _total; those of TEI have no such end."""
        # Names of models, which are values in these lines, may hold any character but a line break, and any word.
        lines = generate_latest(self.registry).decode().removesuffix("\n").split("\n")
        kept = [line for line in lines if not re.match(r"(# \w+ )?te_\w+_created\b", line)]
        return "".join(re.sub(r"^((?:# \w+ )?te_\w+)_total\b", r"\1", line) + "\n" for line in kept).encode()


@dataclass(frozen=True)
class Access:
    """Who may use the server. keys: of clients; none: everybody. hosts: names of the server, besides IP addresses and
    localhost; "*": any."""

    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def knows_host(self, header: str) -> bool:
        name = host_name(header)
        return "*" in self.hosts or name == "localhost" or name in map(str.lower, self.hosts) or is_ip_address(name)

    def knows_key(self, authorization: str) -> bool:
        """Compares with every key, in a time that depends on none."""
        scheme, _, key = authorization.partition(" ")
        sent = key.strip().encode(errors="replace")
        matches = [hmac.compare_digest(sent, one.encode()) for one in self.keys]
        return scheme.lower() == "bearer" and any(matches)


def host_name(header: str) -> str:
    """The name of a Host header, without its port; "" if it is not valid."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower() if re.fullmatch(r"[\w.:\[\]-]+", header) else ""
    except ValueError:
        return ""


def is_ip_address(name: str) -> bool:
    with suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False


class Guard:
    """open_paths: that are read without a key. in_flight: POSTs whose answers are not yet taken by their clients.
    unread: bytes of these answers."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        limits: Limits,
        metrics: Metrics,
        write_log: Callable[[str], object] | None,
        open_paths: Collection[str] = OPEN_PATHS,
    ) -> None:
        self.app, self.access, self.limits, self.metrics, self.write_log = app, access, limits, metrics, write_log
        self.open_paths = open_paths
        self.in_flight = self.unread = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, start = Headers(scope=scope), time.perf_counter()
        request_id = headers.get("x-request-id", "")
        if not REQUEST_ID.fullmatch(request_id):
            request_id = uuid.uuid4().hex
        record = scope["record"] = Record()
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
                await send(message)
            else:
                await self._send_body(message, send)

        is_counted = scope["method"] == "POST"
        self.in_flight += is_counted
        try:
            if (refusal := self._refusal(scope, headers)) is None:
                await self.app(scope, receive, send_with_id)
            else:
                record.error_type = refusal.error_type
                response = error_response(refusal, scope["path"])
                await response(scope, receive, send_with_id)
        finally:
            self.in_flight -= is_counted
            seconds = time.perf_counter() - start
            if is_counted:
                self._measure(record, status, seconds)
            if self.write_log:
                self.write_log(_log_line(scope, record, request_id=request_id, status=status, seconds=seconds))

    async def _send_body(self, message: Message, send: Send) -> None:
        """Send a body in parts, each when the client has taken most of those before it."""
        body = memoryview(message.get("body", b""))
        self.unread += len(body)
        left = len(body)
        try:
            for start in range(0, len(body), PART):
                part = body[start : start + PART]
                await send({**message, "body": part, "more_body": True})
                self.unread -= len(part)
                left -= len(part)
            await send({**message, "body": b""})
        finally:
            self.unread -= left

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        path, host, origin = scope["path"], headers.get("host", ""), headers.get("origin")
        is_read = scope["method"] in ("GET", "HEAD")
        if not self.access.knows_host(host) and not (is_read and not host and path in HEALTH):
            return Refusal(
                403, f"host {host_name(host) or 'none'} is not this server; {flag('allow_host')} names others"
            )
        if origin is not None and host_of_origin(origin) != host.lower():
            return Refusal(403, "the page is of another origin; this server answers its own page only")
        is_open = is_read and path in self.open_paths
        if self.access.keys and not is_open and not self.access.knows_key(headers.get("authorization", "")):
            return Refusal(401, "a key is needed: Authorization: Bearer KEY", headers={"www-authenticate": "Bearer"})
        if self.in_flight > self.limits.max_requests:
            message = f"{self.limits.max_requests:,} requests are in flight; try again later"
            return Refusal(429, message, headers={"retry-after": "1", **CLOSE})
        if not is_read and self.unread > self.limits.max_unread:
            message = f"{self.unread:,} bytes of answers wait for clients that do not read them; try again later"
            return Refusal(429, message, headers={"retry-after": "1", **CLOSE})
        return None

    def _measure(self, record: Record, status: int, seconds: float) -> None:
        model, metrics = record.model, self.metrics
        method = "single" if record.texts <= 1 else "batch"
        metrics.requests.labels(model, method).inc()
        metrics.duration.labels(model).observe(seconds)
        if status == 200:
            metrics.successes.labels(model, method).inc()
        else:
            metrics.failures.labels(model, record.error_type.lower() or "other").inc()
        if record.queue_seconds is not None:
            metrics.queued.labels(model).observe(record.queue_seconds)
            metrics.inferred.labels(model).observe(record.inference_seconds or 0.0)


def host_of_origin(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _log_line(scope: Scope, record: Record, *, request_id: str, status: int, seconds: float) -> str:
    client: Sequence[Any] = scope.get("client") or ("",)
    fields = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "id": request_id,
        "client": client[0],
        "method": scope["method"],
        "path": scope["path"][:200],
        "status": status,
        "seconds": round(seconds, 6),
        "model": record.model,
        "texts": record.texts,
        "tokens": record.tokens,
        **({"error": record.error_type} if record.error_type else {}),
        **({"left": True} if status == LEFT else {}),
    }
    return json.dumps(fields)
