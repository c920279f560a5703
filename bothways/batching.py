"""Batching: shuffling, sorting by length, token budgets, prefetching, batch fingerprints."""

import heapq
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
    """The order of one pass over the examples, or of one part of it."""
    return generator(seed, Purpose.ORDER, epoch, part).permutation(num_examples)


def token_batches(order: Sequence[int], lengths: Lengths, budget: float) -> Iterator[list[int]]:
    """Consecutive rows of `order` as batches of at most `budget` tokens, at least one row each."""
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
    """Rows sorted by length, so that texts of equal length stand together."""
    return sorted(rows, key=lambda row: (lengths[row], row))


def chunked(rows: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Rows in lists of `size`, the last one shorter; nothing where there are none."""
    remaining = iter(rows)
    while block := list(islice(remaining, size)):
        yield block


def prefetch(items: Iterator[Item], number: int = 2) -> Iterator[Item]:
    """The same items, made by a thread of its own up to `number` ahead of their use, so that a GPU need not wait."""
    made: Queue[tuple[Item | None, BaseException | None]] = Queue(number)
    unwanted = Event()

    def make() -> None:
        try:
            for item in items:
                if unwanted.is_set():
                    return
                made.put((item, None))
            made.put((None, StopIteration()))
        except BaseException as error:
            made.put((None, error))

    Thread(target=make, daemon=True).start()
    try:
        while True:
            item, error = made.get()
            if isinstance(error, StopIteration):
                return
            if error:
                raise error
            yield item  # type: ignore[misc]
    finally:
        unwanted.set()
        while not made.empty():  # the maker may be waiting for room
            made.get()


def divide_evenly(rows: Sequence[int], lengths: Lengths, parts: int) -> list[list[int]]:
    """Rows in so many parts of about equal tokens, each sorted by length; with fewer rows than parts, some are empty.

    The longest row first, each goes to the part with the fewest tokens so far.
    """
    divided: list[list[int]] = [[] for _ in range(parts)]
    lightest = [(0, part) for part in range(parts)]
    for row in reversed(sort_by_length(rows, lengths)):
        tokens, part = heapq.heappop(lightest)
        divided[part].append(row)
        heapq.heappush(lightest, (tokens + lengths[row], part))
    return [part[::-1] for part in divided]


def batch_fingerprint(batch: Batch) -> str:
    """Names what a batch asks of a model: a hash of its ids, masked places and labels, 16 hexadecimal digits."""
    digest = sha256()
    for values in (batch.input_ids, batch.lengths, batch.masked_positions, batch.masked_labels, batch.labels):
        if values is not None:
            digest.update(values.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
