"""Word search: terms, inverted lists, BM25."""

import math

import numpy as np
import pytest

from bothways.search.words import K1, Analyzer, B, Bm25, InvertedList, invert

DOCUMENTS = [["fee", "late", "fee"], ["invoice"], [], ["late", "invoice", "fee", "fee", "fee", "paid"]]


def slow_bm25(query: list[str], documents: list[list[str]]) -> list[float]:
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for term in query:
            frequency = sum(term in other for other in documents)
            weight = math.log(1 + (len(documents) - frequency + 0.5) / (frequency + 0.5))
            count = document.count(term)
            score += weight * count / (count + K1 * (1 - B + B * len(document) / mean))
        scores.append(score)
    return scores


def test_terms_are_lower_case_stems_without_stop_words():
    assert Analyzer("en").terms("The Invoices were not PAID, late_fees: 1,234!") == [
        "invoic", "were", "paid", "late", "fee", "1", "234"
    ]  # fmt: skip
    assert Analyzer("de").terms("Die Rechnungen") == ["die", "rechnung"]
    assert Analyzer("ja").terms("納品書 ABC") == ["納品書", "abc"]


def test_scores_equal_the_formula():
    lists, lengths = invert(DOCUMENTS)
    bm25 = Bm25(lengths, np.ones(4, bool))
    for query in (["fee"], ["late", "fee", "fee"], ["unknown"], []):
        scores = bm25.scores(query, {term: [one] for term, one in lists.items()})
        np.testing.assert_allclose(scores, slow_bm25(query, DOCUMENTS), rtol=1e-5)


def test_removed_passages_count_for_nothing():
    """The scores are those of an index that never had them."""
    lists, lengths = invert(DOCUMENTS)
    scores = Bm25(lengths, np.array([True, False, True, True])).scores(
        ["invoice", "fee"], {term: [one] for term, one in lists.items()}
    )
    kept = slow_bm25(["invoice", "fee"], [DOCUMENTS[0], DOCUMENTS[2], DOCUMENTS[3]])
    np.testing.assert_allclose(scores, [kept[0], 0, *kept[1:]], rtol=1e-5)


def test_batches_of_passages_score_as_one():
    whole, lengths = invert(DOCUMENTS)
    first, second = invert(DOCUMENTS[:1])[0], invert(DOCUMENTS[1:], 1)[0]
    parts: dict[str, list[InvertedList]] = {}
    for lists in (first, second):
        for term, one in lists.items():
            parts.setdefault(term, []).append(one)
    bm25 = Bm25(lengths, np.ones(4, bool))
    query = ["fee", "invoice", "late"]
    assert (bm25.scores(query, parts) == bm25.scores(query, {term: [one] for term, one in whole.items()})).all()


def test_counts_saturate():
    lists, lengths = invert([["x"] * 1000])
    assert lists["x"].counts.tolist() == [255]
    assert lengths.tolist() == [1000]


@pytest.mark.parametrize("documents", [[], [[]]])
def test_nothing_to_invert(documents):
    lists, lengths = invert(documents)
    assert not lists
    assert len(lengths) == len(documents)
