"""Scores, intervals and spreads, by hand."""

import math

import numpy as np
import pytest

from bothways import metrics


def test_accuracy_macro_f1_and_the_majority_by_hand():
    gold, predicted = list("aaabbc"), list("aababa")
    found = metrics.classification(gold, predicted)
    f1_a, f1_b, f1_c = 2 * 2 / (2 * 2 + 2 + 1), 2 * 1 / (2 * 1 + 1 + 1), 0.0
    assert found["accuracy"] == pytest.approx(3 / 6)
    assert found["f1_macro"] == pytest.approx((f1_a + f1_b + f1_c) / 3)
    assert found["majority"] == pytest.approx(3 / 6)


def test_the_interval_is_wilsons():
    # Wilson 1927, as in textbooks: 81 of 263 at 95 %.
    assert metrics.interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-4)
    for successes, trials in ((0, 10), (10, 10), (3, 7)):
        low, high = metrics.interval(successes, trials)
        assert -1e-9 <= low <= successes / trials <= high <= 1 + 1e-9 and low < high
        # Its ends are where the score test is just significant.
        for end in (low, high):
            if 1e-6 < end < 1 - 1e-6:
                assert abs(successes / trials - end) / math.sqrt(end * (1 - end) / trials) == pytest.approx(1.96)
    assert metrics.interval(0, 0) == (0.0, 1.0)


def test_perplexity_is_exp_and_does_not_overflow():
    assert metrics.perplexity(0.0) == 1.0
    assert metrics.perplexity(math.log(30522)) == pytest.approx(30522)
    assert math.isfinite(metrics.perplexity(1e6))


def test_word_frequencies_leave_no_word_impossible():
    counts = np.array([0, 3, 0, 7])
    assert metrics.unigram_shares(counts) == pytest.approx(np.array([1, 4, 1, 8]) / 14)
    assert metrics.unigram_loss(counts, np.array([1, 3, 3, 0])) == pytest.approx(
        -(math.log(4 / 14) + 2 * math.log(8 / 14) + math.log(1 / 14)) / 4
    )


def test_guessing_by_frequency_among_equal_words_is_as_perplexing_as_there_are_words():
    loss = metrics.unigram_loss(np.full(97, 5), np.arange(97))
    assert metrics.perplexity(loss) == pytest.approx(97)


def test_the_spread_is_the_sample_deviation_and_one_score_has_none():
    assert metrics.spread([0.8, 0.9, 0.7]) == pytest.approx((0.8, 0.1))
    assert metrics.spread([0.8]) == (0.8, 0.0)
