"""Mining of negatives: what a search finds for a query, beside the passages that are known to be relevant.

The rows are written as JSON lines of query, passage, label, rank and score. A training reads them as it reads any other
table; it does not know this module. Letters: D documents, Q queries, H vector size.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.errors import InputError, format_count
from bothways.base.io import read_json, to_json, write_atomic
from bothways.base.log import logger
from bothways.base.progress import ProgressBar
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

    passages: how many of the first ones are read.
    first_rank: passages before this rank are no negatives.
    max_share: nor are passages with a higher score than this share of the score of the best relevant passage; None:
        no such limit.
    """

    passages: int

    # Both limits are off. In 200 of 700 queries of SciFact the relevant passage is not the first one: the limits would
    # drop the passages above it, from which most is learned (docs/LOG.md, Rows between search and training).
    first_rank: int = 1
    max_share: float | None = None


Find = Callable[[str, int], Sequence[FoundPassage]]  # (query, number) -> passages, best first


def write_negatives(
    relevant: Relevant,
    find: Find,
    options: MiningOptions,
    file: Path,
    facts: Mapping[str, Any],
) -> None:
    """Search for every query, and write the passages to a file of JSON lines, whole or not at all.

    relevant: the relevant passages of each query.
    find: the search.
    options: which passages are negatives.
    file: what is written.
    facts: where pairs and passages are from; they are written with the options beside the file, for `is_mined`.
    """
    rows = [*chain.from_iterable(_searched(relevant, find, options, facts))]

    negatives = sum(row["label"] == 0 for row in rows)
    left_out = sum(row["label"] is None for row in rows)
    missing = sum(row["rank"] is None for row in rows)
    logger.info(
        f"mined {len(rows):,} passages of {len(relevant):,} queries: {negatives:,} negatives, {left_out:,} that "
        f"may be relevant and are left out; the search does not find {missing:,} of the relevant ones"
    )
    _write(rows, file, options, facts)


def write_triplets(
    relevant: Relevant,
    find: Find,
    options: MiningOptions,
    file: Path,
    facts: Mapping[str, Any],
) -> None:
    """Search for every query, and write each of its relevant passages with a negative, as the columns text, pair and
    negative of JSON lines; parameters as in `write_negatives`.

    Several relevant passages have different negatives, the first ones of the search. Queries without negatives are left
    out.
    """
    rows: list[dict[str, Any]] = []
    searched = _searched(relevant, find, options, facts)
    for (query, passages), found_rows in zip(relevant.items(), searched, strict=True):
        negatives = [row["passage"] for row in found_rows if row["label"] == 0]
        if not negatives:
            continue
        for passage, negative in zip(passages, cycle(negatives), strict=False):
            rows.append({"text": query, "pair": passage, "negative": negative})

    left_out = sum(map(len, relevant.values())) - len(rows)
    logger.info(f"mined a negative for {len(rows):,} pairs; {left_out:,} are left out, for which none was found")
    _write(rows, file, options, facts)


def _searched(
    relevant: Relevant,
    find: Find,
    options: MiningOptions,
    facts: Mapping[str, Any],
) -> list[list[dict[str, Any]]]:
    """The rows of each query. InputError if no passage is a negative."""
    rows_by_query = []
    with ProgressBar("searching", len(relevant)) as progress:
        for number, (query, passages) in enumerate(relevant.items(), 1):
            hits = find(query, options.passages)
            rows_by_query.append([*query_rows(query, passages, hits, options)])
            progress.update(number, "queries")

    if not any(row["label"] == 0 for row in chain.from_iterable(rows_by_query)):
        raise InputError(
            f"{facts['negatives_from']}: no negatives were found for "
            f"{format_count(len(relevant), 'query', 'queries')}; search a larger collection, or one with other texts"
        )
    return rows_by_query


def _write(rows: Sequence[Mapping[str, Any]], file: Path, options: MiningOptions, facts: Mapping[str, Any]) -> None:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    write_atomic(file, "".join(lines))
    write_atomic(facts_file(file), to_json(_facts(options, facts), 2) + "\n")


