"""Rows of a file on their way through a model, as a bar on a terminal."""

import time

from bothways.log import escape_controls


class RowBar:
    """As a context: rows done, rows a second, and the time left where `total` is known; nothing where there is no
    terminal. done: rows that were done before."""

    def __init__(self, title: str, *, total: int | None, done: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.title, self.done, self.began = escape_controls(title), done, time.monotonic()
        self.task = self.progress.add_task(self.title, total=total, completed=done)

    def __enter__(self) -> "RowBar":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def show(self, rows: int) -> None:
        """So many rows are done."""
        rate = (rows - self.done) / max(time.monotonic() - self.began, 1e-9)
        text = f"{self.title}  {rows:,} rows  {rate:,.0f} rows/s"
        self.progress.update(self.task, completed=rows, description=text)
