"""Files of text, packed or not: found by path, folder or glob, opened, and read line by line."""

import gzip
import io
import lzma
import os
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator
from functools import partial
from glob import glob
from pathlib import Path
from re import search, sub
from typing import Any, NamedTuple, NoReturn, cast

from bothways.data.spreadsheet import XLSX
from bothways.data.text_encodings import bom_encoding, encoding_hint, guess_utf16, has_ascii_newlines, line_decoder
from bothways.errors import InputError, MissingFile

FILE_TYPES = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
ARROW = ".arrow"  # read too where it is named, or part of a saved dataset
EXPLICIT_TYPES = (ARROW, XLSX)  # read where they are named, not looked for in folders
COMPRESSIONS = (".gz", ".xz", ".zst")  # may follow any kind: notes.jsonl.gz
DECOMPRESSION_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error)
BLOCK = 1 << 20  # bytes read at once
LONGEST_LINE = 1 << 27  # bytes of a line in a packed file, which may unpack to a thousand times its own size
LARGEST_DECOMPRESSED = 1 << 29  # bytes of a packed file that is read as a whole
HEAD_BYTES = 1 << 12  # bytes that tell an encoding
SURROGATE = "[\ud800-\udfff]"  # half of a character


class Line(NamedTuple):
    """A line without its end. Where it is not in its encoding, `wrong` says so, and U+FFFD stands in the text."""

    number: int  # from 1
    text: str
    wrong: InputError | None


# --- which files ------------------------------------------------------------------------------------------------------


def find_files(path: Path) -> list[Path]:
    """The file itself; or a folder's files, at any depth, or those a glob matches, of the kinds we read, in order.

    Hidden files and folders are left out, links to folders not followed. InputError where there is nothing to read.
    """
    among = _candidates(path)
    if among is None:
        open_file(path).close()
        check_file_type(path)
        return [path]
    found = sorted((file for file in among if file_type(file) in FILE_TYPES), key=Path.as_posix)
    if not found:
        raise InputError(f"{path}: holds no file to read; they end in {', '.join(FILE_TYPES)}, perhaps packed as .gz")
    return found


def unread_files(path: Path) -> Counter[str]:
    """How many files in a folder, or matched by a glob, are of kinds that we do not read, by ending."""
    found = [file for file in _candidates(path) or () if file_type(file) not in FILE_TYPES]
    return Counter(file_type(file) + (file.suffix if is_compressed(file) else "") or file.name for file in found)


def _candidates(path: Path) -> list[Path] | None:
    """The files that a folder or a glob stands for; None of a path that is one file."""
    if path.is_dir():
        return list(_walk(path))
    if path.exists() or not any(sign in str(path) for sign in "*?["):  # a file's name may have a bracket in it
        return None
    return [file for file in map(Path, glob(str(path), recursive=True)) if file.is_file()]


def _walk(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> NoReturn:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror}); mend its permissions or move it away")

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]  # where the walk goes on
        yield from (Path(root, name) for name in names if not name.startswith("."))


def check_file_type(path: Path) -> str:
    """The kind of a file that can be read; InputError for another."""
    kind = file_type(path)
    if kind in (*FILE_TYPES, *EXPLICIT_TYPES):
        return kind
    raise InputError(f"{path}: files of kind {kind or 'none'!r} are not read; {', '.join((*FILE_TYPES, XLSX))} are")


def file_type(path: Path) -> str:
    """'.jsonl' of notes.jsonl and of Notes.JSONL.gz."""
    return Path(path.stem if is_compressed(path) else path.name).suffix.lower()


def is_compressed(path: Path) -> bool:
    return path.suffix.lower() in COMPRESSIONS


# --- what is in them --------------------------------------------------------------------------------------------------


def open_file(path: Path) -> io.BufferedReader:
    """The file's bytes, unpacked where its name ends in .gz, .xz or .zst."""
    if not path.exists():
        raise MissingFile(f"{path}: no such file; check the path")
    if path.is_dir():
        raise InputError(f"{path}: a directory; name files ({', '.join(FILE_TYPES)})")
    if not is_compressed(path):
        return cast(io.BufferedReader, path.open("rb", BLOCK))
    # Smaller blocks: of a block in which the file breaks off, the lines before the break are lost too.
    return io.BufferedReader(_decompressed(path), BLOCK >> 4)


def _decompressed(path: Path) -> Any:
    if path.suffix.lower() == ".gz":
        return gzip.open(path)
    if path.suffix.lower() == ".xz":
        return lzma.open(path)
    import pyarrow

    return pyarrow.input_stream(path, compression="zstd")


def decompression_error(where: str, error: Exception) -> Exception:
    """What to raise for one of UNPACKING_ERRORS."""
    if getattr(error, "errno", None):  # the machine's failure, not the file's: disk full, input/output error
        return error
    return InputError(f"{where}: the file is broken or cut off here or soon after ({error}); get it anew")


