"""Options of the command line: words to settings, and the text of --help. Both are derived from the settings' fields
(settings/options.py) and the standard library's argparse."""

import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from glob import glob
from itertools import groupby
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn

from bothways.base.errors import UsageError, nearest_name
from bothways.base.registry import read_entry_points
from bothways.base.terminal import print_lines
from bothways.cli.verbs import VERBS
from bothways.pretrained import DEFAULT
from bothways.settings.options import Option, docstrings, options

if TYPE_CHECKING:
    from argparse import ArgumentParser

FEW = 14  # --help shows all options of a verb that has no more
INDENT = 26  # columns before the meaning of an option
NAME_OF_FILES = re.compile(r"://|[*]|\.\w{1,8}$")  # what a text on the command line rarely has


def parse(verb: str, words: Sequence[str]) -> Any:
    """The settings of a verb from its words. InputError for wrong ones; SystemExit after --help and --help-all."""
    settings_class = VERBS[verb].settings_class
    if {"-h", "--help", "--help-all"} & {*words}:
        print_lines(*help_lines(verb, shows_all="--help-all" in words))
        sys.exit(0)
    known = options(settings_class, with_help=False)
    values, rest = _read(verb, known, words)
    _check_text(verb, values)
    if rest:
        raise UsageError(_describe_unknown(verb, rest[0], known))
    for option in known:
        if option.is_required and option.name not in values:
            if not option.mark.is_argument:
                meaning = docstrings(settings_class)[option.name]
                raise UsageError(f"{'/'.join(option.flags)} is missing: {meaning} (see bothways {verb} --help)")
            values[option.name] = ()  # the settings name what is needed
    return settings_class(**values)


def _check_text(verb: str, values: Mapping[str, Any]) -> None:
    """UsageError for a text where a verb reads a file; it names the command for a single text."""
    text = values.get("file", "-")
    if verb not in ("predict", "embed") or text in ("", "-") or NAME_OF_FILES.search(text) or os.path.exists(text):
        return
    if set(text) & set("?[") and glob(text):  # a pattern
        return
    form = f"bothways predict {shlex.quote(values.get('model', DEFAULT))} --text {shlex.quote(text)}"
    if verb == "embed":
        form = f"echo {shlex.quote(text)} | bothways embed - --out vectors.npy"
    raise UsageError(f"{text!r:.200}: no such file; for a single text: {form}")


def _read(verb: str, known: Sequence[Option], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The values in the words by the names of their options, and the words that are left."""
    from argparse import SUPPRESS, ArgumentParser  # not for --help, which is to be fast

    class OptionParser(ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")

    parser = OptionParser(prog=f"bothways {verb}", add_help=False, allow_abbrev=False, argument_default=SUPPRESS)
    for option in known:
        _add(parser, option)
    namespace, rest = parser.parse_known_intermixed_args([*words])
    return vars(namespace), rest


def _add(parser: "ArgumentParser", option: Option) -> None:
    name, reader = option.name, _reader(option)
    if option.mark.is_argument:
        several = "*" if option.takes_several else "?" if not option.is_required else None
        parser.add_argument(name, metavar=option.metavar, nargs=several, type=reader)
    elif option.is_switch:
        group = parser.add_mutually_exclusive_group() if option.mark.negative else parser
        group.add_argument(*option.flags, dest=name, action="store_const", const=True)
        group.add_argument(option.negative, dest=name, action="store_const", const=False)
    elif option.mark.is_repeated:
        parser.add_argument(*option.flags, dest=name, action="append", type=reader)
    else:
        several = "*" if option.takes_several else None
        parser.add_argument(*option.flags, dest=name, nargs=several, type=reader)


def _reader(option: Option) -> Callable[[str], Any]:
    """A function from a word to the value of an option, or to one of its values."""
    from argparse import ArgumentTypeError

    def read(word: str) -> Any:
        if word == "None" and NoneType in option.kinds:
            return None
        if option.choices:
            by_word = {str(choice): choice for choice in option.choices}
            is_number = int in option.kinds and word not in by_word
            if is_number and not re.fullmatch(r"[+-]?\d+", word):
                raise ArgumentTypeError(f"{word!r} is neither a whole number nor {' or '.join(by_word)}")
            if is_number:
                return int(word)
            if option.mark.packages and word not in by_word and word in read_entry_points(option.mark.packages):
                return word
            if word not in by_word:
                near = nearest_name(word, by_word)
                hint = f"; did you mean {near}?" if near else ""
                raise ArgumentTypeError(f"{word!r} is not one of {', '.join(by_word)}{hint}")
            return by_word[word]
        for kind, wanted in ((int, "a whole number"), (float, "a number")):
            if kind in option.kinds:
                try:
                    return kind(word)
                except ValueError:
                    raise ArgumentTypeError(f"{word!r} is not {wanted}") from None
        return word

    return read


def _describe_unknown(verb: str, word: str, known: Sequence[Option]) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r:.200} (see bothways {verb} --help)"
    flag = word.partition("=")[0]
    near = nearest_name(flag, (flag for option in known for flag in (*option.flags, option.negative) if flag))
    hint = f"did you mean {near}?" if near else f"bothways {verb} --help-all lists all"
    return f"unknown option {flag}; {hint}"


def help_lines(verb: str, *, shows_all: bool) -> list[str]:
    """The text of --help: the options that most people use; with shows_all, all options."""
    settings_class = VERBS[verb].settings_class
    listed = options(settings_class)
    shown = [option for option in listed if shows_all or len(listed) <= FEW or _is_first(option)]
    width = min(max(shutil.get_terminal_size((100, 24)).columns, 60), 120)
    lines = [*_usage(verb, listed, width), ""]
    lines += textwrap.wrap(" ".join((settings_class.__doc__ or "").split()), width)
    for group, members in groupby(shown, lambda option: option.mark.group):
        lines += ["", f"{group}:", *(line for option in members for line in _describe(option, width))]
    if hidden := len(listed) - len(shown):
        lines += ["", f"{hidden} more options: bothways {verb} --help-all"]
    return [*lines, "", f"example: bothways {verb} {VERBS[verb].example}"]


def _is_first(option: Option) -> bool:
    return option.mark.is_first or option.mark.is_argument or option.is_required


def _usage(verb: str, listed: Sequence[Option], width: int) -> list[str]:
    words = []
    for option in listed:
        if option.mark.is_argument:
            metavar = f"{option.metavar} ..." if option.takes_several else option.metavar
            words.append(metavar if option.is_required else f"[{metavar}]")
        elif option.is_required:
            words.append(f"{option.flags[0]} {option.metavar}")
    return textwrap.wrap(f"usage: bothways {verb} {' '.join(words)} [options]", width, subsequent_indent="  ")


def _describe(option: Option, width: int) -> Iterator[str]:
    """The lines of an option: its flags, meaning and default."""
    names, default = _names(option), option.described_default()
    if default:
        default = f" ({default})" if option.is_required else f" (default: {default})"
    if len(names) > INDENT - 2:
        yield names
        names = ""
    for line in textwrap.wrap(option.meaning() + default, width - INDENT, break_on_hyphens=False):
        yield f"{names:{INDENT}}{line}"
        names = ""


def _names(option: Option) -> str:
    if option.mark.is_argument:
        return f"  {option.metavar}"
    flags = ", ".join(
        (*option.flags, option.negative) if option.is_switch and option.default is not False else option.flags
    )
    several = " ..." if option.takes_several and not option.mark.is_repeated else ""
    return f"  {flags} {option.metavar}{several}".rstrip()
