"""Middleware: request id, host and origin checks, API key, limit of requests in flight; then access log and metrics.

The server answers only requests for its own host names, so that a page of another site cannot reach it under a name
that resolves to its address (DNS rebinding). It refuses pages of other origins, since there is no CORS.
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

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bothways.base.errors import flag
from bothways.serving.bodies import Refusal
from bothways.serving.limits import Limits
from bothways.serving.metrics import Metrics, RequestMetrics
from bothways.serving.reply import CLOSE, LEFT, METRICS, error_response

REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
HEALTH = frozenset({"/health", "/ping"})  # GET without a Host header too, as checks of HTTP/1.0 do
OPEN_PATHS = HEALTH | {"/", "/metrics", "/docs", "/openapi.json"}  # GET without a key
PART = 1 << 18  # bytes of an answer that are written at once


class Guard:
    """The application behind its checks.

    open_paths: that are read without a key.
    in_flight: POSTs whose answers are not yet taken by their clients.
    unread: bytes of these answers.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: "Access",
        limits: Limits,
        metrics: Metrics,
        write_log: Callable[[str], object] | None,
        open_paths: Collection[str] = OPEN_PATHS,
    ) -> None:
        self.app = app
        self.access = access
        self.limits = limits
        self.metrics = metrics
        self.write_log = write_log
        self.open_paths = open_paths

        self.in_flight = 0
        self.unread = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        start = time.perf_counter()
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not REQUEST_ID.fullmatch(request_id):
            request_id = uuid.uuid4().hex
        metrics = RequestMetrics()
        scope[METRICS] = metrics
        status = 500  # unless an answer begins

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
            refusal = self._refusal(scope, headers)
            if refusal is None:
                await self.app(scope, receive, send_with_id)
            else:
                metrics.error_type = refusal.error_type
                response = error_response(refusal, scope["path"])
                await response(scope, receive, send_with_id)
        finally:
            self.in_flight -= is_counted
            seconds = time.perf_counter() - start
            if is_counted:
                self.metrics.count_request(metrics, status, seconds)
            if self.write_log:
                self.write_log(_log_line(scope, metrics, request_id=request_id, status=status, seconds=seconds))

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Why a request is refused before its body is read; None: it is not."""
        path = scope["path"]
        host = headers.get("host", "")
        origin = headers.get("origin")
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

    async def _send_body(self, message: Message, send: Send) -> None:
        """Send a body in parts, each when the client has taken most of the parts before it."""
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


@dataclass(frozen=True)
class Access:
    """Who may use the server.

    keys: of clients; none: everybody.
    hosts: names of the server, besides IP addresses and localhost; "*": any.
    """

    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def knows_host(self, header: str) -> bool:
        name = host_name(header)
        return "*" in self.hosts or name == "localhost" or name in map(str.lower, self.hosts) or is_ip_address(name)

    def knows_key(self, authorization: str) -> bool:
        """Compares with every key, in a time that depends on none."""
        scheme, _, key = authorization.partition(" ")
        # In bytes: `compare_digest` refuses strings that are not ASCII (docs/LOG.md, "Keys in bytes").
        sent = key.strip().encode(errors="replace")
        matches = [hmac.compare_digest(sent, allowed.encode()) for allowed in self.keys]
        return scheme.lower() == "bearer" and any(matches)


def host_name(header: str) -> str:
    """The name of a Host header, without its port; "" if it is not valid."""
    if not re.fullmatch(r"[\w.:\[\]-]+", header):
        return ""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def is_ip_address(name: str) -> bool:
    with suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False


def host_of_origin(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _log_line(scope: Scope, metrics: RequestMetrics, *, request_id: str, status: int, seconds: float) -> str:
    client: Sequence[Any] = scope.get("client") or ("",)
    fields = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "id": request_id,
        "client": client[0],
        "method": scope["method"],
        "path": scope["path"][:200],
        "status": status,
        "seconds": round(seconds, 6),
        "model": metrics.model,
        "texts": metrics.texts,
        "tokens": metrics.tokens,
    }

    if metrics.error_type:
        fields["error"] = metrics.error_type
    if status == LEFT:
        fields["left"] = True
    return json.dumps(fields)
