"""Word documents (.docx), OpenDocument texts (.odt), slides (.pptx) and e-mail (.eml) as Markdown: headings, paragraphs
with their notes, and tables as tab-separated rows.

Deleted and moved text, comments, tables of contents, headers and footers are left out. Elements are found by their
names without namespace, since Office Open XML has two sets of namespaces.
"""

import posixpath
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser
from zipfile import BadZipFile, ZipFile

from bothways.base.errors import InputError
from bothways.search.html_pages import decode_html, html_to_markdown
from bothways.search.plain_text import Value, check_size, escaped
from bothways.text.data.text_files import file_type

KINDS = {  # names in errors, and the members with the text
    ".docx": ("Word document", "word/document.xml"),
    ".odt": ("text document", "content.xml"),
    ".pptx": ("presentation", "ppt/presentation.xml"),
}
LARGEST_MEMBER = 1 << 27  # bytes of XML, decompressed
LARGEST_RATIO = 200  # of decompressed to compressed size, beyond a megabyte
BLOCK = 1 << 16  # bytes per read
SKIPPED = set("Fallback del moveFrom pPr rPr oMath tracked-changes annotation table-of-content note-citation".split())
SIGNS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "s": " ", "line-break": "\n"}
NOTES = ("footnote", "endnote")
BESIDE = {"p", "tbl", "note", "frame", "custom-shape"}  # within a paragraph, after which they are read
TABLES, ROWS, CELLS = {"table", "tbl"}, {"table-row", "tr"}, {"table-cell", "tc"}
NO_TEXT, TITLES = {"dt", "ftr", "hdr", "sldNum", "sldImg"}, {"title", "ctrTitle"}  # placeholders of a slide
HEADING_STYLE = re.compile(r"heading ([1-6])$", re.IGNORECASE)
WHITE_SPACE = re.compile("[ \t\r\n]+")
FIELDS = ("subject", "from", "to", "date")
MALFORMED = (ValueError, TypeError, LookupError, AttributeError)  # what the parser of headers raises


def office_pages(path: Path) -> Iterator[tuple[int | None, str]]:
    """(number, text) of each slide of a .pptx, from 1, with the notes of the speaker; (None, text) of another document.

    InputError if it is not of its type, declares a DTD, or is too large once decompressed.
    """
    kind = file_type(path)
    with _document(path, *KINDS[kind]) as archive:
        if kind == ".pptx":
            yield from _slides(path, archive)
            return
        reader = _BlockReader(is_mixed=kind == ".odt")
        if kind == ".docx":
            reader.level_by_style = _heading_levels(_tree(path, archive, "word/styles.xml"))
            for note in NOTES:
                for one in _named(_tree(path, archive, f"word/{note}s.xml"), note):
                    reader.text_by_note[note, _attribute(one, "id")] = "\n".join(_BlockReader().blocks(one))
        body = _named(_tree(path, archive, KINDS[kind][1]), "body")
        yield None, "\n\n".join(reader.blocks(body))


def _slides(path: Path, archive: ZipFile) -> Iterator[tuple[int, str]]:
    main = KINDS[".pptx"][1]
    names = {key: name for key, _, name in _relations(path, archive, main)}
    for number, slide in enumerate(_named(_tree(path, archive, main), "sldId"), 1):
        name = names.get(next((value for key, value in slide.items() if key.endswith("}id")), ""), "")
        notes = [target for _, kind, target in _relations(path, archive, name) if kind.endswith("/notesSlide")]
        yield number, "\n\n".join(_BlockReader().blocks(_tree(path, archive, one) for one in (name, *notes)))


# --- archives and their XML -------------------------------------------------------------------------------------------


