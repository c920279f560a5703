"""How many connections may be open, and one line for each kind of trouble with them."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bothways.base.log import logger

MOST_CONNECTIONS = 4096
SPARE_FILES = 64  # file descriptors for everything but connections and what is open when the server starts
MOST_FILES = 65_536  # that are asked for; some systems refuse "unlimited"


def most_connections() -> int:
    """How many connections may be open, below the limit of the process for file descriptors, which is raised first."""
    try:
        import resource
    except ImportError:  # Windows, whose sockets are not counted with files
        return MOST_CONNECTIONS

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted

    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(1, min(MOST_CONNECTIONS, soft - _open_files() - SPARE_FILES))


def _open_files() -> int:
    directory = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    with suppress(OSError):
        return len(os.listdir(directory))
    return 0


def said_once() -> Callable[[str], None]:
    """A function that logs each line the first time."""
    said: set[str] = set()

    def say(line: str) -> None:
        if line not in said:
            said.add(line)
            logger.warning(line)

    return say


def log_loop_error(say: Callable[[str], None], loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A connection that cannot be accepted is one line, once, instead of a traceback for each attempt.

    say: logs a line.
    loop: the event loop, which handles all other errors.
    context: of the error, as asyncio describes it.
    """
    error = context.get("exception")
    if isinstance(error, OSError) and "accept" in context.get("message", ""):
        say(f"a connection cannot be accepted ({error.strerror}); the server tries again each second")
    else:
        loop.default_exception_handler(context)
