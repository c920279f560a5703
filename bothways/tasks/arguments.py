"""Validation of Predictor arguments: one text or many, columns, whole numbers."""

from collections.abc import Iterable, Mapping, Sequence, Set
from operator import index
from typing import Any

from bothways.errors import InputError, shorten


def read_one_or_many(
    texts: Any, pairs: Any = None, *, names: tuple[str, str] = ("texts", "pairs")
) -> tuple[list[str], list[str] | None, bool]:
    """Texts and their pairs as lists, and whether the input was a single text (or pair).

    names: names of the arguments, for messages. InputError if one of them is a single string and the other is not.
    """
    if isinstance(texts, str) and (pairs is None or isinstance(pairs, str)):
        return [texts], None if pairs is None else [pairs], True
    if isinstance(texts, str):
        raise InputError(f"{names[0]} is a single string but {names[1]} is not; give two strings or two lists")
    return read_texts(names[0], texts), None if pairs is None else read_texts(names[1], pairs), False


def read_texts(name: str, texts: Any) -> list[str]:
    """Convert an iterable, a NumPy array, or a pandas or Arrow column to a list of strings.

    name: name of the argument, for messages. InputError for a single string, a table, or a value that is not a string,
    such as None or NaN in an empty cell.
    """
    values = _read_values(name, texts)
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(f"{name}[{number}] is not a string: {shorten(repr(value))}; fill it in or leave it out")
    return values


def read_words(words: Any) -> tuple[list[Sequence[str]], bool]:
    """Pre-split texts, each a list of words, and whether the input was a single list of words. Tuples of strings are
    kept as they are."""
    values = _read_values("words", words)
    if values and isinstance(values[0], str):
        return [read_texts("words", values)], True
    lists = [read_texts(f"words[{number}]", text) for number, text in enumerate(values)]
    return [
        value if isinstance(value, tuple) and [*value] == checked else checked
        for value, checked in zip(values, lists, strict=True)
    ], False


def whole_number(name: str, value: Any, minimum: int, unit: str = "") -> int:
    """An integer of any type as int. InputError if it is less than `minimum`."""
    required = f"{minimum} {unit}".strip()
    try:
        number = index(value)
    except TypeError:
        raise InputError(f"{name} is {shorten(repr(value))}; give a whole number of at least {required}") from None
    if number < minimum:
        raise InputError(f"{name} ({number}) must be at least {required}")
    return number


def _read_values(name: str, texts: Any) -> list[Any]:
    if isinstance(texts, str | bytes):
        raise InputError(f"{name} is a single string; give a list of {name}: [{name.removesuffix('s')}]")
    if (columns := _column_names(texts)) is not None:
        listed = ", ".join(map(str, columns[:9])) or "none"
        raise InputError(f"{name} is a table ({type(texts).__name__}) with columns {listed}; give one of its columns")
    if isinstance(texts, Set) or not isinstance(texts, Iterable):
        raise InputError(f"{name} is {shorten(repr(texts))}; give a list of {name}")
    # Iterating over Arrow and NumPy columns gives their own scalar types; these methods give Python objects.
    convert = getattr(texts, "to_pylist", None) or getattr(texts, "tolist", None)
    values = convert() if convert else list(texts)
    if not isinstance(values, list):  # a zero-dimensional array
        raise InputError(f"{name} is {shorten(repr(texts))}; give a list of {name}")
    return values


def _column_names(texts: Any) -> list[Any] | None:
    """The column names of a table; None for anything else. A dict counts as a table of columns."""
    if isinstance(texts, Mapping):
        return [*texts]
    for attribute in ("column_names", "columns"):  # Arrow and datasets; pandas and polars
        names = getattr(texts, attribute, None)
        if names is not None and not callable(names):
            return [*names]
    return None
