"""Changes of a store: files with their passages are added, replaced and removed, each commit whole or not at all."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.errors import InputError, flag, join_names
from bothways.base.file_lock import acquire_lock
from bothways.base.log import logger
from bothways.base.paths import as_path
from bothways.pretrained import locate
from bothways.search.database import Database
from bothways.search.passages import Passage
from bothways.search.relevance import background
from bothways.search.spaces import Space, VectorModel
from bothways.search.vector_file import append_vectors, map_vectors
from bothways.text.retrieval.bm25 import invert
from bothways.text.retrieval.words import WORDS_VERSION, Analyzer

LOCK = "lock"
COMPACT_PASSAGES = 16_384  # passages that are read at a time

# Types of files that a version before this one read in another way, as patterns of SQL.
REREAD = (
    "md",
    "markdown",
    "docx",
    "csv",
    "tsv",
    "csv.%",
    "tsv.%",
    "html",
    "htm",
    "jsonl",
    "jsonl.%",
    "parquet",
    "eml",
    "ipynb",
)


@dataclass(frozen=True)
class FileState:
    """A file as it was read.

    modified: nanoseconds; -1 if it may have changed since.
    digest: hash of its bytes.
    error: why it cannot be read; None: it can.
    """

    size: int
    modified: int
    digest: bytes
    error: str | None = None


@dataclass(frozen=True)
class IndexedPassage:
    """A passage with the metadata of its row or file.

    has_lines: whether its line is a line of the file.
    offset: number of characters of the file before the text whose slice it is.
    """

    passage: Passage
    has_lines: bool
    metadata: Mapping[str, Any]
    offset: int = 0

    def row(self, slot: int, file: int | None) -> tuple[Any, ...]:
        """The row of the table of passages."""
        passage = self.passage
        return (
            slot,
            file,
            passage.start + self.offset,
            passage.end + self.offset,
            passage.line if self.has_lines else None,
            passage.page,
            passage.heading,
            passage.text,
            json.dumps(dict(self.metadata), ensure_ascii=False) if self.metadata else None,
        )


@dataclass(frozen=True)
class IndexedFile:
    """A file that was read: its state, and its passages."""

    root: int
    path: str
    state: FileState
    passages: Sequence[IndexedPassage] = ()


@dataclass(frozen=True)
class KnownFile:
    """A file that the store has. root: the number of its folder. path: below the folder."""

    root: int
    path: str
    state: FileState


@contextmanager
def writer_lock(directory: Path) -> Iterator[bool]:
    """Hold the only right to write a store inside the block, or False if another process has it. The system releases
    it when the process ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK).open("ab") as file:
        try:
            is_locked = acquire_lock(file, is_waiting=False)
        except OSError:  # without locks, nobody may write
            is_locked = False
        yield is_locked


@contextmanager
def own_lock(directory: Path) -> Iterator[None]:
    """Hold `writer_lock` inside the block. InputError if another process has it."""
    with writer_lock(directory) as is_locked:
        if not is_locked:
            raise InputError(
                f"{directory}: another process is indexing into it; wait for it to end, or name another {flag('out')}"
            )
        yield


def unfinished(database: Database) -> str | None:
    """The reason, and the way out, for which a store whose change to another model is incomplete cannot be changed
    otherwise; None if none is incomplete."""
    pending = database.get("pending_model")
    if pending is None:
        return None
    finish = f"{flag('reindex', True)} {flag('model', pending)}"
    drop = f"{flag('reindex', True)} {flag('model', database.get('encoder_model'))}"
    return f"the vectors of {pending} are not complete; finish them with {finish}, or drop them with {drop}"


