"""Messages name options as the command line writes them; for callers in Python, as arguments.

`--learning-rate 0 --pooling mean` becomes `learning_rate=0, pooling="mean"`, and `--no-context` becomes
`context=False`. Shell commands (`bothways predict DIR FILE --text TEXT`) and flags that are no setting stay as they
are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from bothways import settings

FLAG = r"--[a-z][a-z0-9]*(?:-[a-z0-9]+)*"
VALUE = r"[\w./][\w./:+-]*"
# A shell command up to the end of its clause, or flags with perhaps a value each. A flag follows no letter or slash.
COMMAND = r"(?:\bbothways|\bfinetune) [a-z]+ [^;,)]*"
FLAGS = rf"(?<![\w/-]){FLAG}(?: {VALUE})?(?: {FLAG}(?: {VALUE})?)*"
SPANS = re.compile(rf"(?P<command>{COMMAND})|(?P<flags>{FLAGS})")
ONE = re.compile(rf"({FLAG})(?: ({VALUE}))?")
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
PLACEHOLDER = re.compile("[A-Z]+")
NEGATION = re.compile(r"\b(?:leave out|without|drop)\b[^;,.()]*$")  # "leave out --shard" is not about True
# Accents have two flags for one setting (settings/base.py).
OTHER_FLAGS = {"--strip-accents": "strip_accents=True", "--keep-accents": "strip_accents=False"}


@dataclass
class Option:
    """A setting: its name, and what its values may be in any of the classes."""

    name: str
    is_switch: bool = False
    is_number: bool = False
    is_text: bool = False
    choices: tuple[Any, ...] = ()


def as_arguments(text: str) -> str:
    """The text with the flags of the command line as arguments."""

    def rewrite(match: re.Match[str]) -> str:
        if match["command"]:
            return match[0]
        return _rewrite_flags(match[0], is_named_only=bool(NEGATION.search(text[: match.start()])), text=match)

    return SPANS.sub(rewrite, text)


def _rewrite_flags(flags: str, *, is_named_only: bool, text: re.Match[str]) -> str:
    parts: list[str] = []
    separator = ""
    for match in ONE.finditer(flags):
        flag, word = match.groups()
        ends = match.end() == len(flags) and _ends_clause(text.string[text.end() :])
        argument, rest = _rewrite_flag(flag, word, is_named_only=is_named_only, ends_clause=ends)
        parts += [separator, argument, f" {rest}" if rest else ""]
        separator = " " if rest or argument.startswith("--") else ", "
    return "".join(parts)


def _ends_clause(rest: str) -> bool:
    return not rest or rest[0] in ",;)\n"


def _rewrite_flag(flag: str, word: str | None, *, is_named_only: bool, ends_clause: bool) -> tuple[str, str]:
    """The argument, and the word after the flag if it is not its value."""
    options, rest = options_by_flag(), word or ""
    if flag in OTHER_FLAGS:
        return OTHER_FLAGS[flag], rest
    option = options.get(flag)
    if option is None:
        positive = options.get(flag.replace("--no-", "--", 1)) if flag.startswith("--no-") else None
        return (f"{positive.name}=False", rest) if positive and positive.is_switch else (flag, rest)
    if word and (value := _value(option, word, ends_clause)):
        return f"{option.name}={value}", ""
    return f"{option.name}=True" if option.is_switch and not is_named_only else option.name, rest


def _value(option: Option, word: str, ends_clause: bool) -> str:
    """The word as a Python value of the option; "" if it is a word of the sentence."""
    is_ours = not option.is_switch or option.is_number or option.is_text
    if word in option.choices:
        return f'"{word}"'
    if NUMBER.fullmatch(word) and is_ours:
        return word if option.is_number else f'"{word}"'
    if PLACEHOLDER.fullmatch(word) and is_ours:
        return word
    is_value = re.search(r"[\d_/]", word) or (ends_clause and word not in ("or", "and"))
    return f'"{word}"' if option.is_text and is_value else ""


@cache
def options_by_flag() -> dict[str, Option]:
    """The settings of every verb by their flags."""
    found: dict[str, Option] = {}
    for cls in settings.classes():
        if not is_dataclass(cls) or cls is Option:
            continue
        hints = get_type_hints(cls, include_extras=True)
        for field in fields(cls):
            hint = hints[field.name]
            for flag in _flags(field.name, hint):
                option = found.setdefault(flag, Option(field.name))
                for kind in _kinds(hint):
                    option.is_switch |= kind is bool
                    option.is_number |= kind in (int, float)
                    if get_origin(kind) is Literal:
                        option.choices += get_args(kind)
                    elif kind not in (bool, int, float, type(None)):
                        option.is_text = True
    return found


def _flags(name: str, hint: Any) -> Iterator[str]:
    """tyro's names of a setting: its own or another one, and further ones."""
    marks = getattr(hint, "__metadata__", ())
    other = next((mark.name for mark in marks if getattr(mark, "name", None)), name)
    yield f"--{other.replace('_', '-')}"
    for mark in marks:
        yield from (alias for alias in getattr(mark, "aliases", None) or () if alias.startswith("--"))


def _kinds(hint: Any) -> Iterator[Any]:
    """The types of a union, the items of a tuple included."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from _kinds(get_args(hint)[0])
    elif origin in (Union, UnionType):
        for inner in get_args(hint):
            yield from _kinds(inner)
    elif origin in (tuple, list):
        for inner in get_args(hint):
            if inner is not ...:
                yield from _kinds(inner)
    else:
        yield hint
