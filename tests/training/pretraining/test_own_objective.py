"""An own objective is an instance of a class of some lines: it trains, is recorded by its name, and resumes exactly."""

import json

import pytest

import bothways
from bothways.base.errors import InputError
from bothways.settings import Pretrain
from bothways.training.pretraining.objectives import (
    OneWay,
    PretrainingObjective,
    ReplacedTokens,
    build_objective,
    kind_of,
)
from bothways.training.run import read_metrics

WORDS = "the cat sat on a mat and the dog ran to the barn".split()


class WeightedWords(PretrainingObjective):
    def __init__(self, weight=0.5, pairs="none"):
        super().__init__(pairs)
        self.weight = weight

    def losses(self, module, batch, outputs):
        losses = super().losses(module, batch, outputs)
        total, count = losses["masked_lm"]
        return {**losses, "masked_lm": (self.weight * total, count)}


class Stop(Exception):
    pass


@pytest.fixture
def corpus(tmp_path):
    lines = [" ".join(WORDS[start:] + WORDS[:start]) + ".\n\n" for start in range(12)]
    (tmp_path / "corpus.txt").write_text("".join(lines))
    return tmp_path / "corpus.txt"


@pytest.fixture
def train(corpus, tmp_path):
    def run(name, objective, *, callbacks=(), **changes):
        values = dict(model="tiny", steps=4, batch_tokens=64, max_length=16, checkpoint_every=2, evaluate_every=4)
        settings = Pretrain(corpus=corpus, out=tmp_path / name, objective=objective, device="cpu", **values, **changes)
        bothways.train(settings, callbacks=callbacks)
        return [row["loss"] for row in read_metrics(settings.out)]

    return run


def test_its_loss_is_computed_and_its_name_is_recorded(train, tmp_path):
    ours = train("ours", "masked")
    half = train("half", WeightedWords(0.5))
    assert half[0] == pytest.approx(ours[0] / 2)
    assert json.loads((tmp_path / "half/bothways.json").read_text())["settings"]["objective"] == "WeightedWords"
    assert bothways.load(tmp_path / "half", device="cpu").fill("the [MASK] sat")


def test_it_resumes_with_an_instance_of_the_same_class_only(train):
    def stop(row):
        if row["step"] == 3:
            raise Stop

    whole = train("whole", WeightedWords())
    with pytest.raises(Stop):
        train("stopped", WeightedWords(), callbacks=stop)
    with pytest.raises(InputError, match=r"stopped: was started with an own objective, WeightedWords; resume it with"):
        train("stopped", "auto", resume=True)
    with pytest.raises(InputError, match=r"other settings \(objective"):
        train("stopped", PretrainingObjective(), resume=True)
    assert train("stopped", WeightedWords(), resume=True) == whole


def test_its_pairs_are_used_and_others_are_refused(train, tmp_path):
    train("pairs", WeightedWords(pairs="next"), family="bert")
    assert "next_sentence" in read_metrics(tmp_path / "pairs")[0]
    with pytest.raises(InputError, match=r"pairs \(order\): WeightedWords has pairs next"):
        train("none", WeightedWords(pairs="next"), pairs="order", family="bert")


def test_held_out_text_without_pairs_leaves_the_instance_as_it_was():
    own = WeightedWords(0.25, pairs="next")
    built = build_objective(own, "none")
    assert (own.pairs, built.pairs, built.weight) == ("next", "none", 0.25)
    assert build_objective(own, "next") is own


def test_a_subclass_is_checked_like_the_objective_that_it_extends(train):
    class Own(ReplacedTokens):
        pass

    class OwnHalves(OneWay):
        pass

    assert [kind_of(one) for one in (WeightedWords(), Own(), OwnHalves(halves=True), "boundary", "auto")] == [
        "masked",
        "replaced",
        "halves",
        "boundary",
        "auto",
    ]
    with pytest.raises(InputError, match=r"objective \(Own\), pairs \(none\): bert has no such head"):
        train("none", Own(), family="bert")


@pytest.mark.parametrize("wrong", [WeightedWords, "tripled", 3])
def test_anything_else_is_refused(train, wrong):
    with pytest.raises(InputError, match=r"^objective .* or an instance of PretrainingObjective"):
        train("none", wrong)


def test_an_objective_of_something_else_is_refused(train):
    class Foreign:
        pairs = "none"

        def losses(self, module, batch, outputs):
            return {}

        def counts(self, batch):
            return {}

    with pytest.raises(InputError, match=r"objective \(Foreign\) is not an instance of PretrainingObjective"):
        train("none", Foreign())
