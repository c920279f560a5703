"""Relevance: signals of words, coefficients, backgrounds, scores of the packaged models."""

import math

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.pretrained import STATIC
from bothways.search.indexing import index
from bothways.search.relevance import (
    BACKGROUNDS,
    COEFFICIENTS,
    QUESTION_TERMS,
    SMALL,
    SMALLEST,
    WEAK,
    background,
    relevance,
    smallness,
    word_shares,
)
from bothways.search.spaces import open_vectors
from bothways.search.store import Store
from bothways.text.retrieval.bm25 import Bm25, invert
from bothways.text.retrieval.words import Analyzer

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
    monkeypatch.setitem(COEFFICIENTS, "words", (-1.0, 0.0, 2.0, 3.0, 0.0))
    scores = relevance("words", np.array([[9.0, 0.5, 0.0, 5.0], [0.0, 0.5, 1.0, 5.0]]))
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


def test_signals_are_better_evidence_in_a_small_index():
    sizes = [1, SMALLEST, 20, SMALL, 1000]
    assert [smallness(size) for size in sizes] == pytest.approx([math.log(10), math.log(10), math.log(2.5), 0, 0])
    assert all(slopes[-1] > 0 for slopes in COEFFICIENTS.values())


HANDBOOK = """# Heating

The dial in the hall sets all radiators of the house.

# Rubbish

The grey bin is emptied on Mondays, the blue one every second Thursday.

# Laundry

Tokens for the machine are sold by the caretaker.

# Parking

Guests leave their cars in the street.

# Keys

If you lose yours, the lock is changed at your expense.
"""


@pytest.fixture(scope="module")
def handbook(tmp_path_factory):
    root = tmp_path_factory.mktemp("handbook")
    (root / "documents").mkdir()
    (root / "documents" / "handbook.md").write_text(HANDBOOK)
    index([root / "documents"], root / "store", static_model=STATIC, encoder=None)
    with Store(root / "store") as store:
        yield store


@pytest.mark.parametrize(
    ("question", "heading"),
    [
        ("When is the rubbish collected?", "Rubbish"),
        ("Where can guests park?", "Parking"),
        ("Who sells tokens for the washing machine?", "Laundry"),
    ],
)
def test_the_right_passage_of_a_small_folder_is_not_weak(handbook, question, heading):
    first, *others = handbook.search(question)
    assert (first.heading, first.weak) == (heading, False)
    assert all(hit.weak for hit in others)
    assert handbook.search(question, how="words")[0].heading == heading


def test_questions_that_a_small_folder_does_not_answer_find_weak_hits(handbook):
    for question in ("What is the boiling point of tungsten?", "capital of Australia", "recipe for pancakes"):
        hits = handbook.search(question)
        assert hits
        assert all(hit.weak for hit in hits)


def test_a_passage_far_below_its_heading_is_found_by_its_words(tmp_path):
    (tmp_path / "documents").mkdir()
    long = " ".join(f"On day {number} the grey one is emptied, and the blue one is not." for number in range(40))
    (tmp_path / "documents" / "bins.md").write_text(f"# Rubbish\n\n{long}\n\n# Laundry\n\nTokens are sold.\n")
    index([tmp_path / "documents"], tmp_path / "store", static_model=STATIC, encoder=None)
    with Store(tmp_path / "store") as store:
        found = store.search("rubbish", how="words")
    assert len(found) > 1
    assert {hit.heading for hit in found} == {"Rubbish"}
    assert sum("Rubbish" in hit.text for hit in found) == 1


def test_nothing_relevant_and_the_least_score(store):
    assert all(hit.weak for hit in store.search("boiling point of tungsten"))
    hits = store.search("late fee")
    assert [hit.weak for hit in hits] == [hit.score < WEAK for hit in hits]
    least = hits[0].score
    assert store.search("late fee", min_score=least) == hits[:1]
    assert not any(hit.weak for hit in store.search("late fee", min_score=0))
    with pytest.raises(InputError, match="min_score"):
        store.search("late fee", min_score=1.5)
