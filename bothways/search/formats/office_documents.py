"""Word documents (.docx), OpenDocument texts (.odt) and slides (.pptx) as Markdown.

office_xml.py opens the archives, office_blocks.py reads headings, paragraphs and tables from their XML.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element
from zipfile import ZipFile

from bothways.search.formats.office_blocks import NOTES, BlockReader
from bothways.search.formats.office_xml import (
    attribute,
    elements_named,
    local_name,
    member_tree,
    open_archive,
    relations,
)
from bothways.text.rows.text_files import file_type

NAMES = {  # in errors
    ".docx": "Word document",
    ".odt": "text document",
    ".pptx": "presentation",
}
MAIN_MEMBERS = {  # with the text, or with the list of slides
    ".docx": "word/document.xml",
    ".odt": "content.xml",
    ".pptx": "ppt/presentation.xml",
}
HEADING_STYLE = re.compile(r"heading ([1-6])$", re.IGNORECASE)
DEEPEST_STYLE = 10  # styles that are based on each other; they may be so in a circle


def office_pages(path: Path) -> Iterator[tuple[int | None, str]]:
    """(number, text) of each slide of a .pptx, from 1, with the notes of the speaker; (None, text) of another document.

    InputError if it is not of its type, declares a DTD, or is too large once decompressed.
    """
    kind = file_type(path)
    main = MAIN_MEMBERS[kind]
    with open_archive(path, NAMES[kind], main) as archive:
        if kind == ".pptx":
            yield from _slides(path, archive, main)
            return

        reader = BlockReader(is_mixed=kind == ".odt")
        if kind == ".docx":
            reader.level_by_style = _heading_levels(member_tree(path, archive, "word/styles.xml"))
            reader.text_by_note = _notes(path, archive)
        body = elements_named(member_tree(path, archive, main), "body")
        yield None, "\n\n".join(reader.blocks(body))


def _slides(path: Path, archive: ZipFile, main: str) -> Iterator[tuple[int, str]]:
    member_by_id = {relation.id: relation.member for relation in relations(path, archive, main)}
    slides = elements_named(member_tree(path, archive, main), "sldId")

    for number, slide in enumerate(slides, 1):
        # Its `id` without a namespace is a number of its own; the one with a namespace names the member.
        relation_id = next((value for key, value in slide.items() if key.endswith("}id")), "")
        name = member_by_id.get(relation_id, "")

        members = [name]
        for relation in relations(path, archive, name):
            if relation.type.endswith("/notesSlide"):
                members.append(relation.member)

        trees = (member_tree(path, archive, member) for member in members)
        yield number, "\n\n".join(BlockReader().blocks(trees))


def _heading_levels(styles: Element) -> dict[str, int]:
    """The level of each style of headings, by name, outline level, or the style it is based on."""
    level_by_style: dict[str, int] = {}
    base_by_style: dict[str, str] = {}

    for style in elements_named(styles, "style"):
        key = attribute(style, "styleId")
        for mark in style.iter():
            name = local_name(mark)
            value = attribute(mark, "val")
            heading = HEADING_STYLE.match(value)
            if name == "name" and heading:
                level_by_style[key] = int(heading[1])
            elif name == "name" and value.lower() == "title":
                level_by_style[key] = 1
            elif name == "outlineLvl" and value.isdecimal() and int(value) < 6:
                level_by_style.setdefault(key, int(value) + 1)
            elif name == "basedOn":
                base_by_style[key] = value

    for _ in range(DEEPEST_STYLE):
        inherited = {key: level_by_style[base] for key, base in base_by_style.items() if base in level_by_style}
        level_by_style = inherited | level_by_style
    return level_by_style


def _notes(path: Path, archive: ZipFile) -> dict[tuple[str, str], str]:
    """The text of the footnotes and endnotes of a Word document, by kind and id."""
    text_by_note = {}
    for kind in NOTES:
        for note in elements_named(member_tree(path, archive, f"word/{kind}s.xml"), kind):
            text_by_note[kind, attribute(note, "id")] = "\n".join(BlockReader().blocks(note))
    return text_by_note
