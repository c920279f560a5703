"""Lines of standard input, as they arrive."""

import sys
import time
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from select import select
from typing import Any, BinaryIO

from bothways.base.errors import InputError, RowLocation
from bothways.settings.tables_in_memory import RowOrError
from bothways.text.rows.text_encodings import has_ascii_newlines, line_decoder
from bothways.text.rows.text_files import decoding_error

STANDARD_INPUT = "-"  # its name, where a file is named
PAUSE = 0.05  # seconds without a new line
LONGEST_WAIT = 0.5  # seconds since the first unanswered line


class StandardInput:
    """The lines that are sent to this process, of which each is a row with the column "text". They are read once."""

    def __str__(self) -> str:
        return "standard input"

    def rows(self, encoding: str | None) -> Iterator[RowOrError]:
        """The rows, or their errors.

        encoding: of the lines; None: UTF-8. It must write line feeds as ASCII does.
        """
        for row in _read_lines(encoding, live=False):
            assert row is not None
            yield row

    def live_rows(self, encoding: str | None) -> Iterator[RowOrError | None]:
        """The rows, or their errors, as they arrive: None whenever the input pauses, so that the rows so far can be
        answered. encoding: see `rows`.
        """
        return _read_lines(encoding, live=True)


def _read_lines(encoding: str | None, *, live: bool) -> Iterator[RowOrError | None]:
    if sys.stdin is None:
        raise InputError("standard input is closed; name a file, or send lines to it")
    if encoding is not None and not has_ascii_newlines(encoding):
        raise InputError(
            f"encoding ({encoding}) is not supported for standard input; name a file, or convert the text first"
        )

    decode = line_decoder(encoding)
    lines: Iterable[bytes | None] = _live_lines(sys.stdin.buffer) if live else sys.stdin.buffer
    number = 0
    for line in lines:
        if line is None:
            yield None
            continue

        number += 1
        line = line.removeprefix(BOM_UTF8) if number == 1 else line
        try:
            text = decode(line).rstrip("\r\n")
            yield RowLocation(StandardInput(), number - 1, number), {"text": text}
        except UnicodeDecodeError as error:
            yield decoding_error(f"line {number} of standard input", line, f"byte {error.start}", encoding)


def _live_lines(file: Any) -> Iterator[bytes | None]:
    """The lines of a binary file, with None when the lines so far should be processed without waiting for more."""
    parts: list[bytes] = []  # parts of a line whose end has not arrived yet
    first_line_time: float | None = None  # arrival of the first line since the last None
    while chunk := file.read1(1 << 16):
        first_line_time = first_line_time or time.monotonic()
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join((*parts, end))
            parts.clear()
        parts.append(rest)
        wait = min(PAUSE, first_line_time + LONGEST_WAIT - time.monotonic())
        if not _is_readable(file, max(0.0, wait)):
            yield None
            first_line_time = None
    if last := b"".join(parts):
        yield last


def _is_readable(file: BinaryIO, seconds: float) -> bool:
    """Whether data or the end of the file arrives within this time; True if the system cannot tell."""
    try:
        return bool(select([file], [], [], seconds)[0])
    except (OSError, ValueError):  # not a system file, or a pipe on Windows
        return True
