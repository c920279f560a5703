"""Fields of settings: types that accept more than they hold (text for a path, a list for a tuple), and `option` and
`argument`, with all that the command line, the checks and the docs need of a setting. Its help is the string below it.

A `Location` is where something is read or written: a path of the file system, or a URL of object storage
(base/paths.py).
"""

import math
from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, get_args, runtime_checkable

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


@runtime_checkable
class OwnObjective(Protocol):
    """An objective of pre-training that the user has written: an instance of a subclass of PretrainingObjective
    (training/pretraining/objectives.py), which is above the settings."""

    pairs: Any

    def losses(self, module: Any, batch: Any, outputs: Any) -> Any: ...

    def counts(self, batch: Any) -> Any: ...


# Groups of options in --help, in its order.
Group = Literal["arguments", "data", "task", "model", "training", "evaluation", "output", "limits", "machine"]
GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True)
class Mark:
    """The properties of an option.

    least, most: bounds of the value, inclusive.
    flag: --NAME if it is not the name of the field.
    negative: the flag for False.
    is_first: whether --help shows it, or only --help-all does.
    packages: the group of entry points whose names are also values.
    """

    group: Group
    least: float = -math.inf
    most: float = math.inf
    flag: str = ""
    aliases: tuple[str, ...] = ()
    negative: str = ""
    metavar: str = ""
    is_first: bool = False
    is_argument: bool = False
    is_repeated: bool = False
    packages: str = ""


PLAIN = Mark("task")  # of a field that is declared without a mark


def mark_of(field: Field[Any]) -> Mark:
    """The mark of a field of settings."""
    mark: Mark = field.metadata.get("option", PLAIN)
    return mark


def option(
    group: Group,
    *,
    default: Any = MISSING,
    least: float = -math.inf,
    most: float = math.inf,
    flag: str = "",
    aliases: tuple[str, ...] = (),
    negative: str = "",
    metavar: str = "",
    first: bool = False,
    repeated: bool = False,
    packages: str = "",
) -> Any:
    """A field that the command line sets by a flag; see `Mark`. repeated: each use of the flag adds one value."""
    mark = Mark(
        group=group,
        least=least,
        most=most,
        flag=flag,
        aliases=aliases,
        negative=negative,
        metavar=metavar,
        is_first=first,
        is_repeated=repeated,
        packages=packages,
    )
    return field(default=default, metadata={"option": mark})


def argument(metavar: str, *, default: Any = MISSING) -> Any:
    """A field that the command line sets by a word without a flag."""
    return field(default=default, metadata={"option": Mark("arguments", metavar=metavar, is_argument=True)})
