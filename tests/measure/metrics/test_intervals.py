"""95 % intervals: they contain the score, have the nominal coverage, and are never empty."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.metrics

from bothways.measure import metrics
from bothways.measure.metrics import intervals


def labelled(number, right, seed=0, names="abc"):
    """Gold labels, and predictions of which about `right` are the same."""
    rng = np.random.default_rng(seed)
    gold = rng.choice([*names], number)
    return gold.tolist(), np.where(rng.random(number) < right, gold, rng.choice([*names], number)).tolist()


def inside(bounds, scores):
    return all(low <= scores[name] <= high and low < high for name, (low, high) in bounds.items())


def test_the_quantiles_of_t_are_those_of_scipy():
    expected = scipy.special.stdtrit(range(1, intervals.FEW_UNITS - 1), 0.975)
    assert pytest.approx(expected, rel=1e-12, abs=0) == intervals.T


def test_every_interval_holds_its_score():
    gold, predicted = labelled(143, 0.7)
    bounds = metrics.classification_intervals(gold, predicted, positive="b")
    scores = metrics.classification(gold, predicted, positive="b")
    assert bounds.keys() == {"accuracy", "f1_micro", "f1_macro", "matthews", "f1"} and inside(bounds, scores)

    sets = [{a, b} - {"c"} for a, b in zip(*labelled(143, 0.2), strict=True)]
    others = [one if row % 3 else one - {"a"} for row, one in enumerate(sets)]
    assert inside(metrics.multi_label_intervals(sets, others), metrics.multi_label(sets, others, "abc"))

    rng = np.random.default_rng(1)
    numbers = rng.normal(size=143)
    near = numbers + rng.normal(size=143)
    assert inside(metrics.regression_intervals(numbers, near), metrics.regression(numbers, near))

    words = [[f"B-{tag}" for tag in tags] for tags in (gold[:70], gold[70:])] * 20
    tags = [[f"B-{tag}" for tag in tags] for tags in (predicted[:70], predicted[70:])] * 20
    assert inside(metrics.entity_intervals(words, tags, "iob2"), metrics.entity_scores(words, tags, "iob2"))

    answers = {str(row): [label] if label != "c" else [] for row, label in enumerate(gold)}
    predicted_answers = {str(row): label if label != "c" else "" for row, label in enumerate(predicted)}
    bounds = metrics.answer_intervals(answers, predicted_answers, dict.fromkeys(answers, "one passage"))
    assert {"f1", "exact_match", "HasAns_f1", "NoAns_f1"} <= bounds.keys()
    assert inside(bounds, metrics.answer_scores(answers, predicted_answers))

    judged, ranking = {str(q): {"x": 1.0} for q in range(61)}, {str(q): ["y"] * (q % 3 > 1) + ["x"] for q in range(61)}
    assert inside(metrics.ranking_intervals(judged, ranking), metrics.ranking_scores(judged, ranking))


def test_thirty_correct_rows_of_thirty_leave_a_wide_interval():
    gold = [*"ab"] * 15
    bounds = metrics.classification_intervals(gold, gold)
    assert bounds["accuracy"][0] == pytest.approx(metrics.wilson_interval(30, 30)[0]) and bounds["accuracy"][0] < 0.9
    assert {name for name, (low, high) in bounds.items() if low > 0.9 or high < 1} == set()
    tags = [["B-a", "O"]] * 30
    assert all(low < 0.95 for low, _ in metrics.entity_intervals(tags, tags, "iob2").values())


@pytest.mark.slow
def test_intervals_of_f1_have_about_the_nominal_coverage(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 200)
    true = metrics.classification(*labelled(200_000, 0.6))["f1_macro"]
    bounds = [metrics.classification_intervals(*labelled(80, 0.6, seed))["f1_macro"] for seed in range(120)]
    assert 0.89 <= np.mean([low <= true <= high for low, high in bounds]) <= 0.99


def test_a_correlation_has_the_width_of_fishers_interval():
    rng = np.random.default_rng(2)
    gold = rng.normal(size=400)
    near = gold + rng.normal(size=400)
    low, high = metrics.regression_intervals(gold, near)["pearson"]
    theirs = scipy.stats.pearsonr(gold, near).confidence_interval()
    assert (low, high) == pytest.approx(tuple(theirs), abs=0.02)


def test_scores_of_marks_are_those_of_scikit_learn():
    gold, predicted = labelled(211, 0.5)
    counts = np.array([[list(labels).count(name) for name in "abc"] for labels in (gold, predicted)])
    right = np.array([sum(a == b == name for a, b in zip(gold, predicted, strict=True)) for name in "abc"])
    scores = {name: score_B[0] for name, score_B in intervals.decision_scores(*counts[:, None], right[None]).items()}
    assert scores["matthews"] == pytest.approx(sklearn.metrics.matthews_corrcoef(gold, predicted))
    assert scores["f1_macro"] == pytest.approx(sklearn.metrics.f1_score(gold, predicted, average="macro"))
    assert scores["f1"] == pytest.approx(sklearn.metrics.f1_score(gold, predicted, average="micro"))


def mean_interval(values, groups):
    return metrics.mean_intervals({"mean": values}, groups)["mean"]


def test_rows_of_one_document_are_drawn_together_so_the_interval_is_wider():
    values = np.repeat(np.random.default_rng(3).random(40) > 0.5, 25).astype(float)  # all right or all wrong
    apart = mean_interval(values, range(1000))
    together = mean_interval(values, np.repeat(range(40), 25).tolist())
    assert apart[1] - apart[0] == pytest.approx(2 * 1.96 * math.sqrt(0.25 / 1000), rel=0.1)
    assert together[1] - together[0] == pytest.approx(2 * 1.96 * math.sqrt(0.25 / 40), rel=0.15)
    few = mean_interval(values[:100], np.repeat(range(4), 25).tolist())  # four documents are too few
    assert few == (0, 1)
    one = mean_interval(values[:100], ["a"] * 100)
    assert one == mean_interval(values[:100], range(100))


def test_rows_of_one_group_are_drawn_together_for_every_score_of_texts():
    rng = np.random.default_rng(7)
    groups = np.repeat(np.arange(30), 10)
    is_right = np.repeat(rng.random(30), 10) > rng.random(300)  # groups differ in how hard they are
    gold = [str(label) for label in rng.integers(0, 2, 300)]
    predicted = [label if right else str(1 - int(label)) for label, right in zip(gold, is_right, strict=True)]
    apart = metrics.classification_intervals(gold, predicted)
    together = metrics.classification_intervals(gold, predicted, groups=groups.tolist())
    accuracies = is_right.reshape(30, 10).mean(1)
    resampled = [accuracies[rng.integers(30, size=30)].mean() for _ in range(4000)]
    assert together["accuracy"] == pytest.approx(tuple(np.quantile(resampled, (0.025, 0.975))), abs=0.01)
    numbers = rng.standard_normal(300)
    near = (numbers + np.repeat(2 * rng.standard_normal(30), 10)).tolist()
    sets = [{label} for label in gold], [{label} for label in predicted]
    for functions in (
        [apart, together],
        [metrics.multi_label_intervals(*sets, units) for units in (None, groups.tolist())],
        [metrics.regression_intervals(numbers.tolist(), near, units) for units in (None, groups.tolist())],
    ):
        alone, grouped = functions
        for name in alone:
            assert grouped[name][1] - grouped[name][0] > 1.2 * (alone[name][1] - alone[name][0]), name
    assert together.num_units == 30 and apart.num_units == 300


def test_few_units_widen_an_interval_as_t_does():
    values = np.arange(7) / 6.0
    interval = mean_interval(values.tolist(), range(7))
    error = values.std(ddof=1) / math.sqrt(7)
    assert interval == pytest.approx((0.5 - 2.447 * error, 0.5 + 2.447 * error), abs=0.05)


def test_a_perfect_correlation_of_few_rows_is_uncertain():
    for num_rows, low, high in ((3, -1, -1), (5, -0.9, 0), (20, 0.6, 0.85), (1000, 0.99, 0.999)):
        numbers = [*map(float, range(num_rows))]
        for name in ("pearson", "spearman"):
            bounds = metrics.regression_intervals(numbers, numbers)[name]
            assert low <= bounds[0] <= high and bounds[1] == 1, (num_rows, name)
    rng = np.random.default_rng(8)
    gold = rng.standard_normal(1379)
    near = (gold + 0.7 * rng.standard_normal(1379)).tolist()
    low, high = metrics.regression_intervals(gold.tolist(), near)["pearson"]
    assert 0.03 < high - low < 0.05  # as Fisher's: the limit does not widen it


def test_the_same_rows_have_the_same_interval_whatever_was_drawn_before():
    gold, predicted = labelled(97, 0.6)
    first = metrics.classification_intervals(gold, predicted)
    np.random.default_rng(0).random(7)
    metrics.regression_intervals([1.0, 2.0, 3.0], [3.0, 1.0, 2.0])
    assert metrics.classification_intervals(gold, predicted) == first


def test_spans_of_other_labels_have_intervals():
    """Their Matthews correlation, -1.46 here, is outside the range of classes."""
    gold = [["B-A"] * 2 + ["B-B"] * 10 + ["O"] * 9] * 2
    predicted = [["O"] * 12 + ["B-A"] + ["B-B"] * 8] * 2
    assert metrics.entity_intervals(gold, predicted, "iob2")["f1"][0] == 0


def test_the_correlation_of_many_rows_does_not_overflow():
    counts = np.array([[60_000, 60_000]])
    assert intervals.decision_scores(counts, counts, counts)["matthews"] == pytest.approx(1.0)
