"""Types of fields of settings: more than they hold is accepted (text for a path, a list for a tuple); marks of tyro.

A `Location` is where something is read or written: a path of the file system, or a URL of object storage (cloud.py).
The command line reads the marks; without tyro they mean nothing, and settings work from Python.
"""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
Several = Converted[tuple[Item, ...], Iterable[Item]]
FileName = Converted[str, AnyPath]


def default(value: Any) -> Any:
    """The default of a field of such a type: to a type checker it is no value of the descriptor."""
    return value


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
