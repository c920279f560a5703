"""Readers of running text: documents, one string each, streamed from .txt, .jsonl, .csv, .tsv and .parquet files."""

import csv
import json
import lzma
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO

from bothways.errors import InputError, MissingFile

KINDS = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
BYTE_ORDER_MARK = "\ufeff"
csv.field_size_limit(sys.maxsize)


def documents(paths: Sequence[Path]) -> Iterator[str]:
    """The documents of these files in order. A .txt has blank lines between them, the others one a row (column `text`).

    InputError, with file and line or byte, for what is missing, empty or not UTF-8.
    """
    for path in paths:
        empty = True
        for text in _documents(path):
            empty = False
            yield text
        if empty:
            raise InputError(f"{path}: empty; a corpus file holds at least one document")


def _documents(path: Path) -> Iterator[str]:
    if path.suffix != ".txt":
        for where, row in rows(path):
            if not isinstance(row.get("text"), str):
                raise InputError(
                    f"{where}: no column 'text' (there are: {', '.join(map(str, row)) or 'none'}); rename yours"
                )
            yield row["text"]
        return
    lines: list[str] = []
    for _, line in text_lines(path):
        if line.strip():
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """('file:line', columns by name) of a table. CSV is quoted as spreadsheets do; in TSV a quote is a character."""
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
    elif path.suffix == ".jsonl":
        for number, line in text_lines(path):
            if line.strip():
                yield f"{path}:{number}", _json_row(path, number, line)
    elif path.suffix in (".csv", ".tsv"):
        yield from _separated_rows(path)
    else:
        raise InputError(f"{path}: files of kind {path.suffix or 'none'!r} are not read; {', '.join(KINDS)} are")


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line without its end) of a UTF-8 file; InputError names the byte that is not UTF-8."""
    with open_file(path) as file:
        offset = 0
        for number, line in enumerate(file, 1):
            try:
                yield number, line.decode().removeprefix(BYTE_ORDER_MARK if number == 1 else "").rstrip("\r\n")
            except UnicodeDecodeError as error:
                where = offset + error.start
                raise InputError(f"{path}:{number}: not UTF-8 at byte {where} of the file; convert it first") from None
            offset += len(line)


def open_file(path: Path) -> BinaryIO:
    if not path.exists():
        raise MissingFile(f"{path}: no such file; check the path")
    if path.is_dir():
        raise InputError(f"{path}: a directory; name files ({', '.join(KINDS)})")
    return path.open("rb")


def _json_row(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{number}: not valid JSON ({error.msg} at column {error.colno}); mend the line"
        ) from None
    if not isinstance(row, dict):
        raise InputError(
            f"{path}:{number}: expected a JSON object, found {type(row).__name__}; write one object a line"
        )
    return row


def _separated_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    lines = (line + "\n" for _, line in text_lines(path))
    tabs = path.suffix == ".tsv"
    reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else csv.reader(lines, strict=True)
    header: list[str] = []
    for row in _sound_rows(path, reader):
        if not header:
            header = row
            continue
        if len(row) != len(header):
            raise InputError(
                f"{path}:{reader.line_num}: {len(row)} columns where the header has {len(header)}; mend the "
                f"line or its quotes"
            )
        yield f"{path}:{reader.line_num}", dict(zip(header, row, strict=True))


def _sound_rows(path: Path, reader: Any) -> Iterator[list[str]]:
    """The rows that hold something. InputError where a quote is never closed or stands inside a word."""
    try:
        yield from filter(None, reader)
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not valid CSV ({error}); mend the line or its quotes") from None


def _parquet_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    open_file(path).close()
    try:
        file = pyarrow.parquet.ParquetFile(path)
        number = 0
        for batch in file.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", row
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"{path}: not a sound Parquet file ({str(error).splitlines()[0]}); write it again") from None


def sample() -> list[dict[str, Any]]:
    """The novels in the package: author, title, year, split ("train" or "test", by book) and text."""
    packed = files("bothways").joinpath("sample", "novels.jsonl.xz").read_bytes()
    return [json.loads(line) for line in lzma.decompress(packed).decode().splitlines()]
