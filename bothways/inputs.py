"""What callers pass to a Predictor: texts in any kind of sequence or column, and whole numbers; InputError if not."""

from collections.abc import Iterable, Mapping, Set
from operator import index
from typing import Any

from bothways.errors import InputError


def read_texts(name: str, texts: Any) -> list[str]:
    """Texts as a list: of any iterable, a NumPy array, a pandas or Arrow column. name: of the argument.

    InputError for one string, for a table (a column of it is meant), and for an entry that is not text, such as the
    None or NaN of an empty cell.
    """
    values = _values(name, texts)
    for number, value in enumerate(values, 1):
        if not isinstance(value, str):
            place = f"{name.removesuffix('s')} {number:,} of {len(values):,}"
            raise InputError(f"{place} is {shorten(repr(value))}, not text; fill it in or leave it out")
    return values


def read_words(texts: Any) -> list[list[str]]:
    """Texts that are already split, each a list of its words."""
    values = _values("words", texts)
    if any(isinstance(value, str) for value in values):
        raise InputError("words is one list of words; give a list of such lists: [words]")
    return [read_texts(f"words of text {number:,}", words) for number, words in enumerate(values, 1)]


def read_text(name: str, text: Any) -> str:
    """One text."""
    if not isinstance(text, str):
        raise InputError(f"{name} is {shorten(repr(text))}, not text; give a string")
    return text


def whole_number(name: str, value: Any, least: int, unit: str = "") -> int:
    """A whole number of at least `least`, of any integer type."""
    needed = f"{least} {unit}".strip()
    try:
        number = index(value)
    except TypeError:
        raise InputError(f"{name} is {shorten(repr(value))}; give a whole number of at least {needed}") from None
    if number < least:
        raise InputError(f"{name} ({number}) must be at least {needed}")
    return number


def shorten(text: str, size: int = 60) -> str:
    return text if len(text) <= size else text[: size - 3] + "..."


def _values(name: str, texts: Any) -> list[Any]:
    if isinstance(texts, str | bytes):
        raise InputError(f"{name} is one string; give a list of {name}: [{name.removesuffix('s')}]")
    if (columns := _columns(texts)) is not None:
        held = ", ".join(map(str, columns[:9])) or "none"
        raise InputError(f"{name} is a table ({type(texts).__name__}) with columns {held}; give one column of it")
    if isinstance(texts, Set) or not isinstance(texts, Iterable):
        raise InputError(f"{name} is {shorten(repr(texts))}; give a list of {name}")
    # Arrow and NumPy iterate over objects of their own; these give Python's.
    convert = getattr(texts, "to_pylist", None) or getattr(texts, "tolist", None)
    values = convert() if convert else list(texts)
    if not isinstance(values, list):  # an array without an axis
        raise InputError(f"{name} is {shorten(repr(texts))}; give a list of {name}")
    return values


def _columns(texts: Any) -> list[Any] | None:
    """The names of a table's columns; None if it is not a table. A dict is one, as pandas and Arrow take it."""
    if isinstance(texts, Mapping):
        return [*texts]
    for attribute in ("column_names", "columns"):  # Arrow and datasets; pandas and polars
        names = getattr(texts, attribute, None)
        if names is not None and not callable(names):
            return [*names]
    return None
