"""Corpus: documents streamed from files, folders, globs, Hugging Face datasets and tables."""

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

from bothways.base.errors import InputError, RowError, flag
from bothways.base.paths import RemotePath, as_path
from bothways.settings.tables_in_memory import LocatedRow, MemoryTable, TableSource
from bothways.text.data.labels import is_json
from bothways.text.rows import text_files
from bothways.text.rows.column_names import join_texts, missing_column
from bothways.text.rows.datasets import HUB_PREFIX, HubDataset, arrow_files
from bothways.text.rows.row_errors import OnError, RowErrorHandler
from bothways.text.rows.rows import StoredSource, open_rows

Unit = Literal["blank", "line", "file"]
Part = Literal["all", "training", "heldout"]
READER_VERSION = 2  # part of every fingerprint; increment when the same files yield different documents
TAIL = 0.05  # fraction of a document that can be held out
SHORT = 2000  # characters; a shorter document stays whole
JSON_LINES = 3  # lines at the start of a .txt that are read to recognize JSON lines


@dataclass(frozen=True)
class Corpus:
    """The sources of the documents and how to read them.

    paths: files, folders, globs, `hf:NAME[:CONFIG][@SPLIT]` or MemoryTables.
    unit: what ends a document in a .txt: a blank line, the end of the line, or the end of the file.
    column: the text column of a table, or several, comma-separated; each row is a document.
    on_error: stop at rows that cannot be read, or skip and count them.
    encoding: of text files without a byte-order mark; None means UTF-8.
    part: the whole corpus, or one of two parts. "heldout" are the files of `held_out`, or without any, the last 5 % of
    each document of at least 2,000 characters; "training" is the rest.
    held_out: files that are held out.
    """

    paths: tuple[TableSource | str, ...]
    unit: Unit = "blank"
    column: str = "text"
    on_error: OnError = "stop"
    encoding: str | None = None
    part: Part = "all"
    held_out: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not self.paths:
            raise InputError("corpus is empty; name at least one file")

        for name, choices in (("unit", get_args(Unit)), ("on_error", get_args(OnError))):
            if getattr(self, name) not in choices:
                raise InputError(f"{name} ({getattr(self, name)}) must be one of {', '.join(choices)}")

    def files(self) -> list[Path]:
        """The files in reading order, without duplicates. InputError if a path matches none."""
        return [source for source in self.sources().values() if isinstance(source, Path)]

    def left_out(self) -> str:
        """A note on files in folders and globs that are not read because of their type; "" if there are none."""
        count_by_ending = Counter[str]()
        for source in self.paths:
            if isinstance(source, MemoryTable):
                continue
            path = as_path(source)
            if not arrow_files(path):
                count_by_ending += text_files.unread_files(path)
        return text_files.note_on_unread(count_by_ending)

    def documents(self, skipped: Counter[str] | None = None) -> Iterator[str]:
        """The documents in order, without those that are only white space.

        skipped: incremented by the number of skipped rows per file; in a .txt a row is a document.
        InputError for a file that cannot be read and for an empty corpus; with on_error="stop" also for a row that
        cannot be read (with file and line) and for an empty file.
        """
        if skipped is None:
            skipped = Counter()

        num_documents = 0
        for source in self.sources().values():
            num_before = num_documents
            on_row_error = partial(self._set_aside, skipped, str(source))
            for text in self._texts(source, on_row_error):
                if text and not text.isspace():
                    num_documents += 1
                    part = self._part_of(text)
                    if part:
                        yield part

            if num_documents == num_before and self.on_error == "stop":
                raise InputError(f"{source}: empty; a corpus file holds at least one document")

        if not num_documents:
            raise InputError(f"{', '.join(map(str, self.paths))}: no document left ({skipped_summary(skipped)})")

    def fingerprint(self) -> str:
        """A hash of the settings and of all sources in order.

        Files count by type and content, not by name; hub datasets by name and commit; tables in memory by their rows.
        """
        parts: list[Any] = [(READER_VERSION, self.unit, self.column, self.on_error, self.encoding)]
        if self.part != "all" and not self.held_out:
            parts.append(self.part)
        parts += map(_contents, self.sources().values())
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def sources(self) -> dict[Hashable, StoredSource]:
        """The sources in order, keyed by identity (file, dataset, or rows in memory) so that each is read once."""
        source_by_key: dict[Hashable, StoredSource] = {}
        for path in self.paths:
            for source in _resolve(path):
                source_by_key.setdefault(_key(source), source)
        if not self.held_out:
            return source_by_key

        held_out = {*map(_key, self.held_out)}
        is_wanted = self.part == "heldout"
        return {key: source for key, source in source_by_key.items() if (key in held_out) == is_wanted}

    def _part_of(self, text: str) -> str:
        """The part of a document that belongs to this part of the corpus; perhaps none."""
        if self.part == "all" or self.held_out:
            return text
        text = text.rstrip()
        if len(text) < SHORT:
            return text if self.part == "training" else ""

        # Cut at the next end of a line, or else of a word, unless both are far.
        end = len(text) - int(TAIL * len(text))
        ends = (text.find(sign, end, end + SHORT // 20) for sign in "\n ")
        cut = next((position for position in ends if position >= 0), end)
        return text[:cut] if self.part == "training" else text[cut:].lstrip()

    def _texts(self, source: StoredSource, on_row_error: RowErrorHandler) -> Iterator[str]:
        if isinstance(source, Path) and text_files.file_type(source) == ".txt":
            yield from _text_documents(source, self.unit, on_row_error, self.encoding)
        else:
            rows = open_rows(source, self.encoding, self.column)
            yield from _table_documents(rows.read(on_row_error), self.column, on_row_error)

    def _set_aside(self, skipped: Counter[str], name: str, error: InputError) -> None:
        if self.on_error == "stop":
            raise InputError(f"{error}, or skip such rows with {flag('on_error', 'skip')}") from None
        skipped[name] += 1


def documents(paths: Sequence[Path]) -> Iterator[str]:
    """Stream the documents of these files, with the default settings of `Corpus`."""
    return Corpus(tuple(paths)).documents()


def skipped_summary(skipped: Counter[str]) -> str:
    """A note on the five files with the most skipped rows: "skipped 3 rows: corpus.jsonl 2, more.txt 1"."""
    if not skipped:
        return "skipped no rows"
    listed = [f"{name} {count:,}" for name, count in skipped.most_common(5)]
    if len(skipped) > len(listed):
        listed.append(f"{len(skipped) - len(listed)} other files")

    plural = "s" if skipped.total() > 1 else ""
    return f"skipped {skipped.total():,} row{plural}: {', '.join(listed)}"


def mark_held_out(documents: Iterable[str], every: int = 20) -> Iterator[tuple[str, bool]]:
    """Stream (document, is_held_out): every 20th document is held out, or the last one if there are fewer.

    every: at least 2; the first `every` documents are buffered. InputError for a single document.
    """
    remaining = iter(documents)
    first = list(islice(remaining, every))
    if len(first) == 1:
        raise InputError(
            f"the corpus is one document, so none can be held out; separate documents or give {flag('heldout')}"
        )

    for index, text in enumerate(first, 1):
        yield text, index == len(first)
    for index, text in enumerate(remaining, 1):
        yield text, index % every == 0


def sample() -> list[dict[str, Any]]:
    """The novels in the package: author, title, year, split ("train" or "test", by book) and text."""
    compressed = files("bothways").joinpath("sample", "novels.jsonl.xz").read_bytes()
    lines = lzma.decompress(compressed).decode().splitlines()
    return [json.loads(line) for line in lines]


# --- sources and their texts ------------------------------------------------------------------------------------------


def _resolve(path: TableSource | str) -> Sequence[StoredSource]:
    if isinstance(path, MemoryTable):
        return [path]
    name = path.as_posix() if isinstance(path, Path) else path
    if name.startswith(HUB_PREFIX):
        return [HubDataset.parse(name)]
    return arrow_files(as_path(path)) or text_files.find_files(as_path(path))


def _key(source: StoredSource) -> Hashable:
    if isinstance(source, MemoryTable):
        return source.fingerprint
    return source.resolve() if isinstance(source, Path) else source


def _contents(source: StoredSource) -> tuple[str | None, ...]:
    if isinstance(source, MemoryTable):
        return "memory", source.fingerprint
    if isinstance(source, HubDataset):
        return HUB_PREFIX, source.name, source.config, source.split, source.revision

    file_type = text_files.file_type(source)
    if isinstance(source, RemotePath):  # which is not read to learn whether it has changed
        status = source.stat()
        return file_type, str(source), str(status.e_tag), str(status.st_size)

    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    compression = source.suffix.lower() if text_files.is_compressed(source) else ""
    return file_type, compression, digest


def _text_documents(
    path: Path,
    unit: Unit,
    on_row_error: RowErrorHandler,
    encoding: str | None,
) -> Iterator[str]:
    if _has_json_lines(path, encoding):
        raise InputError(
            f"{path}: has JSON lines, not running text; let its name end in .jsonl instead of .txt, and name the "
            f"column of the texts with {flag('text_column')} unless it is 'text'"
        )

    for lines, error in _split_documents(path, unit, encoding):
        if error:
            on_row_error(error)
        else:
            yield "\n".join(lines)


def _has_json_lines(path: Path, encoding: str | None) -> bool:
    """Whether the first lines are JSON objects, at least one."""
    lines = (line.text for line in text_files.decoded_lines(path, encoding) if line.text and not line.text.isspace())
    first = [*islice(lines, JSON_LINES)]
    return bool(first) and all(is_json(line.lstrip(), dict) for line in first)


def _split_documents(path: Path, unit: Unit, encoding: str | None) -> Iterator[tuple[list[str], InputError | None]]:
    """(lines, first error or None) for each document of a .txt; separating blank lines are dropped."""
    lines: list[str] = []
    error: InputError | None = None
    for line in text_files.decoded_lines(path, encoding):
        error = error or line.error
        is_blank = not line.text or line.text.isspace()
        if unit == "file" or not is_blank:
            lines.append(line.text)

        ends_document = unit == "line" or (unit == "blank" and is_blank)
        if ends_document:
            yield lines, error
            lines = []
            error = None

    yield lines, error


def _table_documents(
    located_rows: Iterable[LocatedRow],
    column: str,
    on_row_error: RowErrorHandler,
) -> Iterator[str]:
    """The text of each row; several columns are joined."""
    columns = [name.strip() for name in column.split(",")]
    for where, row in located_rows:
        # A name may have a comma of its own.
        names = [column] if column in row else [name for name in columns if name in row]
        texts = [row[name] for name in names if row[name] is not None]
        if not names:
            on_row_error(missing_column(where, column, row))
        elif texts and all(isinstance(text, str) for text in texts):
            yield texts[0] if len(names) == 1 else join_texts(texts)
        else:
            kind = next((type(text).__name__ for text in texts if not isinstance(text, str)), "nothing")
            on_row_error(RowError(where, f"{column!r} holds {kind}, not text; fix the row"))
