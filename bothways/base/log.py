"""Logging, progress bars, and output of the command line.

Everything logs to `logging.getLogger("bothways")`, which prints nothing unless logging is configured, except for a line
every half minute of work that takes long. Bars of training
and of long jobs are drawn on terminals and in notebooks, unless the logger's level is ERROR. The command line prints
results to standard output, messages and progress bars to standard error.

Labels, file names and configs are untrusted, so characters that control the terminal are escaped in all output.
"""

import json
import logging
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, ClassVar, Self
from unicodedata import east_asian_width

from bothways.base.io import to_json

# C0 (except tab and line feed) and C1 control characters, line separators, marks that change the text direction, and
# lone surrogates, which UTF-8 cannot encode: a file name that is not UTF-8 has some.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

NOTEBOOK_SECONDS = 0.25  # at least, between two updates of a bar
BAR_WIDTH = 30  # characters
LINE_EVERY = 30.0  # seconds between two lines of progress, where no bar is drawn
GRACE = 2.0  # seconds that a loop has for its line, which has more details, before the thread of `Heartbeat` writes one


def escape_controls(text: str) -> str:
    """The text with control characters as \\u001b escapes, which JSON decodes to the original string."""
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def escape_line(text: str) -> str:
    """Like `escape_controls`, with line feeds escaped as well, so that a label cannot fake a line of output."""
    return escape_controls(text).replace("\n", "\\n")


def print_lines(*lines: str) -> None:
    """Print results to standard output, one per line."""
    _TerminalBar.erase()
    print("".join(f"{escape_line(line)}\n" for line in lines), end="", flush=True)


def print_styled(*lines: Sequence[tuple[str, str]], color: bool) -> None:
    """Print lines of (text, style) to standard output. style: the number of an ANSI style, such as "1" for bold, or ""
    for none. The texts are escaped, the styles are not."""
    _TerminalBar.erase()
    for line in lines:
        parts = (
            f"\x1b[{style}m{escape_line(text)}\x1b[0m" if style and color else escape_line(text) for text, style in line
        )
        print("".join(parts))
    sys.stdout.flush()


def print_json(*values: Any) -> None:
    """Print JSON to standard output, one value per line; pure ASCII unless the output encoding is UTF-8."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("_", "-")
    dump = to_json if encoding in ("utf-8", "utf8") else json.dumps
    print_lines(*map(dump, values))


def print_json_line(text: str) -> None:
    """Print a message of a protocol, JSON in pure ASCII, in one write."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def command_name() -> str:
    """The shell command that starts this program: `bothways` if it is on the PATH, else as it was started."""
    program = Path(sys.argv[0])
    if program.match("bothways/__main__.py"):
        return f"{shlex.quote(sys.executable)} -m bothways"
    installed = shutil.which("bothways")
    if not program.name.startswith("bothways") or (installed and program.exists() and program.samefile(installed)):
        return "bothways"
    return shlex.quote(str(program))


def print_message(text: str) -> None:
    """Print a message, possibly of several lines, to standard error."""
    _TerminalBar.erase()
    print(escape_controls(text), file=sys.stderr, flush=True)


# --- logging --------------------------------------------------------------------------------------------------------


logger = logging.getLogger("bothways")
logger.addHandler(logging.NullHandler())  # else Python prints warnings if logging is not configured


def _escape_record(record: logging.LogRecord) -> bool:
    """Let every record pass, in characters that a file can hold."""
    record.msg, record.args = escape_controls(record.getMessage()), None
    if is_configured():
        heartbeat.show()
    return True


logger.addFilter(_escape_record)


class _Handler(logging.Handler):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self.write = write

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        self.write(f"warning: {message}" if record.levelno >= logging.WARNING else message)


class _Blocks:
    """The blocks of `messages_to` and `muted` that are open, in any thread: the last one opened holds.

    Blocks may close in any order; the last restores the logger.
    """

    def __init__(self) -> None:
        self.open: list[tuple[int, _Handler | None]] = []
        self.level = logging.NOTSET  # outside of all of them
        self.lock = Lock()

    @contextmanager
    def add(self, level: int, handler: _Handler | None = None) -> Iterator[None]:
        block = (level, handler)
        with self.lock:
            if not self.open:
                self.level = logger.level
            self.open.append(block)
            self._apply()
        try:
            yield
        finally:
            with self.lock:
                del self.open[next(index for index, other in enumerate(self.open) if other is block)]
                self._apply()

    def _apply(self) -> None:
        for other in [other for other in logger.handlers if isinstance(other, _Handler)]:
            logger.removeHandler(other)
        handlers = [handler for _, handler in self.open if handler]
        if handlers:
            logger.addHandler(handlers[-1])
        logger.setLevel(self.open[-1][0] if self.open else self.level)


