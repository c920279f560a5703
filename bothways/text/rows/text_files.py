"""Text files, compressed or not: finding them by path, folder or glob; reading lines; rows of a workbook."""

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
from typing import Any, BinaryIO, NamedTuple, NoReturn, cast
from zipfile import BadZipFile, ZipFile

from bothways.base.errors import (
    InputError,
    LineLocation,
    MissingFile,
    RowError,
    flag,
    format_count,
    not_permitted,
    require,
)
from bothways.base.paths import RemotePath
from bothways.text.rows import text_encodings
from bothways.text.rows.globs import GlobPattern

FILE_TYPES = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
XLSX = ".xlsx"
ARROW = ".arrow"  # read if named, or as part of a saved dataset
JSON = ".json"  # a table (text/rows/json_tables.py), annotated texts, or SQuAD's questions
EXPLICIT_TYPES = (ARROW, XLSX)  # read if named, but not searched for in folders
CONVERSIONS = {  # of types that are not read
    ".spacy": "the binary form of spaCy; write JSON lines with it: a line json.dumps(doc.to_json()) for each doc of "
    "DocBin().from_disk(FILE).get_docs(nlp.vocab)",
}
COMPRESSIONS = (".gz", ".xz", ".zst")  # may follow any file type: notes.jsonl.gz
DECOMPRESSION_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error)
BLOCK = 1 << 20  # bytes per read
LONGEST_LINE = 1 << 27  # bytes of a line in a compressed file, which may expand a thousandfold
LARGEST_DECOMPRESSED = 1 << 29  # bytes of a compressed file that is read as a whole
HEAD_BYTES = 1 << 12  # bytes for detecting the encoding
SURROGATE = "[\ud800-\udfff]"  # a lone surrogate
LARGEST_WORKBOOK = 1 << 30  # bytes of a workbook, decompressed


class Line(NamedTuple):
    """A line without its line end. Bytes that cannot be decoded become U+FFFD and set `error`."""

    number: int  # from 1
    text: str
    error: InputError | None


# --- which files ------------------------------------------------------------------------------------------------------


def find_files(path: Path) -> list[Path]:
    """The file itself, or the readable files in a folder (recursively) or matching a glob, sorted.

    Hidden files and folders are skipped, links to folders not followed. InputError if there is nothing to read.
    """
    candidates = _candidates(path)
    if candidates is None:
        open_file(path).close()
        check_file_type(path)
        return [path]
    files = sorted((file for file in candidates if file_type(file) in FILE_TYPES), key=Path.as_posix)
    if not files:
        raise InputError(f"{path}: no file to read; expected {', '.join(FILE_TYPES)}, perhaps compressed as .gz")
    return files


def unread_files(path: Path) -> Counter[str]:
    """Counts by extension of the files in a folder, or matching a glob, that are not of a supported type."""
    files = [file for file in _candidates(path) or () if file_type(file) not in FILE_TYPES]
    return Counter(file_type(file) + (file.suffix if is_compressed(file) else "") or file.name for file in files)


def note_on_unread(count_by_ending: Counter[str]) -> str:
    """A note on files that are not read; "" if there are none. count_by_ending: see `unread_files`."""
    listed = [f"{count:,} {ending}" for ending, count in count_by_ending.most_common(5)]
    more = ", ..." if len(count_by_ending) > len(listed) else ""
    return f"unsupported files left out: {', '.join(listed)}{more}" if listed else ""


def _candidates(path: Path) -> list[Path] | None:
    """All files of a folder or matching a glob; None if `path` is a single file."""
    if isinstance(path, RemotePath):
        return _cloud_files(path)
    if path.is_dir():
        return list(_walk(path))
    if path.exists() or not is_pattern(path):  # file names may contain brackets
        return None
    return [file for file in map(Path, glob(str(path), recursive=True)) if file.is_file()]


def is_pattern(path: Path) -> bool:
    """Whether a path has characters of a glob; a file may have them, too."""
    name = path.key if isinstance(path, RemotePath) else str(path)
    return any(character in name for character in "*?[")


def matching(path: RemotePath, fixed: int) -> list[RemotePath]:
    """The objects that match a glob, in which * ends at a slash and ** does not. fixed: parts before its first star."""
    pattern = GlobPattern.of_names(path.parts[2:])
    folder = type(path)(*path.parts[:fixed])
    return [file for file in folder.files() if pattern.matches(file.parts[2:], is_folder=False)]


