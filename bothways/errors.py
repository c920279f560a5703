"""Exceptions for user mistakes, and helpers that format values in error messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import islice

_is_command_line = False


@contextmanager
def command_line(is_active: bool = True) -> Iterator[None]:
    """Inside the block messages name options as flags (`--epochs 3`), outside as arguments (`epochs=3`)."""
    global _is_command_line
    before, _is_command_line = _is_command_line, is_active
    try:
        yield
    finally:
        _is_command_line = before


def for_caller(message: str) -> str:
    """A message that names flags, in the words of the caller: the command line, or Python."""
    if _is_command_line or "--" not in message:
        return message
    # The settings import this module, and are needed only for a message with flags.
    return str(import_module("bothways.settings.wording").as_arguments(message))


class InputError(ValueError):
    """Invalid input or settings. The command line prints only the message and exits with status 1."""

    def __str__(self) -> str:
        return for_caller(super().__str__())


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


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: equal up to case and white space, the shortest that continues `name`, or
    similar to it; None if there is none."""
    from difflib import get_close_matches

    by_key = {" ".join(other.lower().split()): other for other in names}
    key = " ".join(name.lower().split())
    continued = sorted((other for other in by_key if key and other.startswith(key)), key=len)
    near = continued or get_close_matches(key, by_key, n=1)
    return by_key[near[0]] if near else None


def no_such_column(where: object, name: str, columns: Iterable[str], remedy: str) -> InputError:
    """The error for a column that does not exist: lists the columns, and asks for a similar one instead of `remedy`."""
    columns = [*columns]
    near = nearest_name(name, columns)
    remedy = remedy if near is None else f"did you mean {near!r}?"
    return InputError(f"{where}: no column {name!r} (there are: {', '.join(columns) or 'none'}); {remedy}")


def format_count(count: int, singular: str, plural: str = "") -> str:
    """A count with its noun: "1 row", "1,024 rows". plural: if it is not the singular with an s."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def shorten(value: object, size: int = 60) -> str:
    """The value on one line, truncated to `size` characters."""
    line = " ".join(str(value).split())
    return line if len(line) <= size else f"{line[: size - 3]}..."
