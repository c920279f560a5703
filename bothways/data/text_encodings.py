"""Bytes to text: which encoding a file's first bytes name, and what a line that is not UTF-8 may be instead."""

import codecs
from collections.abc import Callable
from functools import cache

BYTE_ORDER_MARKS = (  # byte-order marks; that of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
WINDOWS_1252 = "cp1252"
SHOWN = 20  # characters on each side of the first that is not ASCII


def bom_encoding(start: bytes) -> str | None:
    """The encoding that a byte-order mark at the start names; None without one."""
    return next((name for mark, name in BYTE_ORDER_MARKS if start.startswith(mark)), None)


def guess_utf16(start: bytes) -> str | None:
    """utf-16-le or utf-16-be where every second byte is mostly zero, as in European text without a byte-order mark."""
    for name, zeros, others in (("utf-16-le", start[1::2], start[::2]), ("utf-16-be", start[::2], start[1::2])):
        if zeros.count(0) > len(zeros) / 2 and others.count(0) < len(others) / 10:
            return name
    return None


@cache
def has_ascii_newlines(encoding: str) -> bool:
    """Whether a line ends at byte 10 and nowhere else: so not in UTF-16, UTF-32 and EBCDIC."""
    return "\n".encode(encoding) == b"\n"


def line_decoder(encoding: str | None) -> Callable[[bytes], str]:
    """What decodes a line, and raises UnicodeDecodeError. None: UTF-8.

    In an encoding of one byte a character, a line that is valid UTF-8 is read as such: text of that encoding hardly
    ever is, and files from several sources are often given together.
    """
    if encoding is None:
        return bytes.decode
    if len(bytes(range(256)).decode(encoding, "replace")) != 256:
        return lambda line: line.decode(encoding)

    def decode(line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError:
            return line.decode(encoding)

    return decode


def encoding_hint(line: bytes) -> str:
    """What to do about a line that is not UTF-8: which --encoding to try, and how it then reads."""
    try:
        text = line.decode(WINDOWS_1252).strip()
    except UnicodeDecodeError:
        return "name its encoding with --encoding (such as shift_jis, gb18030 or mac_roman), or convert it first"
    first = next((place for place, sign in enumerate(text) if not sign.isascii()), 0)
    shown = text[max(0, first - SHOWN) : first + SHOWN]
    return (
        f"as Windows-1252 (Latin-1) it reads {shown!r}: if that is right, give --encoding {WINDOWS_1252}, else "
        "another, or convert it first"
    )
