"""Logging: messages of the package, and who receives them.

Everything logs to `logging.getLogger("bothways")`, which prints nothing unless logging is configured. The command line
receives messages by `messages_to` and prints them to standard error.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import Lock

from bothways.base.terminal import escape_controls

logger = logging.getLogger("bothways")
logger.addHandler(logging.NullHandler())  # else Python prints warnings if logging is not configured


def _escape_record(record: logging.LogRecord) -> bool:
    """Let every record pass, in characters that a file can hold."""
    record.msg = escape_controls(record.getMessage())
    record.args = None
    return True


logger.addFilter(_escape_record)


def messages_to(write: Callable[[str], None]) -> AbstractContextManager[None]:
    """Call `write` with each message logged inside the block, instead of an outer `messages_to`.

    Messages appear above a progress bar, which is drawn if standard error is a terminal. Blocks of several threads do
    not nest: the last one opened receives the messages of all.
    """
    return _blocks.add(logging.INFO, _Handler(write))


def muted() -> AbstractContextManager[None]:
    """Suppress messages below the level ERROR inside the block."""
    return _blocks.add(logging.ERROR)


class _Handler(logging.Handler):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self.write = write

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        self.write(f"warning: {message}" if record.levelno >= logging.WARNING else message)


@dataclass(frozen=True, eq=False)
class _Block:
    level: int
    handler: _Handler | None


class _Blocks:
    """The blocks of `messages_to` and `muted` that are open, in any thread: the last one opened holds.

    Blocks may close in any order; the last restores the logger.
    """

    def __init__(self) -> None:
        self.open: list[_Block] = []
        self.level_outside = logging.NOTSET
        self.lock = Lock()

    @contextmanager
    def add(self, level: int, handler: _Handler | None = None) -> Iterator[None]:
        block = _Block(level, handler)
        with self.lock:
            if not self.open:
                self.level_outside = logger.level
            self.open.append(block)
            self._apply()

        try:
            yield
        finally:
            with self.lock:
                self.open.remove(block)
                self._apply()

    def _apply(self) -> None:
        for handler in [*logger.handlers]:
            if isinstance(handler, _Handler):
                logger.removeHandler(handler)

        last = self.last_handler()
        if last is not None:
            logger.addHandler(last)
        logger.setLevel(self.open[-1].level if self.open else self.level_outside)

    def last_handler(self) -> _Handler | None:
        handlers = [block.handler for block in self.open if block.handler]
        return handlers[-1] if handlers else None


_blocks = _Blocks()


def message_receiver() -> Callable[[str], None] | None:
    """The function of the last `messages_to`, also where messages are muted for a while; None outside."""
    handler = _blocks.last_handler()
    return None if handler is None else handler.write


def is_muted() -> bool:
    """Whether messages below the level ERROR are suppressed."""
    return logger.level >= logging.ERROR


def is_configured() -> bool:
    """Whether log lines have a place to go, or the caller has set a level: a handler or a level of the root logger or
    of `bothways`, or a block of `messages_to`."""
    root = logging.getLogger()
    for handler in (*root.handlers, *logger.handlers):
        if not isinstance(handler, logging.NullHandler):
            return True

    level = _blocks.level_outside if _blocks.open else logger.level
    return level != logging.NOTSET or root.level not in (logging.NOTSET, logging.WARNING)


def shows_lines() -> bool:
    """Whether the user sees each line of the log, other than by `messages_to`."""
    has_receiver = any(isinstance(handler, _Handler) for handler in logger.handlers)
    return logger.isEnabledFor(logging.INFO) and not has_receiver


def is_main_process() -> bool:
    """Whether this is the first of the processes that torchrun has started, or the only one."""
    return os.environ.get("RANK", "0") in ("", "0")
