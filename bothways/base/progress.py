"""Progress: bars, and a line every half minute of work that takes long.

Bars of training and of long jobs are drawn on terminals and in notebooks, unless the logger's level is ERROR. Elsewhere
a heartbeat writes the lines.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import Event, Lock, Thread
from typing import Any, Self

from bothways.base.log import is_configured, is_main_process, is_muted, logger, message_receiver, shows_lines
from bothways.base.terminal import escape_controls, print_message, print_raw, status_line

NOTEBOOK_SECONDS = 0.25  # at least, between two updates of a bar
BAR_WIDTH = 30  # characters
LINE_EVERY = 30.0  # seconds between two lines of progress, where no bar is drawn
GRACE = 2.0  # seconds that a loop has for its line, which has more details, before the thread of `Heartbeat` writes one


# --- lines ------------------------------------------------------------------------------------------------------------


@contextmanager
def working(title: str, *, thread: bool = True) -> "Iterator[Work]":
    """Announce work that may take long, or a phase of it; see `Heartbeat`. Also a decorator."""
    with heartbeat.working(title, thread=thread) as work:
        yield work


def show_progress(line: str) -> None:
    """Log a line of progress; write it to standard error where logging is not configured."""
    heartbeat.show()
    if is_configured():
        logger.info(line)
    elif not is_muted():
        print_message(line)


@dataclass(eq=False)
class Work:
    """A block of `working`: its title, when it began, and its progress so far."""

    title: str
    since: float
    detail: str = ""
    is_watched: bool = False


class Heartbeat:
    """Writes a line when work has shown nothing for LINE_EVERY seconds: the work, its phase, and how long both took.

    A thread writes the line, so that phases without a loop, such as the fit of a linear model, have one too.

    work: the open blocks of `working`, in any thread, the oldest first.
    shown: when a line or a bar was last drawn.
    lines: how many lines it has written.
    clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.work: list[Work] = []
        self.lock = Lock()
        self.shown = clock()
        self.lines = 0

    @contextmanager
    def working(self, title: str, *, thread: bool = True) -> Iterator[Work]:
        """Announce work. thread: watch it, unless a block around it is watched; else `Work` is to be updated."""
        work = Work(title, self.clock())
        stop = Event()
        with self.lock:
            if not self.work:
                self.shown = work.since
            work.is_watched = thread and not any(other.is_watched for other in self.work)
            self.work.append(work)

        if work.is_watched:
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

            self.shown = now
            self.lines += 1
            line = _work_line(self.work[0], self.work[-1], now)

        write = message_receiver()
        if write is not None:
            write(escape_controls(line))
        elif is_configured():
            logger.info(line)
        else:
            print_message(line)


def _work_line(work: Work, phase: Work, now: float) -> str:
    """'finetune: baselines, 3 of 4, 31 s so far (2 min in all)'"""
    seconds = f"{format_duration(now - phase.since)} so far"
    if phase is work:
        parts = [phase.detail, seconds]
        total = ""
    else:
        parts = [phase.title, phase.detail, seconds]
        total = f" ({format_duration(now - work.since)} in all)"
    return f"{work.title}: {', '.join(part for part in parts if part)}{total}"


heartbeat = Heartbeat()
if hasattr(os, "register_at_fork"):  # the threads of the parent, one of which may hold the lock, are not in the child
    os.register_at_fork(after_in_child=lambda: heartbeat.__init__())  # type: ignore[misc]


def _note_record(record: logging.LogRecord) -> bool:
    """A record that the user sees is a sign of life."""
    if is_configured():
        heartbeat.show()
    return True


logger.addFilter(_note_record)


def format_duration(seconds: float) -> str:
    """'40 s', '12 min', '3.4 h'"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


# --- bars -------------------------------------------------------------------------------------------------------------


class ProgressBar:
    """A progress bar with count and remaining time: in the output of a notebook's cell, else on standard error. Draws
    nothing if `draws_bars()` is false.

    title: text before the bar.
    total: the count at the end; None if unknown.
    done: the count at the start, for example of a resumed job.
    draw: whether a bar may be drawn.
    """

    def __init__(self, title: str, total: int | None, *, done: int = 0, draw: bool = True) -> None:
        self.title = title
        self.total = total
        self.is_drawn = draw and draws_bars()
        self.bar: _Bar | None = None
        if self.is_drawn:
            kind = _Bar if in_notebook() else _TerminalBar
            self.bar = kind(escape_controls(title), total, done)

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


def draws_bars() -> bool:
    """Whether progress is drawn as a bar: in a notebook, and on a terminal unless log lines show it there."""
    if is_muted():
        return False
    return in_notebook() or (sys.stderr.isatty() and not shows_lines())


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, in which standard error is no terminal and bars are displayed by IPython."""
    if "ipykernel" not in sys.modules:
        return False
    ipython = sys.modules.get("IPython")
    return ipython is None or hasattr(ipython.get_ipython(), "kernel")


class _Bar:
    """A bar that is updated in place in the output of a cell, and stays there. Without IPython, a line that a carriage
    return starts over."""

    def __init__(self, title: str, total: int | None, done: int) -> None:
        self.title = title
        self.total = total
        self.first = done
        self.done = done
        self.detail = ""
        self.started = time.monotonic()
        self.shown = self.started
        self.handle: Any = None
        self.width = 0

    def start(self) -> None:
        self.started = time.monotonic()
        self._show()

    def update(self, done: int, detail: str) -> None:
        self.done = done
        self.detail = detail
        if time.monotonic() - self.shown >= NOTEBOOK_SECONDS:
            self._show()

    def stop(self) -> None:
        self._show()
        if self.handle is None:
            print_raw("\n")

    def _show(self) -> None:
        self.shown = time.monotonic()
        line = "  ".join(part for part in (self.title, self.detail, self._count()) if part)
        try:
            display = import_module("IPython.display").display
        except ImportError:
            self.width = max(self.width, len(line))
            print_raw(f"\r{line:{self.width}}")
            return

        from html import escape  # the table of all entities, which only notebooks need

        value = "" if self.total is None else f' value="{self.done}" max="{self.total}"'
        drawing = {
            "text/plain": line,
            "text/html": f"<progress{value}></progress> {escape(line)}",
        }
        if self.handle is None:
            self.handle = display(drawing, raw=True, display_id=True)
        else:
            self.handle.update(drawing, raw=True)

    def _count(self) -> str:
        """'30/60, 0:12 left'"""
        if self.total is None:
            return f"{self.done:,}"

        left = ""
        if self.first < self.done < self.total:
            speed = (time.monotonic() - self.started) / (self.done - self.first)
            seconds = int(speed * (self.total - self.done))
            left = f", {seconds // 60}:{seconds % 60:02} left"
        return f"{self.done:,}/{self.total:,}{left}"


class _TerminalBar(_Bar):
    """A line of a terminal that is drawn over; messages erase it, and it is gone at the end."""

    def stop(self) -> None:
        status_line.erase()

    def _show(self) -> None:
        self.shown = time.monotonic()
        parts = (self.title, self._drawing(), self._count(), self.detail)
        status_line.draw("  ".join(part for part in parts if part))

    def _drawing(self) -> str:
        """'####----'; empty if the total is unknown."""
        if self.total is None:
            return ""
        filled = BAR_WIDTH * min(self.done, self.total) // max(1, self.total)
        return "#" * filled + "-" * (BAR_WIDTH - filled)
