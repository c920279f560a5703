"""HTTP connections that are limited in time and number, and closed so that no answer is lost.

uvicorn's own connections lack five things:

- timeouts for clients that send or read too slowly
- a bounded number of connections
- a grace period for in-flight requests at shutdown
- answers that arrive even if the rest of the request is dropped
- answers to requests that offer another protocol
"""

from asyncio import TimerHandle, Transport
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LINGER = 0.5  # seconds for which an idle connection stays open at the end
MOST_DROPPED = 64 << 20  # bytes of a request that are read and dropped after its answer, beside `max_body`
TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class GentleTransport(Transport):
    """A transport for answers, which uvicorn writes to and closes in place of the connection itself."""

    def __init__(self, connection: Transport, close: Callable[[], None], on_write: Callable[[], None]) -> None:
        """
        connection: to the client.
        close: called once, when uvicorn closes the transport; it closes the connection when that loses no answer.
        on_write: called after each write.
        """
        self.connection = connection
        self.end = close
        self.on_write = on_write
        self.is_ending = False
        self.written = 0  # bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.connection.write(data)
        self.written += len(data)
        self.on_write()

    @property
    def taken(self) -> int:
        """Bytes that have left the buffer towards the client."""
        return self.written - self.connection.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self.is_ending or self.connection.is_closing()

    def close(self) -> None:
        if not self.is_closing():
            self.is_ending = True
            self.end()


class TimedProtocol(HttpToolsProtocol):
    """A connection to a client, on which one request after the other is read and answered.

    It is closed if the head of a request is not complete after `seconds`, or if the client takes no byte of an answer
    for `write_seconds`.

    A connection that is closed before all of a request is read is reset, and its client may lose the answer. So the
    rest of a request that is answered early is read and dropped, up to `seconds` and `max_body` + MOST_DROPPED bytes.

    An offer of another protocol (`Connection: Upgrade`) is ignored, as RFC 9110, 7.8 allows: the request is read as one
    without it.
    """

    def __init__(
        self,
        *arguments: Any,
        seconds: float,
        max_body: int,
        write_seconds: float = 60.0,
        most_connections: int = 1 << 31,
        say: Callable[[str], None] = lambda line: None,
        **options: Any,
    ) -> None:
        """
        arguments, options: of uvicorn's protocol.
        seconds: within which the head of a request must be complete, and the rest of one that is answered early.
        max_body: bytes that the body of a request may have.
        write_seconds: within which the client must take a byte of an answer; 60 as in nginx (`send_timeout`).
        most_connections: of the server; one more is told so and closed.
        say: logs a line about connections that are refused.
        """
        super().__init__(*arguments, **options)
        self.seconds = seconds
        self.most_dropped = max_body + MOST_DROPPED
        self.write_seconds = write_seconds
        self.most_connections = most_connections
        self.say = say

        self.timer: TimerHandle | None = None  # runs while a head, or the rest of an answered request, is awaited
        self.unread: TimerHandle | None = None  # runs while the client has not taken all of an answer
        self.is_shutting_down = False
        # Of the request that is read now, or was read last:
        self.is_whole = False  # whether it is read to its end
        self.dropped = 0  # its bytes that came after its answer
        self.is_offer = False  # whether its head offers another protocol

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # uvicorn writes to `transport`; it is replaced by one whose end waits for the rest of the request.
        self.connection = transport
        self.answers = GentleTransport(transport, self._close, self._watch_reading)
        self.transport = self.answers

        if len(self.connections) > self.most_connections:
            self.say(f"{self.most_connections:,} connections are open, as many as are allowed; others are refused")
            self.connection.write(TOO_MANY)
            self.connection.close()
        else:
            self._start_timer()

    # --- requests -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        # The answer is written, and this is the rest of its request.
        if self.transport.is_closing():
            self._drop(data)
            return

        self._unset_keepalive_if_required()
        # At an offer of another protocol, parsing stops and starts again from the same head without the offer.
        rest: bytes | None = data
        while rest is not None:
            rest = self._parse(rest)

    def _parse(self, data: bytes) -> bytes | None:
        """Parse data. None when it is parsed to its end.

        If a request in it offers another protocol, parsing stops behind the head. Returns the head without the offer,
        and the bytes that follow.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as offer:
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response("CONNECT: this server is not a proxy.")
                return None

            # This parser takes the bytes behind the head for the other protocol. A new one reads them as HTTP.
            head = self._head_without_offer()
            self.parser = httptools.HttpRequestParser(self)
            with suppress(AttributeError):  # old versions of httptools have no such method
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            return head + data[offer.args[0] :]
        return None

    def _head_without_offer(self) -> bytes:
        """The head of the request, without its offer of another protocol."""
        version = b"HTTP/" + self.parser.get_http_version().encode()
        lines = [b" ".join((self.parser.get_method(), self.url, version))]
        for name, value in self.headers:
            if name == b"upgrade":
                continue
            if name == b"connection":
                tokens = [token for token in value.split(b",") if token.strip().lower() != b"upgrade"]
                value = b",".join(tokens)
            lines.append(name + b": " + value)

        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.is_whole = False
        self.dropped = 0
        self.is_offer = False
        self._start_timer()

    def on_headers_complete(self) -> None:
        self.is_offer = self.parser.should_upgrade()
        if self.is_offer:
            return

        self._stop_timer()
        super().on_headers_complete()
        if self.is_shutting_down:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if self.is_offer:
            return

        if self.cycle.response_complete:
            self._drop(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.is_offer:
            return

        self.is_whole = True
        self._stop_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        # The parser has given up, so the client may still be sending.
        self.is_whole = False
        super().send_400_response(msg)

    # --- answers ------------------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.is_whole:
            self._start_timer()

    def _watch_reading(self) -> None:
        """Look in `write_seconds` whether the client has taken anything, unless a look is due already."""
        if self.unread is None and self.connection.get_write_buffer_size():
            self.unread = self.loop.call_later(self.write_seconds, self._check_reading, self.answers.taken)

    def _check_reading(self, taken: int) -> None:
        """End the connection if no byte has left its buffer since `taken` bytes had; else look again later."""
        self.unread = None
        if self.connection.get_write_buffer_size() and self.answers.taken == taken:
            self.connection.abort()
        else:
            self._watch_reading()

    # --- the end of a connection --------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Close after an answer: at once, or when the client has sent the rest or has closed."""
        if self.is_whole:
            self.connection.close()
        else:
            # uvicorn may have paused reading, as nobody read the body.
            self.flow.resume_reading()
            self.connection.write_eof()
            self._start_timer()

    def _drop(self, data: bytes) -> None:
        """Count bytes that nobody needs, and close the connection if they are too many."""
        self.dropped += len(data)
        if self.dropped > self.most_dropped:
            self.connection.close()

    def shutdown(self) -> None:
        """Close an idle connection after LINGER, another after the answer to its last request."""
        # uvicorn closes idle connections at once, and a client that sends a request at this moment sees a reset.
        self.is_shutting_down = True
        if self._is_idle():
            self.loop.call_later(LINGER, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def _close_if_idle(self) -> None:
        if self._is_idle():
            self.connection.close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self.unread is not None:
            self.unread.cancel()
        super().connection_lost(exc)

    # --- the time of a request ----------------------------------------------------------------------------------------

    def _start_timer(self) -> None:
        """Close the connection in `seconds`, unless the timer is stopped or started again."""
        self._stop_timer()
        self.timer = self.loop.call_later(self.seconds, self.connection.close)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
