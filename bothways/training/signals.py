"""Graceful stop on Ctrl-C and SIGTERM: finish the step, save a checkpoint, stop.

A second Ctrl-C stops at once.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_SECONDS = 1.0  # torchrun forwards the Ctrl-C that the terminal also sends


class Stopped(Exception):
    """A run was asked to stop and saved a checkpoint. The message is one line for the user."""


@contextmanager
def catch_stop_signals(*, when: bool = True) -> Iterator[Callable[[], bool]]:
    """Catch SIGTERM and Ctrl-C in this context; the yielded function returns whether one arrived.

    Without `when`, or outside the main thread, nothing is caught.
    """
    if not when or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    caught: list[float] = []

    def catch(signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT and caught and time.monotonic() - caught[0] > GRACE_SECONDS:
            raise KeyboardInterrupt
        caught.append(time.monotonic())

    before = {signum: signal.signal(signum, catch) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(caught)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
