"""Another embedding model for a store: new vectors of the passages that it has, computed, or mapped from the old ones.

Searches go on with the old vectors and the old model until the new ones are complete; one transaction then switches
both. The texts come from the store, so no file is read. Letters: N passages, Q queries, G size of an old vector, H of a
new one.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.errors import InputError, flag, format_count
from bothways.base.log import logger
from bothways.base.progress import working
from bothways.pretrained import locate
from bothways.search.database import Database, check_is_store
from bothways.search.indexing import ENCODER_PASSAGES, IndexingProgress
from bothways.search.mapping.linear_map import FittedMap, fit_map
from bothways.search.mapping.map_loss import MapLoss, neighbour_loss, query_loss
from bothways.search.relevance import background
from bothways.search.spaces import EncoderVectors, files_state
from bothways.search.vector_file import append_vectors, map_vectors
from bothways.search.writing import next_file_name, own_lock, unfinished
from bothways.text.data.model_inputs import as_rows, read_texts

LEAST_SAMPLE = 100  # passages: fewer say little about a map of hundreds of dimensions
MAPPED_ROWS = 16_384  # vectors that are mapped at a time
SAMPLE_SEED = 0
# What a store knows of the vectors of an encoder: keys of the database behind encoder_, or behind pending_.
DESCRIPTION = ("model", "fingerprint", "state", "background", "file", "rows", "dimension")


@dataclass(frozen=True)
class MappedVectors:
    """How vectors were mapped, as a store keeps it.

    source: the model of the vectors that were mapped.
    sample: number of passages that the map was fitted to.
    penalty: of the ridge regression (mapping/linear_map.py); None: the map is a rotation.
    cosine: the mean cosine of mapped and computed vectors of held-out passages.
    loss: of a search.
    """

    source: str
    sample: int
    penalty: float | None
    cosine: float
    loss: MapLoss

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "loss": self.loss.to_json()}


@dataclass(frozen=True)
class Reindexed:
    """Result of a change of the embedding model.

    model: whose vectors are searched now.
    passages: of the store.
    computed: passages that the model has read in this run.
    mapped: how the other vectors were made; None: all were computed.
    dropped: the model whose incomplete vectors were dropped, so that nothing else has changed; None: none were.
    """

    store: Path
    model: str
    passages: int
    computed: int = 0
    mapped: MappedVectors | None = None
    dropped: str | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, object]:
        mapped = self.mapped.to_json() if self.mapped else None
        return {**vars(self), "store": str(self.store), "mapped": mapped}

    def lines(self) -> Iterator[str]:
        if self.dropped is not None:
            yield f"the incomplete vectors of {self.dropped} are dropped; {self.model} stays, in {self.store}"
            return

        how = f"{self.computed:,} computed"
        if self.mapped is not None:
            how = f"mapped from {self.mapped.source} by a sample of {self.mapped.sample:,}"
        passages = format_count(self.passages, "passage")
        yield f"{passages} with vectors of {self.model} in {self.seconds:.1f} s ({how}), in {self.store}"
        if self.mapped is not None:
            yield self.mapped.loss.line()


@working("reindex")
def reindex(
    store: Path,
    model: str,
    *,
    sample: int | None = None,
    queries: Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> Reindexed:
    """Give the passages of a store the vectors of another embedding model.

    store: its directory.
    model: the new model. The model that the store has drops the vectors of a reindex that was interrupted.
    sample: map the old vectors by a linear map that is fitted to so many passages; None: compute all vectors.
    queries: of users, a text or a table with one a line, on which the loss of the map is measured. A column "passage"
        has the text of a right passage, as the store has it.

    A run that computes all vectors continues where an interrupted one was; a run that maps them starts again.

    InputError if there is no store, if it has no vectors of an encoder or has those of this model already, if a
    reindex with another model was interrupted, and for a sample that is too small or has all passages.

        reindex(Path("my-index"), "my-embedder").computed
    """
    started = time.monotonic()
    check_is_store(store)  # before anything is written beside it

    with own_lock(store):
        vectors = PendingVectors(store)
        try:
            vectors.delete_other_files()
            passages = int(vectors.database.execute("SELECT count(*) FROM passages").fetchone()[0])

            dropped = vectors.pending_model
            if dropped not in (None, model) and model == vectors.current_model:
                vectors.drop()
                return Reindexed(store, model, passages, dropped=dropped)

            vectors.check(model, is_mapped=sample is not None)
            if sample is None:
                encoder = vectors.open(model, device=device, dtype=dtype)
                computed = _compute(vectors, encoder)
                mapped = None
            else:
                asked = read_queries(queries, vectors) if queries is not None else None
                sample_N = vectors.choose_sample(sample, without=asked.slots if asked else ())
                encoder = vectors.open(model, device=device, dtype=dtype)
                mapped, computed = _map(vectors, encoder, sample_N, asked)
        finally:
            vectors.close()

    return Reindexed(
        store,
        model,
        passages,
        computed=computed,
        mapped=mapped,
        seconds=time.monotonic() - started,
    )


def _compute(vectors: "PendingVectors", encoder: EncoderVectors) -> int:
    """Compute the vectors of all passages, and search them. Returns the number that this run has computed."""
    vectors.begin(encoder)
    first = vectors.rows
    with IndexingProgress("vectors", "passages", vectors.slots, done=first) as progress:
        while texts := vectors.missing_texts(ENCODER_PASSAGES):
            vectors.append(encoder.embed(texts))
            progress.show(vectors.rows)

    computed = vectors.rows - first
    vectors.switch()
    return computed


def _map(
    vectors: "PendingVectors",
    encoder: EncoderVectors,
    sample_N: np.ndarray,
    asked: "UserQueries | None",
) -> tuple[MappedVectors, int]:
    """Map the vectors of all passages, and search them. Returns how, and the number of passages that were computed.

    sample_N: the slots of the sample, in random order.
    asked: the queries of users, whose right passages are not in the sample.
    """
    size = len(sample_N)
    judged_N = np.array(asked.slots if asked else (), np.int64)
    exact_NH = _embed(encoder, vectors.texts_of([*sample_N.tolist(), *judged_N.tolist()]))

    old_NG = vectors.old_vectors()
    fitted = fit_map(np.asarray(old_NG[sample_N]), exact_NH[:size])
    # No passage is measured by a map that was fitted to it.
    heldout_NH = np.concatenate([fitted.heldout_NH, fitted.apply(old_NG[judged_N])])

    mapped = MappedVectors(
        source=str(vectors.current_model),
        sample=size,
        penalty=fitted.penalty,
        cosine=round(fitted.cosine, 4),
        loss=_loss(encoder, heldout_NH, exact_NH, asked, size),
    )
    vectors.replace(
        encoder,
        (fitted.apply(old_NG[first : first + MAPPED_ROWS]) for first in range(0, len(old_NG), MAPPED_ROWS)),
        mapped,
        scale=_background(encoder, fitted, exact_NH[:size]),
    )
    return mapped, len(exact_NH)


def _embed(encoder: EncoderVectors, texts: Sequence[str]) -> np.ndarray:
    """The vectors of the texts of a sample, float32 [N, H]."""
    parts = []
    with IndexingProgress("vectors of the sample", "passages", len(texts)) as progress:
        for first in range(0, len(texts), ENCODER_PASSAGES):
            parts.append(encoder.embed(texts[first : first + ENCODER_PASSAGES]))
            progress.show(min(first + ENCODER_PASSAGES, len(texts)))
    return np.concatenate(parts)


def _loss(
    encoder: EncoderVectors,
    mapped_NH: np.ndarray,
    exact_NH: np.ndarray,
    asked: "UserQueries | None",
    size: int,
) -> MapLoss:
    """On the queries of users, if there are any, else on the passages themselves. size: of the sample, behind which
    the right passages of the queries stand."""
    if asked is None:
        return neighbour_loss(mapped_NH, exact_NH)

    grades = None
    if asked.right is not None:
        places = {slot: size + place for place, slot in enumerate(asked.slots)}
        grades = [{places[slot]: 1.0 for slot in slots} for slots in asked.right]
    return query_loss(encoder.embed(asked.texts), mapped_NH, exact_NH, grades)


def _background(encoder: EncoderVectors, fitted: FittedMap, exact_NH: np.ndarray) -> tuple[float, float]:
    """The scale of the cosines between computed vectors and mapped ones.

    The background of the model, moved and stretched as the cosines of different passages of the sample are: mapped
    vectors have lost what the map could not know, so they are nearer to each other and to every query.
    """
    mean, deviation = background(encoder)
    rows = slice(0, 1024)
    different = ~np.eye(len(exact_NH[rows]), dtype=bool)
    exact = (exact_NH[rows] @ exact_NH[rows].T)[different]
    mapped = (exact_NH[rows] @ fitted.heldout_NH[rows].T)[different]

    moved = mean + float(mapped.mean()) - float(exact.mean())
    return moved, deviation * float(mapped.std()) / (float(exact.std()) or 1.0)


# --- the queries of users ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UserQueries:
    """Queries of users. texts: each once. right: the slots of the right passages of each; None: nobody judged them."""

    texts: Sequence[str]
    right: Sequence[Sequence[int]] | None = None

    @property
    def slots(self) -> list[int]:
        """The slots of all right passages, each once, ascending."""
        return sorted({slot for slots in self.right or () for slot in slots})


def read_queries(path: Path, vectors: "PendingVectors") -> UserQueries:
    """The queries of a text file, one a line, or of a table: in its column "query", or in a column that holds texts
    elsewhere, too. Its column "passage", if there is one, has the text of a right passage, as the store has it.

    InputError without a query, and if the store has none of the passages.
    """
    rows = as_rows(str(path))
    names = [] if rows.form.is_text else rows.names()
    text = "query" if "query" in names else None
    pair = "passage" if "passage" in names else None

    right: dict[str, list[int]] = {}
    missing = 0
    for row in read_texts(rows, text=text, pair=pair):
        if isinstance(row, InputError):
            raise row
        if row is None or not row.text.strip():
            continue
        slots = vectors.slots_of(row.pair) if pair and row.pair else []
        missing += not slots
        if slots or not pair:
            right.setdefault(row.text, []).extend(slots)

    if pair and missing and not right:
        raise InputError(
            f"{path}: none of its passages is in the index as it is written there; take the texts from a search, or "
            "leave out the column passage"
        )
    if not right:
        raise InputError(f"{path}: no query; give a file with one query a line, or leave out {flag('queries')}")
    if pair and missing:
        logger.warning(f"{path}: {format_count(missing, 'row')} with a passage that is not in the index; left out")
    return UserQueries([*right], [*right.values()] if pair else None)


# --- the vectors in the store -----------------------------------------------------------------------------------------


class PendingVectors:
    """The vectors of another model beside the vectors that are searched. Only the process that holds `writer_lock` may
    have them.

    They have a file of their own, and keys of the database that start with pending_, so that searches do not see them.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.database = Database(directory, create=True)

    def close(self) -> None:
        self.database.close()

    @property
    def slots(self) -> int:
        return int(self.database.get("slots", 0))

    @property
    def rows(self) -> int:
        """Number of pending vectors that are on disk."""
        return int(self.database.get("pending_rows", 0))

    @property
    def current_model(self) -> str | None:
        """The model whose vectors are searched."""
        model: str | None = self.database.get("encoder_model")
        return model

    @property
    def pending_model(self) -> str | None:
        """The model of an incomplete reindex."""
        model: str | None = self.database.get("pending_model")
        return model

    # --- checks -------------------------------------------------------------------------------------------------------

    def check(self, model: str, *, is_mapped: bool) -> None:
        """InputError if a reindex cannot start: before the model is loaded, which takes seconds."""
        if self.database.get("encoder_fingerprint") is None:
            raise InputError(
                f"{self.directory}: has no vectors of an encoder that {flag('reindex')} could replace; index its "
                f"folders with {flag('model', model)}"
            )
        if self.pending_model is not None and (is_mapped or model != self.pending_model):
            raise InputError(f"{self.directory}: {unfinished(self.database)}")
        if not is_mapped:
            return

        if self.database.get("encoder_mapped"):
            raise InputError(
                f"{self.directory}: its vectors are mapped already, and a map of a map would lose twice; leave out "
                f"{flag('map')} to compute them"
            )
        if self.database.get("encoder_rows", -1) < self.slots:
            raise InputError(
                f"{self.directory}: not all passages have a vector of {self.current_model} to map; leave out "
                f"{flag('map')}, or index its folders again first"
            )

    def open(self, model: str, *, device: str, dtype: str) -> EncoderVectors:
        """Load the new model. InputError if the store has its computed vectors already."""
        encoder = EncoderVectors(model, device=device, dtype=dtype)
        is_same = encoder.fingerprint == self.database.get("encoder_fingerprint")
        if is_same and not self.database.get("encoder_mapped"):
            raise InputError(
                f"{self.directory}: its vectors are those of {model} already; name another {flag('model')}, or leave "
                f"out {flag('reindex')}"
            )
        return encoder

    def choose_sample(self, number: int, *, without: Sequence[int] = ()) -> np.ndarray:
        """The slots of random passages, int64 [number], in random order, the same in each run. without: slots that are
        not in it.

        InputError if there are too few, or no more passages than these.
        """
        if number < LEAST_SAMPLE:
            raise InputError(f"{flag('map', number)} is too small a sample; name at least {LEAST_SAMPLE} passages")

        left_out = set(without)
        rows = self.database.execute("SELECT slot FROM passages ORDER BY slot").fetchall()
        passages = len(rows) - len(left_out)
        if number >= passages:
            raise InputError(
                f"{flag('map', number)} is no sample of {format_count(passages, 'passage')}; leave it out, as "
                "computing all vectors costs no more"
            )
        slots_N = np.array([slot for (slot,) in rows if slot not in left_out], np.int64)
        return np.random.default_rng(SAMPLE_SEED).permutation(slots_N)[:number]

    # --- passages and old vectors -------------------------------------------------------------------------------------

    def missing_texts(self, number: int) -> list[str]:
        """The texts of the next slots without a pending vector; "" for a slot that no longer has a passage."""
        return self.database.texts(self.rows, min(number, self.slots - self.rows))

    def texts_of(self, slots: Sequence[int]) -> list[str]:
        """The texts of passages, in this order."""
        texts = []
        for slot in slots:
            (text,) = self.database.execute("SELECT text FROM passages WHERE slot = ?", (slot,)).fetchone()
            texts.append(text)
        return texts

    def slots_of(self, text: str) -> list[int]:
        """The passages with exactly this text."""
        return [slot for (slot,) in self.database.execute("SELECT slot FROM passages WHERE text = ?", (text,))]

    def old_vectors(self) -> np.ndarray:
        """The vectors that are searched, float32 [slots, G]."""
        get = self.database.get
        return map_vectors(self.directory / get("encoder_file"), self.slots, get("encoder_dimension"))

    # --- commits ------------------------------------------------------------------------------------------------------

    def begin(self, encoder: EncoderVectors) -> None:
        """Choose the model, and keep what an interrupted run has computed with it."""
        state = files_state(encoder.model)
        if encoder.fingerprint == self.database.get("pending_fingerprint"):
            self.database.put(pending_state=state)
            return

        if self.pending_model is not None:
            logger.warning(f"{encoder.model}: changed since the reindex was interrupted; computing all vectors again")
        values = self._described(encoder)
        if locate(encoder.model) is None:
            values["background"] = background(encoder)

        with self.database.transaction():
            self._forget()
            self.database.put(**{f"pending_{name}": value for name, value in values.items()})

    def append(self, vectors_nH: np.ndarray) -> None:
        """Add vectors of the next slots."""
        first = self.rows
        append_vectors(self.directory / self.database.get("pending_file"), first, vectors_nH)
        with self.database.transaction():
            self.database.put(pending_rows=first + len(vectors_nH), pending_dimension=vectors_nH.shape[1])

    def switch(self) -> None:
        """Let searches use the pending vectors, all of which have been computed, and their model."""
        self._switch({name: self.database.get(f"pending_{name}") for name in DESCRIPTION}, None)

    def replace(
        self,
        encoder: EncoderVectors,
        parts: Iterable[np.ndarray],
        mapped: MappedVectors,
        *,
        scale: tuple[float, float],
    ) -> None:
        """Let searches use mapped vectors. The database does not name them before all are on disk.

        encoder: their model.
        parts: the vectors of all slots, in their order.
        mapped: how they were made.
        scale: mean and standard deviation of the cosines of different texts.
        """
        values = self._described(encoder)
        rows = 0
        for vectors_nH in parts:
            append_vectors(self.directory / values["file"], rows, vectors_nH)
            rows += len(vectors_nH)
            values["dimension"] = vectors_nH.shape[1]
        self._switch({**values, "rows": rows, "background": scale}, mapped)

    def _described(self, encoder: EncoderVectors) -> dict[str, Any]:
        """The values of a model without vectors, by the names of DESCRIPTION."""
        before = self.database.get("encoder_file")
        return {
            "model": encoder.model,
            "fingerprint": encoder.fingerprint,
            "state": files_state(encoder.model),
            "background": None,
            "file": next_file_name(before) if before else "encoder-0.f32",
            "rows": 0,
            "dimension": 0,
        }

    def _switch(self, values: Mapping[str, Any], mapped: MappedVectors | None) -> None:
        """Let searches use other vectors; all or nothing."""
        with self.database.transaction():
            self.database.put(**{f"encoder_{name}": value for name, value in values.items()})
            self.database.put(
                encoder_mapped=mapped.to_json() if mapped else None,
                change=self.database.get("change", 0) + 1,
            )
            self._forget()
        self.delete_other_files()

    def drop(self) -> None:
        """Forget the vectors of an incomplete reindex."""
        with self.database.transaction():
            self._forget()
        self.delete_other_files()

    def _forget(self) -> None:
        self.database.execute("DELETE FROM meta WHERE key LIKE 'pending!_%' ESCAPE '!'")

    def delete_other_files(self) -> None:
        """Delete files of vectors that the database does not name, as a kill leaves them."""
        named = {self.database.get("encoder_file"), self.database.get("pending_file")}
        for path in self.directory.glob("encoder-*.f32"):
            if path.name not in named:
                with suppress(OSError):  # it is only of use to searches that began before
                    path.unlink()
