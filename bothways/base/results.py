"""The result of a verb: an object that prints itself, as JSON and as lines for people; and facts that are a result."""

from collections.abc import Iterable
from typing import Any, Protocol

from bothways.base.terminal import Line


class Result(Protocol):
    """The result of a verb. The command line prints one of the two.

    A result with an attribute `exit_status` ends the command with it, as grep ends with 1 if it has found nothing.
    """

    def to_json(self) -> Any:
        """The result for `--json`: one value, or JsonValues."""

    def lines(self) -> Iterable[Line]:
        """The result for people."""


class JsonValues(list[Any]):
    """JSON values of which each is printed on a line."""


class Facts(dict[str, Any]):
    """Facts by name, as they are printed with `--json`. Without it nothing is printed, unless a subclass has lines."""

    def to_json(self) -> dict[str, Any]:
        return self

    def lines(self) -> Iterable[str]:
        return ()


def format_value(value: Any) -> str:
    """A value in short, readable form: few digits, lists and dicts on one line.

    >>> format_value({"loss": 0.25001, "tokens": 12000})
    'loss 0.25, tokens 12,000'
    """
    if isinstance(value, float):
        small = 0 < abs(value) < 0.01
        return f"{value:.4g}" if small else f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(format_value, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {format_value(inner)}" for key, inner in value.items())
    return str(value)
