"""Store: a searchable index of files in a directory; passages with their words, static vectors and encoder vectors.

    store = bothways.Store("my-index")
    for hit in store.search("invoices with late fees", top=5):
        print(hit.path, hit.line, hit.text)

A search reads the store as of one commit and scores all passages exactly: a million of them take 8 ms by words and
56 ms by vectors (docs/RESULTS.md, Search). Letters: N slots, K hits, F signals, H size of a vector.
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
from bothways.search.relevance import BACKGROUNDS, WEAK, QueryScores, relevance, relevance_signals
from bothways.search.spaces import Space, VectorModel
from bothways.search.vector_file import map_vectors
from bothways.settings.base import How
from bothways.text.retrieval.bm25 import Bm25, InvertedList
from bothways.text.retrieval.fusion import fuse
from bothways.text.retrieval.words import WORDS_VERSION, Analyzer, background_shares
from bothways.text.rows.globs import Chooser

FILES = "files JOIN roots ON roots.id = files.root"
METADATA = "passages, json_each(passages.metadata)"
LOCATED = "CASE files.path WHEN '' THEN roots.path ELSE rtrim(roots.path, '/') || '/' || files.path END"
MOST_COLUMNS = 100  # names of metadata that are listed


@dataclass(frozen=True)
class Hit:
    """A passage in the result of a search, whose hits are not always in the order of their scores.

    path: the file.
    line: of its first character, from 1; in a table, the line of the row; None for formats without lines.
    page: of a PDF, from 1; None for other formats.
    start, end: its characters in the text of the file (or page, or row).
    heading: the heading above it.
    score: the estimated probability that it is relevant, 0..1, comparable between searches (of `rerank`: the score of
        its model); 0 if it was not searched for.
    metadata: other columns of the row, or front matter.
    weak: whether it is probably not relevant.
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

    def to_json(self) -> dict[str, Any]:
        """The passage as a JSON object, with the same keys always."""
        return {**vars(self), "path": str(self.path), "score": round(self.score, 6)}


@dataclass(frozen=True)
class Snapshot:
    """The data of all passages that a search needs, as of one commit."""

    change: int
    bm25: Bm25
    vectors_NH: dict[Space, np.ndarray]


