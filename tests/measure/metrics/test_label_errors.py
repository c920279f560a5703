"""Wrong labels are found, and labels that are only difficult are not."""

import numpy as np

from bothways.measure.metrics.label_errors import find_outliers, label_errors, label_set_errors


def test_a_label_is_suspicious_if_another_one_reaches_its_usual_confidence():
    labels = ["a", "a", "a", "b", "b", "b"]
    likely_a = [0.9, 0.8, 0.1, 0.1, 0.2, 0.95]  # mean of a in its own rows: 0.6; of b: 0.583
    errors = label_errors(labels, [{"a": share, "b": 1 - share} for share in likely_a])
    assert [(one.row, one.label, one.suggested) for one in errors] == [(5, "b", "a"), (2, "a", "b")]
    assert (errors[0].label_probability, errors[0].suggested_probability) == (1 - 0.95, 0.95)


def test_a_label_that_is_hard_for_the_model_is_not_an_error():
    labels = ["easy"] * 4 + ["hard"] * 3
    # The model always prefers "easy", but is surer of it where it is right.
    shares = [{"easy": 0.95, "hard": 0.05}] * 4 + [{"easy": 0.6, "hard": 0.4}] * 3
    assert label_errors(labels, shares) == []


def test_noisy_labels_are_found_again():
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=600)
    wrong = rng.random(600) < 0.05
    labels = np.where(wrong, (true + rng.integers(1, 3, 600)) % 3, true)
    logits = np.eye(3)[true] * 3 + rng.normal(size=(600, 3))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    rows = [dict(zip("012", one, strict=True)) for one in shares.tolist()]
    flagged = {one.row for one in label_errors([str(one) for one in labels], rows)}
    recall, precision = (len(flagged & {*np.flatnonzero(wrong)}) / number for number in (wrong.sum(), len(flagged)))
    assert recall > 0.6 and precision > 0.9


def test_of_several_labels_a_missing_one_and_one_too_many_are_found():
    label_sets = [{"a"}, {"a"}, set(), {"a", "b"}, {"b"}, {"b"}, set(), set()]
    shares = [
        {"a": 0.9, "b": 0.1}, {"a": 0.8, "b": 0.9}, {"a": 0.95}, {"a": 0.9, "b": 0.8}, {"b": 0.9}, {"b": 0.02},
        {"a": 0.1, "b": 0.1}, {},
    ]  # fmt: skip
    errors = label_set_errors(label_sets, shares)
    assert {(one.row, one.label, one.suggested) for one in errors} == {
        (1, "not b", "b"), (2, "not a", "a"), (5, "b", "not b"),
    }  # fmt: skip


def test_only_outliers_are_suspicious_numbers():
    rng = np.random.default_rng(1)
    gold = rng.normal(size=200)
    predicted = gold + rng.normal(size=200) / 10
    assert find_outliers(gold, predicted) == []
    gold[[17, 170]] += (5, -9)
    assert find_outliers(gold, predicted) == [170, 17]
    assert find_outliers([1.0, 2.0], [1.0, 2.0]) == []
