"""Tables of every verb's options with defaults and help, generated from bothways.settings."""

import ast
import inspect
import itertools
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
from textwrap import dedent
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tyro.conf import Positional, arg

from bothways.verbs import VERBS

POSITIONAL = get_args(Positional[str])[1:]
ARGUMENT = type(arg())  # the mark with the name and the aliases of an option


@dataclass(frozen=True)
class Option:
    """One row of a table. names: the flags, or the name of a positional argument."""

    names: tuple[str, ...]
    choices: tuple[str, ...]
    default: str
    help: str


def all_tables() -> str:
    """Markdown: a section for each verb."""
    sections = [
        f"## {verb}\n\n{' '.join((kind.__doc__ or '').split())}\n\n{table(kind)}\n" for verb, kind in settings_by_verb()
    ]
    return "\n".join(sections)


def class_table() -> str:
    """Markdown: which class holds the settings of which verb."""
    rows = [f"| `{verb}` | `bothways.settings.{kind.__name__}` |" for verb, kind in settings_by_verb()]
    return "\n".join(["| verb | class |", "|---|---|", *rows])


def settings_by_verb() -> Iterator[tuple[str, type]]:
    for name, verb in VERBS.items():
        yield name, verb.settings_class


def table(kind: type) -> str:
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for option in options(kind):
        names = ", ".join(f"`{name}`" for name in option.names)
        choices = f" One of {', '.join(f'`{choice}`' for choice in option.choices)}." if option.choices else ""
        rows.append(f"| {names} | {_cell(option.default)} | {_cell(option.help)}{choices} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    """Text in a table of Markdown: everything that could be markup is escaped."""
    return re.sub(r"([\\|*_<>\[\]{}~$])", r"\\\1", text)


def options(kind: type) -> list[Option]:
    """The options of a settings class, in the order of its --help."""
    hints, helps = get_type_hints(kind, include_extras=True), _field_docstrings(kind)
    return [
        option for field in fields(kind) for option in _options_of_field(field, hints[field.name], helps[field.name])
    ]


def _options_of_field(field: Field[Any], hint: Any, text: str) -> list[Option]:
    marks = hint.__metadata__ if get_origin(hint) is Annotated else ()
    config = next((mark for mark in marks if isinstance(mark, ARGUMENT)), None)
    help_text, default = _split_default(field, text)
    if field.name == "strip_accents":  # two flags for one setting
        return [
            Option(("--strip-accents",), (), default, help_text),
            Option(("--keep-accents",), (), default, "Keep accents and vowel signs."),
        ]
    if any(mark in marks for mark in POSITIONAL):
        return [Option((field.name.upper(),), (), default, help_text)]
    flag = "--" + ((config and config.name) or field.name).replace("_", "-")
    aliases = tuple(config.aliases or ()) if config else ()
    bare = get_args(hint)[0] if marks else hint
    if bare is bool:
        aliases = (*aliases, flag.replace("--", "--no-", 1))
    return [Option((flag, *aliases), _choices(bare), default, help_text)]


def _split_default(field: Field[Any], text: str) -> tuple[str, str]:
    """A setting that is None by default says in brackets what it then does."""
    help_text, computed = re.fullmatch(r"(.*?)(?:\s*\[([^\[\]]*)\])?", text, re.DOTALL).groups()
    if field.default is MISSING:
        return text, "required"
    if field.default in (None, ()):
        return (help_text, computed) if computed else (text, "none")
    if isinstance(field.default, bool):
        return text, "yes" if field.default else "no"
    return text, str(field.default)


def _choices(hint: Any) -> tuple[str, ...]:
    kinds = [hint, *get_args(hint)]
    return tuple(str(value) for kind in kinds if get_origin(kind) is Literal for value in get_args(kind))


def _field_docstrings(kind: type) -> dict[str, str]:
    """The string below each field, from the class that declares it."""
    helps: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        body = ast.parse(dedent(inspect.getsource(base))).body[0].body
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                helps[field.target.id] = " ".join(ast.literal_eval(text.value).split())
    return helps
