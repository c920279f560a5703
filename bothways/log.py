"""Console output: results on standard output, messages (logging) on standard error.

Labels, file names and configs are untrusted, so characters that control the terminal are escaped in all output.
"""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from bothways.io import to_json

# C0 (except tab and line feed) and C1 control characters, line separators, and marks that change the text direction.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    """The text with control characters as \\u001b escapes, which JSON decodes to the original string."""
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def escape_line(text: str) -> str:
    """Like `escape_controls`, with line feeds escaped as well, so that a label cannot fake a line of output."""
    return escape_controls(text).replace("\n", "\\n")


def print_lines(*lines: str) -> None:
    """Print results to standard output, one per line."""
    print("".join(f"{escape_line(line)}\n" for line in lines), end="", flush=True)


def print_json(*values: Any) -> None:
    """Print JSON to standard output, one value per line; pure ASCII unless the output encoding is UTF-8."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("_", "-")
    dump = to_json if encoding in ("utf-8", "utf8") else json.dumps
    print_lines(*map(dump, values))


def command_name() -> str:
    """How to start this program from a shell: `bothways` if that is on the PATH, else the way it was started."""
    program = Path(sys.argv[0])
    if program.match("bothways/__main__.py"):
        return f"{shlex.quote(sys.executable)} -m bothways"
    installed = shutil.which("bothways")
    if not program.name.startswith("bothways") or (installed and program.exists() and program.samefile(installed)):
        return "bothways"
    return shlex.quote(str(program))


def print_message(text: str) -> None:
    """Print a message, possibly of several lines, to standard error."""
    print(escape_controls(text), file=sys.stderr, flush=True)
