"""The one error a user's mistake raises: what was found, what was expected, and the way out, in one line."""

from collections.abc import Mapping, Sequence
from itertools import islice


def listed(names: Sequence[str], most: int = 20) -> str:
    """Names for a message; of very many the first ones, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(islice(names, most)) + more


class InputError(ValueError):
    """Something given to Bothways cannot be used. The command line prints the message alone and exits with status 1."""


class RowsError(InputError):
    """Some of the rows that were given cannot be used. rows: why not, by their places among those given."""

    def __init__(self, message: str, rows: Mapping[int, str]) -> None:
        super().__init__(message)
        self.rows = dict(rows)


class MissingFile(InputError, FileNotFoundError):
    """A file or directory that was named is not there."""


def brief(value: object) -> str:
    """A name from a stranger's file as a message shows it: in one line, and cut if it is long."""
    line = " ".join(str(value).split())
    return line if len(line) <= 60 else f"{line[:57]}..."
