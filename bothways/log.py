"""What the command prints: results on standard output, everything else on standard error.

Labels, file names and configs come from strangers, so no text reaches a terminal with characters that act on it.
"""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from bothways.io import as_json

# C0 (tab and line feed aside) and C1 control characters, line separators, and marks that change the writing direction.
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with each character that acts on a terminal as an escape, \\u001b, which is the same string in JSON."""
    return ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """The same with line feeds escaped as well, so that a label cannot look like a line of ours."""
    return printable(text).replace("\n", "\\n")


def show(*lines: str) -> None:
    """Lines of a result, on standard output."""
    print("".join(f"{one_line(line)}\n" for line in lines), end="", flush=True)


def show_json(*values: Any) -> None:
    """JSON on standard output, one value a line; in ASCII where the output's encoding is not UTF-8."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("_", "-")
    write = as_json if encoding in ("utf-8", "utf8") else json.dumps
    show(*map(write, values))


def command() -> str:
    """The command as a user's shell can start it again: `bothways` where that is this program, else what started it."""
    started = Path(sys.argv[0])
    if started.match("bothways/__main__.py"):
        return f"{shlex.quote(sys.executable)} -m bothways"
    known = shutil.which("bothways")
    if not started.name.startswith("bothways") or (known and started.exists() and started.samefile(known)):
        return "bothways"
    return shlex.quote(str(started))


def say(text: str) -> None:
    """A message, on standard error. It may have several lines."""
    print(printable(text), file=sys.stderr, flush=True)
