"""Word documents (.docx) as Markdown: paragraphs with their notes, headings by style, and tables as tab-separated rows.

Deleted and moved text, comments, headers and footers are left out.
"""

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError, XMLParser
from zipfile import BadZipFile, ZipFile

from bothways.errors import InputError
from bothways.search.plain_text import check_size

LARGEST_MEMBER = 1 << 27  # bytes of XML, decompressed
LARGEST_RATIO = 200  # of decompressed to compressed size, beyond a megabyte
BLOCK = 1 << 16  # bytes per read
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
STRICT_WORD = "{http://purl.oclc.org/ooxml/wordprocessingml/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"  # repeats what is beside it
SKIPPED = {FALLBACK, *(namespace + name for namespace in (WORD, STRICT_WORD) for name in ("del", "moveFrom"))}
SIGNS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
NOTES = ("footnote", "endnote")
HEADING_STYLE = re.compile(r"heading ([1-6])$", re.IGNORECASE)
MARKDOWN_MARK = re.compile(r"#{1,6}(?:\s|$)|```|~~~")


def word_to_markdown(path: Path) -> str:
    """The text of a .docx. InputError if it is not one, declares a DTD, or is too large once decompressed."""
    with document_archive(path, "Word document", "word/document.xml") as archive:
        styles, notes, names = _Styles(), _Notes(), archive.namelist()
        for name, target in (("styles", styles), *((f"{note}s", notes) for note in NOTES)):
            if f"word/{name}.xml" in names:
                parse_member(path, archive, f"word/{name}.xml", target)
        body = _Body(styles.levels(), notes.text_by_note)
        parse_member(path, archive, "word/document.xml", body)
    return "\n\n".join(body.blocks)


