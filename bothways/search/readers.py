"""Readers of files for search: text, Markdown, HTML, documents, slides, e-mail and tables, as parts with their text."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, MissingFile, flag, require, shorten
from bothways.base.io import SURROGATES
from bothways.base.registry import Registry
from bothways.search.formats import plain_text
from bothways.text.rows.text_files import file_type

__all__ = ["DocumentPart", "find_reader", "has_reader", "read_parts"]

TEXT_SUFFIXES = (
    "txt text rst log tex adoc org srt vtt py pyi c h cc cpp hpp cs java kt scala go rs swift js jsx mjs ts tsx vue "
    "php pl rb lua r jl m sh bash zsh fish ps1 bat sql css scss toml yaml yml json ini cfg conf env properties xml "
    "gradle cmake mk proto graphql tf"
).split()
UNREAD_DOCUMENTS = frozenset(
    ".doc .dot .xls .xlsx .xlsm .xlsb .ppt .pps .key .pages .numbers .ods .odp .msg .pst .mbox .epub .mobi .djvu .ps "
    ".wpd .wps .pub .one .vsd .vsdx .xps".split()
)  # types of binary documents without a reader
TEXT_NAMES = frozenset(
    "readme license licence copying notice authors contributors contributing changelog changes news todo install "
    "makefile dockerfile".split()
)  # usual names of text files without a suffix
HYPHEN_AT_LINE_END = re.compile("[\ufffe\x02](?:\r?\n)?")  # as marked by PDFium: the word goes on


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A readable unit of a file: a whole text, a page of a PDF, a slide, a row of a table.

    page: from 1, of a PDF; the number of a slide.
    first_line: where the text starts in the file (in Parquet: the number of the row); None if the file has other lines
        than the text: HTML, PDF, Word and the like.
    metadata: front matter, title, fields of e-mail, or other columns.
    offset: number of characters of the file before the text (front matter).
    is_row: of a table, all on its line.
    """

    text: str
    is_markdown: bool = False
    page: int | None = None
    first_line: int | None = 1
    metadata: Mapping[str, plain_text.Value] = field(default_factory=dict)
    offset: int = 0
    is_row: bool = False


Reader = Callable[[Path, str | None], Iterable[DocumentPart]]  # (path, encoding); InputError names what is wrong


def has_reader(path: Path) -> bool:
    """Whether a file has a reader, by its name."""
    extension = file_type(path).removeprefix(".")
    return extension in READERS if extension else path.stem.lower() in TEXT_NAMES


def find_reader(path: Path) -> Reader | None:
    """The reader of a file by its name; None if the name is not that of a readable file."""
    if not has_reader(path):
        return None
    extension = file_type(path).removeprefix(".")
    return READERS[extension] if extension else read_text


def is_plain(path: Path) -> bool:
    """Whether a file is read as text or Markdown, by readers that need no library."""
    extension = file_type(path).removeprefix(".")
    return not has_reader(path) or not extension or READERS.entries.get(extension) in (read_text, read_markdown)


def read_parts(path: Path, *, encoding: str | None = None) -> Iterator[DocumentPart]:
    """The parts of a file that hold text, in order. A file of an unknown type is read as text.

    encoding: of text without a byte-order mark; None means UTF-8. InputError, in one line, for every failure.
    """
    try:
        codecs.lookup(encoding or "utf-8")
    except LookupError:
        raise InputError(f"encoding ({encoding}) must be a codec of Python, such as cp1252 or shift_jis") from None
    try:
        plain_text.check_regular_file(path)
        read = find_reader(path) or read_text
        parts = (part for part in read(path, encoding) if part.text and not part.text.isspace())
        yield from map(_encodable, parts)
    except FileNotFoundError as error:
        if isinstance(error, MissingFile):
            raise
        raise MissingFile(f"{path}: no such file any more; search again") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{path}: cannot be read ({reason}); fix its permissions or copy it again") from None
    except UnicodeError as error:
        raise InputError(f"{path}: cannot be decoded ({error}); give its {flag('encoding')}") from None


def _encodable(part: DocumentPart) -> DocumentPart:
    """The part with U+FFFD in place of lone surrogates, as JSON may hold, which no database or output can."""
    metadata = {_sound(name): _sound(value) for name, value in part.metadata.items()}
    return replace(part, text=_sound(part.text), metadata=metadata)


def _sound(value: Any) -> Any:
    if isinstance(value, list):
        return [_sound(item) for item in value]
    if isinstance(value, str) and not value.isascii():
        return SURROGATES.sub("\ufffd", value)
    return value


