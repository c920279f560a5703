"""Pages of a PDF as text, read by pypdfium2 (extra `pdf`)."""

import re
from collections.abc import Iterator
from pathlib import Path

from bothways.errors import InputError
from bothways.search.plain_text import check_size

HYPHEN_AT_LINE_END = re.compile("[\ufffe\x02](?:\r?\n)?")  # as marked by PDFium: the word goes on


def pdf_pages(path: Path) -> Iterator[tuple[int, str]]:
    """(page number from 1, text) of every page with text. InputError without pypdfium2, or if it is not a PDF."""
    try:
        import pypdfium2
    except ImportError:
        raise InputError(f"{path}: .pdf needs the package pypdfium2; pip install 'bothways[pdf]'") from None
    check_size(path)
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        reason = str(error).splitlines()[0]
        if "password" in reason.lower():
            raise InputError(f"{path}: needs a password; save it again without one") from None
        raise InputError(f"{path}: not a readable PDF ({reason}); save it again") from None
    try:
        for number in range(1, len(document) + 1):
            if text := _page_text(path, document, number):
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
