"""The queue of a model: threads compute batches of texts from the requests that wait, longest wait first.

Texts of different requests share a batch if they are to be computed alike (their `call` is equal). A batch has a budget
of tokens; since the encoder is ragged, it has no padding, and the budget is exact up to the overlap of windows.
"""

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from bothways.base.errors import InputError

Compute = Callable[[Any, list[Any]], Sequence[Any]]  # (call, texts) -> a result for each
NEW_SPEED = 0.2  # weight of the last batch in the average speed


class QueueFull(InputError):
    """The tokens of a request do not fit into the queue now. seconds: when they may, by the speed so far."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class QueuedRequest:
    """A request in the queue: texts to compute alike, and a future for the list of their results.

    arrived, began: when it came into the queue, and when its first text came into a batch.
    seconds: of its batches.
    taken: number of texts that are in a batch already.
    missing: number of texts without a result.
    """

    def __init__(self, call: Hashable, texts: Sequence[Any], tokens: Sequence[int]) -> None:
        self.call = call
        self.texts = texts
        self.tokens = tokens
        self.future: Future[list[Any]] = Future()
        self.arrived = time.perf_counter()
        self.began = 0.0
        self.seconds = 0.0
        self.taken = 0
        self.missing = len(texts)
        self.results: list[Any] = [None] * len(texts)

    @property
    def waiting_tokens(self) -> int:
        return sum(self.tokens[self.taken :])


QueuedText = tuple[QueuedRequest, int]  # a text of a request, by its index


class InferenceQueue:
    """At most `queue_tokens` tokens wait; a request that does not fit is refused. Threads may share it.

    tokens: that wait.
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
        """Start the threads.

        compute: computes a batch.
        batch_tokens: budget of a batch.
        queue_tokens: that may wait.
        workers: threads, each of which computes a batch at a time.
        on_batch: called in the thread when a batch is computed, before its results are there, with the number of texts
            and tokens, and the seconds that it took.
        """
        self.compute = compute
        self.on_batch = on_batch
        self.batch_tokens = batch_tokens
        self.queue_tokens = queue_tokens

        self.tokens = 0
        self._waiting: dict[Hashable, dict[QueuedRequest, None]] = {}  # by call, in the order of arrival
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

    def submit(self, call: Hashable, texts: Sequence[Any], tokens: Sequence[int]) -> QueuedRequest:
        """Put texts into the queue. QueueFull if there is no room.

        call: texts of equal calls share a batch.
        texts: to compute.
        tokens: their numbers of tokens.
        """
        request = QueuedRequest(call, texts, tokens)
        size = sum(tokens)
        with self._changed:
            if self._closed:
                raise QueueFull("the server is stopping", seconds=1.0)
            if self.tokens + size > self.queue_tokens:
                seconds = (self.tokens + size - self.queue_tokens) / self._speed if self._speed else 1.0
                raise QueueFull(f"{self.tokens:,} tokens are waiting; try again later", seconds)
            if not texts:
                request.future.set_result([])
                return request

            self.tokens += size
            self._waiting.setdefault(call, {})[request] = None
            self._changed.notify()
        return request

    def cancel(self, request: QueuedRequest) -> None:
        """Drop the texts of a request that are not computed yet."""
        self._drop(request)
        request.future.cancel()

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
        while True:
            batch = self._next_batch()
            if not batch:
                return
            start = time.perf_counter()
            self._compute(batch)
            self._end_batch(_num_tokens(batch) / max(time.perf_counter() - start, 1e-6))
            del batch  # hold no texts while waiting

    def _next_batch(self) -> list[QueuedText]:
        """Wait for texts; none if the queue is closed and empty.

        A batch is not kept waiting for more texts: 3, 6 or 10 ms made batches larger and the server slower, 1,000
        texts/s to 970, 750 and 680, since the cores are idle meanwhile (docs/LOG.md, "Processes that compute").
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return []

            self._running += 1
            batch = self._take()
            if self._waiting:
                self._changed.notify()  # another thread
            return batch

    def _take(self) -> list[QueuedText]:
        """Texts of the call whose first request has waited longest, up to the budget."""
        call = min(self._waiting, key=lambda call: next(iter(self._waiting[call])).arrived)
        batch: list[QueuedText] = []
        total = 0

        for request in [*self._waiting[call]]:
            request.began = request.began or time.perf_counter()
            while request.taken < len(request.texts):
                size = request.tokens[request.taken]
                if batch and total + size > self.batch_tokens:
                    return batch
                batch.append((request, request.taken))
                request.taken += 1
                total += size
                self.tokens -= size
            self._discard(request)
        return batch

    def _compute(self, batch: list[QueuedText]) -> None:
        """Compute a batch; if that fails, each request by itself, so that one cannot spoil the others."""
        start = time.perf_counter()
        try:
            results = self.compute(batch[0][0].call, [request.texts[index] for request, index in batch])
            seconds = time.perf_counter() - start

            self.on_batch(len(batch), _num_tokens(batch), seconds)
            self._deliver(batch, results, seconds)
        except Exception as error:
            requests = [*dict.fromkeys(request for request, _ in batch)]
            if len(requests) > 1:
                for request in requests:
                    self._compute([text for text in batch if text[0] is request])
                return

            self._drop(requests[0])
            with suppress(Exception):
                requests[0].future.set_exception(error)

    def _deliver(self, batch: Sequence[QueuedText], results: Sequence[Any], seconds: float) -> None:
        """Give the requests their results, and complete those that have all."""
        with self._changed:  # other texts of a request may be in another thread's batch
            for request in {text[0] for text in batch}:
                request.seconds += seconds

            complete = []
            for (request, index), result in zip(batch, results, strict=True):
                request.results[index] = result
                request.missing -= 1
                if not request.missing:
                    complete.append(request)

        for request in complete:
            with suppress(Exception):  # cancelled meanwhile
                request.future.set_result(request.results)

    def _end_batch(self, speed: float) -> None:
        with self._changed:
            speed *= self._running  # others run beside it
            self._speed = (1 - NEW_SPEED) * self._speed + NEW_SPEED * speed if self._speed else speed
            self._running -= 1

    def _drop(self, request: QueuedRequest) -> None:
        with self._changed:
            if self._discard(request):
                self.tokens -= request.waiting_tokens

    def _discard(self, request: QueuedRequest) -> bool:
        """Take a request out of the queue; whether it was there."""
        requests = self._waiting.get(request.call, {})
        was_there = request in requests
        requests.pop(request, None)
        if not requests:
            self._waiting.pop(request.call, None)
        return was_there


def _num_tokens(batch: Sequence[QueuedText]) -> int:
    return sum(request.tokens[index] for request, index in batch)
