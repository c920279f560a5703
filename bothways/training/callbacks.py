"""Callbacks that receive training steps, evaluations and the result of a run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bothways.base.errors import InputError, shorten

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


OneCallback = Callback | Callable[[Row], None]
Callbacks = OneCallback | Sequence[OneCallback]


def list_callbacks(callbacks: Callbacks) -> tuple[OneCallback, ...]:
    """The callbacks, of which a single one need not be in a list. InputError if one cannot be called."""
    if isinstance(callbacks, Callback) or callable(callbacks):
        callbacks = (callbacks,)

    expected = "pass a function, a Callback object, or a list of them"
    if not isinstance(callbacks, Iterable):
        raise InputError(f"callbacks ({shorten(repr(callbacks))}) is of type {type(callbacks).__name__}; {expected}")

    listed = tuple(callbacks)
    for callback in listed:
        if isinstance(callback, type) and issubclass(callback, Callback):
            raise InputError(f"callbacks: {callback.__name__} is a class; pass an object: {callback.__name__}()")
        if not isinstance(callback, Callback) and not callable(callback):
            raise InputError(f"callbacks: {shorten(repr(callback))} cannot be called; {expected}")
    return listed


def call_with_row(callbacks: Iterable[OneCallback], row: Row) -> None:
    """Call each callback with a row of metrics: functions with every row, objects by the kind of the row."""
    for callback in callbacks:
        if not isinstance(callback, Callback):
            callback(row)
        elif row["split"] == "train":
            callback.on_step(row)
        else:
            callback.on_evaluate(row)
