"""Processes that work for this one: they end with it, and one that is killed is one clear line."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from bothways.errors import InputError


@contextmanager
def workers(number: int, what: str, start: Callable[..., object] | None = None, *given: Any) -> Iterator[Executor]:
    """So many processes, each begun with start(*given). InputError if one dies; what: they do, for its message."""
    # Spawned, not forked: forking a process that has run torch can hang.
    with ProcessPoolExecutor(number, get_context("spawn"), _begin, (start, given)) as pool:
        try:
            yield pool
        except BrokenProcessPool:
            raise InputError(
                f"one of {number} processes that {what} was killed, most often because memory ran out; end other "
                "programs or use fewer processes (--processes); a script of your own needs if __name__ == '__main__'"
            ) from None


def _begin(start: Callable[..., object] | None, given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to answer
    Thread(target=_end_with_parent, daemon=True).start()
    if start:
        start(*given)


def _end_with_parent() -> None:
    """A parent that is killed cannot end its processes, and they would wait for work for ever."""
    if parent := parent_process():
        parent.join()
        os._exit(1)