def _cloud_files(path: RemotePath) -> list[Path] | None:
    if path.is_file():
        return None
    is_glob = is_pattern(path)
    named = len(path.parts) if not is_glob else next(n for n, part in enumerate(path.parts) if set(part) & set("*?["))
    files = matching(path, named) if is_glob else path.files()
    shown = [file for file in files if not any(part.startswith(".") for part in file.parts[named:])]
    return [*shown] if shown or is_glob else None


def _walk(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> NoReturn:
        raise not_permitted(error)

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]  # os.walk descends into these
        yield from (Path(root, name) for name in names if not name.startswith("."))


def check_file_type(path: Path) -> str:
    """The type of a file; InputError if it is not supported."""
    kind = file_type(path)
    if kind in (*FILE_TYPES, *EXPLICIT_TYPES, JSON):
        return kind
    if kind in CONVERSIONS:
        raise InputError(f"{path}: {CONVERSIONS[kind]}")
    raise InputError(
        f"{path}: file type {kind or 'none'!r} is not supported; expected {', '.join((*FILE_TYPES, XLSX, JSON))}"
    )


def file_type(path: Path) -> str:
    """The lower-case extension without compression: '.jsonl' for notes.jsonl and Notes.JSONL.gz."""
    return Path(path.stem if is_compressed(path) else path.name).suffix.lower()


def is_compressed(path: Path) -> bool:
    return path.suffix.lower() in COMPRESSIONS


# --- what is in them --------------------------------------------------------------------------------------------------


def open_file(path: Path) -> io.BufferedReader:
    """Open a file for reading bytes, decompressed if its name ends in .gz, .xz or .zst."""
    if not path.exists():
        raise _missing(path)
    if path.is_dir():
        raise InputError(f"{path}: a directory; name files ({', '.join(FILE_TYPES)})")
    if not is_compressed(path):
        return cast(io.BufferedReader, path.open("rb", BLOCK))
    if not path.stat().st_size:
        raise InputError(f"{path}: an empty file, without the head of compressed data; download or copy it again")
    # Smaller blocks: if the file is truncated, all lines of its last block are lost.
    return io.BufferedReader(_decompressed(path), BLOCK >> 4)


def _missing(path: Path) -> InputError:
    """The error for a name that is not the name of a file; it may be a pattern."""
    found = _candidates(path)
    if found is None:
        return MissingFile(f"{path}: no such file; check the path")
    if not found:
        return MissingFile(f"{path}: no such file, and no file that matches it as a pattern; check the path")
    return InputError(
        f"{path}: a pattern ({format_count(len(found), 'file')}) where one file is read; name one, or join them first"
    )


def _decompressed(path: Path) -> Any:
    content: Any = path.open("rb") if isinstance(path, RemotePath) else path
    if path.suffix.lower() == ".gz":
        return gzip.open(content)
    if path.suffix.lower() == ".xz":
        return XzFile(content if isinstance(path, RemotePath) else path.open("rb"))
    require(path, "pyarrow")
    import pyarrow

    return pyarrow.input_stream(content, compression="zstd")