class StoreWriter:
    """Writes a store. Only the process that holds `writer_lock` may have one."""

    def __init__(self, directory: Path, *, static: VectorModel, static_model: str, language: str) -> None:
        """static: the static vectors, which every store has.
        static_model: their name or directory.
        language: of the texts, for stems of words.

        InputError if the store was made with other static vectors, or for another language, and while its vectors are
        replaced by the vectors of another model.
        """
        self.directory = directory
        self.static = static
        self.database = Database(directory, create=True)
        reason = unfinished(self.database)
        if reason is not None:
            raise InputError(f"{directory}: {reason}")

        self.analyzer = Analyzer(self._fixed("language", language))

        self._fixed("static_fingerprint", static.fingerprint)
        self.database.put(static_model=static_model)
        self._measure_background("static", static_model, static)

        if not self.slots:
            self.database.put(words=WORDS_VERSION)
        elif self.has_old_words():
            # The version with these words also read some types of files in another way: read them again. A path of ""
            # is a root that is a file, of any type.
            changed = " OR ".join(["path = ''", *(f"path LIKE '%.{suffix}'" for suffix in REREAD)])
            self.database.execute(f"UPDATE files SET modified = -1, digest = x'' WHERE {changed}")

    def close(self) -> None:
        self.database.close()

    def _fixed(self, key: str, value: Any, *, way_out: str = "") -> Any:
        """A setting that a store keeps for ever. way_out: another one, for the error."""
        before = self.database.get(key)
        if before not in (None, value):
            raise InputError(
                f"{self.directory}: indexed with {key.replace('_', ' ')} {before}, not {value}; {way_out}name another "
                f"store with {flag('out')}, or delete this one"
            )
        if before is None:
            self.database.put(**{key: value})
        return value

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a text, for the size of passages."""
        return len(self.static.tokenizer.ids(text))

    @property
    def slots(self) -> int:
        return int(self.database.get("slots", 0))

    def root(self, path: Path) -> int:
        """The number of a folder (or a file) that is indexed."""
        self.database.execute("INSERT OR IGNORE INTO roots (path) VALUES (?)", (str(path),))
        row = self.database.execute("SELECT id FROM roots WHERE path = ?", (str(path),)).fetchone()
        return int(row[0])

    def roots(self) -> list[Path]:
        """The folders (or files) that are indexed."""
        return [as_path(path) for (path,) in self.database.execute("SELECT path FROM roots ORDER BY id")]

    def remove_root(self, path: Path) -> int:
        """Forget a folder. Returns the number of its files. InputError if it is not one of the store."""
        roots = self.roots()
        if path not in roots:
            raise InputError(f"{path}: no folder of the index; it has {join_names([*map(str, roots)]) or 'none'}")

        number = self.root(path)
        with self.database.transaction():
            self.database.execute("DELETE FROM passages WHERE file IN (SELECT id FROM files WHERE root = ?)", (number,))
            files = self.database.execute("DELETE FROM files WHERE root = ?", (number,)).rowcount
            self.database.execute("DELETE FROM roots WHERE id = ?", (number,))
            self._changed()
        return files

    def known_files(self) -> dict[Path, list[KnownFile]]:
        """The files that the store has, by where they are; one may be there twice, below two folders."""
        rows = self.database.execute(
            "SELECT roots.path, root, files.path, size, modified, digest, error "
            "FROM files JOIN roots ON roots.id = files.root"
        )
        files: dict[Path, list[KnownFile]] = {}
        for folder, root, path, size, modified, digest, error in rows:
            state = FileState(size=size, modified=modified, digest=digest, error=error)
            files.setdefault(as_path(folder) / path, []).append(KnownFile(root, path, state))
        return files

    # --- commits ------------------------------------------------------------------------------------------------------

    def commit(self, files: Sequence[IndexedFile], removed: Sequence[tuple[int, str]] = ()) -> None:
        """Add files, in the place of files with the same paths, and remove others; all or nothing.

        removed: (root, path) of the others.
        """
        # Words and vectors take nearly all of the time, so they are computed before the transaction.
        passages = [indexed.passage for file in files for indexed in file.passages]
        texts = [passage.text for passage in passages]
        vectors_nH = self.static.embed(texts) if texts else None
        first = self.slots
        terms = [self.analyzer.passage_terms(passage.text, passage.heading) for passage in passages]
        lists, lengths = invert(terms, first)

        with self.database.transaction():
            for root, path in removed:
                self._remove(root, path)
            for file in files:
                self._remove(file.root, file.path)

            rows: list[tuple[Any, ...]] = []
            for file in files:
                number = self._add_file(file)
                for indexed in file.passages:
                    rows.append(indexed.row(first + len(rows), number))
            self.database.executemany("INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

            if vectors_nH is not None:
                self._append("static", first, vectors_nH)
                self.database.add_batch(first, lists, lengths)
            self._changed(slots=first + len(texts))

    def touch(self, root: int, path: str, state: FileState) -> None:
        """Note the size and time of a file whose content is as before."""
        self.database.execute(
            "UPDATE files SET size = ?, modified = ? WHERE root = ? AND path = ?",
            (state.size, state.modified, root, path),
        )

    def move(self, before: tuple[int, str], after: tuple[int, str]) -> None:
        """Note that a file is now found below another folder."""
        self.database.execute("UPDATE files SET root = ?, path = ? WHERE root = ? AND path = ?", (*after, *before))

    def _remove(self, root: int, path: str) -> None:
        row = self.database.execute(
            "SELECT id FROM files WHERE root = ? AND path = ?",
            (root, path),
        ).fetchone()
        if row is not None:
            self.database.execute("DELETE FROM passages WHERE file = ?", row)
            self.database.execute("DELETE FROM files WHERE id = ?", row)

    def _add_file(self, file: IndexedFile) -> int | None:
        state = file.state
        return self.database.execute(
            "INSERT INTO files (root, path, size, modified, digest, error) VALUES (?, ?, ?, ?, ?, ?)",
            (file.root, file.path, state.size, state.modified, state.digest, state.error),
        ).lastrowid

    def _append(self, space: Space, first: int, vectors_nH: np.ndarray) -> None:
        name = self.database.get(f"{space}_file") or f"{space}-0.f32"
        append_vectors(self.directory / name, first, vectors_nH)
        values = {
            f"{space}_file": name,
            f"{space}_rows": first + len(vectors_nH),
            f"{space}_dimension": vectors_nH.shape[1],
        }
        self.database.put(**values)

    def _changed(self, **values: Any) -> None:
        self.database.put(change=self.database.get("change", 0) + 1, **values)

    # --- vectors of the encoder ---------------------------------------------------------------------------------------

    def use_encoder(self, name: str, model: VectorModel, state: str) -> None:
        """Choose the encoder whose vectors the store shall have.

        The vectors of a model of the same name are dropped if it has been trained anew.

        name: of the encoder, as the store keeps it.
        model: the encoder.
        state: of its files, as `spaces.files_state` returns it.

        InputError if the store has the vectors of another encoder.
        """
        fingerprint = model.fingerprint
        before = self.database.get("encoder_fingerprint")
        if before not in (None, fingerprint) and name == self.database.get("encoder_model"):
            logger.warning(f"{name}: changed since it was indexed; computing all vectors again")
            self._drop_vectors(fingerprint)

        self._fixed("encoder_fingerprint", fingerprint, way_out=f"change its model with {flag('reindex', True)}, ")
        self.database.put(encoder_model=name, encoder_state=state)
        self._measure_background("encoder", name, model)

    def _measure_background(self, space: Space, name: str, model: VectorModel) -> None:
        """Keep the scale of a model's cosines; the scales of the packaged models are `relevance.BACKGROUNDS`."""
        if locate(name) is None and self.database.get(f"{space}_background") is None:
            self.database.put(**{f"{space}_background": background(model)})

    def _drop_vectors(self, fingerprint: str) -> None:
        old = self.database.get("encoder_file")
        with self.database.transaction():
            if old is not None:
                self.database.put(encoder_file=next_file_name(old), encoder_rows=0)
            self.database.put(encoder_fingerprint=fingerprint, encoder_background=None, encoder_mapped=None)
            self._changed()

        if old is not None:
            with suppress(OSError):  # it is only of use to searches that began before
                os.unlink(self.directory / old)

    def has_all_vectors(self, name: str, state: str) -> bool:
        """Whether every passage has a vector of the encoder of this name, whose files are as they were."""
        if int(self.database.get("encoder_rows", -1)) < self.slots:
            return False
        return (name, state) == (self.database.get("encoder_model"), self.database.get("encoder_state"))

    def missing_vectors(self, number: int) -> list[str]:
        """The texts of the next slots without a vector of the encoder; "" for a slot that no longer has a passage."""
        first = int(self.database.get("encoder_rows", 0))
        return self.database.texts(first, min(number, self.slots - first))

    def commit_vectors(self, vectors_nH: np.ndarray) -> None:
        """Add the vectors of the texts that `missing_vectors` returned."""
        with self.database.transaction():
            self._append("encoder", int(self.database.get("encoder_rows", 0)), vectors_nH)
            self._changed()

    # --- compaction ---------------------------------------------------------------------------------------------------

    def has_old_words(self) -> bool:
        """Whether words of passages were found in another way, which `compact` mends."""
        return bool(self.database.get("words") != WORDS_VERSION)

    def dead(self) -> int:
        """Number of slots whose passage was removed."""
        return self.slots - int(self.database.execute("SELECT count(*) FROM passages").fetchone()[0])

    def compact(self) -> None:
        """Number the passages anew, without gaps, in the order of paths, and drop the vectors of removed ones."""
        database = self.database
        rows = database.execute(
            "SELECT slot FROM passages JOIN files ON files.id = file ORDER BY root, path, slot"
        ).fetchall()
        order = np.fromiter((slot for (slot,) in rows), np.int64, len(rows))

        with database.transaction():
            # New files: a search that has begun goes on in the old ones.
            old_names = [self._rewrite_vectors("static", order), self._rewrite_vectors("encoder", order)]

            database.execute("CREATE TEMP TABLE old AS SELECT * FROM passages")
            database.execute("CREATE UNIQUE INDEX temp.old_slot ON old (slot)")
            for table in ("passages", "lists", "batches"):
                database.execute(f"DELETE FROM {table}")
            for first in range(0, len(order), COMPACT_PASSAGES):
                self._renumber(first, order[first : first + COMPACT_PASSAGES].tolist())
            database.execute("DROP TABLE old")

            self._changed(slots=len(order), words=WORDS_VERSION)

        for name in filter(None, old_names):
            with suppress(OSError):  # it is only of use to searches that began before
                os.unlink(self.directory / name)

    def _rewrite_vectors(self, space: Space, order: np.ndarray) -> str | None:
        """Write the vectors of slots, in this order, into a new file. Returns the name of the old file, if there is
        one."""
        name = self.database.get(f"{space}_file")
        if name is None:
            return None

        rows = self.database.get(f"{space}_rows", 0)
        vectors_NH = map_vectors(self.directory / name, rows, self.database.get(f"{space}_dimension"))
        new = next_file_name(name)

        # An encoder that has not read all passages starts over at the first one that it lacks.
        missing = np.flatnonzero(order >= rows)
        kept = order[: missing[0]] if rows < self.slots and len(missing) else order

        with suppress(FileNotFoundError):  # a compaction that was killed may have left one
            os.unlink(self.directory / new)
        for first in range(0, len(kept), COMPACT_PASSAGES):
            append_vectors(self.directory / new, first, vectors_NH[kept[first : first + COMPACT_PASSAGES]])
        if not len(kept):
            (self.directory / new).touch()

        self.database.put(**{f"{space}_file": new, f"{space}_rows": len(kept)})
        return str(name)

    def _renumber(self, first: int, old_slots: Sequence[int]) -> None:
        """Take passages from the table `old`, and give them the slots from `first` on. Their words are found anew."""
        for slot, old_slot in enumerate(old_slots, first):
            self.database.execute(
                "INSERT INTO passages SELECT ?, file, first, last, line, page, heading, text, metadata "
                "FROM old WHERE slot = ?",
                (slot, old_slot),
            )

        written = self.database.execute(
            "SELECT text, heading FROM passages WHERE slot >= ? AND slot < ? ORDER BY slot",
            (first, first + len(old_slots)),
        )
        terms = [self.analyzer.passage_terms(text, heading) for text, heading in written]
        lists, lengths = invert(terms, first)
        self.database.add_batch(first, lists, lengths)


def next_file_name(name: str) -> str:
    """The name of the file of vectors that takes the place of one."""
    stem, _, number = name.removesuffix(".f32").rpartition("-")
    return f"{stem}-{int(number) + 1}.f32"
