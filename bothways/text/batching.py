"""Batching: shuffling, sorting by length, token budgets, building batches ahead, batch fingerprints."""

import gc
import heapq
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from io import BytesIO
from itertools import islice
from queue import Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bothways.base.errors import InputError, flag
from bothways.text.batch import Batch

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Item = TypeVar("Item")
Task = TypeVar("Task")
Lengths = Sequence[int] | np.ndarray  # tokens by row


def epoch_order(
    num_examples: int,
    *,
    seed: int,
    epoch: int,
    part: int = 0,
) -> np.ndarray:
    """A random permutation of the examples for one epoch, or for one part of it. [num_examples]"""
    from bothways.base.rng import Purpose, generator  # imports numpy.random

    return generator(seed, Purpose.ORDER, epoch, part).permutation(num_examples)


def token_batches(order: Sequence[int], lengths: Lengths, budget: float) -> Iterator[list[int]]:
    """Batches of consecutive rows of `order`, each of at most `budget` tokens or a single row."""
    ends = np.asarray(lengths)[np.asarray(order, np.int64)].cumsum()
    start = 0
    while start < len(ends):
        end = batch_end(ends, start, budget)
        yield list(order[start:end])
        start = end


def batch_end(ends: np.ndarray, start: int, budget: float) -> int:
    """The end of the batch of consecutive rows that begins at `start`: at most `budget` tokens, or a single row.

    ends: tokens up to the end of each row.
    """
    before = ends[start - 1] if start else 0
    return max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))


def sort_by_length(rows: Sequence[int], lengths: Lengths) -> list[int]:
    """Rows sorted by length, then by index."""
    return sorted(rows, key=lambda row: (lengths[row], row))


def divide_evenly(rows: Sequence[int], lengths: Lengths, num_parts: int) -> list[list[int]]:
    """Rows in `num_parts` lists with about equally many tokens, each sorted by length. Lists may be empty.

    Greedy: rows are assigned from longest to shortest, each to the part with the fewest tokens so far.
    """
    parts: list[list[int]] = [[] for _ in range(num_parts)]
    heap = [(0, part) for part in range(num_parts)]  # (tokens, part)
    for row in reversed(sort_by_length(rows, lengths)):
        tokens, part = heapq.heappop(heap)
        parts[part].append(row)
        heapq.heappush(heap, (tokens + lengths[row], part))
    return [part[::-1] for part in parts]


def spread_evenly(rows: range, limit: int) -> Sequence[int]:
    """At most `limit` of the rows, evenly spread."""
    if len(rows) <= limit:
        return rows
    return [rows[index * len(rows) // limit] for index in range(limit)]


def chunked(rows: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` rows; the last one may be shorter."""
    iterator = iter(rows)
    while chunk := [*islice(iterator, size)]:
        yield chunk


def batch_fingerprint(batch: Batch) -> str:
    """A hash of the ids, lengths, masked positions and labels of a batch: 16 hexadecimal digits."""
    tensors = (
        batch.input_ids,
        batch.lengths,
        batch.masked_positions,
        batch.masked_labels,
        batch.labels,
    )
    digest = sha256()
    for values in tensors:
        if values is not None:
            digest.update(values.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector inside the block, which creates many objects but no cycles.

    Each collection looks through all encodings made so far: tokenizing 6,000 lines takes 14 µs a line without
    collections and 18 to 51 with them (docs/LOG.md).
    """
    was_enabled = gc.isenabled()
    gc.disable()

    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def prefetch(items: Iterator[Item], size: int = 2) -> Generator[Item, None, None]:
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


def build_in_processes(
    build: Callable[[Task], Item], tasks: Iterator[Task], num_processes: int
) -> Generator[Item, None, None]:
    """build(task) for each task, in their order, computed ahead by processes with one task each.

    build: makes an item of a task; it must not use a GPU nor log.
    tasks: the tasks; they are read in this process.
    num_processes: number of processes. They are forked when the first item is taken, so that nothing but tasks and
    items is copied, and end with the iterator, or when this process dies.

    An exception of `tasks` or `build` is raised at its position. InputError if a process is killed.
    """
    from multiprocessing import get_context

    context = get_context("fork")
    workers: list[Any] = []
    pipes: list[Connection] = []
    try:
        for _ in range(num_processes):
            ours, theirs = context.Pipe()
            pipes.append(ours)
            worker = context.Process(target=_build, args=(build, theirs, pipes), daemon=True)
            worker.start()
            workers.append(worker)
            theirs.close()  # so that reading from a worker that was killed ends

        # In a thread, so that results are read, and workers get tasks, while this process computes.
        with closing(prefetch(_in_turn(tasks, pipes))) as items:
            yield from items
    finally:
        for worker in workers:
            worker.kill()  # it may be waiting to send, and holds nothing that needs cleaning up
            worker.join()


def _in_turn(tasks: Iterator[Task], pipes: "Sequence[Connection]") -> Iterator[Any]:
    """The results of the workers, in the order of the tasks.

    A worker gets a task only once its last result is read, so that the two ends of a pipe never wait for each other.
    """
    free = deque(pipes)
    busy: deque[Connection] = deque()
    done: list[Any] = []
    failure: BaseException | None = None

    while True:
        while free and failure is None:
            try:
                free[0].send(next(tasks))
                busy.append(free.popleft())
            except (BrokenPipeError, ConnectionResetError):
                failure = _killed(len(pipes))
            except BaseException as error:
                failure = error

        yield from done  # only now, when its worker has another task

        if not busy and isinstance(failure, StopIteration):
            return
        if not busy and failure:
            raise failure

        try:
            item, raised = pickle.loads(busy[0].recv_bytes())
        except (EOFError, ConnectionResetError):
            raise _killed(len(pipes)) from None
        if raised:
            raise raised

        done = [item]
        free.append(busy.popleft())


def _killed(num_processes: int) -> InputError:
    return InputError(
        f"one of {num_processes} processes that build batches was killed, probably because memory ran out; free some "
        f"memory, and go on with {flag('resume', True)}"
    )


def _build(build: Callable[[Any], Any], pipe: "Connection", others: "Sequence[Connection]") -> None:
    """A worker: builds the tasks that it reads from its pipe, until the other end is closed."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the parent's handler
    for other in others:  # the parent's ends, which would keep this worker alive after the parent's death
        other.close()

    torch.set_num_threads(1)
    gc.freeze()  # leaves the parent's objects, which may be on a GPU, alone

    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            task = pipe.recv()
            try:
                result = _pickled((build(task), None))
            except Exception as error:
                result = _pickled((None, _portable(error)))
            pipe.send_bytes(result)


def _pickled(value: Any) -> memoryview:
    file = BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return file.getbuffer()


class _Pickler(pickle.Pickler):
    """Pickles tensors as arrays, which is ten times as fast, and takes no shared memory."""

    def reducer_override(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            return torch.from_numpy, (value.numpy(),)
        return NotImplemented


def _portable(error: Exception) -> Exception:
    """The exception, or if it cannot be pickled, one with its message."""
    try:
        is_portable = type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        is_portable = False
    return error if is_portable else RuntimeError(repr(error))
