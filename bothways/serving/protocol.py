"""HTTP connections with timeouts for clients that send or read too slowly, a bounded number of connections, a grace
period for in-flight requests at shutdown, answers that arrive even if the rest of the request is dropped, and offers of
other protocols that are ignored. uvicorn has none of these.
"""

from asyncio import TimerHandle, Transport
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LINGER = 0.5  # seconds for which an idle connection stays open at the end
MOST_DROPPED = 64 << 20  # bytes of a request that are read and dropped after its answer, besides a body that is allowed
TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class GentleTransport(Transport):
    """The transport of answers."""

    def __init__(self, connection: Transport, close: Callable[[], None], on_write: Callable[[], None]) -> None:
        """Write to a connection.

        connection: to the client.
        close: replaces the method of the connection.
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
        """Bytes that have left the buffer."""
        return self.written - self.connection.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self.is_ending or self.connection.is_closing()

    def close(self) -> None:
        if not self.is_closing():
            self.is_ending = True
            self.end()


class TimedProtocol(HttpToolsProtocol):
    """Closes a connection whose request has no complete head after some seconds, or which takes no byte of an answer
    for `write_seconds`.

    A connection that is closed before all of a request is read is reset, and its client may lose the answer. So the
    rest of a request that is answered early is read and dropped, within this time and `max_body` + MOST_DROPPED bytes.

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
        """A connection.

        seconds: within which the head of a request must be complete.
        max_body: bytes.
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

        self.timer: TimerHandle | None = None
        self.unread: TimerHandle | None = None  # runs while the client has not taken all of an answer
        self.is_ending = False
        self.is_whole = False  # whether the last request is read to its end
        self.dropped = 0  # bytes after its answer
        self.is_offer = False  # whether the head that is read offers another protocol

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.connection = transport
        self.answers = GentleTransport(transport, self._close, self._watch_reading)
        self.transport = self.answers

        if len(self.connections) > self.most_connections:
            self.say(f"{self.most_connections:,} connections are open, as many as are allowed; others are refused")
            self.connection.write(TOO_MANY)
            self.connection.close()
        else:
            self._start_timer()

    # --- answers that are not read ------------------------------------------------------------------------------------

    def _watch_reading(self) -> None:
        """Unless this is done already, look in `write_seconds` whether the client has taken anything."""
        if self.unread is None and self.connection.get_write_buffer_size():
            self.unread = self.loop.call_later(self.write_seconds, self._check_reading, self.answers.taken)

    def _check_reading(self, taken: int) -> None:
        """End the connection if no byte has left its buffer."""
        self.unread = None
        if self.connection.get_write_buffer_size() and self.answers.taken == taken:
            self.connection.abort()
        else:
            self._watch_reading()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Close after an answer: at once, or when the client has sent the rest or has closed."""
        if self.is_whole:
            self.connection.close()
        else:
            self.flow.resume_reading()
            self.connection.write_eof()
            self._start_timer()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            self._drop(data)
            return

        self._unset_keepalive_if_required()
        rest: bytes | None = data
        while rest is not None:
            rest = self._parse(rest)

    def _parse(self, data: bytes) -> bytes | None:
        """Parse data. If a request in it offers another protocol, returns it without the offer, and what follows."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as offer:
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response("CONNECT: this server is not a proxy.")
                return None

            # The parser takes what follows the head for the other protocol. Another one reads it as it is.
            head = self._head_without_offer()
            self.parser = httptools.HttpRequestParser(self)
            with suppress(AttributeError):  # of old versions
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

    def on_body(self, body: bytes) -> None:
        if self.is_offer:
            return
        if self.cycle.response_complete:
            self._drop(body)
        else:
            super().on_body(body)

    def _drop(self, data: bytes) -> None:
        self.dropped += len(data)
        if self.dropped > self.most_dropped:
            self.connection.close()

    def on_message_complete(self) -> None:
        if self.is_offer:
            return
        self.is_whole = True
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.is_whole:
            self._start_timer()

    def send_400_response(self, msg: str) -> None:
        self.is_whole = False
        super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self.unread is not None:
            self.unread.cancel()
        super().connection_lost(exc)

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
        if self.is_ending:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """Close an idle connection after LINGER, another after the answer to its last request."""
        # uvicorn closes idle connections at once, and a client that sends a request at this moment sees a reset.
        self.is_ending = True
        if self._is_idle():
            self.loop.call_later(LINGER, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def _close_if_idle(self) -> None:
        if self._is_idle():
            self.connection.close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        self._stop_timer()
        self.timer = self.loop.call_later(self.seconds, self.connection.close)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