@contextmanager
def document_archive(path: Path, kind: str, main: str) -> Iterator[ZipFile]:
    """The archive that a document is. kind: its name in errors. main: the member with the text. InputError, also for
    errors of reading the members inside the block."""
    check_size(path)
    try:
        with ZipFile(path) as archive:
            archive.getinfo(main)
            yield archive
    except KeyError:
        raise InputError(
            f"{path}: not a {kind} (no {main}, or a member that it names); save it again as {path.suffix}"
        ) from None
    except (BadZipFile, ParseError, NotImplementedError, EOFError, zlib.error, RuntimeError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{path}: not a readable {kind} ({reason}); save it again as {path.suffix}") from None


def parse_member(path: Path, archive: ZipFile, name: str, target: "XmlTarget") -> Any:
    """The result of a target for a member of a document. InputError if it is too large, or declares a DTD."""
    member = archive.getinfo(name)
    if member.file_size > LARGEST_MEMBER or member.file_size > (1 << 20) + LARGEST_RATIO * member.compress_size:
        raise InputError(
            f"{path}: {name} grows from {member.compress_size:,} to {member.file_size:,} bytes when decompressed, like "
            "a file made to fill the memory; save it again as .txt, if that is intended"
        )
    target.path = path
    parser = XMLParser(target=target)
    with archive.open(member) as file:  # yields at most `file_size` bytes, whatever the compressed data holds
        while block := file.read(BLOCK):
            parser.feed(block)
    return parser.close()


class XmlTarget:
    """Callbacks of the XML parser. A DTD is refused, as its entities may grow without bound."""

    path: Path

    def start(self, tag: str, attributes: dict[str, str]) -> Any: ...

    def end(self, tag: str) -> Any: ...

    def data(self, text: str) -> Any: ...

    def doctype(self, name: str, public_id: str | None, system_id: str | None) -> None:
        raise InputError(f"{self.path}: declares a document type, which such a document does not; save it again")

    def close(self) -> Any: ...


class _Styles(XmlTarget):
    """The styles of paragraphs: which are headings, by name, outline level, or the style they are based on."""

    def __init__(self) -> None:
        self.style = ""
        self.level_by_style: dict[str, int] = {}
        self.base_by_style: dict[str, str] = {}

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name, value = _local(tag), _value(attributes)
        if name == "style":
            self.style = _attribute(attributes, "styleId")
        elif name == "name" and (match := HEADING_STYLE.match(value)):
            self.level_by_style[self.style] = int(match[1])
        elif name == "name" and value.lower() == "title":
            self.level_by_style[self.style] = 1
        elif name == "outlineLvl" and value.isdecimal() and int(value) < 6:
            self.level_by_style.setdefault(self.style, int(value) + 1)
        elif name == "basedOn":
            self.base_by_style[self.style] = value

    def levels(self) -> dict[str, int]:
        return {style: level for style in {*self.level_by_style, *self.base_by_style} if (level := self._level(style))}

    def _level(self, style: str) -> int:
        for _ in range(10):  # styles may be based on each other in a circle
            if style in self.level_by_style:
                return self.level_by_style[style]
            style = self.base_by_style.get(style, "")
        return 0


class _Body(XmlTarget):
    """The blocks of a document. Paragraphs and tables may be nested, as in text boxes."""

    def __init__(self, level_by_style: dict[str, int], text_by_note: dict[tuple[str, str], str]) -> None:
        self.level_by_style, self.text_by_note = level_by_style, text_by_note
        self.notes: list[str] = []  # of the open paragraph or table
        self.blocks: list[str] = []
        self.paragraphs: list[list[str]] = []  # parts of the open ones
        self.cells: list[list[str]] = []
        self.rows: list[list[str]] = []
        self.table: list[str] = []  # finished rows of the outermost table
        self.level = 0  # of the heading
        self.in_text = self.in_run = self.is_hidden = False
        self.skipped = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.skipped += tag in SKIPPED
        name = _local(tag)
        if self.skipped or not name:
            return
        if name == "p":
            self.paragraphs.append([])
            self.level = 0
        elif name == "r":
            self.in_run, self.is_hidden = True, False
        elif name == "vanish" and self.in_run:
            self.is_hidden = _value(attributes) not in ("0", "false", "off")
        elif name == "pStyle":
            self.level = self.level_by_style.get(_value(attributes), 0)
        elif name == "outlineLvl" and _value(attributes) in tuple("012345"):
            self.level = int(_value(attributes)) + 1
        elif name == "t":
            self.in_text = not self.is_hidden
        elif name in SIGNS and self.in_run and not self.is_hidden and self.paragraphs:
            self.paragraphs[-1].append(SIGNS[name])
        elif name.removesuffix("Reference") in NOTES and not self.is_hidden:
            note = self.text_by_note.pop((name.removesuffix("Reference"), _attribute(attributes, "id")), "")
            self.notes += [note] if note else []
        elif name == "tr":
            self.rows.append([])
        elif name == "tc":
            self.cells.append([])

    def data(self, text: str) -> None:
        if self.in_text and self.paragraphs and not self.skipped:
            self.paragraphs[-1].append(text)

    def end(self, tag: str) -> None:
        name = _local(tag)
        if self.skipped or not name:
            self.skipped -= tag in SKIPPED
        elif name == "p":
            self._end_paragraph("".join(self.paragraphs.pop()).strip())
        elif name == "t":
            self.in_text = False
        elif name == "r":
            self.in_run = self.is_hidden = False
        elif name == "tc" and self.rows:
            self.rows[-1].append(" ".join(self.cells.pop()))
        elif name == "tr":
            row = "\t".join(self.rows.pop())
            (self.cells[-1] if self.cells else self.table).append(row)
        elif name == "tbl" and not self.rows:
            self.blocks += ["\n".join(filter(str.strip, self.table)), *self.notes]
            self.table, self.notes = [], []

    def _end_paragraph(self, text: str) -> None:
        if text and self.cells:
            self.cells[-1].append(" ".join(text.split()))
        elif text and self.level:
            self.blocks.append(f"{'#' * self.level} {' '.join(text.split())}")
        elif text:
            self.blocks.append("\n".join(escaped_lines(text)))
        if not self.cells:
            self.blocks += self.notes
            self.notes = []
        self.level = 0


class _Notes(_Body):
    """The texts of footnotes and endnotes, by kind and id."""

    def __init__(self) -> None:
        super().__init__({}, {})

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        super().start(tag, attributes)
        if (name := _local(tag)) in NOTES:
            self.note, self.blocks = (name, _attribute(attributes, "id")), []

    def end(self, tag: str) -> None:
        super().end(tag)
        if _local(tag) in NOTES:
            self.text_by_note[self.note] = "\n".join(self.blocks)


def escaped_lines(text: str) -> Iterator[str]:
    """The lines that are not empty, which no reader of Markdown takes for a heading or a fence."""
    return (f"\\{line}" if MARKDOWN_MARK.match(line) else line for line in text.split("\n") if line.strip())


def _local(tag: str) -> str:
    """The name of an element of Word; "" for those of other namespaces."""
    return tag.removeprefix(WORD).removeprefix(STRICT_WORD) if tag.startswith((WORD, STRICT_WORD)) else ""


def _attribute(attributes: dict[str, str], name: str) -> str:
    return attributes.get(WORD + name) or attributes.get(STRICT_WORD + name) or ""


def _value(attributes: dict[str, str]) -> str:
    return _attribute(attributes, "val")