def is_mined(file: Path, options: MiningOptions, facts: Mapping[str, Any]) -> bool:
    """Whether the rows in a file were mined in this way. InputError if they were mined in another."""
    if not (file.exists() and facts_file(file).exists()):
        return False

    before = read_json(facts_file(file))
    for name, value in _facts(options, facts).items():
        if before.get(name) != value:
            raise InputError(
                f"{file}: was mined with {name} {before.get(name)}, not {value}; give the same options, or a new "
                "directory"
            )
    return True


def facts_file(file: Path) -> Path:
    return file.with_suffix(".json")


def _facts(options: MiningOptions, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {**facts, **asdict(options)}


def query_rows(
    query: str,
    relevant: Mapping[str, float],
    found: Sequence[FoundPassage],
    options: MiningOptions,
) -> Iterator[dict[str, Any]]:
    """The rows of a query: the passages of a search, then the relevant ones that it did not find, without a rank.

    A near duplicate of a relevant passage is as relevant. If none was found, the first passage that is a part of a
    relevant one, or holds one, is. Others like that, near duplicates of the query, and passages that the options leave
    out have no label: nothing is learned from them.

    query: a text.
    relevant: {relevant passage: label}.
    found: the passages of the search, best first.
    options: which of them are negatives.
    """
    label_by_key = {text_key(passage): label for passage, label in relevant.items()}
    keys = [text_key(passage.text) for passage in found]
    labels: list[float | None] = [label_by_key.get(key) for key in keys]
    found_keys = {key for key in keys if key in label_by_key}  # of relevant passages, or of parts of them
    is_part = [False] * len(found)

    for index, key in enumerate(keys):
        whole = next((other for other in label_by_key if key != other and _contains(key, other)), None)
        is_part[index] = whole is not None
        if whole is not None and whole not in found_keys and labels[index] is None:
            labels[index] = label_by_key[whole]
            found_keys.add(whole)

    highest = math.inf  # the greatest score of a negative
    if options.max_share is not None:
        scores = [passage.score for passage, label in zip(found, labels, strict=True) if label]
        if scores:
            highest = options.max_share * max(scores)

    # Passages without a label are written, too: dev and test must have all that the search of a user finds.
    for rank, (passage, key, label) in enumerate(zip(found, keys, labels, strict=True), 1):
        is_left_out = (
            is_part[rank - 1] or key == text_key(query) or rank < options.first_rank or passage.score > highest
        )
        if label is None and not is_left_out:
            label = 0.0
        yield {
            "query": query,
            "passage": passage.text,
            "label": label,
            "rank": rank,
            "score": round(passage.score, 6),
        }

    for text, label in relevant.items():
        if text_key(text) not in found_keys:
            yield {
                "query": query,
                "passage": text,
                "label": label,
                "rank": None,
                "score": None,
            }


def _contains(key: str, other: str) -> bool:
    """Whether a key is a part of another, which is long enough to be no coincidence."""
    short, long = sorted((key, other), key=len)
    return short.count(" ") + 1 >= MIN_CONTAINED and f" {short} " in f" {long} "


# --- where passages are found -----------------------------------------------------------------------------------------


def find_in_store(store: Store, *, device: str = "auto", dtype: str = "auto") -> Find:
    """Search an index by words and vectors."""
    vectors = partial(open_vectors, device=device, dtype=dtype)

    def find(query: str, number: int) -> list[FoundPassage]:
        hits = store.search(query, top=number, vectors=vectors)
        return [FoundPassage(hit.text, hit.score) for hit in hits]

    return find


def find_in_documents(
    documents: Mapping[str, str],
    queries: Sequence[str],
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
) -> Find:
    """Search documents in memory by words and by the vectors of a model, which are computed here.

    documents: texts by name.
    queries: all that will be searched for.
    model, device, dtype: of the vectors.
    """
    from bothways.inference.load import load
    from bothways.tasks.embed.task import embed_chunks

    predictor = load(model, device=device, dtype=dtype)
    documents_DH = embed_chunks(predictor, [*documents.values()])
    queries_QH = embed_chunks(predictor, [*queries])
    collection = Collection.of(documents, vectors_DH=documents_DH)
    row_by_query = {query: row for row, query in enumerate(queries)}

    def find(query: str, number: int) -> list[FoundPassage]:
        vector_H: np.ndarray = queries_QH[row_by_query[query]]
        scores = collection.search(query, vector_H, number)
        return [FoundPassage(documents[name], score) for name, score in scores]

    return find
