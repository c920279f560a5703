"""Held-out documents that are copies of training text are found by their runs of tokens."""

import numpy as np
import pytest

from bothways.text.corpus import copies
from bothways.text.corpus.copies import RUN, copied_documents
from bothways.text.corpus.token_store import TokenStore

V = 97


def store_of(*documents):
    """A store with a sentence per document."""
    ends = np.cumsum([0, *map(len, documents)])
    return TokenStore(np.concatenate(documents).astype(np.uint16), ends, np.arange(len(documents) + 1))


@pytest.fixture
def texts():
    rng = np.random.default_rng(3)
    return [rng.integers(5, V, size) for size in (211, 173, 307, 83, 149, RUN - 1)]


def test_a_copy_is_found_wherever_it_stands_and_however_the_text_is_cut(texts, monkeypatch):
    first, second, third, fourth, fifth, short = texts
    store = store_of(first, second, np.concatenate([third[:50], fourth, third[50:]]), short)
    half = np.concatenate([first[60:140], fifth[:60]])
    less = np.concatenate([first[60:110], fifth])
    unseen = store_of(second, fifth, fourth, half, less, short)
    for block in (1 << 22, 64, 31):
        monkeypatch.setattr(copies, "BLOCK", block)
        assert copied_documents(store, np.arange(4), unseen, np.arange(6), V).tolist() == [0, 2, 3]
    assert copied_documents(store, np.array([0, 2]), unseen, np.arange(6), V).tolist() == [2, 3]
    assert copied_documents(store, np.arange(4), unseen, np.array([1, 5]), V).tolist() == []


def test_held_out_documents_of_one_store_are_not_compared_with_themselves(texts):
    store = store_of(*texts, texts[2])
    assert copied_documents(store, np.arange(3, 6), store, np.array([0, 1, 2]), V).tolist() == []
    assert copied_documents(store, np.arange(3, 7), store, np.array([0, 1, 2]), V).tolist() == [2]


def test_runs_across_documents_do_not_count(texts):
    joined = np.concatenate(texts[:2])[texts[0].size - RUN // 2 :][:RUN]
    assert copied_documents(store_of(*texts[:2]), np.arange(2), store_of(joined), np.arange(1), V).tolist() == []
    assert copied_documents(store_of(joined, *texts), np.arange(2), store_of(joined), np.arange(1), V).tolist() == [0]
