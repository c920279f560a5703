"""The queue of a model: threads compute batches of texts from the requests that wait, longest wait first; and limits.

Texts of different requests share a batch if they are to be computed alike (their `call` is equal). A batch has a budget
of tokens; since the encoder is ragged, it has no padding, and the budget is exact up to the overlap of windows.
"""

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bothways.base.errors import InputError

Compute = Callable[[Any, list[Any]], Sequence[Any]]  # (call, texts) -> a result for each


class QueueFull(InputError):
    """The tokens of a request do not fit into the queue now. seconds: when they may, by the speed so far."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Ticket:
    """A request in the queue: texts to compute alike, and a future for the list of their results."""

    def __init__(self, call: Hashable, texts: Sequence[Any], tokens: Sequence[int]) -> None:
        self.call, self.texts, self.tokens = call, texts, tokens
        self.future: Future[list[Any]] = Future()
        self.arrived, self.began, self.seconds = time.perf_counter(), 0.0, 0.0  # seconds: of its batches
        self.taken = 0  # texts that are in a batch already
        self.missing = len(texts)
        self.results: list[Any] = [None] * len(texts)

    @property
    def waiting_tokens(self) -> int:
        return sum(self.tokens[self.taken :])


Row = tuple[Ticket, int]  # a text of a request


class InferenceQueue:
    """At most `queue_tokens` tokens wait; a request that does not fit is refused. Threads may share it.

    workers: threads, each of which computes a batch at a time. on_batch: called in the thread when a batch is computed,
    before its results are there, with the number of texts and tokens, and the seconds that it took.
    """

    def __init__(
        self,
        compute: Compute,
        *,
        batch_tokens: int,
        queue_tokens: int,
        workers: int = 1,
        on_batch: Callable[[int, int, float], object] = lambda texts, tokens, seconds: None,
    ) -> None:
        self.compute, self.on_batch = compute, on_batch
        self.batch_tokens, self.queue_tokens = batch_tokens, queue_tokens
        self.tokens = 0  # that wait
        self._waiting: dict[Hashable, dict[Ticket, None]] = {}  # by call, in the order of arrival
        self._changed = threading.Condition()
        self._closed = False
        self._running = 0  # batches
        self._speed = 0.0  # tokens per second, averaged over the last batches
        self._threads = [threading.Thread(target=self._run, name="inference", daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """Requests of which texts wait."""
        with self._changed:
            return sum(map(len, self._waiting.values()))

    @property
    def is_alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def submit(self, call: Hashable, texts: Sequence[Any], tokens: Sequence[int]) -> Ticket:
        """Put texts with their numbers of tokens into the queue. QueueFull if there is no room."""
        ticket, size = Ticket(call, texts, tokens), sum(tokens)
        with self._changed:
            if self._closed:
                raise QueueFull("the server is stopping", 1.0)
            if self.tokens + size > self.queue_tokens:
                seconds = (self.tokens + size - self.queue_tokens) / self._speed if self._speed else 1.0
                raise QueueFull(f"{self.tokens:,} tokens are waiting; try again later", seconds)
            if not texts:
                ticket.future.set_result([])
                return ticket
            self.tokens += size
            self._waiting.setdefault(call, {})[ticket] = None
            self._changed.notify()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Drop the texts of a request that are not computed yet."""
        self._drop(ticket)
        ticket.future.cancel()

    def close(self, timeout: float | None = None) -> bool:
        """Refuse new requests, finish those that wait, and end the threads. Whether they ended in time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        end = None if timeout is None else time.perf_counter() + timeout
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.perf_counter()))
        return not any(thread.is_alive() for thread in self._threads)

    # --- the threads --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while rows := self._next_batch():
            start = time.perf_counter()
            self._compute(rows)
            self._end_batch(_tokens(rows) / max(time.perf_counter() - start, 1e-6))
            del rows  # hold no texts while waiting

    def _end_batch(self, speed: float) -> None:
        with self._changed:
            speed *= self._running  # others run beside it
            self._speed = speed if not self._speed else 0.8 * self._speed + 0.2 * speed
            self._running -= 1

    def _next_batch(self) -> list[Row]:
        """Wait for texts; none if the queue is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return []
            self._running += 1
            rows = self._take()
            if self._waiting:
                self._changed.notify()  # another thread
            return rows

    def _take(self) -> list[Row]:
        call = min(self._waiting, key=lambda call: next(iter(self._waiting[call])).arrived)
        rows: list[Row] = []
        total = 0
        for ticket in [*self._waiting[call]]:
            ticket.began = ticket.began or time.perf_counter()
            while ticket.taken < len(ticket.texts):
                size = ticket.tokens[ticket.taken]
                if rows and total + size > self.batch_tokens:
                    return rows
                rows.append((ticket, ticket.taken))
                ticket.taken += 1
                total += size
                self.tokens -= size
            self._discard(ticket)
        return rows

    def _discard(self, ticket: Ticket) -> bool:
        """Take a request out of the queue; whether it was there."""
        tickets = self._waiting.get(ticket.call, {})
        was_there = ticket in tickets
        tickets.pop(ticket, None)
        if not tickets:
            self._waiting.pop(ticket.call, None)
        return was_there

    def _compute(self, rows: list[Row]) -> None:
        """Compute a batch; if that fails, each request by itself, so that one cannot spoil the others."""
        start = time.perf_counter()
        try:
            results = self.compute(rows[0][0].call, [ticket.texts[index] for ticket, index in rows])
            seconds = time.perf_counter() - start
            self.on_batch(len(rows), _tokens(rows), seconds)
            self._deliver(rows, results, seconds)
        except Exception as error:
            tickets = [*dict.fromkeys(ticket for ticket, _ in rows)]
            if len(tickets) > 1:
                for ticket in tickets:
                    self._compute([row for row in rows if row[0] is ticket])
                return
            self._drop(tickets[0])
            with suppress(Exception):
                tickets[0].future.set_exception(error)

    def _deliver(self, rows: Sequence[Row], results: Sequence[Any], seconds: float) -> None:
        with self._changed:  # other texts of a request may be in another thread's batch
            for ticket in {ticket for ticket, _ in rows}:
                ticket.seconds += seconds
            complete = []
            for (ticket, index), result in zip(rows, results, strict=True):
                ticket.results[index] = result
                ticket.missing -= 1
                if not ticket.missing:
                    complete.append(ticket)
        for ticket in complete:
            with suppress(Exception):  # cancelled meanwhile
                ticket.future.set_result(ticket.results)

    def _drop(self, ticket: Ticket) -> None:
        with self._changed:
            if self._discard(ticket):
                self.tokens -= ticket.waiting_tokens


def _tokens(rows: Sequence[Row]) -> int:
    return sum(ticket.tokens[index] for ticket, index in rows)


@dataclass(frozen=True)
class Limits:
    """Limits of a server. It refuses more with status 413 (limits of one request) or 429 (limits of all requests).

    max_requests: in flight. queue_tokens: that wait for a model. max_body: bytes. max_texts: of a request.
    max_text_tokens: of a text (or pair). read_timeout: seconds within which a client must send its request.
    max_numbers: of the vectors of tokens in an answer. max_unread: bytes of answers that clients have not taken, above
    which no further request is read.
    """

    max_requests: int = 512
    queue_tokens: int = 131_072
    batch_tokens: int = 4096
    max_body: int = 2_000_000
    max_texts: int = 1024
    max_text_tokens: int = 32_768
    read_timeout: float = 10.0
    max_numbers: int = 1 << 23
    max_unread: int = 1 << 28
