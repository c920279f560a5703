"""Worker processes (multiprocessing) that end with their parent: tasks in order, parallel encoding of texts."""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from bothways.base.errors import InputError, flag
from bothways.base.log import logger

if TYPE_CHECKING:
    from bothways.text.tokenizer.token_arrays import TokenArrays
    from bothways.text.tokenizer.tokenizer import Tokenizer

Item = TypeVar("Item")
Task = TypeVar("Task")
Result = TypeVar("Result")
BLOCK = 2000  # texts that a process encodes at a time
TRIES = 4  # how often a task is started whose process is killed


def are_fewer(items: Iterator[Item], number: int) -> tuple[bool, Iterator[Item]]:
    """Whether there are fewer items than `number`, and an iterator over all items. Reads `number` of them.

    For work that is not worth a process: processes start slower than few items are done.
    """
    first = [*islice(items, number)]
    return len(first) < number, chain(first, items)


@contextmanager
def worker_pool(
    num_workers: int,
    task: str,
    initializer: Callable[..., object] | None = None,
    *args: Any,
) -> Iterator[Executor]:
    """A pool of processes, which ends with the block.

    num_workers: number of processes.
    task: the work they do, a verb with its object, for the message of the error.
    initializer, args: each process calls initializer(*args) first.

    InputError if a process dies.
    """
    # Spawn: forking a process that has used torch can hang.
    pool = ProcessPoolExecutor(
        num_workers,
        mp_context=get_context("spawn"),
        initializer=_initialize,
        initargs=(initializer, args),
    )
    with pool, killed_processes_reported(num_workers, task):
        yield pool


@contextmanager
def killed_processes_reported(num_workers: int, task: str) -> Iterator[None]:
    """Turn the error of a pool whose process has died into InputError. Parameters: see `worker_pool`."""
    try:
        yield
    except BrokenProcessPool:
        raise InputError(
            f"one of {num_workers} processes that {task} was killed, probably because memory ran out; use fewer "
            f"processes ({flag('processes')}); if you run a script of your own, guard it by if __name__ == '__main__'"
        ) from None


def _initialize(initializer: Callable[..., object] | None, args: tuple[Any, ...]) -> None:
    """The first call in each process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    Thread(target=_exit_with_parent, daemon=True).start()
    if initializer:
        initializer(*args)


def _exit_with_parent() -> None:
    """Exit when the parent dies: a killed parent cannot stop its workers, which would wait forever."""
    if parent := parent_process():
        parent.join()
        os._exit(1)


def in_order(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    workers: int | None,
) -> Iterator[tuple[Task, Result]]:
    """(task, function(task)) in the order of the tasks; the first error ends it.

    function: makes a result of a task; it must be picklable.
    tasks: the tasks; a few are read ahead.
    workers: number of processes; None computes in this process.

    InputError if a task has been started TRIES times without a result, which probably needs more memory than there is.
    """
    if workers is None:
        for task in tasks:
            yield task, function(task)
        return

    remaining = iter(tasks)
    pending: deque[Task] = deque()  # started tasks without a result, in order
    failures = 0
    # A killed process breaks its pool: the pending tasks begin again in a new one.
    while True:
        with worker_pool(workers, "compute results") as pool:
            try:
                futures: deque[Future[Result]] = deque(pool.submit(function, task) for task in pending)
                while True:
                    # Two tasks for each process: none waits while a result is used.
                    for task in islice(remaining, 2 * workers - len(pending)):
                        pending.append(task)
                        futures.append(pool.submit(function, task))
                    if not pending:
                        return

                    result = futures.popleft().result()
                    failures = 0
                    yield pending.popleft(), result
            except BrokenProcessPool:
                failures += 1
            finally:
                # Also when the caller stops early: the tasks that no process has begun are not computed.
                pool.shutdown(wait=False, cancel_futures=True)

        if failures == TRIES:
            raise InputError(
                f"a process was killed in {TRIES} attempts at the same work, probably because memory ran out; use "
                f"fewer processes ({flag('workers')}, which is {workers})"
            )
        logger.warning("a worker process was killed; its work begins again")


def encode_ahead(tokenizer: "Tokenizer", texts: Sequence[str], processes: int) -> Iterator["TokenArrays"]:
    """The texts as arrays in blocks, in order, computed a few blocks ahead.

    tokenizer: encodes the texts.
    texts: the texts.
    processes: number of processes.

    The processes are kept for a minute for the next call. They do not import the script that is running, so it needs no
    guard by `__name__`. Without joblib, all blocks are computed in this process.
    """
    starts = range(0, len(texts), BLOCK)
    if find_spec("joblib") is None:
        for start in starts:
            yield tokenizer.encode_arrays(texts[start : start + BLOCK])
        return

    from joblib.externals.loky import get_reusable_executor

    # loky's processes do not import the caller's script, as multiprocessing's do.
    executor = get_reusable_executor(
        processes,
        timeout=60,
        initializer=_set_tokenizer,
        initargs=(tokenizer,),
    )
    remaining = iter(starts)
    running: deque[Future[tuple[TokenArrays, int]]] = deque()
    with killed_processes_reported(processes, "encode text"):
        while True:
            for start in islice(remaining, 2 * processes + 1 - len(running)):
                running.append(executor.submit(_encode, texts[start : start + BLOCK]))
            if not running:
                return

            # A process counts in its own copy of the tokenizer.
            block, replaced = running.popleft().result()
            tokenizer.replaced_surrogates += replaced
            yield block


def encode_parallel(tokenizer: "Tokenizer", texts: Sequence[str], processes: int) -> Iterator["TokenArrays"]:
    """The texts as arrays in blocks, in order.

    tokenizer: encodes the texts.
    texts: the texts.
    processes: number of processes, which end with the iterator.
    """
    blocks = [texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK)]
    with worker_pool(processes, "encode text", _set_tokenizer, tokenizer) as pool:
        for block, replaced in pool.map(_encode, blocks):
            tokenizer.replaced_surrogates += replaced
            yield block


# --- in the processes that encode -------------------------------------------------------------------------------------

_tokenizer: "Tokenizer"  # sent once per process, not with every block


def _set_tokenizer(tokenizer: "Tokenizer") -> None:
    global _tokenizer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    _tokenizer = tokenizer


def _encode(texts: Sequence[str]) -> tuple["TokenArrays", int]:
    """These texts as arrays, which travel as one block of bytes, and the number of lone surrogates in them."""
    before = _tokenizer.replaced_surrogates
    block = _tokenizer.encode_arrays(texts)
    return block, _tokenizer.replaced_surrogates - before
