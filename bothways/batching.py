"""Batching: shuffling, sorting by length, token budgets, prefetching, batch fingerprints."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from queue import Queue
from threading import Event, Thread
from typing import TypeVar

import numpy as np

from bothways.batch import Batch
from bothways.rng import Purpose, generator

Item = TypeVar("Item")
Lengths = Sequence[int] | np.ndarray  # tokens by row


def epoch_order(num_examples: int, *, seed: int, epoch: int, part: int = 0) -> np.ndarray:
    """A random permutation of the examples for one epoch, or for one part of it. [num_examples]"""
    return generator(seed, Purpose.ORDER, epoch, part).permutation(num_examples)


def token_batches(order: Sequence[int], lengths: Lengths, budget: float) -> Iterator[list[int]]:
    """Batches of consecutive rows of `order`, each of at most `budget` tokens or a single row."""
    rows: list[int] = []
    tokens = 0
    for row in order:
        if rows and tokens + lengths[row] > budget:
            yield rows
            rows, tokens = [], 0
        rows.append(row)
        tokens += lengths[row]
    if rows:
        yield rows


def sort_by_length(rows: Sequence[int], lengths: Lengths) -> list[int]:
    """Rows sorted by length, then by index."""
    return sorted(rows, key=lambda row: (lengths[row], row))


def chunked(rows: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` rows; the last one may be shorter."""
    iterator = iter(rows)
    while chunk := list(islice(iterator, size)):
        yield chunk


def prefetch(items: Iterator[Item], size: int = 2) -> Iterator[Item]:
    """The same items, computed in a background thread up to `size` ahead, so that a GPU need not wait."""
    queue: Queue[tuple[Item | None, BaseException | None]] = Queue(size)
    stopped = Event()

    def produce() -> None:
        try:
            for item in items:
                if stopped.is_set():
                    return
                queue.put((item, None))
            queue.put((None, StopIteration()))
        except BaseException as error:
            queue.put((None, error))

    Thread(target=produce, daemon=True).start()
    try:
        while True:
            item, error = queue.get()
            if isinstance(error, StopIteration):
                return
            if error:
                raise error
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        while not queue.empty():  # the thread may be waiting for a free slot
            queue.get()


def delayed(items: Iterable[Item], *, by: int) -> Iterator[Item]:
    """The same items, each only when `by` more have been taken from the iterator."""
    waiting: deque[Item] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > by:
            yield waiting.popleft()
    yield from waiting


def divide_evenly(rows: Sequence[int], lengths: Lengths, num_parts: int) -> list[list[int]]:
    """Rows in `num_parts` lists with about equally many tokens, each sorted by length. Lists may be empty.

    Greedy: rows are assigned from longest to shortest, each to the part with the fewest tokens so far.
    """
    parts: list[list[int]] = [[] for _ in range(num_parts)]
    heap = [(0, part) for part in range(num_parts)]
    for row in reversed(sort_by_length(rows, lengths)):
        tokens, part = heapq.heappop(heap)
        parts[part].append(row)
        heapq.heappush(heap, (tokens + lengths[row], part))
    return [part[::-1] for part in parts]


def batch_fingerprint(batch: Batch) -> str:
    """A hash of the ids, lengths, masked positions and labels of a batch: 16 hexadecimal digits."""
    digest = sha256()
    for values in (batch.input_ids, batch.lengths, batch.masked_positions, batch.masked_labels, batch.labels):
        if values is not None:
            digest.update(values.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
