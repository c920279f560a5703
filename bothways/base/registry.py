"""Registries: objects by name, each imported when it is used; other packages add to them by entry points.

The groups of entry points are "bothways.tasks", "bothways.objectives", "bothways.families", "bothways.formats",
"bothways.readers", "bothways.backends", "bothways.verbs" and "bothways.schemes". A name of ours is ours: entry points
are read only for other names, and only the one of the name is imported.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bothways.base.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


def load_name(place: str) -> Any:
    """The object that "module:name" names; the name may have dots. InputError if the module is of an application of
    Bothways that is not there."""
    module, _, name = place.partition(":")
    try:
        return attrgetter(name)(import_module(module))
    except ModuleNotFoundError as error:
        application = ".".join(module.split(".")[:2])
        if error.name == application:
            raise InputError(f"{application} is not there; install all of Bothways") from None
        raise


class Registry(Mapping[str, T], Generic[T]):
    """Objects by name. A name that is not registered is looked for among the entry points of installed packages.

    Iteration, and `len`, are over the registered names; `names()` has the names of entry points, too.

    >>> from bothways.base.registry import Registry
    >>> shapes = Registry[type]("shape", "example.shapes", {"fraction": "fractions:Fraction"})
    >>> shapes["fraction"](1, 2)
    Fraction(1, 2)
    >>> shapes.add("number", complex)
    >>> [*shapes]
    ['fraction', 'number']
    """

    def __init__(self, kind: str, group: str, entries: Mapping[str, str | T]) -> None:
        """
        kind: the kind of the objects, for messages, such as "task"
        group: the group of entry points, such as "bothways.tasks"; "": other packages only `add`
        entries: by name, an object, or the "module:name" of one that is imported when it is used
        """
        self.kind = kind
        self.group = group
        self.entries = dict(entries)

    def add(self, name: str, entry: str | T, *, replace: bool = False) -> None:
        """Register an object, or the "module:name" of one. InputError if the name is taken, unless `replace`."""
        if name in self.entries and not replace:
            raise InputError(f"{self.kind} {name!r} is registered already; choose another name, or add replace=True")
        self.entries[name] = entry

    def names(self) -> list[str]:
        """All names, the names of entry points last."""
        names = [*self.entries]
        names += [name for name in self._entry_points() if name not in self.entries]
        return names

    def names_of(self, package: str) -> list[str]:
        """The names that a package has added by entry points. package: the first part of the names of its modules."""
        names: list[str] = []
        for name, point in self._entry_points().items():
            if point.module.partition(".")[0] == package and name not in self.entries:
                names.append(name)
        return names

    def __getitem__(self, name: str) -> T:
        """KeyError if there is no such name; InputError if its package cannot be imported."""
        if name not in self.entries:
            return self._from_package(name)
        entry = self.entries[name]
        if isinstance(entry, str):
            loaded: T = load_name(entry)
            return loaded
        return entry

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.entries or name in self._entry_points())

    def __iter__(self) -> Iterator[str]:
        return iter([*self.entries])

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"Registry({self.kind}: {', '.join(self.entries)})"

    def _from_package(self, name: str) -> T:
        """The object of an entry point. KeyError if there is none."""
        point = self._entry_points()[name]
        try:
            loaded: T = point.load()
        except Exception as error:  # whatever the module of another package raises
            raise InputError(
                f"{self.kind} {name!r}: {point.value} cannot be imported ({error}); update or remove its package"
            ) from error
        return loaded

    def _entry_points(self) -> "Mapping[str, EntryPoint]":
        """The entry points of the group by name, read when a name is not registered."""
        return read_entry_points(self.group) if self.group else {}


@cache
def read_entry_points(group: str) -> "Mapping[str, EntryPoint]":
    """The entry points of a group by name; of two with one name, the one of the package that Python finds first."""
    # Imported here: it loads the packages of e-mail, and few programs ask for a name that is not ours.
    from importlib.metadata import entry_points

    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        points.setdefault(point.name, point)
    return points
