"""Tasks of a job in several processes: results in order, and processes that are killed are replaced."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

import torch

from bothways.errors import InputError
from bothways.log import logger
from bothways.tokenizer.workers import num_cores, worker_pool

TRIES = 4  # of a task whose process is killed

Work = TypeVar("Work")
Result = TypeVar("Result")


def threads_of(workers: int | None) -> int:
    """The threads of each of so many processes: its share of the cores; None: of this process."""
    return torch.get_num_threads() if workers is None else max(1, num_cores() // workers)


def in_order(
    function: Callable[[Work], Result], tasks: Iterable[Work], workers: int | None
) -> Iterator[tuple[Work, Result]]:
    """(task, function(task)) in the order of the tasks; the first error ends it. None: in this process.

    InputError if a task has been begun TRIES times without a result, which probably needs more memory than there is.
    """
    if workers is None:
        yield from ((task, function(task)) for task in tasks)
        return
    remaining, begun, failures = iter(tasks), deque[Work](), 0
    while True:
        with worker_pool(workers, "compute results") as pool:
            try:
                waiting: deque[Future[Result]] = deque(pool.submit(function, task) for task in begun)
                while True:
                    while len(begun) < 2 * workers and (task := next(remaining, None)) is not None:
                        begun.append(task)
                        waiting.append(pool.submit(function, task))
                    if not begun:
                        return
                    result = waiting.popleft().result()
                    failures = 0
                    yield begun.popleft(), result
            except BrokenProcessPool:
                failures += 1
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        if failures == TRIES:
            raise InputError(
                f"a process was killed in {TRIES} attempts at the same work, probably because memory ran out; use "
                f"fewer processes (--workers, which is {workers})"
            )
        logger.warning("a worker process was killed; its work begins again")
