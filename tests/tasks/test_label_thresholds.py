"""Thresholds of labels: the best of held-out texts, one for all where there are few, 0.5 where nothing is gained."""

import numpy as np
import pytest

from bothways.measure import metrics
from bothways.tasks.label_thresholds import fit_thresholds, middle_of_best, shared_threshold, threshold_per_label

NAMES = ["a", "b", "c"]


def score_by(name):
    def score(gold_NC, decided_NC):
        sets = [[frozenset(np.array(NAMES)[row == 1].tolist()) for row in rows] for rows in (gold_NC, decided_NC)]
        return metrics.multi_label(*sets, NAMES)[name]

    return score


def texts(number, seed, *, shift=(0.0, 0.0, 0.0)):
    """Probabilities that are off by `shift` (of the logit), and labels drawn by the right ones."""
    draw = np.random.default_rng(seed)
    logits_NC = draw.normal(-1, 2, (number, 3))
    targets_NC = (draw.random((number, 3)) < 1 / (1 + np.exp(-logits_NC))).astype(np.int64)
    return 1 / (1 + np.exp(-(logits_NC + np.array(shift)))), targets_NC


@pytest.mark.parametrize("metric", ["f1_micro", "f1_macro"])
def test_new_texts_have_better_scores_than_at_an_even_chance(metric):
    score, off = score_by(metric), (-3.0, 0.0, 2.0)
    thresholds_C = fit_thresholds(*texts(600, 0, shift=off), score)
    probabilities_NC, targets_NC = texts(2000, 1, shift=off)
    gained = score(targets_NC, (probabilities_NC > thresholds_C).astype(np.int64))
    assert gained > score(targets_NC, (probabilities_NC > 0.5).astype(np.int64)) + 0.05
    assert thresholds_C[0] < 0.25 < thresholds_C[2]


def test_few_texts_and_texts_without_a_gain_keep_an_even_chance():
    assert (fit_thresholds(*texts(49, 0, shift=(-3, 0, 2)), score_by("f1_micro")) == 0.5).all()
    draw = np.random.default_rng(2)
    targets_NC = draw.integers(0, 2, (300, 3))
    certain_NC = np.where(targets_NC == 1, 0.98, 0.02)
    assert (fit_thresholds(certain_NC, targets_NC, score_by("f1_micro")) == 0.5).all()


def test_the_threshold_of_a_label_with_few_texts_is_near_that_of_all():
    probabilities_NC, targets_NC = texts(500, 3, shift=(0, 0, -4))
    rare = np.flatnonzero(targets_NC[:, 2] == 1)[3:]
    targets_NC[rare, 2] = 0
    shared, each = shared_threshold(probabilities_NC, targets_NC), threshold_per_label(probabilities_NC, targets_NC)
    assert (shared == shared[0]).all()
    own = middle_of_best(np.eye(37)[:, [2, 30]])
    assert own.tolist() == pytest.approx([0.1, 0.8])
    assert abs(each[2] - shared[0]) < 0.15 * 1.1  # three of 23 parts of at most 0.9


def test_of_equally_good_thresholds_the_one_nearest_to_an_even_chance_is_taken():
    assert middle_of_best(np.ones((37, 2))).tolist() == pytest.approx([0.5, 0.5])
