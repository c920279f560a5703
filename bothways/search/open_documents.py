"""OpenDocument texts (.odt) and presentations (.pptx) as Markdown: headings, paragraphs, tables, notes.

Comments, deleted text, tables of contents, footers and numbers of slides are left out. Elements are compared by their
names without namespace, as each format has two sets of them or uses names that differ.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from xml.etree.ElementTree import Element, TreeBuilder
from zipfile import ZipFile

from bothways.search.word_documents import XmlTarget, document_archive, escaped_lines, parse_member

SKIPPED = {"tracked-changes", "annotation", "table-of-content", "note-citation", "Fallback"}
BESIDE = {"note", "frame", "custom-shape"}  # of a paragraph, which they follow
SIGNS = {"s": " ", "tab": "\t", "line-break": "\n", "br": "\n"}
UNREAD_PLACEHOLDERS = {"dt", "ftr", "hdr", "sldNum", "sldImg"}
TABLES, ROWS, CELLS = {"table", "tbl"}, {"table-row", "tr"}, {"table-cell", "tc"}
WHITE_SPACE = re.compile("[ \t\r\n]+")


def open_document_to_markdown(path: Path) -> str:
    """The text of an .odt. InputError as of `document_archive`."""
    with document_archive(path, "text document", "content.xml") as archive:
        return "\n\n".join(
            block for body in _named(_tree(path, archive, "content.xml"), "body") for block in _blocks(body)
        )


def slides(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text with its speaker's notes) of every slide of a .pptx. InputError as of `document_archive`."""
    main = "ppt/presentation.xml"
    with document_archive(path, "presentation", main) as archive:
        targets = {key: target for key, _, target in _relations(path, archive, main)}
        for number, slide in enumerate(_named(_tree(path, archive, main), "sldId"), 1):
            name = targets[next((value for key, value in slide.items() if key.endswith("}id")), "")]
            notes = [target for _, kind, target in _relations(path, archive, name) if kind.endswith("/notesSlide")]
            blocks = [block for one in (name, *notes) for block in _blocks(_tree(path, archive, one))]
            yield number, "\n\n".join(blocks)


class _Tree(TreeBuilder, XmlTarget):
    """Builds the elements of a member."""

    doctype = XmlTarget.doctype


def _tree(path: Path, archive: ZipFile, name: str) -> Element:
    return cast(Element, parse_member(path, archive, name, _Tree()))


def _relations(path: Path, archive: ZipFile, name: str) -> list[tuple[str, str, str]]:
    """(id, type, member) of the members that a member of a presentation refers to."""
    folder, base = posixpath.split(name)
    listed = f"{folder}/_rels/{base}.rels"
    found = _tree(path, archive, listed) if listed in archive.namelist() else ()
    return [
        (
            one.get("Id", ""),
            one.get("Type", ""),
            posixpath.normpath(posixpath.join(f"/{folder}", one.get("Target", "")))[1:],
        )
        for one in found
    ]


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _named(element: Element, name: str) -> Iterator[Element]:
    return (one for one in element.iter() if _local(one) == name)


def _blocks(element: Element) -> Iterator[str]:
    """The headings, paragraphs and tables in an element, in order."""
    for child in element:
        name = _local(child)
        if name in ("h", "p"):
            beside = list[Element]()
            text = _runs(child) if "/drawingml/" in child.tag else _inline(child, beside).strip()
            level = next((value for key, value in child.items() if key.endswith("outline-level")), "1")
            if text and name == "h":
                yield f"{'#' * min(int(level) if level.isdecimal() else 1, 6)} {' '.join(text.split())}"
            elif text:
                yield "\n".join(escaped_lines(text))
            for one in beside:
                yield from _blocks(one)
        elif name == "sp":
            yield from _shape(child)
        elif name in TABLES:
            rows = ("\t".join(" ".join(" ".join(_blocks(cell)).split()) for cell in row) for row in _rows(child))
            yield "\n".join(filter(str.strip, rows))
        elif name not in SKIPPED:
            yield from _blocks(child)


def _shape(shape: Element) -> Iterator[str]:
    """The text of a shape of a slide; that of its title is a heading."""
    kind = next((one.get("type", "body") for one in _named(shape, "ph")), "")
    blocks = [] if kind in UNREAD_PLACEHOLDERS else [*_blocks(shape)]
    if kind in ("title", "ctrTitle") and blocks:
        blocks = [f"# {' '.join(' '.join(blocks).split())}"]
    yield from blocks


def _rows(table: Element) -> Iterator[list[Element]]:
    """The cells of each row, also of rows in groups, but not of tables in cells."""
    for child in table:
        if _local(child) in ROWS:
            yield [cell for cell in child if _local(cell) in CELLS]
        elif _local(child) not in SKIPPED:
            yield from _rows(child)


def _runs(paragraph: Element) -> str:
    parts = ((one.text or "") if _local(one) == "t" else SIGNS.get(_local(one), "") for one in paragraph.iter())
    return "".join(parts).strip()


def _inline(element: Element, beside: list[Element]) -> str:
    """The text of a paragraph of OpenDocument, white space as one space each. beside: gets what follows it."""
    parts = [WHITE_SPACE.sub(" ", element.text or "")]
    for child in element:
        name = _local(child)
        if name in BESIDE:
            beside.append(child)
        elif name not in SKIPPED:
            parts.append(SIGNS.get(name) or _inline(child, beside))
        parts.append(WHITE_SPACE.sub(" ", child.tail or ""))
    return "".join(parts)