_blocks = _Blocks()


def messages_to(write: Callable[[str], None]) -> AbstractContextManager[None]:
    """Call `write` with each message logged inside the block, instead of an outer `messages_to`.

    Messages appear above a progress bar, which is drawn if standard error is a terminal. Blocks of several threads do
    not nest: the last one opened receives the messages of all.
    """
    return _blocks.add(logging.INFO, _Handler(write))


def muted() -> AbstractContextManager[None]:
    """Suppress messages below the level ERROR inside the block."""
    return _blocks.add(logging.ERROR)


def is_main_process() -> bool:
    """Whether this is the first of the processes that torchrun has started, or the only one."""
    return os.environ.get("RANK", "0") in ("", "0")


def is_configured() -> bool:
    """Whether log lines have a place to go, or the caller has set a level: a handler or a level of the root logger or
    of `bothways`, or a block of `messages_to`."""
    root, level = logging.getLogger(), _blocks.level if _blocks.open else logger.level
    has_handler = any(not isinstance(one, logging.NullHandler) for one in (*root.handlers, *logger.handlers))
    return has_handler or level != logging.NOTSET or root.level not in (logging.NOTSET, logging.WARNING)


def show_progress(line: str) -> None:
    """Log a line of progress; write it to standard error where logging is not configured."""
    heartbeat.show()
    if is_configured():
        logger.info(line)
    elif logger.level < logging.ERROR:  # not muted
        print_message(line)


@dataclass(eq=False)
class Work:
    """A block of `working`: its title, when it began, and what it has done so far."""

    title: str
    since: float
    detail: str = ""
    is_watched: bool = False


class Heartbeat:
    """Writes a line when work has shown nothing for LINE_EVERY seconds: what it is doing, and for how long.

    The line is written by a thread, so that it also comes from phases without a loop, such as one fit of a linear
    model. work: the open blocks of `working`, in any thread, the oldest first. shown: when a line or a bar was last
    drawn. lines: how many lines it has written. clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.work, self.lock, self.shown = clock, list[Work](), Lock(), clock()
        self.lines = 0

    @contextmanager
    def working(self, title: str, *, thread: bool = True) -> Iterator[Work]:
        """Announce work. thread: watch it, unless a block around it is watched; else `Work` is to be updated."""
        work, stop = Work(title, self.clock()), Event()
        with self.lock:
            if not self.work:
                self.shown = work.since
            watches = thread and not any(one.is_watched for one in self.work)
            work.is_watched = watches
            self.work.append(work)
        if watches:
            Thread(target=self._watch, args=(stop,), name="bothways progress", daemon=True).start()
        try:
            yield work
        finally:
            stop.set()
            with self.lock:
                self.work.remove(work)

    def _watch(self, stop: Event) -> None:
        while not stop.wait(max(0.1, self.shown + LINE_EVERY + GRACE - self.clock())):
            self.beat()

    def show(self) -> None:
        """Note that a line was written, or a bar drawn."""
        self.shown = self.clock()

    def beat(self) -> None:
        """Write a line if nothing was shown for LINE_EVERY seconds."""
        with self.lock:
            now = self.clock()
            if not self.work or not is_main_process():
                return
            # A server always has some work, but none that takes long.
            if now - max(self.shown, self.work[0].since) < LINE_EVERY:
                return
            self.shown, first, last = now, self.work[0], self.work[-1]
            self.lines += 1
        parts = [last.title] if first is not last else []
        parts += [last.detail] if last.detail else []
        seconds = f"{format_duration(now - last.since)} so far"
        total = f" ({format_duration(now - first.since)} in all)" if first is not last else ""
        line = f"{first.title}: {', '.join([*parts, seconds])}{total}"
        handlers = [handler for _, handler in _blocks.open if handler]
        if handlers:  # also where messages are muted for a while
            handlers[-1].write(escape_controls(line))
        elif is_configured():
            logger.info(line)
        else:
            print_message(line)


heartbeat = Heartbeat()
if hasattr(os, "register_at_fork"):  # the threads of the parent, one of which may hold the lock, are not in the child
    os.register_at_fork(after_in_child=lambda: heartbeat.__init__())  # type: ignore[misc]


@contextmanager
def working(title: str, *, thread: bool = True) -> Iterator[Work]:
    """Announce work that may take long, or a phase of it; see `Heartbeat`. Also a decorator."""
    with heartbeat.working(title, thread=thread) as work:
        yield work


def format_duration(seconds: float) -> str:
    """'40 s', '12 min', '3.4 h'"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, in which standard error is no terminal and bars are displayed by IPython."""
    if "ipykernel" not in sys.modules:
        return False
    ipython = sys.modules.get("IPython")
    return ipython is None or hasattr(ipython.get_ipython(), "kernel")


