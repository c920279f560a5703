"""Scores, intervals and spreads, by hand and against scikit-learn and scipy."""

import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from bothways.measure import metrics


def test_accuracy_macro_f1_and_the_majority_by_hand():
    gold, predicted = list("aaabbc"), list("aababa")
    scores = metrics.classification(gold, predicted)
    f1_a, f1_b, f1_c = 2 * 2 / (2 * 2 + 2 + 1), 2 * 1 / (2 * 1 + 1 + 1), 0.0
    assert scores["accuracy"] == pytest.approx(3 / 6)
    assert scores["f1_macro"] == pytest.approx((f1_a + f1_b + f1_c) / 3)
    assert scores["majority"] == pytest.approx(3 / 6)


def test_the_interval_is_wilsons():
    # Wilson 1927, as in textbooks: 81 of 263 at 95 %.
    assert metrics.wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-4)
    for successes, trials in ((0, 10), (10, 10), (3, 7)):
        low, high = metrics.wilson_interval(successes, trials)
        assert -1e-9 <= low <= successes / trials <= high <= 1 + 1e-9 and low < high
        # Its ends are where the score test is just significant.
        for end in (low, high):
            if 1e-6 < end < 1 - 1e-6:
                assert abs(successes / trials - end) / math.sqrt(end * (1 - end) / trials) == pytest.approx(1.96)
    assert metrics.wilson_interval(0, 0) == (0.0, 1.0)


def test_perplexity_is_exp_and_does_not_overflow():
    assert metrics.perplexity(0.0) == 1.0
    assert metrics.perplexity(math.log(30522)) == pytest.approx(30522)
    assert math.isfinite(metrics.perplexity(1e6))


def test_word_frequencies_leave_no_word_impossible():
    counts = np.array([0, 3, 0, 7])
    assert metrics.unigram_probabilities(counts) == pytest.approx(np.array([1, 4, 1, 8]) / 14)
    assert metrics.unigram_loss(counts, np.array([1, 3, 3, 0])) == pytest.approx(
        -(math.log(4 / 14) + 2 * math.log(8 / 14) + math.log(1 / 14)) / 4
    )


def test_guessing_by_frequency_among_equal_words_is_as_perplexing_as_there_are_words():
    loss = metrics.unigram_loss(np.full(97, 5), np.arange(97))
    assert metrics.perplexity(loss) == pytest.approx(97)


def test_the_spread_is_the_sample_deviation_and_one_score_has_none():
    assert metrics.mean_and_std([0.8, 0.9, 0.7]) == pytest.approx((0.8, 0.1))
    assert metrics.mean_and_std([0.8]) == (0.8, 0.0)


