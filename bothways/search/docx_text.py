"""Word documents (.docx) to text: paragraphs, headings as lines that begin with #, tables as tab-separated rows."""

import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, XMLParser

from bothways.errors import InputError

DOCUMENT = "word/document.xml"
NAMESPACE = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
BLOCK = 1 << 16  # bytes per read
HEADING_STYLE = re.compile(r"(?:heading|berschrift|titre|ttulo|titolo|kop)\s*(\d)", re.IGNORECASE)


def docx_to_text(path: Path, most: int) -> str:
    """The text of a document. InputError if it is damaged, or has more than `most` bytes of XML, as a zip bomb has."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "\n\n".join(_blocks(_body(archive, path, most))) + "\n"
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path}: a damaged .docx ({error}); save it anew") from None
    except ParseError as error:
        raise InputError(f"{path}: a damaged .docx (XML: {error}); save it anew") from None


def _body(archive: zipfile.ZipFile, path: Path, most: int) -> Element:
    """The root of the document's XML, read within the limit whatever size the archive claims."""
    parser, size = XMLParser(), 0
    with archive.open(DOCUMENT) as file:
        while block := file.read(BLOCK):
            size += len(block)
            if size > most:
                raise InputError(f"{path}: more than {most >> 20} MiB decompressed; save it in parts")
            if b"<!DOCTYPE" in block or b"<!ENTITY" in block:
                raise InputError(f"{path}: a .docx with a document type, which Word never writes; save it anew")
            parser.feed(block)
    return parser.close()


def _blocks(root: Element) -> Iterator[str]:
    """The paragraphs and tables of the body, in order."""
    body = root.find(f"{NAMESPACE}body")
    for element in body if body is not None else ():
        if element.tag == f"{NAMESPACE}tbl":
            rows = (
                "\t".join(_cell(cell) for cell in row.iter(f"{NAMESPACE}tc")) for row in element.iter(f"{NAMESPACE}tr")
            )
            yield "\n".join(rows)
        else:
            for paragraph in element.iter(f"{NAMESPACE}p"):
                if text := _text(paragraph).strip():
                    yield _mark(paragraph) + text


def _cell(cell: Element) -> str:
    return " ".join(filter(None, (_text(paragraph).strip() for paragraph in cell.iter(f"{NAMESPACE}p"))))


def _text(paragraph: Element) -> str:
    parts = []
    for element in paragraph.iter():
        if element.tag == f"{NAMESPACE}t":
            parts.append(element.text or "")
        elif element.tag == f"{NAMESPACE}tab":
            parts.append("\t")
        elif element.tag in (f"{NAMESPACE}br", f"{NAMESPACE}cr"):
            parts.append("\n")
    return "".join(parts)


def _mark(paragraph: Element) -> str:
    """The # signs of a heading, "" for another paragraph."""
    style = paragraph.find(f"{NAMESPACE}pPr/{NAMESPACE}pStyle")
    name = "" if style is None else style.get(f"{NAMESPACE}val", "")
    if name.lower() in ("title", "titel", "titre"):
        return "# "
    match = HEADING_STYLE.search(name)
    return "#" * min(6, int(match[1]) or 1) + " " if match else ""
