"""Search metrics against scikit-learn, a slow formula and a table computed by hand."""

import math

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from bothways.base.errors import InputError
from bothways.measure.metrics import ranking_scores

GOLD = {"q": {"a": 3, "b": 1, "c": 0, "d": 2}, "r": {"x": 1}, "s": {"y": 1}, "none": {"z": 0}}
RANKING = {"q": ["c", "d", "u", "a", "b"], "r": ["v", "x"]}


def test_scores_by_hand():
    scores = ranking_scores(GOLD, RANKING, k=3)
    gain, best = 2 / math.log2(3), 3 + 2 / math.log2(3) + 1 / 2
    assert scores == pytest.approx(
        {
            "ndcg@3": (gain / best + 1 / math.log2(3) + 0) / 3,
            "mrr@3": (1 / 2 + 1 / 2 + 0) / 3,
            "recall@3": (1 / 3 + 1 + 0) / 3,
            "queries": 3,  # s has no ranking and scores 0; none has nothing to find and is left out
        }
    )


@pytest.mark.parametrize("k", [1, 5, 40])
def test_random_rankings_score_as_in_scikit_learn_and_by_a_slow_formula(k):
    generator = np.random.default_rng(31)
    documents = [f"d{number}" for number in range(23)]
    ndcg, rank, recall, queries, rankings = [], [], [], {}, {}
    for number in range(19):
        grades = generator.integers(0, 4, 23) * (generator.random(23) < 0.3)
        grades[number] = 1  # at least one is relevant
        order = generator.permutation(23)
        queries[str(number)] = {document: int(grade) for document, grade in zip(documents, grades, strict=True)}
        rankings[str(number)] = [documents[place] for place in order]
        ndcg.append(ndcg_score([grades], [-order.argsort()], k=k))
        hits = [place for place in range(23) if grades[order[place]] > 0]
        rank.append(1 / (hits[0] + 1) if hits[0] < k else 0)
        recall.append(sum(place < k for place in hits) / len(hits))
    scores = ranking_scores(queries, rankings, k=k)
    assert scores[f"ndcg@{k}"] == pytest.approx(np.mean(ndcg))
    assert scores[f"mrr@{k}"] == pytest.approx(np.mean(rank))
    assert scores[f"recall@{k}"] == pytest.approx(np.mean(recall))


def test_a_grade_below_0_gains_nothing_and_costs_nothing():
    assert ranking_scores({"q": {"a": 1, "spam": -2}}, {"q": ["spam", "a"]})["ndcg@10"] == pytest.approx(
        1 / math.log2(3)
    )


def test_unscorable_input_is_an_error():
    with pytest.raises(InputError, match="query 'q': .*twice"):
        ranking_scores(GOLD, {"q": ["a", "a"]})
    with pytest.raises(InputError, match="1 queries .*relevant"):
        ranking_scores({"q": {"a": 0}}, {"q": ["a"]})