def draws_bars() -> bool:
    """Whether progress is drawn as a bar: in a notebook, and on a terminal unless log lines show it there."""
    if logger.level >= logging.ERROR:  # muted
        return False
    shows_lines = logger.isEnabledFor(logging.INFO) and not any(isinstance(one, _Handler) for one in logger.handlers)
    return in_notebook() or (sys.stderr.isatty() and not shows_lines)


class ProgressBar:
    """A progress bar with count and remaining time: in the output of a notebook's cell, else on standard error. Draws
    nothing if `draws_bars()` is false.

    done: the count at the start, for example of a resumed job. draw: whether a bar may be drawn.
    """

    def __init__(self, title: str, total: int | None, *, done: int = 0, draw: bool = True) -> None:
        self.title, self.total = title, total
        self.is_drawn = draw and draws_bars()
        kind = _Bar if in_notebook() else _TerminalBar
        self.bar = kind(escape_controls(title), total, done) if self.is_drawn else None

    def __enter__(self) -> Self:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar:
            self.bar.stop()

    def update(self, done: int, detail: str) -> None:
        """Set the count. detail: text after the title."""
        if self.bar:
            heartbeat.show()
            self.bar.update(done, detail)


class _Bar:
    """A bar that is updated in place in the output of a cell, and stays there. Without IPython, a line that a carriage
    return starts over."""

    def __init__(self, title: str, total: int | None, done: int) -> None:
        self.title, self.total, self.first, self.done, self.detail = title, total, done, done, ""
        self.started = self.shown = time.monotonic()
        self.handle: Any = None
        self.width = 0

    def start(self) -> None:
        self.started = time.monotonic()
        self._show()

    def stop(self) -> None:
        self._show()
        if self.handle is None:
            print(file=sys.stderr, flush=True)

    def update(self, done: int, detail: str) -> None:
        self.done, self.detail = done, detail
        if time.monotonic() - self.shown >= NOTEBOOK_SECONDS:
            self._show()

    def _show(self) -> None:
        self.shown = time.monotonic()
        line = "  ".join(part for part in (self.title, self.detail, self._count()) if part)
        try:
            display = import_module("IPython.display").display
        except ImportError:
            self.width = max(self.width, len(line))
            print(f"\r{line:{self.width}}", end="", file=sys.stderr, flush=True)
            return
        value = "" if self.total is None else f' value="{self.done}" max="{self.total}"'
        from html import escape

        shown = {"text/plain": line, "text/html": f"<progress{value}></progress> {escape(line)}"}
        if self.handle is None:
            self.handle = display(shown, raw=True, display_id=True)
        else:
            self.handle.update(shown, raw=True)

    def _count(self) -> str:
        if self.total is None:
            return f"{self.done:,}"
        seconds = (time.monotonic() - self.started) / max(1, self.done - self.first) * (self.total - self.done)
        left = f", {int(seconds) // 60}:{int(seconds) % 60:02} left" if self.first < self.done < self.total else ""
        return f"{self.done:,}/{self.total:,}{left}"


class _TerminalBar(_Bar):
    """A line of a terminal that is drawn over; messages erase it, and it is gone at the end."""

    is_shown: ClassVar[bool] = False

    def stop(self) -> None:
        self.erase()

    @staticmethod
    def erase() -> None:
        """Clear the line, if it has a bar, for other text."""
        if _TerminalBar.is_shown:
            _TerminalBar.is_shown = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _show(self) -> None:
        self.shown = time.monotonic()
        filled = BAR_WIDTH * min(self.done, self.total) // max(1, self.total) if self.total else 0
        drawing = "" if self.total is None else "#" * filled + "-" * (BAR_WIDTH - filled)
        line = "  ".join(part for part in (self.title, drawing, self._count(), self.detail) if part)
        _TerminalBar.is_shown = True
        line = first_columns(escape_controls(line), shutil.get_terminal_size().columns - 1)
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)


def first_columns(text: str, width: int) -> str:
    """As much of a text as fits into `width` columns of a terminal, of which wide characters take two."""
    ends = accumulate(1 + (east_asian_width(character) in "FW") for character in text)
    return text[: sum(end <= width for end in ends)]
