"""A corpus: documents, one string each, streamed from files, folders, globs, Hugging Face datasets and tables in
memory."""

import hashlib
import json
import lzma
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from bothways.data.datasets import HUB_PREFIX, HubDataset, arrow_files
from bothways.data.files import (
    FILE_TYPES,
    decoded_lines,
    file_type,
    find_files,
    is_compressed,
    open_file,
    read_lines,
    unread_files,
)
from bothways.data.tables import OnError, RowErrorHandler, TableRow, iter_rows, join_texts, missing_column
from bothways.errors import InputError
from bothways.tables_in_memory import MemoryTable, TableSource

__all__ = [
    "FILE_TYPES",
    "Corpus",
    "documents",
    "iter_rows",
    "mark_held_out",
    "open_file",
    "read_lines",
    "sample",
    "skipped_summary",
]  # fmt: skip

Unit = Literal["blank", "line", "file"]
DocumentSource = TableSource | HubDataset
READER_VERSION = 2  # in every fingerprint; to be raised when the same files become other documents than before


@dataclass(frozen=True)
class Corpus:
    """Where documents come from and how they are read. A path is a file, folder, glob, `hf:NAME[:CONFIG][@SPLIT]` or a
    MemoryTable.

    unit: where a document of a .txt ends: at a blank line, at each line's end, at the file's end.
    column: the one of a table that holds the text, or several between commas; each row is a document.
    on_error: what cannot be read stops the reading, or is skipped and counted.
    encoding: of text files without a byte-order mark; None: UTF-8.
    """

    paths: tuple[TableSource | str, ...]
    unit: Unit = "blank"
    column: str = "text"
    on_error: OnError = "stop"
    encoding: str | None = None

    def __post_init__(self) -> None:
        if not self.paths:
            raise InputError("corpus is empty; name at least one file")
        for name, choices in (("unit", get_args(Unit)), ("on_error", get_args(OnError))):
            if getattr(self, name) not in choices:
                raise InputError(f"{name} ({getattr(self, name)}) must be one of {', '.join(choices)}")

    def files(self) -> list[Path]:
        """The files in the order they are read, each once. InputError where a path stands for none."""
        return [source for source in self.sources().values() if isinstance(source, Path)]

    def left_out(self) -> str:
        """'left out, since such files are not read: 2 .bz2' of folders and globs; nothing where all are read."""
        found = Counter[str]()
        for path in [Path(path) for path in self.paths if not isinstance(path, MemoryTable)]:
            found += Counter() if arrow_files(path) else unread_files(path)
        told = [f"{number:,} {ending}" for ending, number in found.most_common(5)]
        more = ", ..." if len(found) > len(told) else ""
        return f"left out, since such files are not read: {', '.join(told)}{more}" if told else ""

    def documents(self, skipped: Counter[str] | None = None) -> Iterator[str]:
        """The documents in order. What holds nothing but white space is none.

        skipped: receives how many rows were skipped, by file; in a .txt a row is a document.
        InputError, with file and line, for a row that cannot be read, unless it is skipped; for a file that cannot be
        read; for one without documents, unless told to skip; for a corpus without documents.
        """
        skipped = Counter() if skipped is None else skipped
        num_documents = 0
        for source in self.sources().values():
            num_before = num_documents
            for text in self._texts(source, partial(self._set_aside, skipped, str(source))):
                if text and not text.isspace():
                    num_documents += 1
                    yield text
            if num_documents == num_before and self.on_error == "stop":
                raise InputError(f"{source}: empty; a corpus file holds at least one document")
        if not num_documents:
            raise InputError(f"{', '.join(map(str, self.paths))}: no document left ({skipped_summary(skipped)})")

    def fingerprint(self) -> str:
        """Names the documents: a hash of the settings and of all files' kinds and bytes in order, not of their names.

        Of a dataset on the hub, its name and commit are hashed; of a table in memory, its rows.
        """
        parts = [
            (READER_VERSION, self.unit, self.column, self.on_error, self.encoding),
            *map(_contents, self.sources().values()),
        ]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def sources(self) -> dict[Hashable, DocumentSource]:
        """What is read, in order, by what makes it the same text: file, dataset, or rows in memory."""
        found: dict[Hashable, DocumentSource] = {}
        for path in self.paths:
            for source in _resolve(path):
                found.setdefault(_key(source), source)
        return found

    def _texts(self, source: DocumentSource, broken: RowErrorHandler) -> Iterator[str]:
        if isinstance(source, HubDataset):
            yield from _table_documents(source.rows(self.column), self.column, broken)
        elif isinstance(source, Path) and file_type(source) == ".txt":
            yield from _text_documents(source, self.unit, broken, self.encoding)
        else:
            found = iter_rows(source, column=self.column, broken=broken, encoding=self.encoding)
            yield from _table_documents(found, self.column, broken)

    def _set_aside(self, skipped: Counter[str], name: str, wrong: InputError) -> None:
        if self.on_error == "stop":
            raise InputError(f"{wrong}, or set such rows aside with --on-error skip") from None
        skipped[name] += 1


