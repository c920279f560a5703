"""Ctrl-C and SIGTERM as a request: finish the step, save, stop. A second Ctrl-C stops at once."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_SECONDS = 1.0  # torchrun passes on the Ctrl-C that the terminal has sent already: that is no second one


class Stopped(Exception):
    """A run was asked to stop and has saved where it is; the message is one line for the user."""


@contextmanager
def requests_to_stop(*, when: bool = True) -> Iterator[Callable[[], bool]]:
    """Inside, SIGTERM and Ctrl-C only set what the given function tells; afterwards they mean what they did before.

    Not otherwise, and outside the main thread they cannot be caught: then the answer is always no.
    """
    if not when or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    caught: list[float] = []

    def catch(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and caught and time.monotonic() - caught[0] > GRACE_SECONDS:
            raise KeyboardInterrupt
        caught.append(time.monotonic())

    before = {number: signal.signal(number, catch) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(caught)
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
