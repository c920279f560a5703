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
from threading import RLock
from typing import Any

import numpy as np

from bothways.base.errors import InputError, flag
from bothways.base.io import SURROGATES
from bothways.text.retrieval.bm25 import InvertedList

DATABASE = "store.db"
FORMAT = 1
MAGIC = b"SQLite format 3\0"  # at the start of a database
HEAD_BYTES = 1 << 14  # bytes of a file that are read to find its schema, which stands in its first page
LOGS = ("-wal", "-shm")  # ends of the names of a log and its index, which SQLite keeps beside a database
BUSY_SECONDS = 30.0  # that a process waits for the end of another one's commit

# SQLite holds UTF-8 only. A byte of a file name that is no UTF-8 (a surrogate in Python) is kept as a private
# character, PRIVATE + byte. A private character of the name itself is kept as the private characters of its bytes, so
# that every name is found again as it was.
PRIVATE = 0x10F700
UNSAFE = re.compile("[\U0010f780-\U0010f7ff\udc80-\udcff]")  # private characters, and surrogates of bytes
PRIVATE_RUN = re.compile("[\U0010f780-\U0010f7ff]+")

# Never change its lines: SQLite keeps them as they are written, and `is_store` knows a store by each line that begins
# with CREATE.
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


def check_is_store(directory: Path) -> None:
    """InputError if there is no store in a directory, or a database that is not known to be one.

    The database is neither opened nor locked, as SQLite would repair the database of another program.
    """
    if not (directory / DATABASE).exists():
        raise InputError(f"{directory}: no search index; make one with `bothways index FOLDER -o {directory}`")
    if not is_store(directory):
        raise InputError(
            f"{directory / DATABASE}: not known to be a search index, so it is left as it is; index into another "
            f"directory with {flag('out')}"
        )


def is_store(directory: Path) -> bool:
    """Whether the database in a directory has the tables of a store.

    They are looked for in the first page of the file and of its log, as a new schema may stand in the log alone.
    """
    file = directory / DATABASE
    head = _head(file)
    head_of_log = _head(_beside(file, "-wal"))
    if not head.startswith(MAGIC):
        return False

    # A statement of several lines is known by its first.
    statements = [line.rstrip(";").encode() for line in SCHEMA.splitlines() if line.startswith("CREATE")]
    return any(all(statement in page for statement in statements) for page in (head, head_of_log))


def _head(file: Path) -> bytes:
    """The first bytes of a file; none if there is no file."""
    try:
        with file.open("rb") as opened:
            return opened.read(HEAD_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return b""
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); fix its permissions") from None


def _beside(file: Path, suffix: str) -> Path:
    """The file whose name is longer by a suffix."""
    return file.with_name(f"{file.name}{suffix}")