def documents(paths: Sequence[Path]) -> Iterator[str]:
    """The documents of a Corpus of these paths. A .txt has blank lines between them, the others one a row."""
    return Corpus(tuple(paths)).documents()


def skipped_summary(skipped: Counter[str]) -> str:
    """'skipped 3 rows: corpus.jsonl 2, more.txt 1'; of many files the five that had most."""
    if not skipped:
        return "skipped no rows"
    told = [f"{name} {number:,}" for name, number in skipped.most_common(5)]
    if len(skipped) > len(told):
        told.append(f"{len(skipped) - len(told)} other files")
    return f"skipped {skipped.total():,} row{'s' if skipped.total() > 1 else ''}: {', '.join(told)}"


def mark_held_out(documents: Iterable[str], every: int = 20) -> Iterator[tuple[str, bool]]:
    """(document, whether it is held out), streamed: every 20th is; of fewer, the last. InputError where there is one.

    every: at least 2; so many documents are held back before the first is given.
    """
    documents = iter(documents)
    first = list(islice(documents, every))
    if len(first) == 1:
        raise InputError("the corpus is one document, so none can be held out; separate documents or give --heldout")
    for number, text in enumerate(first, 1):
        yield text, number == len(first)
    for number, text in enumerate(documents, 1):
        yield text, number % every == 0


def sample() -> list[dict[str, Any]]:
    """The novels in the package: author, title, year, split ("train" or "test", by book) and text."""
    packed = files("bothways").joinpath("sample", "novels.jsonl.xz").read_bytes()
    return [json.loads(line) for line in lzma.decompress(packed).decode().splitlines()]


# --- sources and their texts ------------------------------------------------------------------------------------------


def _resolve(path: TableSource | str) -> Sequence[DocumentSource]:
    """What a path stands for."""
    if isinstance(path, MemoryTable):
        return [path]
    name = path.as_posix() if isinstance(path, Path) else path
    if name.startswith(HUB_PREFIX):
        return [HubDataset.parse(name)]
    return arrow_files(Path(path)) or find_files(Path(path))


def _key(source: DocumentSource) -> Hashable:
    if isinstance(source, MemoryTable):
        return source.fingerprint
    return source.resolve() if isinstance(source, Path) else source


def _contents(source: DocumentSource) -> tuple[str | None, ...]:
    if isinstance(source, MemoryTable):
        return "memory", source.fingerprint
    if isinstance(source, HubDataset):
        return HUB_PREFIX, source.name, source.config, source.split, source.revision
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return file_type(source), source.suffix.lower() if is_compressed(source) else "", digest


def _text_documents(path: Path, unit: Unit, broken: RowErrorHandler, encoding: str | None) -> Iterator[str]:
    for lines, wrong in _split_documents(path, unit, encoding):
        if wrong:
            broken(wrong)
        else:
            yield "\n".join(lines)


def _split_documents(path: Path, unit: Unit, encoding: str | None) -> Iterator[tuple[list[str], InputError | None]]:
    """(lines of a document, the first thing wrong in them) of a .txt; blank lines between documents are in none."""
    lines: list[str] = []
    wrong: InputError | None = None
    for line in decoded_lines(path, encoding):
        wrong = wrong or line.wrong
        is_blank = not line.text or line.text.isspace()
        if unit == "file" or not is_blank:
            lines.append(line.text)
        if unit == "line" or (unit == "blank" and is_blank):
            yield lines, wrong
            lines, wrong = [], None
    yield lines, wrong


def _table_documents(found: Iterable[tuple[str, TableRow]], column: str, broken: RowErrorHandler) -> Iterator[str]:
    several = [name.strip() for name in column.split(",")]
    for where, row in found:
        names = [column] if column in row else [name for name in several if name in row]
        texts = [row[name] for name in names if row[name] is not None]
        if not names:
            broken(missing_column(where, column, row))
        elif texts and all(isinstance(text, str) for text in texts):
            yield texts[0] if len(names) == 1 else join_texts(texts)
        else:
            kind = next((type(text).__name__ for text in texts if not isinstance(text, str)), "nothing")
            broken(InputError(f"{where}: {column!r} holds {kind}, not text; mend the row"))
