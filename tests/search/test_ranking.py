"""Ranking and fusion."""

import numpy as np

from bothways.text.retrieval.fusion import best, fuse


def test_best_are_ordered_by_score_then_slot():
    scores = np.array([0.5, 2, 0.5, 1, 2, 0], np.float32)
    assert best(scores, 4).tolist() == [1, 4, 3, 0]
    assert best(scores, 10, above=0).tolist() == [1, 4, 3, 0, 2]
    assert best(np.zeros(0, np.float32), 3).tolist() == []


def test_one_ranking_is_kept():
    scores, allowed = np.array([0, 3, 1, 2], np.float32), np.array([True, False, True, True])
    slots, fused = fuse([scores], allowed, 5, above=[0.0])
    assert slots.tolist() == [3, 2]
    assert fused.tolist() == [1.0, 0.0]


def test_fusion_is_the_mean_of_scaled_scores():
    words, vectors = np.array([4, 2, 0, 0], np.float32), np.array([0.1, 0.9, 0.5, 0.1], np.float32)
    slots, fused = fuse([words, vectors], np.ones(4, bool), 3, above=[0.0, -np.inf])
    assert slots.tolist() == [1, 0, 2]
    np.testing.assert_allclose(fused, [(0.5 + 1) / 2, (1 + 0) / 2, (0 + 0.5) / 2], atol=1e-6)


def test_equal_scores_of_a_ranking_decide_nothing():
    slots, fused = fuse(
        [np.ones(3, np.float32), np.array([1, 3, 2], np.float32)], np.ones(3, bool), 3, above=[0.0, 0.0]
    )
    assert slots.tolist() == [1, 2, 0]
    np.testing.assert_allclose(fused, [1.0, 0.75, 0.5])
