"""Output of the command line: results to standard output, messages and progress to standard error.

No other file prints, since labels, file names and configs are untrusted: characters that control the terminal are
escaped here.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

from bothways.base.io import to_json

# C0 (except tab and line feed) and C1 control characters, line separators, marks that change the text direction, and
# lone surrogates, which UTF-8 cannot encode: a file name that is not UTF-8 has some.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


Segment = tuple[str, str]  # a text, and the number of its ANSI style, such as "1" for bold, or "" for none
Line = str | Sequence[Segment]


def print_lines(*lines: Line) -> None:
    """Print results to standard output, one per line; with styles in a terminal without $NO_COLOR, and with
    $FORCE_COLOR. The texts are escaped, the styles are not."""
    status_line.erase()
    is_coloured = bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    print("".join(f"{_escaped(line, is_coloured)}\n" for line in lines), end="", flush=True)


def _escaped(line: Line, is_coloured: bool) -> str:
    if isinstance(line, str):
        return escape_line(line)
    return "".join(
        f"\x1b[{style}m{escape_line(text)}\x1b[0m" if style and is_coloured else escape_line(text)
        for text, style in line
    )


def print_json(*values: Any) -> None:
    """Print JSON to standard output, one value per line; pure ASCII unless the output encoding is UTF-8."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    is_utf8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
    dump = to_json if is_utf8 else json.dumps
    print_lines(*map(dump, values))


def print_json_line(text: str) -> None:
    """Print a message of a protocol, JSON in pure ASCII, in one write."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_message(text: str) -> None:
    """Print a message, possibly of several lines, to standard error."""
    status_line.erase()
    print(escape_controls(text), file=sys.stderr, flush=True)


class StatusLine:
    """The last line of the terminal, on which a progress bar is drawn: it is drawn over, and other output erases it."""

    def __init__(self) -> None:
        self.is_drawn = False

    def draw(self, text: str) -> None:
        self.is_drawn = True
        width = shutil.get_terminal_size().columns - 1
        print_raw(f"\r{first_columns(escape_controls(text), width)}\x1b[K")

    def erase(self) -> None:
        if self.is_drawn:
            self.is_drawn = False
            print_raw("\r\x1b[K")


status_line = StatusLine()


def print_raw(text: str) -> None:
    """Write to standard error, without a line feed; the caller has escaped the text."""
    print(text, end="", file=sys.stderr, flush=True)


def escape_controls(text: str) -> str:
    """The text with control characters as \\u001b escapes, which JSON decodes to the original string."""
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def escape_line(text: str) -> str:
    """Like `escape_controls`, with line feeds escaped as well, so that a label cannot fake a line of output."""
    return escape_controls(text).replace("\n", "\\n")


def first_columns(text: str, width: int) -> str:
    """As much of a text as fits into `width` columns of a terminal, of which wide characters take two."""
    ends = accumulate(1 + (east_asian_width(character) in "FW") for character in text)
    return text[: sum(end <= width for end in ends)]


def command_name() -> str:
    """The shell command that starts this program: `bothways` if it is on the PATH, else as it was started."""
    program = Path(sys.argv[0])
    if program.match("bothways/__main__.py"):
        return f"{shlex.quote(sys.executable)} -m bothways"

    if not program.name.startswith("bothways"):  # a program of the user, which imports the package
        return "bothways"

    installed = shutil.which("bothways")
    if installed and program.exists() and program.samefile(installed):
        return "bothways"
    return shlex.quote(str(program))
