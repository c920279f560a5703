"""Exceptions for user mistakes, and helpers that format values in error messages."""

from collections.abc import Mapping, Sequence
from itertools import islice


class InputError(ValueError):
    """Invalid input or settings. The command line prints only the message and exits with status 1."""


class UsageError(InputError):
    """A setting that this machine or this number of processes cannot meet. The command line exits with status 2."""


class RowsError(InputError):
    """Some input rows are invalid. rows: the reason for each, by its index in the input."""

    def __init__(self, message: str, rows: Mapping[int, str]) -> None:
        super().__init__(message)
        self.rows = dict(rows)


class MissingFile(InputError, FileNotFoundError):
    """A named file or directory does not exist."""


def join_names(names: Sequence[str], limit: int = 20) -> str:
    """Comma-separated names; beyond `limit`, the number of names left out."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(islice(names, limit)) + more


def shorten(value: object, size: int = 60) -> str:
    """The value on one line, truncated to `size` characters."""
    line = " ".join(str(value).split())
    return line if len(line) <= size else f"{line[: size - 3]}..."