class Database:
    """A connection to the database of a store. Only one thread may use it at a time, but any thread may `get`."""

    # The state in which the file was opened as immutable, so that SQLite reads it as if nobody changed it; else None.
    _state: tuple[int, int, int] | None = None

    def __init__(self, directory: Path, *, create: bool = False) -> None:
        """
        directory: of the store.
        create: open it for writing, and make a store if there is none.

        InputError if there is no store in the directory, or one of another version.
        """
        self.directory = directory
        self.file = directory / DATABASE
        self._is_writer = create
        self._reopening = RLock()  # held while the connection is replaced, and by `get`, which any thread may call

        if create and not self.file.exists():
            self._create()
        check_is_store(directory)
        self._open()

        version = self.get("format", 0)
        if version != FORMAT:
            reason = f"a search index of version {version}, expected {FORMAT}"
            raise InputError(f"{directory}: {reason}; index again into another directory")

    def _create(self) -> None:
        """Make the database under another name and rename it, so that it is whole under its own, even after a kill."""
        part = _beside(self.file, ".part")
        part.unlink(missing_ok=True)
        for suffix in LOGS:
            # SQLite would apply the log of a database that was deleted to the new one.
            _beside(self.file, suffix).unlink(missing_ok=True)

        self.connection = sqlite3.connect(part, isolation_level=None)
        with self.transaction():
            for statement in SCHEMA.split(";"):
                self.execute(statement)
            self.put(format=FORMAT)

        self.execute("PRAGMA journal_mode = WAL")  # readers and a writer do not wait for each other
        self.close()

        os.replace(part, self.file)

    def _open(self) -> None:
        """Connect, in one of three modes.

        - In a directory with write permission SQLite reads and writes, and keeps its log there ("mode=rw").
        - In another directory it can read the log of a writer ("mode=ro"), but not make one.
        - Where there is no log either, it reads a file only if it is told that nobody changes it ("immutable=1");
          `_is_outdated` reports when somebody did.
        """
        self._mode = "mode=rw"
        self._state = None
        if not self._is_writer and not os.access(self.directory, os.W_OK):
            self._state = self._current_state()
            self._mode = "immutable=1" if self._state else "mode=ro"

        with self._errors_named():
            self.connection = sqlite3.connect(
                f"{self.file.resolve().as_uri()}?{self._mode}",
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                uri=True,
            )
            self.connection.text_factory = from_stored
            self.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
            # SQLite opens the file when it is read first; this does it here, where an error gets a name.
            self.get("format")

    def _current_state(self) -> tuple[int, int, int] | None:
        """A value that changes when a process writes the file; None if there is a log."""
        if any(_beside(self.file, suffix).exists() for suffix in LOGS):
            return None
        status = self.file.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _is_outdated(self) -> bool:
        """Whether the file was opened as immutable and has changed since."""
        return self._state is not None and self._state != self._current_state()

    def close(self) -> None:
        self.connection.close()

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Run a statement. values: for its `?`, or by name for its `:name`; texts are made storable."""
        if isinstance(values, Mapping):
            return self.connection.execute(sql, dict(zip(values, to_stored(values.values()), strict=True)))
        return self.connection.execute(sql, to_stored(values))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        self.connection.executemany(sql, map(to_stored, rows))

    # --- transactions -------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep all changes that are made inside the block, or none of them if it raises."""
        with self._block("BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Inside the block the store does not change for this connection."""
        # A connection without write permission does not see a log that the next writer makes, so it is made anew.
        if self._mode == "mode=ro" or self._is_outdated():
            with self._reopening:
                self.close()
                self._open()
        with self._block("BEGIN"):
            yield

    @contextmanager
    def _block(self, begin: str) -> Iterator[None]:
        """A transaction that starts with the statement `begin`."""
        with self._errors_named():
            self.execute(begin)
            try:
                yield
            except BaseException:
                # SQLite has ended the transaction itself when the disk is full.
                if self.connection.in_transaction:
                    self.execute("ROLLBACK")
                raise
            self.execute("COMMIT")

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """InputError with the file and a way out for an error of SQLite inside the block."""
        try:
            yield
        except sqlite3.OperationalError as error:
            way_out = "free disk space, check its permissions, or try again later"
            raise InputError(f"{self.file}: {error}; {way_out}") from None
        except sqlite3.DatabaseError as error:
            # An immutable file looks damaged when a part of it is newer than the rest.
            if self._is_outdated():
                raise InputError(f"{self.file}: changed while it was read; try again") from None
            raise InputError(f"{self.file}: damaged ({error}); delete it and index again") from None

    # --- values -------------------------------------------------------------------------------------------------------

    def get(self, key: str, default: Any = None) -> Any:
        """The value that `put` has kept under a key. Any thread may call it."""
        with self._reopening:
            row = self.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return default if row is None else json.loads(row[0])

    def put(self, **values: Any) -> None:
        """Keep values by key; they are stored as JSON."""
        rows = [(key, json.dumps(value)) for key, value in values.items()]
        self.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    # --- passages -----------------------------------------------------------------------------------------------------

    def texts(self, first: int, number: int) -> list[str]:
        """The texts of the slots from `first` on; "" for a slot that no longer has a passage."""
        texts = [""] * number
        rows = self.execute("SELECT slot, text FROM passages WHERE slot >= ? AND slot < ?", (first, first + number))
        for slot, text in rows:
            texts[slot - first] = text
        return texts

    # --- words --------------------------------------------------------------------------------------------------------

    def add_batch(self, first: int, lists: Mapping[str, InvertedList], lengths: np.ndarray) -> None:
        """Add the words of new passages, as a batch.

        A batch is merged into the one before it unless that is at least twice as large. So there are never more batches
        than the logarithm of the number of passages, and a query reads few rows for a term.

        first: the slot of the first new passage.
        lists: the inverted list of each term.
        lengths: the number of terms of each passage, uint32.
        """
        batch = self.execute(
            "INSERT INTO batches (first, lengths) VALUES (?, ?)",
            (first, lengths.tobytes()),
        ).lastrowid

        rows = []
        for term in sorted(lists):
            inverted = lists[term]
            rows.append((batch, term, inverted.slots.tobytes(), inverted.counts.tobytes()))
        self.executemany("INSERT INTO lists VALUES (?, ?, ?, ?)", rows)

        sizes = self.execute("SELECT id, length(lengths) FROM batches ORDER BY first").fetchall()
        while len(sizes) > 1:
            last, last_size = sizes[-1]
            before, before_size = sizes[-2]
            if before_size >= 2 * last_size:
                break
            self._merge(before, last)
            sizes[-2:] = [(before, before_size + last_size)]

    def _merge(self, into: int, other: int) -> None:
        """Append the lists and lengths of a batch to the lists and lengths of the batch before it, then delete it.

        into: the id of the batch before.
        other: the id of the batch, whose slots are larger than all of `into`, so that lists stay ascending.
        """
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
        """The inverted lists of each term, one for each batch that has the term, in the order of their slots. A term
        that no batch has is left out."""
        batches = [batch for (batch,) in self.execute("SELECT id FROM batches ORDER BY first")]
        lists: dict[str, list[InvertedList]] = {}
        for term in set(terms):
            for batch in batches:
                row = self.execute(
                    "SELECT slots, counts FROM lists WHERE batch = ? AND term = ?",
                    (batch, term),
                ).fetchone()
                if row is None:
                    continue

                slots, counts = row
                part = InvertedList(np.frombuffer(slots, np.uint32), np.frombuffer(counts, np.uint8))
                lists.setdefault(term, []).append(part)
        return lists

    def lengths(self) -> np.ndarray:
        """The number of terms of each passage, uint32 [slots]."""
        blobs = [blob for (blob,) in self.execute("SELECT lengths FROM batches ORDER BY first")]
        return np.frombuffer(b"".join(blobs), np.uint32)

    def alive(self, slots: int) -> np.ndarray:
        """Which slots hold a passage, bool [slots]; the passages of other slots were deleted. slots: their number."""
        alive = np.zeros(slots, bool)
        rows = self.execute("SELECT slot FROM passages").fetchall()
        alive[np.fromiter((slot for (slot,) in rows), np.int64, len(rows))] = True
        return alive


def to_stored(values: Iterable[Any]) -> list[Any]:
    """Values as SQLite can keep them: every text is in characters that UTF-8 can encode. `from_stored` undoes it."""
    return [_to_stored(value) if isinstance(value, str) and not value.isascii() else value for value in values]


def _to_stored(text: str) -> str:
    def private(match: re.Match[str]) -> str:
        return "".join(chr(PRIVATE + byte) for byte in match[0].encode(errors="surrogateescape"))

    # Surrogates that stand for no byte, as in damaged documents, are lost.
    return SURROGATES.sub("\ufffd", UNSAFE.sub(private, text))


def from_stored(content: bytes) -> str:
    """The text that `to_stored` has made storable."""
    text = content.decode(errors="replace")
    if text.isascii():
        return text

    def unsafe(match: re.Match[str]) -> str:
        return bytes(ord(character) - PRIVATE for character in match[0]).decode(errors="surrogateescape")

    return PRIVATE_RUN.sub(unsafe, text)
