"""Reranked search: how many passages a model reads, and the order that it gives them."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.inference.ranking import RERANKED, pair_relevance
from bothways.search.reranking import num_reranked, rerank, search_reranked
from bothways.search.store import Hit
from bothways.tasks.rerank.decoding import Reranking


class LengthRanker:
    """A reranker that prefers long passages."""

    task, labels = "rerank", ()

    def __init__(self, weight=1.0, passages=None):
        self.description = SimpleNamespace(metadata=Reranking(weight, passages).to_json())
        self.read = []

    def regress(self, queries, passages):
        self.read += passages
        return np.array([len(passage) for passage in passages], np.float32)


class FixedStore:
    """A store that finds passages of 1, 2, ... characters."""

    def search(self, query, *, top, **options):
        return [Hit(Path("f"), 1, None, 0, 1, "", "x" * place, 0.5) for place in range(1, min(top, 80) + 1)]


def found(model, top):
    return [len(hit.text) for hit in search_reranked(FixedStore(), "q", model, top=top)]


def test_without_a_model_the_search_is_as_it_is():
    assert found(None, 4) == [1, 2, 3, 4]


@pytest.mark.parametrize(("top", "read"), [(3, RERANKED), (60, 60)])
def test_a_model_reads_as_many_as_are_usual_or_asked_for(top, read):
    model = LengthRanker()
    assert found(model, top) == [*range(read, 0, -1)][:top] and len(model.read) == read


@pytest.mark.parametrize("top", [2, 5, 9])
def test_a_model_reads_as_many_as_it_was_measured_with_and_the_others_follow(top):
    model = LengthRanker(passages=5)
    assert found(model, top) == [5, 4, 3, 2, 1, 6, 7, 8, 9][:top] and len(model.read) == 5


def test_a_little_weight_keeps_most_of_the_order():
    hits = FixedStore().search("q", top=4)
    order = [len(hit.text) for hit in rerank("q", hits, LengthRanker(weight=0.25))]
    values = {size: 0.25 * size - 0.75 * np.log(size) for size in (1, 2, 3, 4)}
    assert order == sorted(values, key=lambda size: -values[size]) != [4, 3, 2, 1]


def test_each_passage_has_the_score_of_the_model_and_those_it_did_not_read_keep_theirs():
    hits = rerank("q", FixedStore().search("q", top=4), LengthRanker(passages=2))
    assert [hit.score for hit in hits] == [2.0, 1.0, 0.5, 0.5]


def test_other_models_read_fifty_passages():
    assert num_reranked({}) == RERANKED and num_reranked(Reranking(0.5, 7).to_json()) == 7


def test_the_message_on_a_model_that_reads_no_pairs():
    with pytest.raises(InputError, match=r"rerank needs a reranker \(finetune rerank\).* this one is for tag"):
        pair_relevance(SimpleNamespace(task="tag", labels=()), "q", ["a"])