class XzFile(io.RawIOBase):
    """The bytes of an .xz file: of all its streams, with the padding between them that the format allows. Anything else
    after a stream is an error, as for `xz -t`; Python's `lzma.open` ends there without a word.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.stream = lzma.LZMADecompressor()
        self.rest = b""
        self.is_ended = False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        while size and not self.is_ended:
            if self.stream.eof and not self._begin_stream():
                return 0
            if self.stream.needs_input and not self.rest:
                self.rest = self.file.read(BLOCK >> 4)
                if not self.rest:
                    raise EOFError("it ends within a stream")
            data = self.stream.decompress(self.rest, size)
            self.rest = b""
            if data:
                buffer[: len(data)] = data
                return len(data)
        return 0

    def _begin_stream(self) -> bool:
        """Whether another stream follows, after any padding: zeros, in a multiple of four."""
        padding = 0
        content = self.stream.unused_data
        while True:
            padding += len(content) - len(content.lstrip(b"\0"))
            content = content.lstrip(b"\0")
            if content or not (more := self.file.read(BLOCK >> 4)):
                break
            content = more

        if padding % 4:
            raise lzma.LZMAError("padding that is not a multiple of four bytes")

        if not content:
            self.is_ended = True
            return False

        self.stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        self.rest = content
        return True


def decompression_error(where: str, error: Exception) -> Exception:
    """The exception to raise for one of DECOMPRESSION_ERRORS."""
    if getattr(error, "errno", None):  # a system error, not a bad file: disk full, input/output error
        return error
    return RowError(where, f"the file is corrupt or truncated here or soon after ({error}); download or copy it again")


def read_bytes(path: Path) -> bytes:
    """All bytes of a file, decompressed. InputError for more than LARGEST_DECOMPRESSED bytes."""
    with open_file(path) as file:
        try:
            content = file.read(LARGEST_DECOMPRESSED + 1) if is_compressed(path) else file.read()
        except DECOMPRESSION_ERRORS as error:
            raise decompression_error(str(path), error) from None
    if is_compressed(path) and len(content) > LARGEST_DECOMPRESSED:
        raise InputError(
            f"{path}: more than {LARGEST_DECOMPRESSED >> 20} MiB decompressed; decompress it first, if that is intended"
        )
    return content


def read_lines(path: Path, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """(line number from 1, line) for each line. InputError names the first byte that cannot be decoded."""
    for number, text, error in decoded_lines(path, encoding):
        if error:
            raise error
        yield number, text


def decoded_lines(path: Path, encoding: str | None = None) -> Iterator[Line]:
    """The lines of a file, split at line feeds, without a byte-order mark. A file that has carriage returns and no line
    feed (old Mac line ends) is split at those, except in UTF-16 and UTF-32.

    encoding: a Python codec name, overridden by a byte-order mark; None means UTF-8. InputError for a compressed file
    that is corrupt or has a line of more than LONGEST_LINE bytes.
    """
    compressed = is_compressed(path)
    with open_file(path) as file:
        try:
            start = file.peek(HEAD_BYTES)[:HEAD_BYTES]
        except DECOMPRESSION_ERRORS as error:
            raise decompression_error(f"{path}:1", error) from None
        try:
            encoding = text_encodings.bom_encoding(start) or (encoding and text_encodings.byte_order(encoding, start))
        except UnicodeError as error:
            raise InputError(f"{path}: not readable as {encoding} ({error})") from None
        if encoding is None and (guess := text_encodings.guess_utf16(start)):
            raise InputError(
                f"{path}: looks like UTF-16 without a byte-order mark; if it is, give {flag('encoding', guess)}"
            )
        if encoding is not None and not text_encodings.has_ascii_newlines(encoding):
            yield from _wide_lines(file, path, encoding, compressed)
        else:
            ends_in_cr = b"\r" in start and b"\n" not in start and not _has_line_feed(path)
            yield from _byte_lines(file, path, encoding, compressed, ends_in_cr)


def _has_line_feed(path: Path) -> bool:
    with open_file(path) as file:
        try:
            return any(b"\n" in block for block in iter(partial(file.read, BLOCK), b""))
        except DECOMPRESSION_ERRORS as error:
            raise decompression_error(str(path), error) from None


def _byte_lines(
    file: io.BufferedReader, path: Path, encoding: str | None, compressed: bool, ends_in_cr: bool
) -> Iterator[Line]:
    decode = text_encodings.line_decoder(encoding)
    number = 0
    try:
        offset = len(file.read(len(BOM_UTF8))) if file.peek(len(BOM_UTF8)).startswith(BOM_UTF8) else 0
        lines = iter(partial(file.readline, LONGEST_LINE + 1), b"") if compressed else file
        lines = _split_at_cr(file) if ends_in_cr else lines
        for number, content in enumerate(lines, 1):
            if compressed and len(content) > LONGEST_LINE:
                raise _too_long(path, number)
            try:
                text = decode(content)
                error_in_line = None
            except UnicodeDecodeError as error:
                text = content.decode(encoding or "utf-8", errors="replace")
                position = f"byte {offset + error.start} of the {'decompressed file' if compressed else 'file'}"
                error_in_line = decoding_error(LineLocation(path, number), content, position, encoding)
            yield Line(number, text.rstrip("\r\n"), error_in_line)
            offset += len(content)
    except DECOMPRESSION_ERRORS as error:
        raise decompression_error(LineLocation(path, number + 1), error) from None


def _split_at_cr(file: io.BufferedReader) -> Iterator[bytes]:
    """Lines that end in a carriage return. A longer line than LONGEST_LINE is cut."""
    rest = b""
    while block := file.read(BLOCK):
        *lines, rest = (rest + block).split(b"\r")
        yield from (line + b"\r" for line in lines)
        if len(rest) > LONGEST_LINE:
            yield rest
            rest = b""
    if rest:
        yield rest


def _wide_lines(file: io.BufferedReader, path: Path, encoding: str, compressed: bool) -> Iterator[Line]:
    """Lines in an encoding that must be decoded before it can be split into lines."""
    reader = io.TextIOWrapper(file, encoding, errors="surrogatepass", newline="\n")
    number = 0
    try:
        for number, text in enumerate(iter(partial(reader.readline, LONGEST_LINE if compressed else -1), ""), 1):
            if compressed and len(text) == LONGEST_LINE:
                raise _too_long(path, number)
            error_in_line = None
            if search(SURROGATE, text):
                error_in_line = decoding_error(LineLocation(path, number), b"", "a lone surrogate", encoding)
                text = sub(SURROGATE, "\ufffd", text)
            yield Line(number, text.rstrip("\r\n"), error_in_line)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}:{number + 1}: not {encoding}, here or soon after ({error.reason}); give the right "
            f"{flag('encoding')}, or download or copy the file again"
        ) from None
    except DECOMPRESSION_ERRORS as error:
        raise decompression_error(LineLocation(path, number + 1), error) from None
    finally:
        reader.detach()  # the caller closes the file


def decoding_error(where: str, line: bytes, position: str, encoding: str | None) -> InputError:
    """The error for a line that cannot be decoded."""
    if encoding in (None, "utf-8"):
        return RowError(where, f"not UTF-8 at {position}; {text_encodings.encoding_hint(line)}")
    return RowError(where, f"not {encoding} at {position}; give the right {flag('encoding')}, or convert it first")


def _too_long(path: Path, number: int) -> InputError:
    size = f"{LONGEST_LINE >> 20} MiB"
    return InputError(
        f"{path}:{number}: a line of more than {size}, decompressed; if that is intended, decompress the file first"
    )


def sheet_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    """(row number, cells) for every non-empty row of the only visible sheet with rows.

    Empty cells are ""; whole numbers are int. InputError if several sheets have rows, if the file is not a workbook, or
    without python-calamine.
    """
    try:
        from python_calamine import CalamineError, CalamineWorkbook, SheetVisibleEnum
    except ImportError:
        raise InputError(
            f"{path}: .xlsx needs the package python-calamine; pip install 'bothways[xlsx]', or save it as .csv"
        ) from None
    _check_size(path)
    try:
        with CalamineWorkbook.from_path(path) as workbook:
            names = [
                metadata.name for metadata in workbook.sheets_metadata if metadata.visible == SheetVisibleEnum.Visible
            ]
            sheets = [sheet for sheet in map(workbook.get_sheet_by_name, names) if sheet.total_height]
            if len(sheets) > 1:
                listed = ", ".join(repr(sheet.name) for sheet in sheets)
                raise InputError(
                    f"{path}: several sheets have rows ({listed}); save the one to read as a separate file"
                )
            for row_number, cells in enumerate(sheets[0].iter_rows() if sheets else (), 1):
                if any(cell != "" for cell in cells):
                    yield row_number, [_shown(cell) for cell in cells]
    except CalamineError as error:
        raise InputError(f"{path}: not a readable workbook ({error}); save it again, without a password") from None


def _check_size(path: Path) -> None:
    try:
        with ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (BadZipFile, OSError) as error:
        raise InputError(f"{path}: not a readable workbook ({error}); save it again as .xlsx") from None
    if size > LARGEST_WORKBOOK:
        raise InputError(
            f"{path}: {size >> 20:,} MiB decompressed, of {LARGEST_WORKBOOK >> 20:,} at most; save it as .csv"
        )


def _shown(cell: Any) -> Any:
    """A cell with whole numbers as int; Excel stores every number as a float."""
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
