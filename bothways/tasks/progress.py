"""How a run tells a person how it is doing: lines, and a bar on a terminal. Nothing of it in a pipe but the lines."""

import sys
from collections.abc import Callable
from typing import Any

Tell = Callable[[str], None]


def lines(text: str) -> None:
    """Tell on standard error, so that standard output holds results alone."""
    print(text, file=sys.stderr, flush=True)


def silence(text: str) -> None:
    """Tell nobody."""


class Bar:
    """A progress bar over training steps with loss, tokens/s and time left; drawn only on a terminal."""

    def __init__(self, title: str, steps: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.title, self.task = title, self.progress.add_task(title, total=steps)

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def show(self, row: dict[str, Any]) -> None:
        """Move on by one row of the loop's record."""
        if row["split"] == "train":
            speed = row["tokens"] / max(row["seconds"], 1e-9)
            text = f"{self.title}  loss {row['loss']:.3f}  {speed:,.0f} tokens/s"
            self.progress.update(self.task, completed=row["step"], description=text)
