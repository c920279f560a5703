"""Relevance: the score of a hit, an estimated probability in 0..1, from its cosine and its words.

It does not depend on the other hits, so scores of different queries can be compared. `benchmarks/search_scores.py` fits
the coefficients on SciFact and Cranfield, and `benchmarks/search_folders.py` the coefficient of small indexes. A cosine
counts by its distance from the cosines of other texts in bothways/sample/passages.jsonl, and a word of an index of few
passages by how many passages of other texts have it (word_shares.txt), so that indexes of all sizes have the same
scale. Letters: N slots, K hits, F signals.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from bothways.search.spaces import VectorModel
from bothways.text.retrieval.bm25 import Bm25, InvertedList

# A hit of a lower score is probably not relevant: the greatest multiple of 0.05 at which at most 5 % of the relevant
# first hits are weak, on both sets and by both kinds of vectors (docs/RESULTS.md, Search).
WEAK = 0.15

# Stems of English words that a question has for its form, so a passage need not contain them.
QUESTION_TERMS = frozenset(
    (
        "about",
        "ani",
        "can",
        "could",
        "did",
        "do",
        "doe",
        "from",
        "had",
        "has",
        "have",
        "he",
        "how",
        "i",
        "me",
        "might",
        "must",
        "my",
        "our",
        "should",
        "than",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "whi",
        "whom",
        "would",
        "you",
        "your",
    )
)

# Of the packaged models: mean and standard deviation of the cosines of different texts in passages.jsonl.
BACKGROUNDS = {
    "static": (0.164, 0.09),
    "encoder": (0.164, 0.11),
}

# Of fewer than SMALL passages the best one is right more often than its other signals say; measured down to SMALLEST.
# In folders of five documents, scores of 0.32 on average were right in 0.47 of the cases; now they are 0.45
# (docs/RESULTS.md, Small folders).
SMALL = 50
SMALLEST = 5

# {way of searching: the intercept, and the coefficients of the signals in the order of COSINE to SMALLNESS}
COEFFICIENTS = {
    "words": (-4.621, 0.0, 10.621, 3.587, 0.6),
    "vectors, static": (-4.816, 1.022, 0.0, 0.0, 0.96),
    "vectors, encoder": (-4.426, 1.119, 0.0, 0.0, 0.75),
    "vectors, fast": (-3.928, 1.232, 0.0, 0.0, 0.77),
    "hybrid, static": (-4.553, 0.587, 1.84, 3.916, 0.56),
    "hybrid, encoder": (-4.392, 0.828, 1.755, 2.762, 0.43),
    "hybrid, fast": (-4.051, 0.733, 3.125, 2.976, 0.49),
}
COSINE = 0  # in standard deviations above the mean of the background
BM25_SHARE = 1  # the BM25 score as a share of the greatest possible one
WORD_SHARE = 2  # the share of the query's words in the passage
SMALLNESS = 3  # how small the index is (`smallness`)
NUM_SIGNALS = 4


@dataclass(frozen=True)
class QueryScores:
    """The scores of all passages for a query.

    terms: of the query.
    lists: the inverted lists of each term.
    words_N: BM25 scores, float32 [N]; None: not searched by words.
    cosines_N: float32 [N]; None: not searched by vectors.
    """

    terms: Sequence[str]
    lists: Mapping[str, Sequence[InvertedList]]
    words_N: np.ndarray | None
    cosines_N: np.ndarray | None


def relevance(way: str, signals_KF: np.ndarray) -> np.ndarray:
    """The scores of hits, float64 [K]. way: a key of COEFFICIENTS. signals_KF: of `relevance_signals`."""
    intercept, *slopes = COEFFICIENTS[way]
    return np.asarray(1 / (1 + np.exp(-(intercept + signals_KF @ np.array(slopes)))))


def relevance_signals(
    scores: QueryScores,
    slots_K: np.ndarray,
    *,
    bm25: Bm25,
    background: tuple[float, float],
) -> np.ndarray:
    """The signals of hits, float64 [K, F]; 0 for signals of a way in which nothing was searched.

    scores: of all passages.
    slots_K: the hits.
    bm25: of the index.
    background: mean and standard deviation of the cosines of different texts.
    """
    signals_KF = np.zeros((len(slots_K), NUM_SIGNALS))
    signals_KF[:, SMALLNESS] = smallness(bm25.number)

    if scores.cosines_N is not None:
        mean, deviation = background
        signals_KF[:, COSINE] = (scores.cosines_N[slots_K] - mean) / (deviation or 1.0)

    if scores.words_N is not None:
        greatest, shares_K = word_shares(scores.terms, scores.lists, bm25, slots_K)
        signals_KF[:, BM25_SHARE] = scores.words_N[slots_K] / (greatest or 1.0)
        signals_KF[:, WORD_SHARE] = shares_K

    return signals_KF


def smallness(passages: int) -> float:
    """How small an index is: the natural logarithm of SMALL / passages; 0 for SMALL passages or more, and at most the
    logarithm of SMALL / SMALLEST.

    Among few passages there are few that look right by chance. So the same signals are better evidence there.
    """
    return math.log(SMALL / min(max(passages, SMALLEST), SMALL))


def word_shares(
    terms: Sequence[str],
    lists: Mapping[str, Sequence[InvertedList]],
    bm25: Bm25,
    slots_K: np.ndarray,
) -> tuple[float, np.ndarray]:
    """The greatest possible BM25 score of a query, and the share of its words in each passage, float64 [K].

    Both weigh a word by its idf; a word that no passage has weighs most.

    terms: of the query.
    lists: the inverted lists of each term.
    bm25: of the index.
    slots_K: the passages.
    """
    content = set(terms) - QUESTION_TERMS or set(terms)
    greatest = 0.0
    total = 0.0
    wanted_K = slots_K.astype(np.uint32)
    shared_K = np.zeros(len(slots_K))

    for term, repeats in Counter(terms).items():
        parts = bm25.living(lists.get(term, ()))
        idf = bm25.idf(term, parts)
        greatest += repeats * idf
        if term not in content:
            continue

        total += idf
        for part in parts:
            # The slots of a part ascend, so a slot is in it if its two insertion points differ.
            is_in_part_K = part.slots.searchsorted(wanted_K, "right") > part.slots.searchsorted(wanted_K)
            shared_K += idf * is_in_part_K

    return greatest, shared_K / (total or 1.0)


def background(model: VectorModel) -> tuple[float, float]:
    """Mean and standard deviation of the cosines of different texts in passages.jsonl."""
    lines = files("bothways").joinpath("sample", "passages.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    vectors_NH = model.embed([row.get("text") or row["question"] for row in rows])
    cosines = (vectors_NH @ vectors_NH.T)[np.triu_indices(len(rows), 1)]
    return float(cosines.mean()), float(cosines.std())
