"""Readers of files: text, Markdown, HTML, PDF, .docx and tables, as parts with their text and metadata.

A part is what has a place of its own: a text file, a page of a PDF, a row of a table.
"""

import codecs
import datetime
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bothways.data.tables import iter_rows
from bothways.data.text_encodings import WINDOWS_1252, bom_encoding, guess_utf16
from bothways.data.text_files import HEAD_BYTES, file_type, is_compressed, open_file
from bothways.errors import InputError

LARGEST_FILE = 1 << 26  # bytes of a file that is read as a whole
LARGEST_TEXT = 1 << 26  # characters of a document after it was decompressed
MARKDOWN = (".md", ".markdown", ".mdx")
HTML = (".html", ".htm", ".xhtml")
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
TEXT_COLUMNS = ("text", "body", "content", "abstract", "document", "passage", "sentence", "description", "message")
TITLE_COLUMNS = ("title", "subject", "headline", "name")
FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
FRONT_MATTER_LINE = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:[ \t]*(\S.*?)?[ \t]*")

Scalar = str | int | float | bool


@dataclass(frozen=True)
class DocumentPart:
    """A text with a place. first_line: of the file, from 1. page: of a PDF. metadata: scalars by name."""

    text: str
    is_markdown: bool = False
    first_line: int = 1
    page: int | None = None
    metadata: dict[str, Scalar] = field(default_factory=dict)


def read_parts(path: Path) -> Iterator[DocumentPart]:
    """The parts of a file. InputError for a file that is damaged, too large or not text."""
    kind = file_type(path)
    if kind in TABLES:
        return _rows(path, kind)
    reader = READERS.get(kind, _text)
    if path.stat().st_size > LARGEST_FILE:
        raise _too_large(path, LARGEST_FILE)
    return reader(path)


def is_plain(path: Path) -> bool:
    """Whether a file is read without a parser, so that it needs no process of its own."""
    return file_type(path) not in (*TABLES, *READERS) and not is_compressed(path)


def _too_large(path: Path, most: int) -> InputError:
    return InputError(f"{path}: more than {most >> 20} MiB; divide it, or leave it out with --glob '!{path.name}'")


# --- text -------------------------------------------------------------------------------------------------------------


def _text(path: Path) -> Iterator[DocumentPart]:
    yield DocumentPart(read_text(path))


def read_text(path: Path) -> str:
    """The text of a file: by its byte-order mark, else UTF-8, else Windows-1252. InputError for a binary file."""
    with open_file(path) as file:
        try:
            content = file.read(LARGEST_TEXT + 1)
        except (OSError, EOFError, ValueError) as error:
            raise InputError(f"{path}: cannot be decompressed ({error}); copy it again") from None
    if len(content) > LARGEST_TEXT:
        raise _too_large(path, LARGEST_TEXT)
    encoding = bom_encoding(content[:4]) or guess_utf16(content[:HEAD_BYTES])
    if encoding is None and b"\0" in content[: HEAD_BYTES * 16]:
        raise InputError(f"{path}: a binary file; leave it out with --glob '!*{path.suffix or path.name}'")
    try:
        text = content.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        text = content.decode(encoding or WINDOWS_1252, "replace")
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _markdown(path: Path) -> Iterator[DocumentPart]:
    text = read_text(path)
    metadata, first_line, front = {}, 1, FRONT_MATTER.match(text)
    if front:
        lines = (FRONT_MATTER_LINE.fullmatch(line) for line in front[1].splitlines())
        metadata = {match[1]: _scalar(match[2]) for match in lines if match and match[2]}
        first_line, text = 1 + front[0].count("\n"), text[front.end() :]
    yield DocumentPart(text, is_markdown=True, first_line=first_line, metadata=metadata)


def _scalar(word: str) -> Scalar:
    """The value of a word as YAML reads it: a number, true, false, or text without its quotes."""
    if re.fullmatch(r"-?\d{1,18}", word):
        return int(word)
    if re.fullmatch(r"-?\d+\.\d+", word):
        return float(word)
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


# --- documents --------------------------------------------------------------------------------------------------------


def _html(path: Path) -> Iterator[DocumentPart]:
    from bothways.search.html_text import html_to_text

    content = read_html(path)
    yield DocumentPart(html_to_text(content), is_markdown=True)


def read_html(path: Path) -> str:
    """The source of a page, in the encoding that it declares."""
    head = path.read_bytes()[:HEAD_BYTES]
    declared = re.search(rb"<meta[^>]+charset\s*=\s*[\"']?([\w-]+)", head, re.IGNORECASE)
    if declared and bom_encoding(head) is None:
        try:
            name = codecs.lookup(declared[1].decode("ascii")).name
            return path.read_bytes().decode(name, "replace") if name != "utf-8" else read_text(path)
        except LookupError:
            pass
    return read_text(path)


def _docx(path: Path) -> Iterator[DocumentPart]:
    from bothways.search.docx_text import docx_to_text

    yield DocumentPart(docx_to_text(path, LARGEST_TEXT), is_markdown=True)


def _pdf(path: Path) -> Iterator[DocumentPart]:
    try:
        import pypdfium2
    except ImportError:
        raise InputError(f"{path}: reading PDF needs pypdfium2; pip install 'bothways[pdf]'") from None
    try:
        document = pypdfium2.PdfDocument(path)
        for number in range(len(document)):
            text = document[number].get_textpage().get_text_bounded()
            yield DocumentPart(text.replace("\r\n", "\n").replace("\r", "\n"), page=number + 1)
    except pypdfium2.PdfiumError as error:
        hint = "protected by a password" if "assword" in str(error) else "a damaged PDF"
        raise InputError(f"{path}: {hint} ({error}); save it anew") from None


# --- tables -----------------------------------------------------------------------------------------------------------


def _rows(path: Path, kind: str) -> Iterator[DocumentPart]:
    for number, (where, row) in enumerate(iter_rows(path), 1):
        line = where.rpartition(":")[2]
        by_name = {name.lower(): name for name in row}
        texts = [by_name[name] for name in TEXT_COLUMNS if name in by_name and isinstance(row[by_name[name]], str)]
        title = [by_name[name] for name in TITLE_COLUMNS if name in by_name and isinstance(row[by_name[name]], str)]
        used = [*title[:1], *texts[:1]] if texts else []
        if used:
            text = "\n".join(str(row[name]) for name in used if row[name])
        else:
            text = "\n".join(f"{name}: {value}" for name, value in row.items() if isinstance(value, str) and value)
        known = {name: _metadata(value) for name, value in row.items() if name not in texts[:1]}
        metadata = {name: value for name, value in known.items() if value is not None}
        yield DocumentPart(text, first_line=int(line) if line.isdigit() else number, metadata=metadata)


def _metadata(value: Any) -> Scalar | None:
    """A value that filters can compare. Numbers in CSV are texts that look like numbers."""
    if isinstance(value, str):
        return _scalar(value) if value and len(value) <= 1000 else None
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value if isinstance(value, bool | int | float) and value == value else None


READERS: dict[str, Callable[[Path], Iterator[DocumentPart]]] = {
    **dict.fromkeys(MARKDOWN, _markdown),
    **dict.fromkeys(HTML, _html),
    ".docx": _docx,
    ".pdf": _pdf,
}