def read_bytes(path: Path) -> bytes:
    """All bytes of a file, unpacked. InputError where it unpacks to more than LARGEST_UNPACKED."""
    with open_file(path) as file:
        try:
            content = file.read(LARGEST_DECOMPRESSED + 1) if is_compressed(path) else file.read()
        except DECOMPRESSION_ERRORS as error:
            raise decompression_error(str(path), error) from None
    if is_compressed(path) and len(content) > LARGEST_DECOMPRESSED:
        raise InputError(f"{path}: more than {LARGEST_DECOMPRESSED >> 20} MiB unpacked; unpack it, if that is meant")
    return content


def read_lines(path: Path, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """(number from 1, line without its end) of a file; InputError names the first byte that is not in its encoding."""
    for number, text, wrong in decoded_lines(path, encoding):
        if wrong:
            raise wrong
        yield number, text


def decoded_lines(path: Path, encoding: str | None = None) -> Iterator[Line]:
    """The lines of a file, each ended by a line feed; a byte-order mark at the file's start is left out.

    encoding: a name that Python knows; a byte-order mark overrides it. None: UTF-8. InputError for a packed file that
    is broken, or has a line of more than LONGEST_LINE bytes.
    """
    packed = is_compressed(path)
    with open_file(path) as file:
        try:
            start = file.peek(HEAD_BYTES)[:HEAD_BYTES]
        except DECOMPRESSION_ERRORS as error:
            raise decompression_error(f"{path}:1", error) from None
        encoding = bom_encoding(start) or encoding
        if encoding is None and (guess := guess_utf16(start)):
            raise InputError(f"{path}: looks like UTF-16 without a byte-order mark; if it is, give --encoding {guess}")
        if encoding is not None and not has_ascii_newlines(encoding):
            yield from _wide_lines(file, path, encoding, packed)
        else:
            yield from _byte_lines(file, path, encoding, packed)


def _byte_lines(file: io.BufferedReader, path: Path, encoding: str | None, packed: bool) -> Iterator[Line]:
    decode, number = line_decoder(encoding), 0
    try:
        offset = len(file.read(len(BOM_UTF8))) if file.peek(len(BOM_UTF8)).startswith(BOM_UTF8) else 0
        lines = iter(partial(file.readline, LONGEST_LINE + 1), b"") if packed else file
        for number, content in enumerate(lines, 1):
            if packed and len(content) > LONGEST_LINE:
                raise _too_long(path, number)
            try:
                text, wrong = decode(content), None
            except UnicodeDecodeError as error:
                text = content.decode(encoding or "utf-8", errors="replace")
                place = f"byte {offset + error.start} of the {'unpacked file' if packed else 'file'}"
                wrong = decoding_error(f"{path}:{number}", content, place, encoding)
            yield Line(number, text.rstrip("\r\n"), wrong)
            offset += len(content)
    except DECOMPRESSION_ERRORS as error:
        raise decompression_error(f"{path}:{number + 1}", error) from None


def _wide_lines(file: io.BufferedReader, path: Path, encoding: str, packed: bool) -> Iterator[Line]:
    """Of an encoding whose lines cannot be told apart before they are decoded."""
    reader, number = io.TextIOWrapper(file, encoding, errors="surrogatepass", newline="\n"), 0
    try:
        for number, text in enumerate(iter(partial(reader.readline, LONGEST_LINE if packed else -1), ""), 1):
            if packed and len(text) == LONGEST_LINE:
                raise _too_long(path, number)
            wrong = None
            if search(SURROGATE, text):
                wrong = decoding_error(f"{path}:{number}", b"", "half of a character", encoding)
                text = sub(SURROGATE, "\ufffd", text)
            yield Line(number, text.rstrip("\r\n"), wrong)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}:{number + 1}: not {encoding}, here or soon after ({error.reason}); name the right --encoding, or "
            "get the file anew"
        ) from None
    except DECOMPRESSION_ERRORS as error:
        raise decompression_error(f"{path}:{number + 1}", error) from None
    finally:
        reader.detach()  # whoever opened the file closes it


def decoding_error(where: str, line: bytes, place: str, encoding: str | None) -> InputError:
    """What is wrong with a line that is not in its encoding."""
    if encoding in (None, "utf-8"):
        return InputError(f"{where}: not UTF-8 at {place}; {encoding_hint(line)}")
    return InputError(f"{where}: not {encoding} at {place}; name the right --encoding, or convert it first")


def _too_long(path: Path, number: int) -> InputError:
    size = f"{LONGEST_LINE >> 20} MiB"
    return InputError(f"{path}:{number}: a line of more than {size}, unpacked; if that is meant, unpack the file first")
