"""Options that a model has learned: their probabilities among those that one asks for, and their entry in its file."""

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.model.checkpoint.description import DECIDE, Description
from bothways.tasks.decide.option_set import UNKNOWN, OptionSet, learned_scores, stored_options
from bothways.tasks.decide.questions import OneOf, YesNo

SCORES = np.array([2.0, 0.5, -1.0], np.float32)
LEARNED = OptionSet(
    {"delivery": ("delivery", "late parcel"), "billing": ("billing",), "praise": ("praise",)}, has_head=True
)


def answer(names, none=0.1, **options):
    question = OneOf.of(names, **options)
    return question.answer(learned_scores(SCORES, none, LEARNED.places(question)).astype(np.float32))


def test_all_options_have_the_probabilities_of_the_head():
    expected = 0.9 * np.exp(SCORES) / np.exp(SCORES).sum()
    decision = answer([*LEARNED.options])
    assert [*decision.probabilities.values()] == pytest.approx(expected, rel=1e-5)
    assert decision.none == pytest.approx(0.1)


def test_an_option_that_is_left_out_belongs_to_none_of_these():
    whole = answer([*LEARNED.options])
    part = answer(["billing", "praise"])
    assert part.label is None
    assert part.none == pytest.approx(whole.none + whole.probabilities["delivery"])
    for name in part.probabilities:
        assert part.probabilities[name] == pytest.approx(whole.probabilities[name])

    forced = answer(["billing", "praise"], none=False)
    odds = whole.probabilities["billing"] / whole.probabilities["praise"]
    assert forced.probabilities["billing"] / forced.probabilities["praise"] == pytest.approx(odds)


def test_descriptions_share_the_probability_of_their_option():
    asked = {"delivery": ["delivery", "late parcel"], "billing": "billing", "praise": "praise"}
    assert answer(asked).probabilities == pytest.approx(answer([*LEARNED.options]).probabilities)


def test_what_is_unknown_is_left_to_the_statements():
    assert LEARNED.places(OneOf.of(["praise", "spam"])) == [2, UNKNOWN]
    assert LEARNED.places(OneOf.of({"praise": "is happy"})) == [UNKNOWN]
    assert LEARNED.places(OneOf.of(["praise"], "What is it about?")) == [UNKNOWN]
    assert LEARNED.places(YesNo("praise")) == [UNKNOWN]
    assert OptionSet.of(["praise"]).places(OneOf.of(["praise"])) == [UNKNOWN]


def test_the_score_of_an_option_is_that_of_its_descriptions_together():
    scores_NC = LEARNED.option_scores(np.array([[1.0, 2.0, -1.0, 0.5]], np.float32))
    assert scores_NC == pytest.approx(np.array([[np.log(np.exp(1) + np.exp(2)), -1.0, 0.5]]))


def test_options_are_read_as_they_are_written():
    stored = stored_options(Description(metadata={DECIDE: LEARNED.scaled(0.5).to_json()}))
    assert stored == LEARNED.scaled(0.5)
    assert stored_options(Description()) is None
    with pytest.raises(InputError, match="bothways.json: decide is broken"):
        stored_options(Description(metadata={DECIDE: {"options": ["a"]}}))