@contextmanager
def _document(path: Path, kind: str, main: str) -> Iterator[ZipFile]:
    """The archive that a document is. main: the member with the text. InputError, also for errors inside the block."""
    check_size(path)
    try:
        with ZipFile(path) as archive:
            archive.getinfo(main)
            yield archive
    except KeyError:
        raise InputError(f"{path}: not a {kind} (no {main}); save it again as {path.suffix}") from None
    except (BadZipFile, ParseError, NotImplementedError, EOFError, zlib.error, RuntimeError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{path}: not a readable {kind} ({reason}); save it again as {path.suffix}") from None


def _tree(path: Path, archive: ZipFile, name: str) -> Element:
    """The XML of a member; an element without others if there is none."""
    if name not in archive.NameToInfo:
        return Element("none")
    member = archive.getinfo(name)
    if member.file_size > LARGEST_MEMBER or member.file_size > (1 << 20) + LARGEST_RATIO * member.compress_size:
        raise InputError(
            f"{path}: {name} grows from {member.compress_size:,} to {member.file_size:,} bytes when decompressed, like "
            "a file made to fill the memory; save it again as .txt, if that is intended"
        )
    parser = XMLParser(target=_Tree(path))
    with archive.open(member) as file:  # yields at most `file_size` bytes, whatever the compressed data holds
        while block := file.read(BLOCK):
            parser.feed(block)
    root: Element = parser.close()
    return root


class _Tree(TreeBuilder):
    """Builds elements. A DTD is refused, as its entities may grow without bound."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def doctype(self, name: str, public_id: str | None, system_id: str | None) -> None:
        raise InputError(f"{self.path}: declares a document type, which such a document does not; save it again")


def _relations(path: Path, archive: ZipFile, name: str) -> list[tuple[str, str, str]]:
    """(id, type, member) of the members that a member of a presentation refers to."""
    folder, base = posixpath.split(name)
    found = [dict(one.items()) for one in _tree(path, archive, f"{folder}/_rels/{base}.rels")]
    absolute = [posixpath.normpath(posixpath.join(f"/{folder}", one.get("Target", ""))) for one in found]
    return [(one.get("Id", ""), one.get("Type", ""), name[1:]) for one, name in zip(found, absolute, strict=True)]


def _heading_levels(styles: Element) -> dict[str, int]:
    """The level of each style of headings, by name, outline level, or the style it is based on."""
    level_by_style, base_by_style = dict[str, int](), dict[str, str]()
    for style in _named(styles, "style"):
        key = _attribute(style, "styleId")
        for one in style.iter():
            name, value = _local(one), _attribute(one, "val")
            if name == "name" and (match := HEADING_STYLE.match(value)):
                level_by_style[key] = int(match[1])
            elif name == "name" and value.lower() == "title":
                level_by_style[key] = 1
            elif name == "outlineLvl" and value.isdecimal() and int(value) < 6:
                level_by_style.setdefault(key, int(value) + 1)
            elif name == "basedOn":
                base_by_style[key] = value
    for _ in range(10):  # styles may be based on each other in a circle
        inherited = {key: level_by_style[base] for key, base in base_by_style.items() if base in level_by_style}
        level_by_style = inherited | level_by_style
    return level_by_style


# --- blocks -----------------------------------------------------------------------------------------------------------


@dataclass
class _BlockReader:
    """Reads blocks from elements. is_mixed: text stands in any element, as in OpenDocument, not only in `t`."""

    is_mixed: bool = False
    level_by_style: dict[str, int] = field(default_factory=dict)
    text_by_note: dict[tuple[str, str], str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # of the paragraph or table that is read
    num_tables: int = 0  # around the paragraph that is read

    def blocks(self, elements: Iterable[Element]) -> Iterator[str]:
        """The headings, paragraphs and tables in elements, in order."""
        for element in elements:
            name = _local(element)
            if name in ("h", "p"):
                yield from self.paragraph(element)
            elif name == "sp":
                yield from self.shape(element)
            elif name in TABLES:
                self.num_tables += 1
                rows = [
                    [" ".join(self.blocks(cell)) for cell in _nearest(row, CELLS)] for row in _nearest(element, ROWS)
                ]
                self.num_tables -= 1
                yield (" " if self.num_tables else "\n").join(filter(str.strip, map("\t".join, rows)))
            elif name not in SKIPPED:
                yield from self.blocks(element)
            if self.notes and not self.num_tables:
                notes, self.notes = self.notes, []
                yield from notes

    def paragraph(self, element: Element) -> Iterator[str]:
        beside: list[Element] = []
        text = "".join(self.words(element, beside)).strip()
        level = 0 if self.num_tables else self.level(element)
        if text and (level or self.num_tables):
            yield " ".join(["#" * level, *text.split()] if level else text.split())
        elif text:
            yield escaped("\n".join(filter(str.strip, text.split("\n"))))
        yield from self.blocks(beside)

    def words(self, element: Element, beside: list[Element]) -> Iterator[str]:
        """The text of a paragraph in parts. beside: receives the elements with other paragraphs."""
        if self.is_mixed:
            yield WHITE_SPACE.sub(" ", element.text or "")
        elif _local(element) == "t":
            yield element.text or ""
        for child in element:
            name = _local(child)
            if name.removesuffix("Reference") in NOTES:
                note = self.text_by_note.pop((name.removesuffix("Reference"), _attribute(child, "id")), "")
                self.notes += [note] if note else []
            elif name in BESIDE:
                beside.append(child)
            elif name in SIGNS:
                yield SIGNS[name]
            elif name not in SKIPPED and not _is_hidden(child):
                yield from self.words(child, beside)
            if self.is_mixed:
                yield WHITE_SPACE.sub(" ", child.tail or "")

    def level(self, paragraph: Element) -> int:
        """The level of a heading; 0 of other paragraphs."""
        outline = _attribute(paragraph, "outline-level") if _local(paragraph) == "h" else ""
        level = min(int(outline), 6) if outline.isdecimal() else 0
        for one in _properties(paragraph, "pPr"):
            value = _attribute(one, "val")
            if _local(one) == "pStyle":
                level = self.level_by_style.get(value, 0)
            elif _local(one) == "outlineLvl" and value in tuple("012345"):
                level = int(value) + 1
        return level

    def shape(self, shape: Element) -> Iterator[str]:
        """The text of a shape of a slide; that of its title is a heading."""
        kind = next((one.get("type", "") for one in _named(shape, "ph")), "")
        blocks = [] if kind in NO_TEXT else [*self.blocks(shape)]
        yield from [f"# {' '.join(' '.join(blocks).split())}"] if blocks and kind in TITLES else blocks


def _nearest(element: Element, names: set[str]) -> Iterator[Element]:
    """The elements of these names in an element, but not those within them."""
    for child in element:
        yield from (child,) if _local(child) in names else () if _local(child) in SKIPPED else _nearest(child, names)


def _is_hidden(run: Element) -> bool:
    marks = (one for one in _properties(run, "rPr") if _local(one) == "vanish")
    return any(_attribute(one, "val") not in ("0", "false", "off") for one in marks)


def _properties(element: Element, name: str) -> Iterable[Element]:
    return next((one for one in element if _local(one) == name), ())


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _named(element: Element, name: str) -> Iterator[Element]:
    return (one for one in element.iter() if _local(one) == name)


def _attribute(element: Element, name: str) -> str:
    return next((value for key, value in element.items() if key.rpartition("}")[2] == name), "")


def email_to_markdown(content: bytes) -> tuple[str, dict[str, Value]]:
    """(The subject as a heading, and the plain text, or else the HTML, without attachments; the fields: subject, from,
    to, and the date in ISO format)."""
    message = message_from_bytes(content, _class=EmailMessage, policy=policy.default)
    fields = {name: value for name in FIELDS if (value := _field(message, name))}
    is_cut_off = message.get_content_maintype() == "multipart" and not message.is_multipart()
    body = message if is_cut_off else message.get_body(("plain", "html"))
    text = ""
    if body is not None and isinstance(payload := body.get_payload(decode=True), bytes):
        text = decode_html(payload, body.get_content_charset()).replace("\r\n", "\n")
        if str(body.get_param("format", "")).lower() == "flowed" and body.get_content_subtype() == "plain":
            text = unflowed(text, delete_space=str(body.get_param("delsp", "")).lower() == "yes")
        text = html_to_markdown(text)[0] if body.get_content_subtype() == "html" else escaped(text)
    subject = f"# {fields['subject']}" if "subject" in fields else ""
    return "\n\n".join(filter(None, (subject, text.strip()))), {**fields}


def unflowed(text: str, *, delete_space: bool) -> str:
    """Paragraphs of a text in format=flowed (RFC 3676): a line that ends in a space goes on in the next one of the same
    depth of quotation. delete_space: that space is not part of the text (delsp=yes)."""
    paragraphs: list[tuple[int, str]] = []
    is_open = False
    for line in text.split("\n"):
        content = line.lstrip(">")
        depth = len(line) - len(content)
        content = content.removeprefix(" ")  # which senders put before some lines
        is_signature = content == "-- "
        goes_on = is_open and not is_signature and paragraphs[-1][0] == depth
        is_open = content.endswith(" ") and not is_signature
        if is_open and delete_space:
            content = content[:-1]
        if goes_on:
            paragraphs[-1] = (depth, paragraphs[-1][1] + content)
        else:
            paragraphs.append((depth, content))
    return "\n".join(">" * depth + " " * (depth > 0) + content for depth, content in paragraphs)


def _field(message: EmailMessage, name: str) -> str:
    """A header in one line; as it is written if it is malformed."""
    try:
        value: Any = message.get(name, "")
        if name == "date" and getattr(value, "datetime", None):
            return str(value.datetime.isoformat())
    except MALFORMED:
        value = next((raw for key, raw in message.raw_items() if key.lower() == name), "")
    return " ".join(str(value).split())
