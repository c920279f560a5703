"""Text encodings: byte-order marks, UTF-16 detection, decoding, hints for other text."""

import codecs
from collections.abc import Callable
from functools import cache

from bothways.base.errors import flag

BYTE_ORDER_MARKS = (  # UTF-32 first: its mark starts with the mark of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
WINDOWS_1252 = "cp1252"
SHOWN = 20  # characters of a line on each side of the start of its first non-ASCII one, in the hint


def bom_encoding(start: bytes) -> str | None:
    """The encoding of the byte-order mark at the start, if any."""
    return next((name for mark, name in BYTE_ORDER_MARKS if start.startswith(mark)), None)


def decode_marked(content: bytes, errors: str) -> str:
    """Bytes decoded by their byte-order mark, which is removed, else as UTF-8.

    content: all bytes of a text.
    errors: what to do with invalid UTF-8, as in `bytes.decode`. In other encodings U+FFFD replaces invalid bytes.
    """
    name = bom_encoding(content) or "utf-8"
    text = content.decode(name, errors if name == "utf-8" else "replace")
    return text.removeprefix("\ufeff")


def guess_utf16(start: bytes) -> str | None:
    """utf-16-le or utf-16-be if every second byte is mostly zero, as in European text without a byte-order mark.

    start: the first bytes of a file.
    """
    first_bytes = start[::2]
    second_bytes = start[1::2]
    # In European text the high byte of a character is zero: its second byte in little-endian order.
    for name, high, low in (
        ("utf-16-le", second_bytes, first_bytes),
        ("utf-16-be", first_bytes, second_bytes),
    ):
        if high.count(0) > len(high) / 2 and low.count(0) < len(low) / 10:
            return name
    return None


def byte_order(encoding: str, start: bytes) -> str:
    """The encoding with its byte order, where the encoding leaves it open and no byte-order mark tells it.

    encoding: the encoding that the user named. "utf-16" and "utf-32" leave the order open.
    start: the first bytes of the file. They show the order of UTF-16 in European text.

    UnicodeError if the order is unknown.
    """
    name = codecs.lookup(encoding).name
    is_known = name not in ("utf-16", "utf-32") or bom_encoding(start) == name
    if is_known or not start:
        return encoding

    if name == "utf-16" and (guess := guess_utf16(start)):
        return guess
    raise UnicodeError(f"no byte-order mark; give {flag('encoding', f'{name}-le')} or {name}-be, or the right one")


@cache
def has_ascii_newlines(encoding: str) -> bool:
    """Whether byte 10 always ends a line, which fails for UTF-16, UTF-32 and EBCDIC."""
    return "\n".encode(encoding) == b"\n"


def line_decoder(encoding: str | None) -> Callable[[bytes], str]:
    """A function that decodes a line or raises UnicodeDecodeError.

    encoding: the name of the encoding; None means UTF-8.

    With a single-byte encoding, lines that are valid UTF-8 are still read as UTF-8: text in such encodings hardly ever
    is, and files from several sources are often mixed.
    """
    if encoding is None:
        return bytes.decode

    # A single-byte encoding makes one character of each byte, also of an invalid one.
    is_single_byte = len(bytes(range(256)).decode(encoding, "replace")) == 256
    if not is_single_byte:
        return lambda line: line.decode(encoding)

    def decode(line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError:
            return line.decode(encoding)

    return decode


def encoding_hint(line: bytes) -> str:
    """Advice on a line that is not UTF-8: which --encoding to try, and how the line reads in it."""
    try:
        # The most frequent encoding of files that are not UTF-8; five bytes have no character in it.
        text = line.decode(WINDOWS_1252).strip()
    except UnicodeDecodeError:
        return (
            f"give its encoding with {flag('encoding')} (such as shift_jis, gb18030 or mac_roman), or convert it first"
        )

    first = next((index for index, character in enumerate(text) if not character.isascii()), 0)
    shown = text[max(0, first - SHOWN) : first + SHOWN]
    return (
        f"as Windows-1252 (Latin-1) it reads {shown!r}: if that is right, give {flag('encoding', WINDOWS_1252)}, else "
        "another, or convert it first"
    )
