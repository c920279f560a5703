"""Types of fields of settings: more than they hold is accepted (text for a path, a list for a tuple); marks of tyro.

A `Location` is where something is read or written: a path of the file system, for now. Other places, such as s3://, are
refused by name. The command line reads the marks; without tyro they mean nothing, and settings work from Python.
"""

import re
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bothways.errors import InputError

Held = TypeVar("Held", covariant=True)
Accepted = TypeVar("Accepted", contravariant=True)
Item = TypeVar("Item")
AnyPath = str | PathLike[str]

if TYPE_CHECKING:

    class Converted(Generic[Held, Accepted]):
        """A field whose value is `Held`, and whose argument in the constructor may be `Accepted`. Type checkers read
        both from a descriptor, by the rules of dataclasses; when the program runs, this is `Held` alone."""

        def __get__(self, instance: object, owner: type | None = None) -> Held: ...
        def __set__(self, instance: object, value: Accepted) -> None: ...

else:

    class Converted:
        def __class_getitem__(cls, types):
            return types[0]


Location = Converted[Path, AnyPath]
OptionalLocation = Converted[Path | None, AnyPath | None]
Locations = Converted[tuple[Path, ...], AnyPath | Iterable[AnyPath]]
REMOTE = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/{1,2}([^/].*)", re.DOTALL)  # Path makes s3:/x of s3://x
Several = Converted[tuple[Item, ...], Iterable[Item]]
FileName = Converted[str, AnyPath]


def default(value: Any) -> Any:
    """The default of a field of such a type: to a type checker it is no value of the descriptor."""
    return value


def local_path(location: str) -> Path:
    """The path of a location. InputError for other places than the file system, such as object storage."""
    if remote := REMOTE.match(location):
        scheme, place = remote.groups()
        raise InputError(f"{scheme}://{place}: {scheme}:// is not supported yet; copy it to a local path")
    return Path(location)


if TYPE_CHECKING:
    from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg, create_mutex_group
else:
    try:
        from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg, create_mutex_group
    except ModuleNotFoundError:

        class Positional:
            def __class_getitem__(cls, held):
                return held

        def arg(**options):
            return None

        FlagCreatePairsOff, UseAppendAction, create_mutex_group = None, Positional, arg

__all__ = ["FlagCreatePairsOff", "Positional", "UseAppendAction", "arg", "create_mutex_group"]
