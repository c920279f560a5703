"""Types of fields whose constructor accepts more than the field holds: text for a path, a list for a tuple."""

from collections.abc import Iterable
from os import PathLike
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


Several = Converted[tuple[Item, ...], Iterable[Item]]
FileName = Converted[str, AnyPath]


def default(value: Any) -> Any:
    """The default of a field of such a type: to a type checker it is no value of the descriptor."""
    return value
