"""Files of text, packed or not: found by path, folder or glob, opened, and read line by line."""

import gzip
import io
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, cast

from bothways.errors import InputError, MissingFile

KINDS = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
ARROW = ".arrow"  # read too where it is named, or part of a saved dataset
PACKINGS = (".gz", ".xz", ".zst")  # may follow any kind: notes.jsonl.gz
UNPACKING_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error)
BYTE_ORDER_MARK = "\ufeff"
BLOCK = 1 << 20  # bytes read at once


class Line(NamedTuple):
    """A line without its end. Where it is not UTF-8, `wrong` says so, and U+FFFD stands in the text."""

    number: int  # from 1
    text: str
    wrong: InputError | None


# --- which files ------------------------------------------------------------------------------------------------------


def find(path: Path) -> list[Path]:
    """The file itself; or a folder's files, at any depth, or those a glob matches, of the kinds we read, in order.

    Hidden files and folders are left out, links to folders not followed. InputError where there is nothing to read.
    """
    among = _among(path)
    if among is None:
        open_file(path).close()
        known_kind(path)
        return [path]
    found = sorted((file for file in among if kind_of(file) in KINDS), key=Path.as_posix)
    if not found:
        raise InputError(f"{path}: holds no file to read; they end in {', '.join(KINDS)}, perhaps packed as .gz")
    return found


def others(path: Path) -> Counter[str]:
    """How many files in a folder, or matched by a glob, are of kinds that we do not read, by ending."""
    found = [file for file in _among(path) or () if kind_of(file) not in KINDS]
    return Counter(kind_of(file) + (file.suffix if is_packed(file) else "") or file.name for file in found)


def _among(path: Path) -> list[Path] | None:
    """The files that a folder or a glob stands for; None of a path that is one file."""
    if path.is_dir():
        return list(_below(path))
    if path.exists() or not any(sign in str(path) for sign in "*?["):  # a file's name may have a bracket in it
        return None
    return [file for file in map(Path, glob(str(path), recursive=True)) if file.is_file()]


def _below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> NoReturn:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror}); mend its permissions or move it away")

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]  # where the walk goes on
        yield from (Path(root, name) for name in names if not name.startswith("."))


def known_kind(path: Path) -> str:
    """The kind of a file that can be read; InputError for another."""
    kind = kind_of(path)
    if kind in (*KINDS, ARROW):
        return kind
    raise InputError(f"{path}: files of kind {kind or 'none'!r} are not read; {', '.join(KINDS)} are")


def kind_of(path: Path) -> str:
    """'.jsonl' of notes.jsonl and of Notes.JSONL.gz."""
    return Path(path.stem if is_packed(path) else path.name).suffix.lower()


def is_packed(path: Path) -> bool:
    return path.suffix.lower() in PACKINGS


# --- what is in them --------------------------------------------------------------------------------------------------


def open_file(path: Path) -> BinaryIO:
    """The file's bytes, unpacked where its name ends in .gz, .xz or .zst."""
    if not path.exists():
        raise MissingFile(f"{path}: no such file; check the path")
    if path.is_dir():
        raise InputError(f"{path}: a directory; name files ({', '.join(KINDS)})")
    if not is_packed(path):
        return path.open("rb", BLOCK)
    # Smaller blocks: of a block in which the file breaks off, the lines before the break are lost too.
    return cast(BinaryIO, io.BufferedReader(_unpacked(path), BLOCK >> 4))


def _unpacked(path: Path) -> Any:
    if path.suffix.lower() == ".gz":
        return gzip.open(path)
    if path.suffix.lower() == ".xz":
        return lzma.open(path)
    import pyarrow

    return pyarrow.input_stream(path, compression="zstd")


def unpacking_failed(where: str, error: Exception) -> Exception:
    """What to raise for one of UNPACKING_ERRORS."""
    if getattr(error, "errno", None):  # the machine's failure, not the file's: disk full, input/output error
        return error
    return InputError(f"{where}: the file is broken or cut off here or soon after ({error}); get it anew")


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line without its end) of a UTF-8 file; InputError names the byte that is not UTF-8."""
    for number, text, wrong in checked_lines(path):
        if wrong:
            raise wrong
        yield number, text


def checked_lines(path: Path) -> Iterator[Line]:
    """The lines of a file, each ended by a line feed; a byte-order mark at the file's start is left out."""
    offset = number = 0
    with open_file(path) as file:
        try:
            for number, content in enumerate(file, 1):
                try:
                    text, wrong = content.decode(), None
                except UnicodeDecodeError as error:
                    text, wrong = content.decode(errors="replace"), _not_text(path, number, offset + error.start)
                yield Line(number, text.removeprefix(BYTE_ORDER_MARK if number == 1 else "").rstrip("\r\n"), wrong)
                offset += len(content)
        except UNPACKING_ERRORS as error:
            raise unpacking_failed(f"{path}:{number + 1}", error) from None


def _not_text(path: Path, number: int, byte: int) -> InputError:
    file = "unpacked file" if is_packed(path) else "file"
    return InputError(f"{path}:{number}: not UTF-8 at byte {byte} of the {file}; convert it first")