class Store:
    """An index in a directory, opened for searching. Threads may share it. It sees the commits of other processes."""

    def __init__(self, directory: str | PathLike[str]) -> None:
        """InputError if the directory is not an index."""
        path = as_path(directory)
        if isinstance(path, RemotePath):
            check_is_store(path)  # before all of it is downloaded
            path = Path(os.fspath(path.download()))

        self.directory = path
        self.database = Database(self.directory)
        self.analyzer = Analyzer(self.database.get("language", "en"))
        if self.database.get("slots", 0) and self.database.get("words") != WORDS_VERSION:
            logger.warning(
                f"{self.directory}: its words are those of another version, so some are not found; run `bothways "
                "index` with its folders again"
            )

        nothing = Bm25(np.zeros(0, np.uint32), np.zeros(0, bool))
        self._snapshot = Snapshot(change=-1, bm25=nothing, vectors_NH={})
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

    @property
    def mapped_from(self) -> str | None:
        """The model whose vectors were mapped into the space of the encoder; None if the encoder has computed all."""
        with self._reading() as database:
            mapped = database.get("encoder_mapped")
            return mapped["source"] if mapped and _space(database) == "encoder" else None

    # --- search -------------------------------------------------------------------------------------------------------

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

        top: at most so many passages.
        how: by words (BM25), by vectors (cosine), or by both.
        vectors: opens the model of a space by its name; None: as when indexing.
        fast: search the encoder's vectors by a static vector of the query, without the encoder.
        globs: only files whose path, relative to the indexed folder, matches one; with ! in front: none that matches.
        condition: a filter of metadata, such as "year > 2010".
        min_score: of the best passages, leave out passages of a lower score, 0..1; the others then are not weak. None:
            keep all; passages below `relevance.WEAK` are weak.

        InputError if the index was made with another model, and for a column that no file has.

        >>> Store("my-index").search("late fees", top=1, globs=["*.md"])[0].path.name
        'invoices.md'
        """
        _check(how, top, min_score)
        with self._snapshot_of_store() as (database, snapshot):
            if not snapshot.bm25.number:
                return []

            allowed_N = self._allowed(database, globs, condition, snapshot.bm25.alive_N)
            scores = self._scores(database, query, snapshot, how=how, open_vectors=vectors, fast=fast)

            # A passage without a word of the query is no hit for words; every vector is near others to some degree.
            rankings = [(scores.words_N, 0.0), (scores.cosines_N, -np.inf)]
            # Without a known word there is nothing to rank by.
            usable = [(row_N, above) for row_N, above in rankings if row_N is not None and row_N.any()]
            if not usable:
                return []

            slots_K, _ = fuse(
                [row_N for row_N, _ in usable],
                allowed_N,
                top,
                above=[above for _, above in usable],
            )
            (space,) = snapshot.vectors_NH
            signals_KF = relevance_signals(
                scores,
                slots_K,
                bm25=snapshot.bm25,
                background=database.get(f"{space}_background") or BACKGROUNDS[space],
            )
            way = _way_of_searching(how, fast, space)
            return _marked(database, slots_K, relevance(way, signals_KF), min_score)

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

    def _current(self, database: Database) -> Snapshot:
        """The snapshot that is in memory, read again if there was a commit since."""
        snapshot = self._snapshot
        change = database.get("change", 0)
        if change == snapshot.change:
            return snapshot

        bm25 = Bm25(
            database.lengths(),
            database.alive(database.get("slots", 0)),
            background_shares(self.analyzer.language),
        )
        space = _space(database)
        vectors_NH = map_vectors(
            self.directory / database.get(f"{space}_file", "none"),
            database.get(f"{space}_rows", 0),
            database.get(f"{space}_dimension", 0),
        )
        snapshot = Snapshot(change=change, bm25=bm25, vectors_NH={space: vectors_NH})
        self._snapshot = snapshot
        return snapshot

    def _allowed(
        self,
        database: Database,
        globs: Sequence[str],
        condition: str | None,
        alive_N: np.ndarray,
    ) -> np.ndarray:
        """Which slots may be found, bool [N]."""
        if not globs and condition is None:
            return alive_N

        sql = "1"
        values: list[Any] = []
        if condition is not None:
            sql, values, columns = parse_filter(condition)
            self._check_columns(database, columns, f"filter ({shorten(condition)})")
        rows = database.execute(
            f"SELECT passages.slot, passages.file FROM passages JOIN ({FILES}) ON files.id = passages.file WHERE {sql}",
            values,
        ).fetchall()

        # Patterns are matched once a file, not once a passage, and not by SQLite, which does not know these patterns.
        if globs:
            names = database.execute(f"SELECT files.id, files.path, {LOCATED} FROM {FILES}").fetchall()
            chooser = Chooser.of(globs)
            chosen = {file for file, name, located in names if chooser.chooses(name or Path(located).name)}
            rows = [(slot, file) for slot, file in rows if file in chosen]

        allowed_N = np.zeros(len(alive_N), bool)
        allowed_N[[slot for slot, _ in rows]] = True
        return allowed_N

    def _check_columns(self, database: Database, names: Sequence[str], where: str) -> None:
        """InputError for a name that the metadata of no passage has."""
        for name in dict.fromkeys(names):
            if not database.execute(f"SELECT 1 FROM {METADATA} WHERE key = ? LIMIT 1", (name,)).fetchone():
                raise no_such_column(where, name, _columns(database), "use one of these, or index files that have it")

    def _scores(
        self,
        database: Database,
        query: str,
        snapshot: Snapshot,
        *,
        how: How,
        open_vectors: Callable[[Space, str], VectorModel] | None,
        fast: bool,
    ) -> QueryScores:
        terms: list[str] = []
        lists: dict[str, list[InvertedList]] = {}
        words_N = None
        if how != "vectors":
            terms = self.analyzer.terms(query)
            lists = database.inverted_lists(terms)
            words_N = snapshot.bm25.scores(terms, lists)

        cosines_N = None
        if how != "words":
            cosines_N = self._cosines(database, query, snapshot, open_vectors or spaces.open_vectors, fast)

        return QueryScores(terms=terms, lists=lists, words_N=words_N, cosines_N=cosines_N)

    def _cosines(
        self,
        database: Database,
        query: str,
        snapshot: Snapshot,
        open_vectors: Callable[[Space, str], VectorModel],
        fast: bool,
    ) -> np.ndarray:
        """The cosines of a query with all passages, float32 [N]."""
        ((space, vectors_NH),) = snapshot.vectors_NH.items()
        expected = database.get(f"{space}_fingerprint")

        if fast and space == "encoder":
            model = open_vectors("static", database.get("static_model"))
            if getattr(model, "space", None) != expected:
                raise InputError(
                    f"{self.directory}: its static vectors are not fitted to its encoder, so they cannot search the "
                    f"encoder's vectors; leave out {flag('fast')}"
                )
        else:
            model = open_vectors(space, database.get(f"{space}_model"))
            if model.fingerprint != expected:
                raise InputError(
                    f"{self.directory}: indexed with another model (fingerprint {expected}, this one "
                    f"{model.fingerprint}); search with the same model, or index again"
                )
        return self._products(vectors_NH, model.embed([query])[0])

    def _products(self, vectors_NH: np.ndarray, query_H: np.ndarray) -> np.ndarray:
        """The products of all vectors with the vector of a query."""
        # Searches beside each other take a thread each: six at once make 79 a second so, and 39 with two threads each
        # (docs/LOG.md, Searches at once).
        with single_blas_thread() if len(self._busy) > 1 else nullcontext():
            return np.asarray(vectors_NH @ query_H)

    # --- around a hit -------------------------------------------------------------------------------------------------

    def columns(self) -> list[str]:
        """The names that a condition of `search` may have: columns of the passage, and metadata, at most 100 names."""
        with self._reading() as database:
            return _columns(database)

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
            before.reverse()
            return (
                [_hit(database, neighbour) for (neighbour,) in before],
                [_hit(database, neighbour) for (neighbour,) in after],
            )

    def passages_from(
        self,
        path: str,
        line: int | None,
        number: int,
        *,
        page: int | None = None,
        start: int | None = None,
    ) -> list[Hit]:
        """The passages of a file in their order, from a place on: the place of a hit, given by some or all of its line,
        page and start. A place that the format of the file does not have, such as a line in HTML, counts for nothing.

        path: of the file, as in a hit, or relative to the indexed folder.
        line, page, start: of the first passage; None: any.
        number: at most so many passages.

        InputError if the file is not indexed.
        """
        with self._reading() as database:
            row = database.execute(
                f"SELECT files.id FROM {FILES} WHERE {LOCATED} = :path OR nullif(files.path, '') = :path "
                f"ORDER BY {LOCATED} != :path LIMIT 1",
                {"path": path},
            ).fetchone()
            if row is None:
                raise InputError(f"{path}: no file of the index; search for it first")

            # The first passage at the place; if none starts on its line, the last one before it.
            slots = database.execute(
                "SELECT slot FROM passages WHERE file = :file AND slot >= coalesce("
                "(SELECT min(slot) FROM passages WHERE file = :file AND ifnull(page = :page, 1) "
                "AND ifnull(line = :line, 1) AND ifnull(last > :start, 1)), "
                "(SELECT max(slot) FROM passages WHERE file = :file AND ifnull(page <= :page, 1) "
                "AND ifnull(line <= :line, 1) AND ifnull(first <= :start, 1)), 0) ORDER BY slot LIMIT :number",
                {"file": row[0], "page": page, "line": line, "start": start, "number": number},
            ).fetchall()
            return [_hit(database, slot) for (slot,) in slots]


def _space(database: Database) -> Space:
    slots = database.get("slots", 0)
    if slots and database.get("encoder_rows", -1) >= slots:
        return "encoder"
    return "static"


def _check(how: str, top: int, min_score: float | None) -> None:
    if how not in ("hybrid", "words", "vectors"):
        raise InputError(f"how ({how!r}) must be hybrid, words or vectors")
    if top < 1:
        raise InputError(f"top ({top}) must be at least 1")
    if min_score is not None and not 0 <= min_score <= 1:
        raise InputError(f"min_score ({min_score}) must be from 0 to 1")


def _way_of_searching(how: How, fast: bool, space: Space) -> str:
    """The key of `relevance.COEFFICIENTS`."""
    if how == "words":
        return how
    if fast and space == "encoder":
        return f"{how}, fast"
    return f"{how}, {space}"


def _marked(database: Database, slots_K: np.ndarray, scores_K: np.ndarray, min_score: float | None) -> list[Hit]:
    """Hits with their scores; without those below `min_score`, if there is one."""
    least = WEAK if min_score is None else min_score
    hits = []
    for slot, score in zip(slots_K.tolist(), scores_K.tolist(), strict=True):
        if min_score is None or score >= least:
            hits.append(_hit(database, slot, score, weak=score < least))
    return hits


def _hit(database: Database, slot: int, score: float = 0.0, *, weak: bool = False) -> Hit:
    path, line, page, first, last, heading, text, metadata = database.execute(
        f"SELECT {LOCATED}, line, page, first, last, heading, text, metadata FROM passages "
        f"JOIN ({FILES}) ON files.id = passages.file WHERE slot = ?",
        (slot,),
    ).fetchone()
    return Hit(
        path=as_path(path),
        line=line,
        page=page,
        start=first,
        end=last,
        heading=heading,
        text=text,
        score=score,
        metadata=json.loads(metadata) if metadata else {},
        weak=weak,
    )


def _columns(database: Database) -> list[str]:
    rows = database.execute(f"SELECT DISTINCT key FROM {METADATA} LIMIT {MOST_COLUMNS}")
    return [*COLUMNS, *sorted(name for (name,) in rows)]
