"""Callbacks that receive training steps, evaluations and the result of a run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]  # a row of metrics.jsonl, with the number of `steps` of the run


class Callback:
    """Base class of callback objects: override the methods you need.

    An exception ends the run; `resume=True` continues it from the last checkpoint.
    """

    def on_step(self, row: Row) -> None:
        """After a training step."""

    def on_evaluate(self, row: Row) -> None:
        """After an evaluation on held-out or dev data."""

    def on_end(self, result: Any) -> None:
        """After the run, with its result."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


Callbacks = Sequence[Callback | Callable[[Row], None]]


def call_with_row(callbacks: Callbacks, row: Row) -> None:
    """Call each callback with a row of the metrics."""
    for callback in callbacks:
        if not isinstance(callback, Callback):
            callback(row)
        elif row["split"] == "train":
            callback.on_step(row)
        else:
            callback.on_evaluate(row)
