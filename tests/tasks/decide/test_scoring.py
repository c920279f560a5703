"""Scores of decisions by hand: what can be automated, recall of none, Brier; and the baselines beside them."""

import numpy as np
import pytest

from bothways.tasks.decide.baselines import word_cosines
from bothways.tasks.decide.decoding import Decision
from bothways.tasks.decide.option_set import OptionSet
from bothways.tasks.decide.scoring import NONE, DecisionEvaluator, automated


def decision(share, none=0.0):
    return Decision.of({"a": share, "b": 1 - share - none}, none)


def test_the_share_that_can_be_automated_is_of_the_most_certain_with_few_errors():
    certain = np.linspace(1, 0, 100)
    right = np.ones(100, bool)
    assert automated(certain, right) == 1
    right[50:] = False
    assert automated(certain, right) == pytest.approx(52 / 100)  # 2 errors of 52 are below 5 %, 3 of 53 are not
    assert automated(certain[::-1], right) == 0


def test_scores_of_decisions():
    decisions = [decision(0.9), decision(0.2), decision(0.3, none=0.5), decision(0.6)]
    scores = DecisionEvaluator().scores(["a", "b", NONE, "b"], decisions)
    assert scores["accuracy"] == 0.75
    assert scores["none_recall"] == 1
    assert scores["in_scope_accuracy"] == pytest.approx(2 / 3)
    squares = [2 * 0.1**2, 2 * 0.2**2, 0.3**2 + 0.2**2 + 0.5**2, 2 * 0.6**2]
    assert scores["brier"] == pytest.approx(sum(squares) / 4)


def test_intervals_hold_the_scores():
    decisions = [decision(0.5 + index / 100) for index in range(40)]
    gold = ["a"] * 30 + ["b"] * 5 + ["a"] * 5
    scores = DecisionEvaluator().compare(gold, decisions, [*range(40)])
    for name in ("accuracy", "automated"):
        low, high = scores[f"{name}_interval"]
        assert low <= scores[name] <= high
        assert low < high


def test_words_of_descriptions_are_weighted_by_their_rareness():
    texts = ["the parcel is late", "the bill is wrong", "the the the"]
    cosines_NK = word_cosines(texts, OptionSet.of(["the parcel", "a bill"]))
    assert cosines_NK.shape == (3, 2)
    assert cosines_NK[0].argmax() == 0
    assert cosines_NK[1].argmax() == 1
    assert cosines_NK[0, 0] > cosines_NK[2, 0] > 0
