"""Archives of office documents: their XML members, with limits against files made to fill the memory, and helpers to
find elements and attributes.

Elements are found by their names without namespace, since Office Open XML has two sets of namespaces.
"""

import posixpath
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser
from zipfile import BadZipFile, ZipFile

from bothways.base.errors import InputError
from bothways.search.formats.plain_text import check_size

MEBIBYTE = 1 << 20
LARGEST_MEMBER = 128 * MEBIBYTE  # of XML, decompressed
LARGEST_RATIO = 200  # of decompressed to compressed size, beyond a mebibyte
BLOCK = 1 << 16  # bytes per read


@dataclass(frozen=True)
class Relation:
    """A member that a member of a presentation refers to."""

    id: str
    type: str
    member: str


@contextmanager
def open_archive(path: Path, kind: str, main: str) -> Iterator[ZipFile]:
    """The archive that a document is. InputError, also for errors inside the block.

    path: of the document.
    kind: its name in errors.
    main: the member with the text.
    """
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


def member_tree(path: Path, archive: ZipFile, name: str) -> Element:
    """The XML of a member; an element without others if there is none."""
    if name not in archive.NameToInfo:
        return Element("none")

    member = archive.getinfo(name)
    most = min(LARGEST_MEMBER, MEBIBYTE + LARGEST_RATIO * member.compress_size)
    if member.file_size > most:
        raise InputError(
            f"{path}: {name} grows from {member.compress_size:,} to {member.file_size:,} bytes when decompressed, like "
            "a file made to fill the memory; save it again as .txt, if that is intended"
        )

    parser = XMLParser(target=_MemberTree(path))
    with archive.open(member) as file:  # yields at most `file_size` bytes, whatever the compressed data holds
        while block := file.read(BLOCK):
            parser.feed(block)
    root: Element = parser.close()
    return root


class _MemberTree(TreeBuilder):
    """Builds elements. A DTD is refused, as its entities may grow without bound."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def doctype(self, name: str, public_id: str | None, system_id: str | None) -> None:
        raise InputError(f"{self.path}: declares a document type, which such a document does not; save it again")


def relations(path: Path, archive: ZipFile, name: str) -> list[Relation]:
    """The members that a member of a presentation refers to."""
    folder, base = posixpath.split(name)
    related = []
    for element in member_tree(path, archive, f"{folder}/_rels/{base}.rels"):
        target = posixpath.normpath(posixpath.join(f"/{folder}", element.get("Target", "")))
        related.append(
            Relation(
                id=element.get("Id", ""),
                type=element.get("Type", ""),
                member=target[1:],
            )
        )
    return related


def local_name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def elements_named(element: Element, name: str) -> Iterator[Element]:
    """All elements of a name in an element, at any depth."""
    for inner in element.iter():
        if local_name(inner) == name:
            yield inner


def attribute(element: Element, name: str) -> str:
    """The attribute of a name, in whatever namespace; "" if there is none."""
    for key, value in element.items():
        if key.rpartition("}")[2] == name:
            return value
    return ""
