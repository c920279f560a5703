"""Relevance: signals of words, coefficients, backgrounds, scores of the packaged models."""

import math

import numpy as np
import pytest

from bothways.errors import InputError
from bothways.pretrained import STATIC
from bothways.search.indexing import index
from bothways.search.relevance import (
    BACKGROUNDS,
    COEFFICIENTS,
    QUESTION_TERMS,
    WEAK,
    background,
    relevance,
    word_shares,
)
from bothways.search.spaces import open_vectors
from bothways.search.store import Store
from bothways.search.words import Analyzer, Bm25, invert

TEXTS = ["a late fee", "the fee of the invoice", "a cat", "the cat and the late kitten"]


def test_shares_weigh_words_by_their_idf():
    analyzer = Analyzer()
    lists, lengths = invert([analyzer.terms(text) for text in TEXTS])
    bm25 = Bm25(lengths, np.array([True, True, True, False]))  # the last one does not exist any more
    terms = analyzer.terms("what is the late fee of a zebra")
    greatest, shares = word_shares(terms, {term: [one] for term, one in lists.items()}, bm25, np.array([0, 1, 2, 3]))
    late, fee, none = (math.log(1 + (3 - found + 0.5) / (found + 0.5)) for found in (1, 2, 0))
    assert greatest == pytest.approx(late + fee + 2 * none)  # "what" too
    np.testing.assert_allclose(shares, np.array([late + fee, fee, 0, 0]) / (late + fee + none))


def test_question_words_are_stems():
    analyzer = Analyzer()
    words = "about any can could did do does from had has have he how i me might must my our should than we were what"
    asked = analyzer.terms(words + " when where which who why whom would you your")
    assert {*asked} == QUESTION_TERMS


def test_a_score_is_a_logistic_function_of_the_signals(monkeypatch):
    monkeypatch.setitem(COEFFICIENTS, "words", (-1.0, 0.0, 2.0, 3.0))
    scores = relevance("words", np.array([[9.0, 0.5, 0.0], [0.0, 0.5, 1.0]]))
    np.testing.assert_allclose(scores, [0.5, 1 / (1 + math.exp(-3))])
    assert all(min(slopes) >= 0 for _, *slopes in COEFFICIENTS.values())  # more of a signal is never worse


def test_the_background_of_the_static_vectors_is_that_of_the_file():
    assert background(open_vectors("static", STATIC)) == pytest.approx(BACKGROUNDS["static"], abs=1e-3)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("relevance")
    (root / "documents").mkdir()
    for number, text in enumerate(TEXTS):
        (root / "documents" / f"{number}.txt").write_text(text)
    index([root / "documents"], root / "store", static_model=STATIC, encoder=None)
    with Store(root / "store") as store:
        yield store


@pytest.mark.parametrize("how", ["hybrid", "words", "vectors"])
def test_scores_do_not_depend_on_the_other_hits(store, how):
    hits = store.search("late fee", how=how)
    assert 0 < hits[-1].score < hits[0].score < 1
    assert hits[0].score > WEAK
    for hit in hits:
        (alone,) = store.search("late fee", how=how, globs=[hit.path.name])
        assert (alone.text, alone.score) == (hit.text, pytest.approx(hit.score))


def test_nothing_relevant_and_the_least_score(store):
    assert all(hit.weak for hit in store.search("boiling point of tungsten"))
    hits = store.search("late fee")
    assert [hit.weak for hit in hits] == [hit.score < WEAK for hit in hits]
    least = hits[0].score
    assert store.search("late fee", min_score=least) == hits[:1]
    assert not any(hit.weak for hit in store.search("late fee", min_score=0))
    with pytest.raises(InputError, match="min_score"):
        store.search("late fee", min_score=1.5)
