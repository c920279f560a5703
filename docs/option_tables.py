"""Tables of every verb's options with defaults and help, generated from bothways.settings."""

import re
from collections.abc import Iterator

from bothways.cli.verbs import VERBS
from bothways.settings.options import Option, options


def all_tables() -> str:
    """Markdown: a section for each verb. Its table is in a frame, by which browser/site.css finds it."""
    sections = []
    for verb, kind in settings_by_verb():
        summary = " ".join((kind.__doc__ or "").split())
        sections.append(f"## {verb}\n\n{summary}\n\n:::{{container}} options\n{table(kind)}\n:::\n")
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
        names = ", ".join(f"`{name}`" for name in names_of(option))
        choices = f" One of {', '.join(f'`{choice}`' for choice in option.choices)}." if option.choices else ""
        default = "no" if option.default is False else option.described_default() or "none"
        rows.append(f"| {names} | {_cell(default)} | {_cell(option.meaning())}{choices} |")
    return "\n".join(rows)


def names_of(option: Option) -> list[str]:
    """The flags, or the name of an argument."""
    return [*option.flags, *([option.negative] if option.is_switch else [])] or [option.metavar]


def _cell(text: str) -> str:
    """Text in a table of Markdown: everything that could be markup is escaped, and options are marked as code."""
    escaped = re.sub(r"([\\|*_<>\[\]{}~$])", r"\\\1", text)
    return re.sub(r"(?<![\w-])(--[a-z][a-z0-9-]*[a-z0-9])", r"`\1`", escaped)