# --- the reader of each extension -------------------------------------------------------------------------------------
# Libraries are imported when a file of their kind is read: those of tables take 0.1 s.


def read_text(path: Path, encoding: str | None) -> Iterable[DocumentPart]:
    return [DocumentPart(plain_text.read_text_file(path, encoding))]


def read_markdown(path: Path, encoding: str | None) -> Iterable[DocumentPart]:
    whole = plain_text.read_text_file(path, encoding)
    metadata, text, first_line = plain_text.split_front_matter(whole)
    offset = len(whole) - len(text)
    return [DocumentPart(text, is_markdown=True, first_line=first_line, metadata=metadata, offset=offset)]


def read_html(path: Path, encoding: str | None) -> Iterable[DocumentPart]:
    from bothways.search.formats.html_pages import decode_html, html_to_markdown

    text, title = html_to_markdown(decode_html(plain_text.read_whole(path), encoding))
    metadata = {"title": title} if title else {}
    return [DocumentPart(text, is_markdown=True, first_line=None, metadata=metadata)]


def read_office(path: Path, encoding: str | None) -> Iterable[DocumentPart]:
    from bothways.search.formats.office_documents import office_pages

    return [DocumentPart(text, is_markdown=True, page=page, first_line=None) for page, text in office_pages(path)]


def read_email(path: Path, encoding: str | None) -> Iterable[DocumentPart]:
    from bothways.search.formats.email_messages import email_to_markdown

    text, metadata = email_to_markdown(plain_text.read_whole(path))
    return [DocumentPart(text, is_markdown=True, first_line=None, metadata=metadata)]


def read_notebook(path: Path, encoding: str | None) -> Iterable[DocumentPart]:
    return [DocumentPart(plain_text.notebook_to_markdown(path), is_markdown=True, first_line=None)]


def read_table(path: Path, encoding: str | None) -> Iterable[DocumentPart]:
    from bothways.search.formats.table_rows import table_rows

    for text, line, values in table_rows(path, encoding):
        yield DocumentPart(text, first_line=line, metadata=values, is_row=True)


def read_rtf(path: Path, encoding: str | None) -> Iterable[DocumentPart]:
    return [DocumentPart(_rtf_text(path), first_line=None)]


def read_pdf(path: Path, encoding: str | None) -> Iterable[DocumentPart]:
    for page, text in _pdf_pages(path):
        yield DocumentPart(text, page=page, first_line=None)


READERS = Registry[Reader](
    "reader",
    "bothways.readers",
    {
        **dict.fromkeys(TEXT_SUFFIXES, read_text),
        "md": read_markdown,
        "markdown": read_markdown,
        "html": read_html,
        "htm": read_html,
        "xhtml": read_html,
        "docx": read_office,
        "odt": read_office,
        "pptx": read_office,
        "csv": read_table,
        "tsv": read_table,
        "jsonl": read_table,
        "parquet": read_table,
        "pdf": read_pdf,
        "rtf": read_rtf,
        "eml": read_email,
        "ipynb": read_notebook,
    },
)


def _rtf_text(path: Path) -> str:
    require(path, "striprtf")
    from bothways.search.formats.rtf import rtf_to_text

    content = plain_text.read_whole(path).decode("latin-1")
    if not content.lstrip().startswith("{\\rtf"):
        raise InputError(f"{path}: not RTF, which starts with {{\\rtf; save it again, or as .txt")
    try:
        return rtf_to_text(content)
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{path}: not readable RTF ({shorten(error)}); save it again, or as .txt") from None


def _pdf_pages(path: Path) -> Iterator[tuple[int, str]]:
    """(page number from 1, text) of every page with text. InputError without pypdfium2, or if it is not a PDF."""
    require(path, "pypdfium2")
    import pypdfium2

    plain_text.check_size(path)

    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        reason = str(error).splitlines()[0]
        if "password" in reason.lower():
            raise InputError(f"{path}: needs a password; save it again without one") from None
        raise InputError(f"{path}: not a readable PDF ({reason}); save it again") from None

    try:
        for number in range(1, len(document) + 1):
            text = _page_text(path, document, number)
            if text:
                yield number, text
    finally:
        document.close()


def _page_text(path: Path, document: object, number: int) -> str:
    from pypdfium2 import PdfiumError

    try:
        page = document[number - 1]  # type: ignore[index]
        text_page = page.get_textpage()
        text = str(text_page.get_text_bounded())
        text_page.close()
        page.close()
    except PdfiumError as error:
        raise InputError(f"{path}: page {number} is not readable ({error}); save the file again") from None

    text = HYPHEN_AT_LINE_END.sub("", text).replace("\0", "")
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()
