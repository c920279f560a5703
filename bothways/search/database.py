"""The database of a store: SQLite tables of files, passages and inverted lists, in a directory with vector files.

Every change is one transaction, so after a kill or a power cut a store is as after its last commit. Passages have
numbers, slots, that only grow: slot n has row n of each vector file.
"""

import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bothways.errors import InputError
from bothways.io import SURROGATES
from bothways.search.words import InvertedList

DATABASE = "store.db"
FORMAT = 1
BUSY_SECONDS = 30.0  # that a process waits for the end of another one's commit
# SQLite holds UTF-8 only. A byte of a file name that is not (a surrogate in Python) is kept as a private character; the
# private characters themselves, as those of their bytes, so that every name is found again as it was.
PRIVATE = 0x10F700
UNSAFE = re.compile("[\U0010f780-\U0010f7ff\udc80-\udcff]")
PRIVATE_RUN = re.compile("[\U0010f780-\U0010f7ff]+")
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE roots (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE);
CREATE TABLE files (
    id INTEGER PRIMARY KEY, root INTEGER NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL,
    modified INTEGER NOT NULL, digest BLOB NOT NULL, error TEXT, UNIQUE (root, path)
);
CREATE TABLE passages (
    slot INTEGER PRIMARY KEY, file INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    line INTEGER, page INTEGER, heading TEXT NOT NULL, text TEXT NOT NULL, metadata TEXT
);
CREATE INDEX passages_of_file ON passages (file);
CREATE TABLE batches (id INTEGER PRIMARY KEY, first INTEGER NOT NULL, lengths BLOB NOT NULL);
CREATE TABLE lists (
    batch INTEGER NOT NULL, term TEXT NOT NULL, slots BLOB NOT NULL, counts BLOB NOT NULL, PRIMARY KEY (batch, term)
) WITHOUT ROWID;
"""


class Database:
    """A connection to the database of a store. Only one thread may use it at a time."""

    def __init__(self, directory: Path, *, create: bool = False) -> None:
        """InputError if there is no store in the directory, or one of a newer version."""
        self.directory, file = directory, directory / DATABASE
        if not create and not file.is_file():
            raise InputError(f"{directory}: no search index; make one with `bothways index FOLDER -o {directory}`")
        try:
            # A store in a place that cannot be written is one that nobody changes.
            is_fixed = not create and not os.access(directory, os.W_OK)
            self.connection = sqlite3.connect(
                f"{file.resolve().as_uri()}{'?immutable=1' if is_fixed else ''}",
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                uri=True,
            )
            self.connection.text_factory = from_stored
            self.connection.execute("PRAGMA synchronous = FULL")
            if create:
                self._create()
            version = self.get("format", 0)
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{file}: not a search index, or a damaged one ({error}); delete it, index again"
            ) from None
        if version != FORMAT:
            raise InputError(f"{directory}: a search index of version {version}, expected {FORMAT}; index again")

    def _create(self) -> None:
        self.connection.execute("PRAGMA journal_mode = WAL")  # readers and a writer do not wait for each other
        with self.transaction():
            if not self.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone():
                for statement in SCHEMA.split(";"):
                    self.execute(statement)
                self.put(format=FORMAT)

    def close(self) -> None:
        self.connection.close()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self.connection.execute(sql, to_stored(values))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self.connection.executemany(sql, map(to_stored, rows))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside the block, or none of them."""
        with self._block("BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Inside the block the store does not change for this connection."""
        with self._block("BEGIN"):
            yield

    @contextmanager
    def _block(self, begin: str) -> Iterator[None]:
        try:
            self.execute(begin)
            try:
                yield
            except BaseException:
                if self.connection.in_transaction:  # SQLite ends it itself when the disk is full
                    self.execute("ROLLBACK")
                raise
            self.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise InputError(f"{self.directory / DATABASE}: {error}; free disk space or try again later") from None

    # --- values -------------------------------------------------------------------------------------------------------

    def get(self, key: str, default: Any = None) -> Any:
        row = self.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return default if row is None else json.loads(row[0])

    def put(self, **values: Any) -> None:
        rows = [(key, json.dumps(value)) for key, value in values.items()]
        self.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    # --- words --------------------------------------------------------------------------------------------------------

    def add_batch(self, first: int, lists: Mapping[str, InvertedList], lengths: np.ndarray) -> None:
        """The inverted lists of new passages with the slots from `first` on. Smaller batches are merged into one, so
        that there are never more than the logarithm of the number of passages."""
        batch = self.execute("INSERT INTO batches (first, lengths) VALUES (?, ?)", (first, lengths.tobytes())).lastrowid
        rows = ((batch, term, lists[term].slots.tobytes(), lists[term].counts.tobytes()) for term in sorted(lists))
        self.executemany("INSERT INTO lists VALUES (?, ?, ?, ?)", rows)
        sizes = self.execute("SELECT id, length(lengths) FROM batches ORDER BY first").fetchall()
        while len(sizes) > 1 and sizes[-2][1] < 2 * sizes[-1][1]:
            (into, size), (other, more) = sizes[-2:]
            self._merge(into, other)
            sizes[-2:] = [(into, size + more)]

    def _merge(self, into: int, other: int) -> None:
        """Append the lists of a batch to those of the one before it."""
        self.execute(
            "INSERT INTO lists SELECT ?, term, slots, counts FROM lists WHERE batch = ? ON CONFLICT DO UPDATE SET "
            "slots = CAST(lists.slots || excluded.slots AS BLOB), "
            "counts = CAST(lists.counts || excluded.counts AS BLOB)",
            (into, other),
        )
        self.execute("DELETE FROM lists WHERE batch = ?", (other,))
        self.execute(
            "UPDATE batches SET lengths = CAST(lengths || (SELECT lengths FROM batches WHERE id = ?) AS BLOB) "
            "WHERE id = ?",
            (other, into),
        )
        self.execute("DELETE FROM batches WHERE id = ?", (other,))

    def inverted_lists(self, terms: Iterable[str]) -> dict[str, list[InvertedList]]:
        """The inverted lists of terms, one for each batch that has the term."""
        batches = [batch for (batch,) in self.execute("SELECT id FROM batches ORDER BY first")]
        found: dict[str, list[InvertedList]] = {}
        for term in set(terms):
            for batch in batches:
                row = self.execute(
                    "SELECT slots, counts FROM lists WHERE batch = ? AND term = ?", (batch, term)
                ).fetchone()
                if row is not None:
                    part = InvertedList(np.frombuffer(row[0], np.uint32), np.frombuffer(row[1], np.uint8))
                    found.setdefault(term, []).append(part)
        return found

    def lengths(self) -> np.ndarray:
        """The number of terms of each passage, uint32 [slots]."""
        blobs = [blob for (blob,) in self.execute("SELECT lengths FROM batches ORDER BY first")]
        return np.frombuffer(b"".join(blobs), np.uint32)

    def alive(self, slots: int) -> np.ndarray:
        """Which slots hold a passage, bool [slots]."""
        alive = np.zeros(slots, bool)
        rows = self.execute("SELECT slot FROM passages").fetchall()
        alive[np.fromiter((slot for (slot,) in rows), np.int64, len(rows))] = True
        return alive


def to_stored(values: Iterable[Any]) -> list[Any]:
    """Values of SQLite, with every text in characters that UTF-8 can encode."""
    return [_to_stored(value) if isinstance(value, str) and not value.isascii() else value for value in values]


def _to_stored(text: str) -> str:
    escaped = UNSAFE.sub(
        lambda match: "".join(chr(PRIVATE + byte) for byte in match[0].encode(errors="surrogateescape")), text
    )
    return SURROGATES.sub("\ufffd", escaped)


def from_stored(content: bytes) -> str:
    """The text that `to_stored` has made storable."""
    text = content.decode(errors="replace")
    if text.isascii():
        return text
    return PRIVATE_RUN.sub(
        lambda match: bytes(ord(character) - PRIVATE for character in match[0]).decode(errors="surrogateescape"), text
    )
