"""Blocks of office documents as Markdown: headings, paragraphs with their notes, and tables as tab-separated rows.

Deleted and moved text, comments, headers, footers and OpenDocument's tables of contents are left out.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from bothways.search.formats.office_xml import attribute, elements_named, local_name
from bothways.search.formats.plain_text import escaped

SKIPPED = {
    "Fallback",
    "del",
    "moveFrom",
    "pPr",
    "rPr",
    "oMath",
    "tracked-changes",
    "annotation",
    "table-of-content",
    "note-citation",
}
SIGNS = {
    "tab": "\t",
    "ptab": "\t",
    "br": "\n",
    "cr": "\n",
    "noBreakHyphen": "-",
    "s": " ",
    "line-break": "\n",
}
NOTES = ("footnote", "endnote")
BESIDE = {"p", "tbl", "note", "frame", "custom-shape"}  # within a paragraph, after which they are read
TABLES = {"table", "tbl"}
ROWS = {"table-row", "tr"}
CELLS = {"table-cell", "tc"}
NO_TEXT = {"dt", "ftr", "hdr", "sldNum", "sldImg"}  # placeholders of a slide
TITLES = {"title", "ctrTitle"}  # likewise
OUTLINE_LEVELS = ("0", "1", "2", "3", "4", "5")
WHITE_SPACE = re.compile("[ \t\r\n]+")


@dataclass
class BlockReader:
    """Reads blocks from elements.

    is_mixed: text stands in any element, as in OpenDocument, not only in `t`.
    level_by_style: the level of each style of headings.
    text_by_note: the text of a note by its kind (one of NOTES) and id.
    """

    is_mixed: bool = False
    level_by_style: dict[str, int] = field(default_factory=dict)
    text_by_note: dict[tuple[str, str], str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # of the paragraph or table that is read
    num_tables: int = 0  # around the paragraph that is read

    def blocks(self, elements: Iterable[Element]) -> Iterator[str]:
        """The headings, paragraphs and tables in elements, in order."""
        for element in elements:
            name = local_name(element)
            if name in ("h", "p"):
                yield from self._paragraph(element)
            elif name == "sp":
                yield from self._shape(element)
            elif name in TABLES:
                yield self._table(element)
            elif name not in SKIPPED:
                yield from self.blocks(element)

            # Notes follow the paragraph or the whole table that refers to them.
            if self.notes and not self.num_tables:
                notes = self.notes
                self.notes = []
                yield from notes

    def _paragraph(self, element: Element) -> Iterator[str]:
        beside: list[Element] = []
        text = "".join(self._words(element, beside)).strip()
        level = 0 if self.num_tables else self._level(element)

        if text and level:
            yield " ".join(["#" * level, *text.split()])
        elif text and self.num_tables:
            yield " ".join(text.split())
        elif text:
            yield escaped("\n".join(filter(str.strip, text.split("\n"))))
        yield from self.blocks(beside)

    def _words(self, element: Element, beside: list[Element]) -> Iterator[str]:
        """The text of a paragraph in parts. beside: receives the elements with other paragraphs."""
        if self.is_mixed:
            yield WHITE_SPACE.sub(" ", element.text or "")
        elif local_name(element) == "t":
            yield element.text or ""

        for child in element:
            name = local_name(child)
            kind = name.removesuffix("Reference")
            if kind in NOTES:
                note = self.text_by_note.pop((kind, attribute(child, "id")), "")
                if note:
                    self.notes.append(note)
            elif name in BESIDE:
                beside.append(child)
            elif name in SIGNS:
                yield SIGNS[name]
            elif name not in SKIPPED and not _is_hidden(child):
                yield from self._words(child, beside)

            if self.is_mixed:
                yield WHITE_SPACE.sub(" ", child.tail or "")

    def _level(self, paragraph: Element) -> int:
        """The level of a heading; 0 of other paragraphs."""
        outline = attribute(paragraph, "outline-level") if local_name(paragraph) == "h" else ""
        level = min(int(outline), 6) if outline.isdecimal() else 0

        for mark in _properties(paragraph, "pPr"):
            value = attribute(mark, "val")
            if local_name(mark) == "pStyle":
                level = self.level_by_style.get(value, 0)
            elif local_name(mark) == "outlineLvl" and value in OUTLINE_LEVELS:
                level = int(value) + 1
        return level

    def _shape(self, shape: Element) -> Iterator[str]:
        """The text of a shape of a slide; the text of its title is a heading."""
        placeholder = next(elements_named(shape, "ph"), None)
        kind = "" if placeholder is None else placeholder.get("type", "")
        if kind in NO_TEXT:
            return

        blocks = [*self.blocks(shape)]
        if blocks and kind in TITLES:
            yield f"# {' '.join(' '.join(blocks).split())}"
        else:
            yield from blocks

    def _table(self, table: Element) -> str:
        """The rows of a table, one a line; a table within a cell is one line."""
        self.num_tables += 1
        rows = []
        for row in _nearest(table, ROWS):
            cells = [" ".join(self.blocks(cell)) for cell in _nearest(row, CELLS)]
            rows.append("\t".join(cells))
        self.num_tables -= 1

        separator = " " if self.num_tables else "\n"
        return separator.join(filter(str.strip, rows))


def _nearest(element: Element, names: set[str]) -> Iterator[Element]:
    """The elements of these names in an element, but not those within them."""
    for child in element:
        name = local_name(child)
        if name in names:
            yield child
        elif name not in SKIPPED:
            yield from _nearest(child, names)


def _is_hidden(run: Element) -> bool:
    for mark in _properties(run, "rPr"):
        if local_name(mark) == "vanish" and attribute(mark, "val") not in ("0", "false", "off"):
            return True
    return False


def _properties(element: Element, name: str) -> Iterable[Element]:
    for child in element:
        if local_name(child) == name:
            return child
    return ()
