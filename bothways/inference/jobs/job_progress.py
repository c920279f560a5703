"""Progress of a batch job, also within a block: a bar on a terminal, log lines elsewhere."""

import time
from collections.abc import Callable

from bothways.base.progress import LINE_EVERY, ProgressBar, draws_bars, format_duration, heartbeat, show_progress
from bothways.inference.reading import Progress


class JobProgress(ProgressBar):
    """Shows the rows done, rows/s and the time left: a bar if `draws_bars()`, else a log line every half minute.

    total: number of rows, which may be an estimate; None if unknown. done: rows at the start, of a resumed job. bar:
    whether a bar may be drawn. clock: seconds.
    """

    def __init__(
        self,
        title: str,
        total: int | None,
        *,
        done: int = 0,
        bar: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(title, total, done=done, draw=bar)
        self.clock = clock
        self.logs = not draws_bars()
        self.first = self.done = done
        self.start = self.logged = clock()
        self.lines = heartbeat.lines

    def within_block(self, rows: int) -> Progress:
        """The option `progress` of a Predictor's methods, for the next block of this many rows."""
        return lambda windows, total: self.show(self.done + rows * windows // total)

    def finish_block(self, rows: int) -> None:
        self.done += rows
        self.show(self.done)

    def show(self, done: int) -> None:
        """Show that this many rows of the input are done."""
        now = self.clock()
        speed = (done - self.first) / max(now - self.start, 1e-9)
        self.update(done, f"{done:,} rows  {_format_speed(speed)}")
        if self.lines != heartbeat.lines:  # it has written a line in a slow block, which is not to be written again
            self.lines = heartbeat.lines
            self.logged = now
        if self.logs and now - self.logged >= LINE_EVERY:
            self.logged = now
            total = ""
            left = ""
            if self.total is not None and self.total > done:
                total = f" of about {self.total:,}"
                left = f", {format_duration((self.total - done) / speed)} left" if speed else ""
            show_progress(f"{self.title}: {done:,}{total} rows, {_format_speed(speed)}{left}")


def _format_speed(speed: float) -> str:
    return f"{speed:,.0f} rows/s" if speed >= 10 else f"{speed:.2g} rows/s"
