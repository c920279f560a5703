"""Store: a searchable index of files in a directory; passages with their words, static vectors and encoder vectors.

    store = bothways.Store("my-index")
    for hit in store.search("invoices with late fees", top=5):
        print(hit.path, hit.line, hit.text)

A file of vectors has one float32 row per slot and is memory-mapped for reading. The database has the number of valid
rows. A row that was written but not counted, as after a kill, is overwritten by the next append, so a reader never sees
half a vector. Letters: N slots, H size of a vector.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.device import single_blas_thread
from bothways.base.errors import InputError, flag, no_such_column, shorten
from bothways.base.log import logger
from bothways.base.paths import RemotePath, as_path
from bothways.search import spaces
from bothways.search.database import Database, check_is_store
from bothways.search.filters import COLUMNS, parse_filter
from bothways.search.relevance import BACKGROUNDS, WEAK, relevance, smallness, word_shares
from bothways.search.spaces import Space, VectorModel
from bothways.settings.base import How
from bothways.text.data.globs import Chooser
from bothways.text.retrieval.bm25 import Bm25
from bothways.text.retrieval.fusion import fuse
from bothways.text.retrieval.words import WORDS_VERSION, Analyzer, background_shares

FILES = "files JOIN roots ON roots.id = files.root"
METADATA = "passages, json_each(passages.metadata)"
LOCATED = "CASE files.path WHEN '' THEN roots.path ELSE rtrim(roots.path, '/') || '/' || files.path END"
VALUE = np.dtype("<f4")


@dataclass(frozen=True)
class Hit:
    """A passage in the result of a search.

    path: the file. line: of its first character, from 1; in a table, the line of the row; None for
    formats without lines. page: of a PDF. start, end:
    its characters in the text of the file (or page, or row). heading: the one above it. metadata: other columns of the
    row, or front matter. score: the estimated probability that it is relevant, 0..1, comparable between searches (of
    `rerank`: the score of its model); 0 if it was not searched for. weak: whether it is probably not relevant. Hits are
    in the order of a search, which is not always that of their scores.
    """

    path: Path
    line: int | None
    page: int | None
    start: int
    end: int
    heading: str
    text: str
    score: float
    metadata: dict[str, Any] = field(default_factory=dict)
    weak: bool = False


@dataclass(frozen=True)
class Snapshot:
    """The data of all passages that a search needs, as of one commit."""

    change: int
    bm25: Bm25
    vectors_NH: dict[Space, np.ndarray]


def hit_json(hit: Hit) -> dict[str, Any]:
    """A passage as a JSON object, with the same keys always."""
    return {**vars(hit), "path": str(hit.path), "score": round(hit.score, 6)}


class Store:
    """An index in a directory, opened for searching. Threads may share it. It sees what other processes commit."""

    def __init__(self, directory: str | PathLike[str]) -> None:
        """InputError if the directory is not an index."""
        place = as_path(directory)
        if isinstance(place, RemotePath):
            check_is_store(place)
            place = Path(os.fspath(place.download()))
        self.directory = place
        self.database = Database(self.directory)
        self.analyzer = Analyzer(self.database.get("language", "en"))
        if self.database.get("slots", 0) and self.database.get("words") != WORDS_VERSION:
            logger.warning(
                f"{self.directory}: its words are those of another version, so some are not found; run `bothways "
                "index` with its folders again"
            )
        self._snapshot = Snapshot(-1, Bm25(np.zeros(0, np.uint32), np.zeros(0, bool)), {})
        self._idle: list[Database] = []  # connections that no thread uses now
        self._busy: set[Database] = set()

    def __repr__(self) -> str:
        return f"Store({str(self.directory)!r}: {self.passages:,} passages of {self.files:,} files)"

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.database.close()
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _reading(self) -> Iterator[Database]:
        """A connection that no other thread uses meanwhile; the store does not change for it inside the block. So
        readers never wait for each other."""
        try:
            database = self._idle.pop()
        except IndexError:
            database = Database(self.directory)
        self._busy.add(database)
        try:
            with database.snapshot():
                yield database
        finally:
            self._busy.discard(database)
            self._idle.append(database)

    @property
    def passages(self) -> int:
        """Number of passages."""
        with self._reading() as database:
            return int(database.execute("SELECT count(*) FROM passages").fetchone()[0])

    @property
    def files(self) -> int:
        """Number of files that were read."""
        with self._reading() as database:
            return int(database.execute("SELECT count(*) FROM files WHERE error IS NULL").fetchone()[0])

    def space(self) -> Space:
        """The vectors that are searched: the encoder's once all passages have them, until then the static ones."""
        return _space(self.database)

    def search(
        self,
        query: str,
        *,
        top: int = 10,
        how: How = "hybrid",
        vectors: Callable[[Space, str], VectorModel] | None = None,
        fast: bool = False,
        globs: Sequence[str] = (),
        condition: str | None = None,
        min_score: float | None = None,
    ) -> list[Hit]:
        """The best passages for a query, best first.

        how: by words (BM25), by vectors (cosine), or by both. vectors: opens the model of a space by its name; None: as
        when indexing. fast: search the encoder's vectors by a static vector of the query, without the encoder. globs:
        only files whose path, relative to the indexed folder, matches one; with ! in front: none that matches.
        condition: a filter of metadata, such as "year > 2010". min_score: of the best passages, leave out those of a
        lower score, 0..1; the others then are not weak. None: keep all, those below `relevance.WEAK` are weak.
        InputError if the index was made with another model, and for a
        column that no file has.
        """
        _check(how, top, min_score)
        with self._snapshot_of_store() as (database, snapshot):
            if not snapshot.bm25.number:
                return []
            allowed_N = self._allowed(database, globs, condition, snapshot.bm25.alive_N)
            # A passage without a word of the query is no hit for words; every vector is near others to some degree.
            terms = self.analyzer.terms(query) if how != "vectors" else []
            lists = database.inverted_lists(terms)
            by_words = (snapshot.bm25.scores(terms, lists), 0.0) if how != "vectors" else None
            by_vectors = (self._cosines(database, query, snapshot, vectors, fast), -np.inf) if how != "words" else None
            # Without a known word there is nothing to rank by.
            scores = [pair for pair in (by_words, by_vectors) if pair is not None and pair[0].any()]
            if not scores:
                return []
            rows, above = zip(*scores, strict=True)
            slots, _ = fuse(rows, allowed_N, top, above=above)
            signals_KF = np.zeros((len(slots), 4))
            signals_KF[:, 3] = smallness(snapshot.bm25.number)
            ((space, _),) = snapshot.vectors_NH.items()
            if by_vectors is not None:
                mean, deviation = database.get(f"{space}_background") or BACKGROUNDS[space]
                signals_KF[:, 0] = (by_vectors[0][slots] - mean) / (deviation or 1.0)
            if by_words is not None:
                greatest, signals_KF[:, 2] = word_shares(terms, lists, snapshot.bm25, slots)
                signals_KF[:, 1] = by_words[0][slots] / (greatest or 1.0)
            way = how if how == "words" else f"{how}, {'fast' if fast and space == 'encoder' else space}"
            return _marked(database, slots, relevance(way, signals_KF), min_score)

    @contextmanager
    def _snapshot_of_store(self) -> Iterator[tuple[Database, Snapshot]]:
        """The store as of one commit, which stays so inside the block."""
        for attempt in range(2):
            with self._reading() as database:
                try:
                    snapshot = self._current(database)
                except FileNotFoundError as error:
                    # A compaction has replaced the file between the begin of the snapshot and its opening.
                    if attempt:
                        raise InputError(f"{error}; delete the store and index again") from None
                    continue
                yield database, snapshot
                return

    def _current(self, database: Database) -> Snapshot:
        snapshot, change = self._snapshot, database.get("change", 0)
        if change != snapshot.change:
            slots = database.get("slots", 0)
            shares = background_shares(self.analyzer.language)
            bm25 = Bm25(database.lengths(), database.alive(slots), shares)
            space = _space(database)
            rows, dimension = database.get(f"{space}_rows", 0), database.get(f"{space}_dimension", 0)
            vectors_NH = map_vectors(self.directory / database.get(f"{space}_file", "none"), rows, dimension)
            self._snapshot = snapshot = Snapshot(change, bm25, {space: vectors_NH})
        return snapshot

    def _allowed(
        self, database: Database, globs: Sequence[str], condition: str | None, alive_N: np.ndarray
    ) -> np.ndarray:
        """Which slots may be found, bool [N]."""
        if not globs and condition is None:
            return alive_N
        sql, values, columns = ("1", [], []) if condition is None else parse_filter(condition)
        self._check_columns(database, columns, f"filter ({shorten(condition)})")
        rows = database.execute(
            f"SELECT passages.slot, passages.file FROM passages JOIN ({FILES}) ON files.id = passages.file WHERE {sql}",
            values,
        ).fetchall()
        if globs:
            names = database.execute(f"SELECT files.id, files.path, {LOCATED} FROM {FILES}").fetchall()
            chooser = Chooser.of(globs)
            named = {file for file, name, located in names if chooser.chooses(name or Path(located).name)}
            rows = [row for row in rows if row[1] in named]
        allowed_N = np.zeros(len(alive_N), bool)
        allowed_N[[slot for slot, _ in rows]] = True
        return allowed_N

    def columns(self) -> list[str]:
        """The names that a condition of `search` may have: of the passage, and those of metadata, at most 100."""
        with self._reading() as database:
            return _columns(database)

    def _check_columns(self, database: Database, names: Sequence[str], where: str) -> None:
        """InputError for a name that the metadata of no passage has."""
        for name in dict.fromkeys(names):
            if not database.execute(f"SELECT 1 FROM {METADATA} WHERE key = ? LIMIT 1", (name,)).fetchone():
                raise no_such_column(where, name, _columns(database), "use one of these, or index files that have it")

    def _cosines(
        self,
        database: Database,
        query: str,
        snapshot: Snapshot,
        open_vectors: Callable[[Space, str], VectorModel] | None,
        fast: bool,
    ) -> np.ndarray:
        """The cosines of a query with all passages, float32 [N]."""
        open_vectors = open_vectors or spaces.open_vectors
        ((space, vectors_NH),) = snapshot.vectors_NH.items()
        expected = database.get(f"{space}_fingerprint")
        if fast and space == "encoder":
            model = open_vectors("static", database.get("static_model"))
            if getattr(model, "space", None) != expected:
                raise InputError(
                    f"{self.directory}: its static vectors are not fitted to its encoder, so they cannot search the "
                    f"encoder's vectors; leave out {flag('fast')}"
                )
            return self._products(vectors_NH, model.embed([query])[0])
        model = open_vectors(space, database.get(f"{space}_model"))
        if model.fingerprint != expected:
            raise InputError(
                f"{self.directory}: indexed with another model (fingerprint {expected}, this one {model.fingerprint}); "
                "search with the same model, or index again"
            )
        return self._products(vectors_NH, model.embed([query])[0])

    def _products(self, vectors_NH: np.ndarray, query_H: np.ndarray) -> np.ndarray:
        """The products of all vectors with that of a query. Searches beside each other take a thread each: more would
        wait for each other."""
        with single_blas_thread() if len(self._busy) > 1 else nullcontext():
            return np.asarray(vectors_NH @ query_H)

    def neighbours(self, hit: Hit, number: int) -> tuple[list[Hit], list[Hit]]:
        """The passages before and after a passage in its file, at most `number` of each, in their order."""
        with self._reading() as database:
            row = database.execute(
                f"SELECT slot, passages.file FROM passages JOIN ({FILES}) ON files.id = passages.file "
                f"WHERE {LOCATED} = ? AND first = ? AND line IS ? AND page IS ?",
                (str(hit.path), hit.start, hit.line, hit.page),
            ).fetchone()
            if row is None:  # the file has changed
                return [], []
            slot, file = row
            query = "SELECT slot FROM passages WHERE file = ? AND slot {} ? ORDER BY slot {} LIMIT ?"
            before = database.execute(query.format("<", "DESC"), (file, slot, number)).fetchall()
            after = database.execute(query.format(">", "ASC"), (file, slot, number)).fetchall()
            return [_hit(database, other) for (other,) in before[::-1]], [_hit(database, other) for (other,) in after]

    def passages_from(
        self, path: str, line: int | None, number: int, *, page: int | None = None, start: int | None = None
    ) -> list[Hit]:
        """The passages of a file in their order, from a place on: that of a hit, by its line, page and start, or by
        some of them. What a file does not have, such as lines in HTML, counts for nothing. InputError if it is not
        indexed."""
        with self._reading() as database:
            row = database.execute(
                f"SELECT files.id FROM {FILES} WHERE {LOCATED} = :path OR nullif(files.path, '') = :path "
                f"ORDER BY {LOCATED} != :path LIMIT 1",
                {"path": path},
            ).fetchone()
            if row is None:
                raise InputError(f"{path}: no file of the index; search for it first")
            place = {"file": row[0], "page": page, "line": line, "start": start, "number": number}
            # The first passage at the place; if none starts on its line, the last one before it.
            slots = database.execute(
                "SELECT slot FROM passages WHERE file = :file AND slot >= coalesce("
                "(SELECT min(slot) FROM passages WHERE file = :file AND ifnull(page = :page, 1) "
                "AND ifnull(line = :line, 1) AND ifnull(last > :start, 1)), "
                "(SELECT max(slot) FROM passages WHERE file = :file AND ifnull(page <= :page, 1) "
                "AND ifnull(line <= :line, 1) AND ifnull(first <= :start, 1)), 0) ORDER BY slot LIMIT :number",
                place,
            ).fetchall()
            return [_hit(database, slot) for (slot,) in slots]