def test_micro_f1_is_accuracy_and_f1_is_that_of_the_last_of_two_classes_or_of_the_one_named():
    gold, predicted = [0, 1, 1, 0, 1, 0, 0], [0, 1, 0, 1, 1, 0, 0]
    scores = metrics.classification(gold, predicted)
    assert scores["f1_micro"] == scores["accuracy"] == pytest.approx(5 / 7)
    assert scores["f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert metrics.classification(gold, predicted, positive=0)["f1"] == pytest.approx(2 * 3 / (2 * 3 + 1 + 1))
    assert scores["matthews"] == pytest.approx((2 * 3 - 1 * 1) / math.sqrt(3 * 3 * 4 * 4))
    assert "f1" not in metrics.classification(list("abc"), list("abb"))
    assert metrics.classification(list("abc"), list("abb"), positive="b")["f1"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("classes", [1, 2, 3, 40])
@pytest.mark.parametrize("kind", [int, "label {}".format])
def test_classes_have_the_scores_of_scikit_learn_to_the_last_bit(classes, kind):
    generator = np.random.default_rng(classes)
    for size in (1, 7, 300):
        gold, predicted = ([kind(one) for one in generator.integers(classes, size=size).tolist()] for _ in range(2))
        scores = metrics.classification(gold, predicted, positive=kind(0))
        assert scores["accuracy"] == sklearn.metrics.accuracy_score(gold, predicted)
        assert scores["f1_macro"] == sklearn.metrics.f1_score(gold, predicted, average="macro", zero_division=0)
        assert scores["f1"] == sklearn.metrics.f1_score(
            gold, predicted, labels=[kind(0)], average=None, zero_division=0
        )
        if len({*gold, *predicted}) > 1:  # else it warns
            assert scores["matthews"] == sklearn.metrics.matthews_corrcoef(gold, predicted)


@pytest.mark.parametrize(("gold", "predicted"), [("aaaaa", "aaaaa"), ("aabab", "aaaaa"), ("aaaaa", "aabab")])
def test_constant_predictions_have_no_correlation_and_give_no_warning(gold, predicted):
    assert metrics.classification(list(gold), list(predicted))["matthews"] == 0.0


def test_sets_of_labels_score_as_scikit_learn_scores_them():
    generator = np.random.default_rng(11)
    names = tuple("vwxyz")
    gold_NC, predicted_NC = generator.random((37, 5)) < 0.3, generator.random((37, 5)) < 0.3
    gold_NC[:, 4] = predicted_NC[:, 4] = False  # a label of no row
    sets = [[[names[place] for place in np.flatnonzero(row)] for row in rows] for rows in (gold_NC, predicted_NC)]
    scores = metrics.multi_label(*sets, names)

    def theirs(average, nothing):
        return sklearn.metrics.f1_score(gold_NC, predicted_NC, average=average, zero_division=nothing)

    assert scores["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(gold_NC, predicted_NC))
    assert scores["f1_micro"] == pytest.approx(theirs("micro", 0))
    assert scores["f1_macro"] == pytest.approx(theirs("macro", np.nan))
    assert scores["f1_samples"] == pytest.approx(theirs("samples", 1))


def test_sets_of_labels_by_hand():
    gold, predicted = [{"x", "y"}, set(), {"x"}, {"y"}], [{"x"}, set(), {"x", "z"}, {"y"}]
    scores = metrics.multi_label(gold, predicted, ("x", "y", "z"))
    f1_x, f1_y, f1_z = 1.0, 2 / 3, 0.0
    assert scores["accuracy"] == 2 / 4
    assert scores["f1_micro"] == pytest.approx(2 * 3 / (4 + 4))
    assert scores["f1_macro"] == pytest.approx((f1_x + f1_y + f1_z) / 3)
    assert scores["f1_samples"] == pytest.approx((2 / 3 + 1 + 2 / 3 + 1) / 4)
    assert scores["majority"] == 1 / 4
    assert metrics.multi_label([[], []], [[], []], ("x",))["f1_macro"] == 1.0


def test_numbers_score_as_scipy_and_scikit_learn_score_them_ties_included():
    generator = np.random.default_rng(5)
    gold = generator.integers(0, 6, 41) / 2
    predicted = np.round(gold + generator.normal(size=41), 1)
    scores = metrics.regression(gold, predicted)
    assert scores["pearson"] == pytest.approx(scipy.stats.pearsonr(gold, predicted).statistic)
    assert scores["spearman"] == pytest.approx(scipy.stats.spearmanr(gold, predicted).statistic)
    assert scores["mean_squared_error"] == pytest.approx(sklearn.metrics.mean_squared_error(gold, predicted))
    assert scores["mean_absolute_error"] == pytest.approx(sklearn.metrics.mean_absolute_error(gold, predicted))
    assert scores["variance"] == pytest.approx(metrics.regression(gold, [gold.mean()] * 41)["mean_squared_error"])


@pytest.mark.parametrize("constant", [0.1, 2, -1e-9])
def test_a_constant_has_no_correlation_and_gives_no_warning(constant):
    for pair in (([1, 2, 4, 4, 0.5], [constant] * 5), ([constant] * 5, [1, 2, 4, 4, 0.5])):
        scores = metrics.regression(*pair)
        assert scores["pearson"] == scores["spearman"] == 0.0


def test_reliability_by_hand():
    reliability = metrics.reliability([0.0, 0.05, 0.5, 0.41, 0.9, 0.95, 1.0], [0, 1, 1, 0, 1, 1, 0], bins=10)
    assert [part.count for part in reliability.bins] == [2, 2, 1, 2]  # a bin has its upper end; empty ones are left out
    assert [part.accuracy for part in reliability.bins] == [0.5, 0.5, 1, 0.5]
    assert [part.confidence for part in reliability.bins] == pytest.approx([0.025, 0.455, 0.9, 0.975])
    assert reliability.error == pytest.approx((2 * 0.475 + 2 * 0.045 + 1 * 0.1 + 2 * 0.475) / 7)


def test_the_metrics_load_neither_torch_nor_scikit_learn():
    code = (
        "import sys, bothways.measure.metrics as m; m.regression([1], [2]); m.classification('ab', 'aa');"
        "print({'torch', 'sklearn'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
