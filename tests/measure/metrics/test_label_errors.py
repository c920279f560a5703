"""Wrong labels are found, and labels that are only difficult are not."""

import numpy as np

from bothways.measure.metrics.label_errors import doubtful_labels, find_outliers, label_errors, label_set_errors


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


def shares_of(labels, own, **others):
    """Probabilities of rows: `own` of the row's label, and what `others` say of other labels."""
    return [{**others, label: own} for label in labels]


def test_a_class_with_one_row_has_no_threshold():
    labels = [*"aaaabbbb", "c"]
    rows = [*shares_of("aaaabbbb", 0.5, c=0.0), {"a": 0.6, "b": 0.4, "c": 0.01}]
    # Two rows prefer the label that one row has: with its mean of 0.01 as the threshold, both were listed.
    rows[0] = {"a": 0.45, "c": 0.55}
    rows[5] = {"b": 0.1, "c": 0.9}
    assert [(one.row, one.suggested) for one in label_errors(labels, rows)] == [(8, "a")]
    # They are still doubtful.
    doubtful = [one for one in doubtful_labels(labels, rows) if not one.is_likely]
    assert [(one.row, one.suggested) for one in doubtful] == [(5, "c"), (0, "c")]


def test_what_is_less_probable_than_the_label_is_not_suggested():
    labels = [*"aaaaaacc"]
    own = [0.98, 0.98, 0.98, 0.98, 0.9, 0.9]  # the last two are below the mean of a
    rows = [{"a": share, "c": 1 - share} for share in own] + [{"a": 0.97, "c": 0.03}] * 2
    assert [one.row for one in label_errors(labels, rows)] == [6, 7]
    # Of words, only the best tag and the own one are stored.
    words = [{"a": share} for share in own] + [{"c": 0.02, "a": 0.97}] * 2
    assert [one.row for one in label_errors(labels, words)] == [6, 7]


def test_of_equal_probabilities_the_label_of_the_row_stays():
    assert doubtful_labels(["b", "b", "a", "a"], [{"a": 0.5, "b": 0.5}] * 4) == []


def test_of_several_labels_one_that_all_rows_but_one_have_makes_no_errors():
    # The model gives x to every row, so the one row without it has a "usual" absence of 0.09.
    label_sets = [*[{"x"}] * 9, set()]
    rows = [{"x": share} for share in (0.95, 0.95, 0.95, 0.95, 0.95, 0.85, 0.85, 0.85, 0.85, 0.91)]
    assert [(one.row, one.suggested) for one in label_set_errors(label_sets, rows)] == [(9, "x")]


def test_of_several_labels_one_that_a_single_row_has_makes_no_errors():
    label_sets = [{"x"}, {"x", "y"}, {"x"}, set(), set(), set()]
    rows = [{"x": 0.9, "y": 0.3}, {"x": 0.9, "y": 0.02}, {"x": 0.9, "y": 0.6}, *[{"x": 0.1, "y": 0.2}] * 3]
    errors = [(one.row, one.suggested) for one in label_set_errors(label_sets, rows)]
    assert errors == [(1, "not y")]
