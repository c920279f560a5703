"""Plain text, Markdown and notebooks: a file read whole, without binary files, and the front matter of Markdown."""

import json
import re
import stat
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, MissingFile, flag
from bothways.text.rows import text_files
from bothways.text.rows.text_encodings import WINDOWS_1252, bom_encoding, guess_utf16, has_ascii_newlines

LARGEST_FILE = 1 << 26  # bytes of a file that is read whole, decompressed
LONGEST_FRONT_MATTER = 200  # lines
MARKDOWN_MARK = re.compile(r"#{1,6}(?:\s|$)|```|~~~")
NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")

MOST_VALUES = 100  # of a list in metadata
LIST_ITEM = re.compile("""'[^']*'|"[^"]*"|[^\\s,'"\\[\\]{}&*|>#](?:(?!: )[^,\\[\\]{}])*(?<!\\s)""")
FLOW_LIST = re.compile(rf"\[\s*(?:{LIST_ITEM.pattern})\s*(?:,\s*(?:{LIST_ITEM.pattern})\s*)*,?\s*\]")

Scalar = str | int | float | bool
Value = Scalar | list[Scalar]


def check_regular_file(path: Path) -> None:
    """InputError unless it is a file: opening a pipe or a device could wait for ever."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise MissingFile(f"{path}: no such file; check the path") from None
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: not a regular file; name a file")


def check_size(path: Path) -> None:
    """InputError for a file that is too large to be read whole."""
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise _too_large(path, f"{size >> 20:,} MiB")


def read_whole(path: Path) -> bytes:
    """All bytes of a file, decompressed by its name. InputError for more than LARGEST_FILE."""
    check_size(path)
    with text_files.open_file(path) as file:
        try:
            content = file.read(LARGEST_FILE + 1)
        except text_files.DECOMPRESSION_ERRORS as error:
            raise text_files.decompression_error(str(path), error) from None
    if len(content) > LARGEST_FILE:
        raise _too_large(path, "more, decompressed")
    return content


def check_is_text(path: Path, encoding: str | None) -> None:
    """InputError if a file starts like a binary file: with NUL bytes, in an encoding without them."""
    if encoding is not None and not has_ascii_newlines(encoding):
        return
    with text_files.open_file(path) as file:
        try:
            head = file.read(text_files.HEAD_BYTES)
        except text_files.DECOMPRESSION_ERRORS as error:
            raise text_files.decompression_error(str(path), error) from None
    if b"\0" in head and not bom_encoding(head) and not guess_utf16(head):
        raise _is_binary(path)


def read_text_file(path: Path, encoding: str | None) -> str:
    """The text of a file, its lines ending in line feeds. encoding: see `decoded_lines`; None: UTF-8, and Windows-1252
    for files that are not."""
    check_size(path)
    check_is_text(path, encoding)

    lines = []
    size = 0
    for _, line, error in text_files.decoded_lines(path, encoding):
        size += len(line) + 1
        if error and encoding is None:
            # A legacy file is better found with a wrong letter than not at all.
            return read_text_file(path, WINDOWS_1252)
        if error:
            raise error
        if "\0" in line:
            raise _is_binary(path)
        if size > LARGEST_FILE:
            raise _too_large(path, "more, decompressed")
        lines.append(line)
    return "\n".join(lines)


def split_front_matter(text: str) -> tuple[dict[str, Value], str, int]:
    """The `key: value` lines between `---` at the start of a Markdown text, the text after them, and its first line."""
    lines = text.split("\n", LONGEST_FRONT_MATTER)
    if lines[0].rstrip() != "---":
        return {}, text, 1

    last = next((index for index, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    if last is None or not any(":" in line for line in lines[1:last]):  # it is a rule
        return {}, text, 1

    values = dict(_simple_values(lines[1:last]))
    rest = "\n".join(lines[last + 1 :])
    return values, rest, last + 2


def _simple_values(lines: list[str]) -> Iterator[tuple[str, Value]]:
    """Keys with their values of one line, or lists of such values; nested ones are left out."""
    lines = [line.rstrip() for line in lines]
    for index, line in enumerate(lines, 1):
        key, colon, value = line.partition(":")
        value = value.strip()
        if not (colon and key.strip()) or key[0] in " \t#-":
            continue

        items: list[str] = []
        if not value:
            marked = takewhile(lambda line: line.lstrip().startswith("- "), lines[index:])
            items = [line.lstrip()[2:].strip() for line in marked]
        elif FLOW_LIST.fullmatch(value):
            items = LIST_ITEM.findall(value[1:-1])

        if items and all(map(LIST_ITEM.fullmatch, items)) and len(items) <= MOST_VALUES:
            yield key.strip(), [read_scalar(item) for item in items]
        elif value and value[0] not in "[{|>&*":
            yield key.strip(), read_scalar(value)


def escaped(text: str) -> str:
    """Text whose lines Markdown does not take for headings and fences."""
    lines = []
    for line in text.split("\n"):
        lines.append(f"\\{line}" if MARKDOWN_MARK.match(line) else line)
    return "\n".join(lines)


def fenced(lines: Sequence[str]) -> list[str]:
    """Lines of code between fences of Markdown, longer than those in the code."""
    fence = "```"
    while any(line.lstrip().startswith(fence) for line in lines):
        fence += "`"
    return [fence, *lines, fence]


def notebook_to_markdown(path: Path) -> str:
    """The cells of a Jupyter notebook, code between fences, without outputs. InputError if it is not one."""
    try:
        notebook = json.loads(read_whole(path))
        blocks = [_cell(cell) for cell in notebook["cells"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError(f"{path}: not a notebook of version 4 (JSON with cells); save it again in Jupyter") from None
    return "\n\n".join(filter(str.strip, blocks))


def _cell(cell: dict[str, Any]) -> str:
    kind = cell["cell_type"]
    source = cell.get("source") or ""  # some programs leave it out of an empty cell
    text = (source if isinstance(source, str) else "".join(source)).strip("\n")
    if text and kind == "code":
        return "\n".join(fenced(text.split("\n")))
    return text


def read_scalar(value: str) -> Scalar:
    """The value of a word as YAML reads it: a number that is written so, true, false, or text, without its quotes."""
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    if value.lower() in ("true", "false"):
        return value.lower() == "true"

    if not NUMBER.fullmatch(value):
        return value
    number = float(value) if "." in value else int(value)
    return number if str(number) == value else value  # 01234 is a code, 1.10 a version


def _too_large(path: Path, size: str) -> InputError:
    return InputError(f"{path}: {size}, of {LARGEST_FILE >> 20} MiB at most for a file of this type; split it")


def _is_binary(path: Path) -> InputError:
    return InputError(f"{path}: a binary file (it has NUL bytes); give text, or its {flag('encoding')}")
