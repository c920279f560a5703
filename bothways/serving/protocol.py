"""Connections with a time limit for the head of a request, which uvicorn does not have."""

from asyncio import TimerHandle, Transport

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


def timed_protocol(seconds: float) -> type[HttpToolsProtocol]:
    """A protocol that closes a connection whose request has no complete head after this time."""

    class TimedProtocol(HttpToolsProtocol):
        timer: TimerHandle | None = None

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

        def _start_timer(self) -> None:
            self._stop_timer()
            self.timer = self.loop.call_later(seconds, self.transport.close)

        def _stop_timer(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    return TimedProtocol
