"""Fine-tuned decisions: the run, what is delivered, and the same call before and after."""

import json
from dataclasses import replace

import numpy as np
import pytest

import bothways
from bothways.base.errors import InputError
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.checkpoint import save
from bothways.settings.finetune import TrainDecide
from bothways.training.finetuning.ground import linear_candidates
from bothways.training.finetuning.ground.linear_candidates import FewRows
from tests.random_statements import random_statements
from tests.soaked import in_soak
from tests.training.finetuning.gallery import class_rows

pytestmark = pytest.mark.slow

DEFAULTS = {"epochs": None, "learning_rate": None, "linear_start": True, "baselines": True}
OTHERS = {"weather": "rain or sun", "cats": ["the cat", "a cat"]}


@pytest.fixture(scope="module")
def start(checkpoint_of, tmp_path_factory):
    """An encoder of vectors that reads statements."""
    directory = checkpoint_of(
        heads={},
        hidden_size=64,
        num_attention_heads=2,
        intermediate_size=96,
        options={"pooling": "mean", "normalized": True},
    )
    model = checkpoint.load(directory)
    target = tmp_path_factory.mktemp("start") / "model"
    save(replace(model, statements=random_statements(model.model.config)), target)
    return target


@pytest.fixture(scope="module")
def rows():
    return class_rows(0, 45)


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    file = tmp_path_factory.mktemp("options") / "others.json"
    file.write_text(json.dumps(OTHERS), encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def decided(start, finetuned, rows, others):
    """A finished run on 45 rows of three options, with two options that have none."""
    return finetuned(TrainDecide, model=start, train=rows, options=others, **DEFAULTS)


@pytest.fixture(scope="module")
def learned(rows):
    return sorted({row["label"] for row in rows})


def test_the_model_knows_its_options(decided, learned, rows):
    model = decided.predictor
    assert model.task == "decide"
    assert model.labels == (*sorted([*learned, *OTHERS]),)
    assert model.encoder.asked.options["cats"] == ("the cat", "a cat")

    decisions = model.decide([row["text"] for row in rows])
    assert np.mean([one.label == row["label"] for one, row in zip(decisions, rows, strict=True)]) > 0.8
    for decision in decisions:
        assert sum(decision.probabilities.values()) + decision.none == pytest.approx(1)


def test_the_encoder_is_the_one_it_was(decided, start, rows):
    """So that the head of statements reads it as before: other options are decided as without training."""
    texts = [row["text"] for row in rows[:4]]
    before = bothways.load(start, backend="torch", dtype="float32")
    after = bothways.load(decided.result.model_directory, backend="torch", dtype="float32")
    assert (before.embed(texts) == after.embed(texts)).all()
    assert before.decide(texts, ["a dog", "a rate"]) == after.decide(texts, ["a dog", "a rate"])


def test_options_that_are_not_asked_for_belong_to_none(decided, learned, rows):
    model = decided.predictor
    text = rows[0]["text"]
    whole = model.decide(text)
    part = model.decide(text, learned[:2])
    for name in learned[:2]:
        assert part.probabilities[name] == pytest.approx(whole.probabilities[name], rel=1e-4)
    assert part.none == pytest.approx(1 - sum(part.probabilities.values()))
    assert model.decide(text, learned[1::-1]).probabilities == part.probabilities

    with_other = model.decide(text, [*learned[:2], "something else"])
    odds = part.probabilities[learned[0]] / part.probabilities[learned[1]]
    assert with_other.probabilities[learned[0]] / with_other.probabilities[learned[1]] == pytest.approx(odds, rel=1e-4)


def test_the_score_is_compared_with_the_statements_alone(decided):
    assert "statements, no training" in decided.result.baselines
    assert decided.result.measured.startswith("out-of-fold, 45 rows")


@pytest.mark.parametrize("share", [1 / 3, *in_soak(0.0, 1.0)])
def test_the_saved_model_scores_as_the_candidate_does(start, finetuned, rows, others, share, monkeypatch):
    """Head, TF-IDF and statements are added in the model as they were in the run."""
    fitted = {}
    choose = FewRows.fit_head

    def chosen(self):
        return next(one for one in self.candidates if one.pair_share == share and (share == 1 or one.word_share))

    def fit_head(self, candidate):
        fitted["pair_scale"] = self.pair_scale(candidate)
        return choose(self, candidate)

    monkeypatch.setattr(FewRows, "chosen", property(chosen))
    monkeypatch.setattr(FewRows, "fit_head", fit_head)
    run = finetuned(TrainDecide, model=start, train=rows, test=rows[:9], options=others, **DEFAULTS)

    model = bothways.load(run.result.model_directory, backend="torch", dtype="float32")
    assert (model.encoder.asked.pair_scale > 0) == (share > 0)
    head = model.classify([row["text"] for row in rows[:9]])
    predictions = run.result.predictions
    assert [one.label for one in head] == [*predictions["predicted"]]

    # The table is of the model before it is calibrated.
    temperature = model.description.metadata["calibration"]["temperature"]
    given_NC = np.array([predictions[f"probability_{name}"] for name in model.labels]).T ** (1 / temperature)
    expected_NC = given_NC / given_NC.sum(1, keepdims=True)
    assert np.array([[one.scores[name] for name in model.labels] for one in head]) == pytest.approx(
        expected_NC, abs=2e-3
    )


def test_tfidf_is_compared_but_never_the_model_of_decisions(start, finetuned, rows, monkeypatch):
    """It could not decide about options without rows. These rows are told apart by single words: it is as good."""
    monkeypatch.setattr(linear_candidates, "MAX_PAIRS", 0)
    run = finetuned(TrainDecide, model=start, train=rows, **DEFAULTS)
    assert any(name.startswith("TF-IDF") for name in run.result.baselines)
    assert run.predictor.decide(rows[0]["text"]).label is not None
    assert not (run.result.directory / "tfidf").exists()


def test_soft_targets_are_learned(start, finetuned, rows, learned):
    """Rows whose label is one option, but whose probability is in another."""
    first, second = learned[:2]
    soft = [
        {**row, "given": json.dumps({second: 1.0} if row["label"] == first else {row["label"]: 1.0})} for row in rows
    ]
    run = finetuned(TrainDecide, model=start, train=soft, probabilities_column="given", **DEFAULTS)
    texts = [row["text"] for row in rows if row["label"] == first]
    assert {one.label for one in run.predictor.decide(texts, none=False)} == {second}


def test_errors_say_the_way_out(start, checkpoint_of, rows, tmp_path):
    def run(**changes):
        given = {"model": start, "train": rows, "out": tmp_path / "run", "device": "cpu"}
        return bothways.train(TrainDecide(**{**given, **changes}))

    with pytest.raises(InputError, match="epochs .* stays as it is here; leave it out, or use finetune classify"):
        run(epochs=3.0)
    with pytest.raises(InputError, match="does not read options; start from bothways-en"):
        run(model=checkpoint_of(options={"pooling": "mean"}))
    with pytest.raises(InputError, match="no column 'given'"):
        run(probabilities_column="given")
    soft = [{**row, "given": "much"} for row in rows]
    with pytest.raises(InputError, match="no object of probabilities"):
        run(train=soft, probabilities_column="given")
    with pytest.raises(InputError, match="pairs of texts"):
        run(train=[{"text": row["text"], "pair": "a", "label": row["label"]} for row in rows])
