"""Connections with a time limit for the head of a request, and with a moment for requests that are on their way when
the server is to end. uvicorn has neither."""

from asyncio import TimerHandle, Transport

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LINGER = 0.5  # seconds for which an idle connection stays open at the end


def timed_protocol(seconds: float) -> type[HttpToolsProtocol]:
    """A protocol that closes a connection whose request has no complete head after this time."""

    class TimedProtocol(HttpToolsProtocol):
        timer: TimerHandle | None = None
        is_ending = False

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            super().on_message_begin()
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
            if self._is_idle() and not self.transport.is_closing():
                self.transport.close()

        def _is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _start_timer(self) -> None:
            self._stop_timer()
            self.timer = self.loop.call_later(seconds, self.transport.close)

        def _stop_timer(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    return TimedProtocol
