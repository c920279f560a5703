"""Word vectors from co-occurrence counts, against a slow formula, and their use."""

import math

import numpy as np
import pytest

from bothways.text.corpus import cooccurrence
from bothways.text.corpus.cooccurrence import word_vectors
from bothways.text.corpus.token_store import TokenStore

VOCAB = 61


@pytest.fixture
def store():
    """Text in which 10 and 11 stand in the same places, as do 12 and 13, and 60 stands nowhere."""
    rng = np.random.default_rng(7)
    ids = []
    for _ in range(3000):
        kind = int(rng.integers(2))
        ids += [20 + kind, int(rng.integers(30, 59)), 10 + 2 * kind + int(rng.integers(2)), 22 + kind]
    ids = np.array(ids)
    return TokenStore(ids, np.arange(0, len(ids) + 1, 4), np.arange(0, len(ids) // 4 + 1, 100))


def test_counts_equal_a_slow_count():
    ids = np.array([3, 1, 4, 1, 5, 2, 6, 5, 3])
    slow = np.zeros((7, 7))
    for i, first in enumerate(ids):
        for j in range(i + 1, min(i + cooccurrence.WINDOW, len(ids) - 1) + 1):
            slow[first, ids[j]] += 1 / (j - i)
    np.testing.assert_allclose(cooccurrence._count_pairs(ids, 7).toarray(), slow, rtol=1e-6)


def test_information_equals_its_formula():
    counts = cooccurrence._count_pairs(np.array([0, 1, 2, 1, 0, 2, 2, 3]), 4)
    counts = counts + counts.T
    table, sums = counts.toarray().astype(float), np.asarray(counts.sum(1)).ravel()
    contexts = sums**0.75 / (sums**0.75).sum()
    for i in range(4):
        for j in range(4):
            value = math.log(table[i, j] / (sums[i] * contexts[j])) if table[i, j] else 0.0
            assert cooccurrence._ppmi(counts).toarray()[i, j] == pytest.approx(max(value, 0.0), rel=1e-5)


def test_tokens_in_the_same_places_have_like_vectors(store):
    vectors = word_vectors(store, np.arange(store.num_documents), VOCAB, 8, seed=0)
    assert vectors.shape == (VOCAB, 8) and vectors.dtype == np.float32
    assert vectors.std() == pytest.approx(1, rel=1e-4)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    assert unit[10] @ unit[11] > 0.95 and unit[12] @ unit[13] > 0.95
    assert unit[10] @ unit[12] < 0.5
    assert not vectors[60].any()


def test_they_are_the_same_twice_and_leave_held_out_documents_out(store, monkeypatch):
    all_but_last = np.arange(store.num_documents - 1)
    first = word_vectors(store, all_but_last, VOCAB, 8, seed=3)
    other = TokenStore(store.ids.copy(), store.sentences, store.documents)
    other.ids[-400:] = 60  # the last document
    assert np.array_equal(first, word_vectors(other, all_but_last, VOCAB, 8, seed=3))
    monkeypatch.setattr(cooccurrence, "BLOCK", 1000)  # more parts, but for pairs across their ends the same counts
    parts = word_vectors(store, all_but_last, VOCAB, 8, seed=3)
    np.testing.assert_allclose(abs(parts[:, 0]), abs(first[:, 0]), atol=0.05)


def test_a_vocabulary_smaller_than_the_vectors_leaves_numbers_0(store):
    vectors = word_vectors(store, np.arange(store.num_documents), VOCAB, 99, seed=0)
    assert vectors.shape == (VOCAB, 99) and not vectors[:, VOCAB:].any()
