"""Probabilities from the scores of statements: they add up, and keep their laws when options change."""

import itertools

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.tasks.decide.decoding import Decision
from bothways.tasks.decide.questions import Levels, OneOf, YesNo

SCORES = np.array([1.5, -0.5, 0.25, -3.0], np.float32)
NAMES = ["delivery", "billing", "returns", "praise"]


def decide(names=NAMES, scores=SCORES, **options):
    return OneOf.of(names, **options).answer(scores)


def test_a_choice_follows_from_the_odds():
    odds = np.exp(SCORES.astype(float))
    decision = decide()
    assert decision.label == "delivery"
    assert [*decision.probabilities.values()] == pytest.approx(odds / (1 + odds.sum()))
    assert decision.none == pytest.approx(1 / (1 + odds.sum()))
    assert sum(decision.probabilities.values()) + decision.none == pytest.approx(1)

    decision = decide(none=False)
    assert [*decision.probabilities.values()] == pytest.approx(odds / odds.sum())
    assert decision.none == 0


def test_none_fits_where_it_is_more_probable_than_each_option():
    decision = decide(scores=SCORES - 3)
    assert decision.label is None
    assert decision.score == decision.none > max(decision.probabilities.values())
    assert decide(scores=SCORES - 3, none=False).label == "delivery"


def test_the_order_of_options_changes_no_bit():
    expected = decide()
    for order in itertools.permutations(range(4)):
        decision = decide([NAMES[index] for index in order], SCORES[[*order]])
        assert decision.none == expected.none
        assert decision.probabilities == expected.probabilities


def test_further_options_leave_the_odds_of_the_others():
    few = decide(NAMES[:2], SCORES[:2]).probabilities
    many = decide().probabilities
    assert few["delivery"] / few["billing"] == pytest.approx(many["delivery"] / many["billing"])


def test_an_option_with_several_descriptions_has_the_sum_of_them():
    apart = decide().probabilities
    options = {"shop": ["delivery", "billing"], "returns": "returns", "praise": ["praise"]}
    merged = OneOf.of(options)
    assert merged.statements == ("delivery", "billing", "returns", "praise")
    probabilities = merged.answer(SCORES).probabilities
    assert probabilities["shop"] == pytest.approx(apart["delivery"] + apart["billing"])
    assert probabilities["returns"] == pytest.approx(apart["returns"])


@pytest.mark.parametrize("none", [True, False])
def test_a_description_of_several_options_is_shared_by_them_and_changes_no_other_option(none):
    apart = decide(none=none)
    repeated = {"delivery": "delivery", "billing": "billing", "parcel": "delivery", "returns": "returns"}
    decision = OneOf.of({**repeated, "praise": ["praise", "praise"]}, none=none).answer(SCORES[[0, 1, 0, 2, 3, 3]])
    expected = {**apart.probabilities, "parcel": apart.probabilities["delivery"] / 2}
    expected["delivery"] /= 2
    assert decision.probabilities == pytest.approx(expected)
    assert decision.probabilities["delivery"] == decision.probabilities["parcel"]
    assert decision.none == pytest.approx(apart.none)


def test_equal_options_go_by_their_names_not_their_order():
    scores = np.zeros(2, np.float32)
    assert decide(["a", "b"], scores).label == decide(["b", "a"], scores).label


def test_a_question_is_read_before_each_option():
    assert OneOf.of(["a", "b"], " Which? ").statements == ("Which? a", "Which? b")
    assert Levels(("low", "high"), "How?").statements == ("How? low", "How? high")
    assert YesNo("Is it late?").statements == ("Is it late?",)


def test_yes_or_no():
    decision = YesNo("late").answer(np.array([1.0], np.float32))
    assert decision.label == "yes"
    assert decision.probabilities["yes"] == pytest.approx(1 / (1 + np.exp(-1)))
    assert sum(decision.probabilities.values()) == pytest.approx(1)


def test_levels_have_a_mean():
    decision = Levels(("low", "middle", "high")).answer(np.array([0.0, 1.0, 0.0], np.float32))
    assert decision.label == "middle"
    assert decision.level == pytest.approx(1)
    assert decision.none == 0


def test_extreme_scores_are_numbers():
    decision = decide(["a", "b"], np.array([500.0, -500.0], np.float32))
    assert decision.probabilities == {"a": 1.0, "b": 0.0}
    assert decide(["a", "b"], np.array([-500.0, -500.0], np.float32)).none == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("delivery", "one string"),
        ([], "0 options"),
        (["a", "a"], "given twice"),
        (["a", " "], "not empty"),
        ({"a": []}, "no description"),
        ({"a": ""}, "not empty"),
        ([str(number) for number in range(256)], "256 options"),
        ([1, 2], "texts"),
    ],
)
def test_options_that_cannot_be_told_apart_are_an_error(options, message):
    with pytest.raises(InputError, match=message):
        OneOf.of(options)


@pytest.mark.parametrize("levels", [(), ("low", "low"), ("low", " ")])
def test_so_are_levels_and_an_empty_question(levels):
    with pytest.raises(InputError):
        Levels(levels)
    with pytest.raises(InputError, match="empty"):
        YesNo(" ")


def test_a_decision_prints_itself():
    decision = Decision.of({"a": 0.5, "b": 0.3}, none=0.2)
    assert [*decision.lines()] == [" 50.0%  a", " 30.0%  b", " 20.0%  (none of these)"]
    assert decision.to_json() == {"label": "a", "score": 0.5, "probabilities": {"a": 0.5, "b": 0.3}, "none": 0.2}
    assert repr(decision) == "Decision(label='a', score=0.5, probabilities={'a': 0.5, 'b': 0.3}, none=0.2)"
