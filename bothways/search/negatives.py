"""Mining of negatives: what a search finds for a query, beside the passages that are known to be relevant.

The rows are written as JSON lines of query, passage, label, rank and score. A training reads them as it reads any other
table; it does not know this module. Letters: D documents, Q queries, H vector size.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.errors import InputError, format_count
from bothways.base.io import read_json, to_json, write_atomic
from bothways.base.log import ProgressBar, logger
from bothways.search.spaces import open_vectors
from bothways.search.store import Store
from bothways.text.data.near_duplicates import text_key
from bothways.text.retrieval.collection import Collection

MIN_CONTAINED = 5  # words of a text that counts as part of another
Relevant = Mapping[str, Mapping[str, float]]  # {query: {relevant passage: label}}


@dataclass(frozen=True)
class FoundPassage:
    """A passage in the result of a search, and its score."""

    text: str
    score: float


@dataclass(frozen=True)
class MiningOptions:
    """Which passages of a search are negatives.

    passages: how many of the first ones are read. first_rank: those before this place are none. max_share: nor are
    those with a higher score than this share of the best relevant passage's; None: no such limit.
    """

    passages: int
    first_rank: int = 1
    max_share: float | None = None


Find = Callable[[str, int], Sequence[FoundPassage]]  # (query, number) -> passages, best first


def write_negatives(
    relevant: Relevant, find: Find, options: MiningOptions, file: Path, facts: Mapping[str, Any]
) -> None:
    """Search for every query, and write the passages to a file of JSON lines, whole or not at all. facts: where pairs
    and passages are from, which are written with the options beside it, for `is_mined`."""
    rows = [row for rows in _searched(relevant, find, options, facts) for row in rows]
    missing = sum(row["rank"] is None for row in rows)
    counts = {label: sum(row["label"] == label for row in rows) for label in (0, None)}
    logger.info(
        f"mined {len(rows):,} passages of {len(relevant):,} queries: {counts[0]:,} negatives, {counts[None]:,} that "
        f"may be relevant and are left out; the search does not find {missing:,} of the relevant ones"
    )
    _write(rows, file, options, facts)


def write_triplets(
    relevant: Relevant, find: Find, options: MiningOptions, file: Path, facts: Mapping[str, Any]
) -> None:
    """Search for every query, and write each of its relevant passages with a negative, as the columns text, pair and
    negative of JSON lines. Several relevant passages have different negatives, the first ones of the search. Queries
    without negatives are left out. facts: see `write_negatives`."""
    rows = list[dict[str, Any]]()
    for (query, passages), searched in zip(relevant.items(), _searched(relevant, find, options, facts), strict=True):
        negatives = [row["passage"] for row in searched if row["label"] == 0]
        for place, passage in enumerate(passages if negatives else ()):
            rows.append({"text": query, "pair": passage, "negative": negatives[place % len(negatives)]})
    left_out = sum(map(len, relevant.values())) - len(rows)
    logger.info(f"mined a negative for {len(rows):,} pairs; {left_out:,} are left out, for which none was found")
    _write(rows, file, options, facts)


def _searched(
    relevant: Relevant, find: Find, options: MiningOptions, facts: Mapping[str, Any]
) -> list[list[dict[str, Any]]]:
    """The rows of each query. InputError if no passage is a negative."""
    found = []
    with ProgressBar("searching", len(relevant)) as progress:
        for number, (query, passages) in enumerate(relevant.items(), 1):
            found.append([*query_rows(query, passages, find(query, options.passages), options)])
            progress.update(number, "queries")
    if not any(row["label"] == 0 for rows in found for row in rows):
        raise InputError(
            f"{facts['negatives_from']}: no negatives were found for "
            f"{format_count(len(relevant), 'query', 'queries')}; search a larger collection, or one with other texts"
        )
    return found


def _write(rows: Sequence[Mapping[str, Any]], file: Path, options: MiningOptions, facts: Mapping[str, Any]) -> None:
    write_atomic(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    write_atomic(facts_file(file), to_json(_facts(options, facts), 2) + "\n")


def is_mined(file: Path, options: MiningOptions, facts: Mapping[str, Any]) -> bool:
    """Whether the rows in a file were mined in this way. InputError if they were mined in another."""
    if not (file.exists() and facts_file(file).exists()):
        return False
    before, now = read_json(facts_file(file)), _facts(options, facts)
    if changed := [name for name in now if before.get(name) != now[name]]:
        name = changed[0]
        raise InputError(
            f"{file}: was mined with {name} {before.get(name)}, not {now[name]}; give the same options, or a new "
            "directory"
        )
    return True


def facts_file(file: Path) -> Path:
    return file.with_suffix(".json")


def _facts(options: MiningOptions, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {**facts, **asdict(options)}


def query_rows(
    query: str, relevant: Mapping[str, float], found: Sequence[FoundPassage], options: MiningOptions
) -> Iterator[dict[str, Any]]:
    """The rows of a query: the passages of a search, then the relevant ones that it did not find, without a rank.

    A near duplicate of a relevant passage is as relevant. If none was found, the first passage that is a part of a
    relevant one, or holds one, is. Others like that, near duplicates of the query, and what the options leave out have
    no label: nothing is learned from them.
    """
    label_by_key = {text_key(passage): label for passage, label in relevant.items()}
    keys = [text_key(one.text) for one in found]
    labels: list[float | None] = [label_by_key.get(key) for key in keys]
    known = {key for key in keys if key in label_by_key}
    is_part = [False] * len(found)

    for place, key in enumerate(keys):
        whole = next((other for other in label_by_key if key != other and _contains(key, other)), None)
        is_part[place] = whole is not None
        if whole is not None and whole not in known and labels[place] is None:
            labels[place] = label_by_key[whole]
            known.add(whole)

    scores = [one.score for one, label in zip(found, labels, strict=True) if label]
    for rank, (one, key, label) in enumerate(zip(found, keys, labels, strict=True), 1):
        is_close = options.max_share is not None and scores != [] and one.score > options.max_share * max(scores)
        is_left_out = is_part[rank - 1] or key == text_key(query) or rank < options.first_rank or is_close
        if label is None and not is_left_out:
            label = 0.0
        yield {"query": query, "passage": one.text, "label": label, "rank": rank, "score": round(one.score, 6)}

    for passage, label in relevant.items():
        if text_key(passage) not in known:
            yield {"query": query, "passage": passage, "label": label, "rank": None, "score": None}


def _contains(one: str, other: str) -> bool:
    """Whether a key is a part of another, which is long enough to be no coincidence."""
    short, long = sorted((one, other), key=len)
    return short.count(" ") + 1 >= MIN_CONTAINED and f" {short} " in f" {long} "


# --- where passages are found -----------------------------------------------------------------------------------------


def find_in_store(store: Store, *, device: str = "auto", dtype: str = "auto") -> Find:
    """Search an index by words and vectors."""
    vectors = partial(open_vectors, device=device, dtype=dtype)

    def find(query: str, number: int) -> list[FoundPassage]:
        return [FoundPassage(hit.text, hit.score) for hit in store.search(query, top=number, vectors=vectors)]

    return find


def find_in_documents(
    documents: Mapping[str, str], queries: Sequence[str], model: str, *, device: str = "auto", dtype: str = "auto"
) -> Find:
    """Search documents in memory by words and by the vectors of a model, which are computed here."""
    from bothways.inference.load import load
    from bothways.tasks.embed import embed_chunks

    predictor = load(model, device=device, dtype=dtype)
    documents_DH, queries_QH = (embed_chunks(predictor, [*texts]) for texts in (documents.values(), queries))
    collection = Collection.of(documents, vectors_DH=documents_DH)
    row_by_query = {query: row for row, query in enumerate(queries)}

    def find(query: str, number: int) -> list[FoundPassage]:
        vector_H: np.ndarray = queries_QH[row_by_query[query]]
        return [FoundPassage(documents[name], score) for name, score in collection.search(query, vector_H, number)]

    return find
