"""The options of a settings class, from its fields: the source of the parser, of --help and of the docs' tables."""

import ast
import re
import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from bothways.settings.conversion import declared_types, members
from bothways.settings.fields import GROUPS, Mark, mark_of
from bothways.settings.tables_in_memory import MemoryTable


@dataclass(frozen=True)
class Option:
    """An option or an argument. kinds: the types that its value, or each of its values, may have. default: MISSING if
    it is required."""

    name: str
    mark: Mark
    kinds: tuple[Any, ...]
    default: Any
    help: str
    takes_several: bool

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags, without that for False."""
        if self.mark.is_argument:
            return ()
        return (*self.mark.aliases, self.mark.flag or f"--{self.name.replace('_', '-')}")

    @property
    def negative(self) -> str:
        """The flag for False; "" if there is none."""
        return (self.mark.negative or self.flags[-1].replace("--", "--no-", 1)) if self.is_switch else ""

    @property
    def is_switch(self) -> bool:
        return bool in self.kinds

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    @property
    def choices(self) -> tuple[Any, ...]:
        return tuple(value for kind in self.kinds if get_origin(kind) is Literal for value in get_args(kind))

    @property
    def metavar(self) -> str:
        """The name of the value in the help."""
        if self.is_switch:
            return ""
        if self.mark.metavar:
            return self.mark.metavar
        if self.choices:
            return "|".join(map(str, self.choices))
        return next((word for kind, word in METAVARS.items() if kind in self.kinds), "TEXT")

    def described_default(self) -> str:
        """The default in words; "" without one. The help of a setting that is None by default ends with the value that
        is then chosen, in brackets."""
        if self.is_required:
            return "required"
        if self.default is False:
            return ""
        if self.default in (None, ()):
            return self._split_help()[1]
        return "yes" if self.default is True else str(self.default)

    def meaning(self) -> str:
        """The help without the default."""
        return self._split_help()[0] if not self.is_required and self.default in (None, ()) else self.help

    def _split_help(self) -> tuple[str, str]:
        match = re.fullmatch(r"(.*?)(?:\s*\[([^\[\]]*)\])?", self.help, re.DOTALL)
        return (match[1], match[2] or "") if match else (self.help, "")


METAVARS = {Path: "PATH", int: "N", float: "X"}


def options(settings_class: type[Any], *, with_help: bool = True) -> Sequence[Option]:
    """The options of a settings class, in the order of the groups; within a group, in the order of the fields.

    with_help: whether to read the help from the source, which takes some milliseconds.
    """
    types = declared_types(settings_class)
    helps = docstrings(settings_class) if with_help else {}
    listed = [_option(field, types[field.name], helps.get(field.name, "")) for field in fields(settings_class)]
    return sorted(listed, key=lambda option: GROUPS.index(option.mark.group))


def _option(field: Any, declared: Any, text: str) -> Option:
    kinds = members(declared)
    items = next((get_args(kind)[0] for kind in kinds if get_origin(kind) is tuple), None)
    kinds = kinds if items is None else members(items)
    takes_several = items is not None or MemoryTable in kinds  # tables in several files are read as one
    return Option(
        name=field.name,
        mark=mark_of(field),
        kinds=kinds,
        default=field.default,
        help=text,
        takes_several=takes_several,
    )


def docstrings(settings_class: type[Any]) -> dict[str, str]:
    """The string below each field, from the class that declares it last."""
    texts: dict[str, str] = {}
    for base in reversed(settings_class.__mro__[:-1]):
        for field, text in pairwise(_bodies(base.__module__).get(base.__name__, ())):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[ast.unparse(field.target)] = " ".join(ast.literal_eval(text.value).split())
    return texts


@cache
def _bodies(module: str) -> dict[str, list[ast.stmt]]:
    """The statements of each class of a module, from its source."""
    source = Path(sys.modules[module].__file__ or "").read_text(encoding="utf-8")
    return {node.name: node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
