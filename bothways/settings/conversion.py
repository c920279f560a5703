"""Check and convert the values of settings by their declared types.

From Python, paths may be strings, tuples may be any iterable, and numbers may be NumPy's.
"""

from collections.abc import Iterable
from contextlib import suppress
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bothways.base.errors import must_be
from bothways.base.paths import RemotePath, as_path
from bothways.base.registry import read_entry_points
from bothways.settings.fields import OwnObjective
from bothways.settings.tables_in_memory import MemoryTable, TableList, as_sources

NAMES = {
    Path: "a path",
    MemoryTable: "a table in memory",
    str: "text",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    NoneType: "None",
    OwnObjective: "an instance of PretrainingObjective",
}

NUMBERED_COLUMNS = ("words_column", "tags_column")  # in CoNLL files, whose columns have no names


def declared_types(cls: type) -> dict[str, Any]:
    """The declared type of each field of a settings class."""
    return get_type_hints(cls)


def convert(name: str, value: Any, declared: Any, *, packages: str = "") -> Any:
    """The value, converted to its declared type. InputError if that is impossible.

    packages: the group of entry points whose names are also values.
    """
    if MemoryTable in members(declared):
        value = _as_one_source(name, as_sources(name, value))
    elif get_origin(declared) is tuple and MemoryTable in members(get_args(declared)[0]):
        value = as_sources(name, value)
    if name in NUMBERED_COLUMNS and _is_whole(value):
        return str(value)
    try:
        return _converted(value, declared)
    except TypeError:
        if packages and isinstance(value, str) and value in read_entry_points(packages):
            return value
        wanted = _named(declared)
        if name.endswith("_column") and _is_whole(value):
            wanted += f", the name of a column, such as {str(value)!r}"
        raise must_be(name, value, wanted) from None


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _as_one_source(name: str, value: Any) -> Any:
    """The only source of a list, or a table of several ones; any other value unchanged."""
    if not isinstance(value, list) or not value:
        return value
    if not all(isinstance(source, str | PathLike | MemoryTable) and source for source in value):
        return value
    parts = [as_path(source) if isinstance(source, str | PathLike) else source for source in value]
    return parts[0] if len(parts) == 1 else TableList(parts)


def members(declared: Any) -> tuple[Any, ...]:
    """The types of a union, None last."""
    types = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    return tuple(sorted(types, key=lambda one: one is NoneType))


def _converted(value: Any, declared: Any) -> Any:
    """The converted value. TypeError if its type does not fit."""
    if len(options := members(declared)) > 1:
        for option in options:
            with suppress(TypeError):
                return _converted(value, option)
    elif get_origin(declared) is tuple:
        item = get_args(declared)[0]
        if Path in members(item) and isinstance(value, str | PathLike | MemoryTable):
            return (_converted(value, item),)  # one file or table
        if isinstance(value, Iterable) and not isinstance(value, str | bytes):
            return tuple(_converted(part, item) for part in value)
    else:
        return _converted_scalar(value, declared)
    raise TypeError


def _converted_scalar(value: Any, declared: Any) -> Any:
    if get_origin(declared) is Literal:
        if value in get_args(declared) and isinstance(value, str | int) and not isinstance(value, bool):
            return value
    elif declared is str and isinstance(value, str | PathLike):
        return str(value) if isinstance(value, RemotePath) else fspath(value)
    elif declared is Path and isinstance(value, str | PathLike) and value:
        return as_path(value)
    elif declared in (bool, NoneType, MemoryTable, OwnObjective) and isinstance(value, declared):
        return value
    elif isinstance(value, {int: Integral, float: Real}.get(declared, ())) and not isinstance(value, bool):
        return declared(value)
    raise TypeError


def _named(declared: Any) -> str:
    if len(options := members(declared)) > 1:
        return " or ".join(map(_named, options))
    if get_origin(declared) is tuple:
        return f"a list, each {_named(get_args(declared)[0])}"
    if get_origin(declared) is Literal:
        return f"one of {', '.join(map(str, get_args(declared)))}"
    return NAMES[declared]
