"""HTTP connections with a header timeout, a grace period for in-flight requests at shutdown, and answers that arrive
even if the rest of the request is dropped. uvicorn has none of these.
"""

from asyncio import TimerHandle, Transport
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LINGER = 0.5  # seconds for which an idle connection stays open at the end
MOST_DROPPED = 64 << 20  # bytes of a request that are read and dropped after its answer, besides a body that is allowed


class GentleTransport(Transport):
    """The transport of answers. close: replaces the method of the connection."""

    def __init__(self, connection: Transport, close: Callable[[], None]) -> None:
        self.connection, self.end, self.is_ending = connection, close, False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.connection.write(data)

    def is_closing(self) -> bool:
        return self.is_ending or self.connection.is_closing()

    def close(self) -> None:
        if not self.is_closing():
            self.is_ending = True
            self.end()


class TimedProtocol(HttpToolsProtocol):
    """Closes a connection whose request has no complete head after some seconds.

    A connection that is closed before all of a request is read is reset, and its client may lose the answer. So the
    rest of a request that is answered early is read and dropped, within this time and `max_body` + MOST_DROPPED bytes.
    """

    def __init__(self, *arguments: Any, seconds: float, max_body: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.seconds, self.most_dropped = seconds, max_body + MOST_DROPPED
        self.timer: TimerHandle | None = None
        self.is_ending = False
        self.is_whole, self.dropped = False, 0  # whether the last request is read to its end; bytes after its answer

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.connection, self.transport = transport, GentleTransport(transport, self._close)
        self._start_timer()

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
        else:
            super().data_received(data)

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._drop(body)
        else:
            super().on_body(body)

    def _drop(self, data: bytes) -> None:
        self.dropped += len(data)
        if self.dropped > self.most_dropped:
            self.connection.close()

    def on_message_complete(self) -> None:
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
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.is_whole, self.dropped = False, 0
        self._start_timer()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()
        if self.is_ending:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """Close an idle connection after LINGER, another after the answer to its last request."""
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
