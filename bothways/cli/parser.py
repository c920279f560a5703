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
NAME_OF_FILES = re.compile(r"://|[*]|\.\w{1,8}$")  # which a text on the command line rarely has


def parse(verb: str, words: Sequence[str]) -> Any:
    """The settings of a verb from its words. InputError for wrong ones; SystemExit after --help and --help-all."""
    settings_class = VERBS[verb].settings_class
    if {"-h", "--help", "--help-all"} & {*words}:
        print_lines(*help_lines(verb, shows_all="--help-all" in words))
        sys.exit(0)

    verb_options = options(settings_class, with_help=False)
    values, rest = _read(verb, verb_options, words)
    _check_text(verb, values)
    if rest:
        raise UsageError(_describe_unknown(verb, rest[0], verb_options))

    for option in verb_options:
        if not option.is_required or option.name in values:
            continue
        if not option.mark.is_argument:
            meaning = docstrings(settings_class)[option.name]
            raise UsageError(f"{'/'.join(option.flags)} is missing: {meaning} (see bothways {verb} --help)")
        values[option.name] = ()  # the error of the settings says what is needed
    return settings_class(**values)


def _check_text(verb: str, values: Mapping[str, Any]) -> None:
    """UsageError for a text where a verb reads a file; it names the command for a single text."""
    if verb not in ("predict", "embed"):
        return
    text = values.get("file", "-")
    if text in ("", "-") or NAME_OF_FILES.search(text) or os.path.exists(text):
        return
    if set(text) & set("?[") and glob(text):  # a pattern
        return

    if verb == "embed":
        command = f"echo {shlex.quote(text)} | bothways embed - --out vectors.npy"
    else:
        command = f"bothways predict {shlex.quote(values.get('model', DEFAULT))} --text {shlex.quote(text)}"
    raise UsageError(f"{text!r:.200}: no such file; for a single text: {command}")


def _read(verb: str, verb_options: Sequence[Option], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The values in the words by the names of their options, and the words that are left."""
    from argparse import SUPPRESS, ArgumentParser  # not for --help, which is to be fast

    class OptionParser(ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")

    parser = OptionParser(
        prog=f"bothways {verb}",
        add_help=False,
        allow_abbrev=False,
        argument_default=SUPPRESS,
    )
    for option in verb_options:
        _add(parser, option)
    namespace, rest = parser.parse_known_intermixed_args([*words])
    return vars(namespace), rest


def _add(parser: "ArgumentParser", option: Option) -> None:
    name = option.name
    reader = _reader(option)
    several = "*" if option.takes_several else None
    if option.mark.is_argument:
        if several is None and not option.is_required:
            several = "?"
        parser.add_argument(name, metavar=option.metavar, nargs=several, type=reader)
    elif option.is_switch:
        group = parser.add_mutually_exclusive_group() if option.mark.negative else parser
        group.add_argument(*option.flags, dest=name, action="store_const", const=True)
        group.add_argument(option.negative, dest=name, action="store_const", const=False)
    elif option.mark.is_repeated:
        parser.add_argument(*option.flags, dest=name, action="append", type=reader)
    else:
        parser.add_argument(*option.flags, dest=name, nargs=several, type=reader)


def _reader(option: Option) -> Callable[[str], Any]:
    """A function from a word to the value of an option, or to one of its values."""
    from argparse import ArgumentTypeError

    def read_choice(word: str) -> Any:
        by_word = {str(choice): choice for choice in option.choices}
        if word in by_word:
            return by_word[word]

        if int in option.kinds:
            if not re.fullmatch(r"[+-]?\d+", word):
                raise ArgumentTypeError(f"{word!r} is neither a whole number nor {' or '.join(by_word)}")
            return int(word)

        if option.mark.packages and word in read_entry_points(option.mark.packages):
            return word
        near = nearest_name(word, by_word)
        hint = f"; did you mean {near}?" if near else ""
        raise ArgumentTypeError(f"{word!r} is not one of {', '.join(by_word)}{hint}")

    def read(word: str) -> Any:
        if word == "None" and NoneType in option.kinds:
            return None
        if option.choices:
            return read_choice(word)

        for kind, wanted in ((int, "a whole number"), (float, "a number")):
            if kind in option.kinds:
                try:
                    return kind(word)
                except ValueError:
                    raise ArgumentTypeError(f"{word!r} is not {wanted}") from None
        return word

    return read


def _describe_unknown(verb: str, word: str, verb_options: Sequence[Option]) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r:.200} (see bothways {verb} --help)"

    flags: list[str] = []
    for option in verb_options:
        flags += option.flags
        if option.negative:
            flags.append(option.negative)
    flag = word.partition("=")[0]
    near = nearest_name(flag, flags)
    hint = f"did you mean {near}?" if near else f"bothways {verb} --help-all lists all"
    return f"unknown option {flag}; {hint}"


def help_lines(verb: str, *, shows_all: bool) -> list[str]:
    """The text of --help: the options that most people use; with shows_all, all options."""
    settings_class = VERBS[verb].settings_class
    all_options = options(settings_class)
    shows_all = shows_all or len(all_options) <= FEW
    listed = [option for option in all_options if shows_all or _is_first(option)]
    width = min(max(shutil.get_terminal_size((100, 24)).columns, 60), 120)

    lines = [*_usage(verb, all_options, width), ""]
    lines += textwrap.wrap(" ".join((settings_class.__doc__ or "").split()), width)
    for group, members in groupby(listed, lambda option: option.mark.group):
        lines += ["", f"{group}:"]
        for option in members:
            lines += _describe(option, width)
    num_hidden = len(all_options) - len(listed)
    if num_hidden:
        lines += ["", f"{num_hidden} more options: bothways {verb} --help-all"]
    return [*lines, "", f"example: bothways {verb} {VERBS[verb].example}"]


def _is_first(option: Option) -> bool:
    return option.mark.is_first or option.mark.is_argument or option.is_required


def _usage(verb: str, verb_options: Sequence[Option], width: int) -> list[str]:
    words: list[str] = []
    for option in verb_options:
        if option.mark.is_argument:
            metavar = f"{option.metavar} ..." if option.takes_several else option.metavar
            words.append(metavar if option.is_required else f"[{metavar}]")
        elif option.is_required:
            words.append(f"{option.flags[0]} {option.metavar}")
    return textwrap.wrap(f"usage: bothways {verb} {' '.join(words)} [options]", width, subsequent_indent="  ")


def _describe(option: Option, width: int) -> Iterator[str]:
    """The lines of an option: its flags, meaning and default."""
    names = _names(option)
    default = option.described_default()
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

    flags = [*option.flags]
    if option.is_switch and option.default is not False:
        flags.append(option.negative)
    several = " ..." if option.takes_several and not option.mark.is_repeated else ""
    return f"  {', '.join(flags)} {option.metavar}{several}".rstrip()
