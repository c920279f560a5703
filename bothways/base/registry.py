"""Registries: objects by name, each imported when it is first used; other packages add to them by entry points."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any, Generic, TypeVar

from bothways.base.errors import InputError

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

    Iteration, and `len`, are over the registered names; `names()` has those of entry points, too.
    """

    def __init__(self, kind: str, group: str, entries: Mapping[str, str | T]) -> None:
        """
        kind: what the objects are, for messages, such as "task"
        group: the group of entry points, such as "bothways.tasks"
        entries: by name, an object, or the "module:name" of one that is imported when it is used
        """
        self.kind = kind
        self.group = group
        self.entries = dict(entries)

    def add(self, name: str, entry: str | T, *, replace: bool = False) -> None:
        """Register an object, or the "module:name" of one. InputError if the name is taken, unless `replace`."""
        if name in self.entries and not replace:
            raise InputError(f"{self.kind} {name!r} is registered already; choose another name")
        self.entries[name] = entry

    def names(self) -> list[str]:
        """All names, those of entry points last."""
        return [*self.entries, *(name for name in self._found() if name not in self.entries)]

    def __getitem__(self, name: str) -> T:
        entry = self.entries.get(name)
        if entry is None:
            self.entries[name] = entry = self._from_package(name)
        if isinstance(entry, str):
            self.entries[name] = entry = load_name(entry)
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self.entries or name in self._found()

    def __iter__(self) -> Iterator[str]:
        return iter([*self.entries])

    def __len__(self) -> int:
        return len(self.entries)

    def _from_package(self, name: str) -> T:
        """The object of an entry point. KeyError if there is none."""
        point = self._found()[name]
        try:
            loaded: T = point.load()
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"{self.kind} {name!r}: {point.value} cannot be imported ({error}); update or remove its package"
            ) from error
        return loaded

    def _found(self) -> dict[str, EntryPoint]:
        """The entry points of the group by name, read when a name is not registered."""
        return read_entry_points(self.group)


@cache
def read_entry_points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}