def _space(database: Database) -> Space:
    slots = database.get("slots", 0)
    return "encoder" if slots and database.get("encoder_rows", -1) >= slots else "static"


def _columns(database: Database) -> list[str]:
    rows = database.execute(f"SELECT DISTINCT key FROM {METADATA} LIMIT 100")
    return [*COLUMNS, *sorted(name for (name,) in rows)]


def _marked(database: Database, slots_K: np.ndarray, scores_K: np.ndarray, min_score: float | None) -> list[Hit]:
    least = WEAK if min_score is None else min_score
    return [
        _hit(database, slot, score, weak=score < least)
        for slot, score in zip(slots_K.tolist(), scores_K.tolist(), strict=True)
        if min_score is None or score >= least
    ]


def _hit(database: Database, slot: int, score: float = 0.0, *, weak: bool = False) -> Hit:
    path, line, page, first, last, heading, text, metadata = database.execute(
        f"SELECT {LOCATED}, line, page, first, last, heading, text, metadata FROM passages "
        f"JOIN ({FILES}) ON files.id = passages.file WHERE slot = ?",
        (slot,),
    ).fetchone()
    known = json.loads(metadata) if metadata else {}
    return Hit(as_path(path), line, page, first, last, heading, text, score, known, weak)


def _check(how: str, top: int, min_score: float | None) -> None:
    if how not in ("hybrid", "words", "vectors"):
        raise InputError(f"how ({how!r}) must be hybrid, words or vectors")
    if top < 1:
        raise InputError(f"top ({top}) must be at least 1")
    if min_score is not None and not 0 <= min_score <= 1:
        raise InputError(f"min_score ({min_score}) must be from 0 to 1")


def append_vectors(path: Path, first: int, vectors_nH: np.ndarray) -> None:
    """Write vectors of slots from `first` on, and return once they are on disk."""
    content = np.ascontiguousarray(vectors_nH, VALUE)
    row_bytes = content.shape[1] * VALUE.itemsize
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(first * row_bytes)
        file.seek(first * row_bytes)
        file.write(content.data)
        file.flush()
        os.fsync(file.fileno())


def map_vectors(path: Path, rows: int, dimension: int) -> np.ndarray:
    """The first rows of a file, float32 [rows, dimension], read-only. InputError if it has fewer, FileNotFoundError
    if there is no file."""
    if not rows:
        return np.empty((0, dimension), VALUE)
    size = rows * dimension * VALUE.itemsize
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the vectors of the store are missing")
    if path.stat().st_size < size:
        raise InputError(f"{path}: the vectors of the store are cut off; delete the store and index again")
    return np.memmap(path, VALUE, "r", shape=(rows, dimension))
