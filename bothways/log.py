"""Logging, progress bars, and output of the command line.

Everything logs to `logging.getLogger("bothways")` and prints nothing unless logging is configured. The command line
prints results to standard output, messages and progress bars to standard error.

Labels, file names and configs are untrusted, so characters that control the terminal are escaped in all output.
"""

import json
import logging
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bothways.errors import for_caller
from bothways.io import to_json

# C0 (except tab and line feed) and C1 control characters, line separators, and marks that change the text direction.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    """The text with control characters as \\u001b escapes, which JSON decodes to the original string."""
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def escape_line(text: str) -> str:
    """Like `escape_controls`, with line feeds escaped as well, so that a label cannot fake a line of output, and lone
    surrogates, which UTF-8 cannot encode."""
    return escape_controls(text).replace("\n", "\\n").encode(errors="backslashreplace").decode()


def print_lines(*lines: str) -> None:
    """Print results to standard output, one per line."""
    print("".join(f"{escape_line(line)}\n" for line in lines), end="", flush=True)


def print_json(*values: Any) -> None:
    """Print JSON to standard output, one value per line; pure ASCII unless the output encoding is UTF-8."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("_", "-")
    dump = to_json if encoding in ("utf-8", "utf8") else json.dumps
    print_lines(*map(dump, values))


def command_name() -> str:
    """The shell command that starts this program: `bothways` if it is on the PATH, else as it was started."""
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


# --- logging --------------------------------------------------------------------------------------------------------


logger = logging.getLogger("bothways")
logger.addHandler(logging.NullHandler())  # else Python prints warnings if logging is not configured


def _word_for_caller(record: logging.LogRecord) -> bool:
    """Let every record pass, with flags as arguments outside the command line."""
    record.msg, record.args = for_caller(record.getMessage()), None
    return True


logger.addFilter(_word_for_caller)


class _Handler(logging.Handler):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self.write = write

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        self.write(f"warning: {message}" if record.levelno >= logging.WARNING else message)


@contextmanager
def messages_to(write: Callable[[str], None]) -> Iterator[None]:
    """Call `write` with each message logged inside the block, instead of an outer `messages_to`.

    Progress bars are drawn if standard error is a terminal.
    """
    outer, level = [handler for handler in logger.handlers if isinstance(handler, _Handler)], logger.level
    handler = _Handler(write)
    for other in outer:
        logger.removeHandler(other)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        for other in outer:
            logger.addHandler(other)
        logger.setLevel(level)


@contextmanager
def muted() -> Iterator[None]:
    """Suppress messages below the level ERROR inside the block."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def draws_bars() -> bool:
    """Whether progress is drawn as a bar: on a terminal, inside `messages_to`."""
    inside = any(isinstance(handler, _Handler) for handler in logger.handlers) and logger.isEnabledFor(logging.INFO)
    return inside and sys.stderr.isatty()


class ProgressBar:
    """A progress bar on standard error with count and remaining time. Draws nothing if `draws_bars()` is false.

    done: the count at the start, for example of a resumed job.
    """

    def __init__(self, title: str, total: int | None, *, done: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        text = TextColumn("{task.description}", markup=False)
        columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not draws_bars())
        self.title = escape_controls(title)
        self.task = self.bar.add_task(self.title, total=total, completed=done)

    def __enter__(self) -> "ProgressBar":
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def update(self, done: int, detail: str) -> None:
        """Set the count. detail: text after the title."""
        self.bar.update(self.task, completed=done, description=f"{self.title}  {detail}")
