"""None of these: texts, entities and answers below a score, texts unlike the training texts, sets that are empty."""

import csv
import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest

from bothways import load
from bothways.base.errors import InputError
from bothways.cli.main import main
from bothways.evaluation import evaluate
from bothways.inference.jobs.verbs import predict_blocks
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.cut import with_layers
from bothways.model.checkpoint.changes.new_head import with_head
from bothways.model.checkpoint.changes.pack import save_packed
from bothways.model.checkpoint.description import Description
from bothways.settings import Evaluate, Predict
from bothways.tasks.class_decoding import Calibration, ClassDecoding
from bothways.tasks.classify.task import CLASSIFY
from bothways.tasks.novelty import farthest, fit_scope, stored_scope
from bothways.tasks.text_rows import TextRow

TEXTS = ["the cat sat on the mat", "a dog ran", "the dogs and the cats", "xyz", "on and on", "b"]
NAMES = ("bad", "good", "so so")


@pytest.fixture(scope="module")
def classifier(make_predictor):
    return make_predictor(heads={"classes": 3}, labels=NAMES)


@pytest.fixture(scope="module")
def judge(classifier):
    """The classifier, which knows that its training texts were three of the texts, over and over."""
    vectors = np.concatenate([part for _, part in classifier.backend.scored_vectors("classes", TEXTS[:3], None, {})])
    noise_NH = np.random.default_rng(0).normal(0, 0.01, (60, vectors.shape[1]))
    groups_N = np.arange(60) % 3
    scope = fit_scope(vectors[groups_N] + noise_NH, groups_N, [*map(str, range(60))], None)
    return Predictor(replace(classifier.checkpoint, scope=scope), dtype="float32")


def least_between(scores):
    """A score above that of one text, at most that of the others."""
    ordered = sorted(scores)
    return (ordered[0] + ordered[1]) / 2


def test_a_label_is_none_only_below_a_score_that_was_asked_for(classifier):
    plain = classifier.classify(TEXTS)
    least = least_between(one.score for one in plain)
    asked = classifier.classify(TEXTS, min_score=least)
    assert [one.label for one in asked] == [one.label if one.score >= least else None for one in plain]
    assert [one.label for one in asked].count(None) == 1
    assert [one.scores for one in asked] == [one.scores for one in plain]
    assert all(one.label is not None for one in classifier.classify(TEXTS, min_score=0))
    refused = next(one for one in asked if one.label is None)
    assert refused.to_json()["label"] is None and refused.labels == () and refused.score < least


def test_the_least_score_replaces_the_half_of_several_labels():
    described = Description(labels=("a", "b", "c"), multi_label=True)
    scores_NC = np.array([[0.0, 1.0, -1.0], [-3.0, -2.0, -4.0]], np.float32)  # .5, .73, .27; .05, .12, .02
    of = {least: [*ClassDecoding(min_score=least).predictions(scores_NC, described)] for least in (None, 0.25, 0.7)}
    assert [one.labels for one in of[None]] == [("b",), ()]
    assert [one.labels for one in of[0.25]] == [("a", "b", "c"), ()]
    assert [one.labels for one in of[0.7]] == [("b",), ()]
    assert [one.label for one in of[None]] == ["b", "b"] and [one.label for one in of[0.25]] == ["b", None]


def test_a_prediction_set_may_be_empty_and_then_keeps_its_label():
    # At a coverage of 0.5, a class needs a probability of 0.8.
    calibration = Calibration(1.0, 9, tuple(np.linspace(0.0, 0.4, 9)))
    described = Description(labels=("a", "b"), metadata={"calibration": calibration.to_json()})
    scores_NC = np.log(np.array([[0.9, 0.1], [0.4, 0.6], [0.1, 0.9]]))
    found = [*ClassDecoding(coverage=0.5).predictions(scores_NC, described)]
    assert [(one.label, one.labels) for one in found] == [("a", ("a",)), ("b", ()), ("b", ("b",))]
    assert found[1].to_json()["labels"] == []


def test_sets_hold_the_right_label_as_often_as_asked_for_with_and_without_refusals():
    draw = np.random.default_rng(1)
    scores_NC = draw.normal(0, 2, (6000, 4))
    powers_NC = np.exp(scores_NC)
    gold_N = [draw.choice(4, p=row / row.sum()) for row in powers_NC]
    strangeness = np.sort(1 - (powers_NC / powers_NC.sum(1, keepdims=True))[np.arange(3000), gold_N[:3000]])
    calibration = Calibration(1.0, 3000, tuple(strangeness))
    described = Description(labels=tuple("abcd"), metadata={"calibration": calibration.to_json()})
    for least in (None, 0.6):
        found = [*ClassDecoding(coverage=0.7, min_score=least).predictions(scores_NC[3000:], described)]
        held = np.mean(["abcd"[gold] in one.labels for one, gold in zip(found, gold_N[3000:], strict=True)])
        assert held == pytest.approx(0.7, abs=0.03)
        assert any(one.label is None for one in found) == (least is not None)


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan"), "0.5", True])
def test_a_least_score_that_is_no_probability_is_named_in_one_line(classifier, value):
    with pytest.raises(InputError, match="min_score .* from 0 to 1") as error:
        classifier.classify(TEXTS, min_score=value)
    assert "\n" not in str(error.value)


# --- texts unlike the training texts ----------------------------------------------------------------------------------


def test_texts_unlike_the_training_texts_have_no_label_where_it_was_asked_for(judge):
    found = judge.classify(TEXTS, in_scope=0.9)
    assert [one.is_like_training for one in found] == [True] * 3 + [False] * 3
    assert [one.label is None for one in found] == [False] * 3 + [True] * 3
    assert all(one.is_like_training is None and one.label for one in judge.classify(TEXTS))
    assert "is_like_training" not in judge.classify(TEXTS[0]).to_json()
    assert judge.classify(TEXTS[3], in_scope=0.9).to_json()["is_like_training"] is False


def test_a_saved_model_knows_its_training_texts(judge, tmp_path):
    checkpoint.save(judge.checkpoint, tmp_path / "model")
    for backend in ("numpy", "torch"):
        loaded = load(tmp_path / "model", "float32", backend=backend)
        found = [one.is_like_training for one in loaded.classify(TEXTS, in_scope=0.9)]
        assert found == [True] * 3 + [False] * 3
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again/scope.safetensors").read_bytes() == (tmp_path / "model/scope.safetensors").read_bytes()
    (tmp_path / "model/scope.safetensors").write_bytes(b"x")
    with pytest.raises(InputError, match=r"scope\.safetensors: broken"):
        load(tmp_path / "model")


def test_a_share_that_cannot_be_kept_and_a_model_without_a_scope_are_named_in_one_line(classifier, judge):
    with pytest.raises(InputError, match=r"\(in_scope\); fine-tune") as error:
        classifier.classify(TEXTS, in_scope=0.9)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"in_scope \(0.99\) needs 99 held-out rows; .* had 60; use at most 0.98"):
        judge.classify(TEXTS, in_scope=0.99)
    assert judge.classify(TEXTS, in_scope=0.98)
    with pytest.raises(InputError, match=r"in_scope \(1.5\) must be between 0 and 1"):
        judge.classify(TEXTS, in_scope=1.5)


def test_a_smaller_model_with_other_vectors_does_not_know_its_training_texts_but_a_packed_one_does(judge, tmp_path):
    smaller = with_layers(judge.checkpoint, [0, 2])
    assert judge.checkpoint.scope is not None and smaller.scope is None
    assert with_head(judge.checkpoint, "classes", ("x", "y"), seed=0).scope is None
    with pytest.raises(InputError, match="RUN/encoder"):
        stored_scope(Description(model_type="bothways-tfidf", labels=NAMES))
    save_packed(judge.checkpoint, tmp_path / "packed")
    packed = load(tmp_path / "packed", "float32")
    assert packed.description.scope.held_out == judge.description.scope.held_out


@pytest.mark.parametrize("num_groups", [2, 7])
def test_the_stated_share_of_texts_like_the_training_texts_is_kept_and_others_are_not(num_groups):
    draw = np.random.default_rng(3)
    means_GH = draw.normal(0, 1, (num_groups, 23))

    def texts(number):
        groups_N = np.arange(number) % num_groups
        return means_GH[groups_N] + draw.normal(0, 0.3, (number, 23)), groups_N

    (vectors_NH, groups_N), (new_NH, _), (held_out_NH, _) = texts(140), texts(2000), texts(400)
    outside_NH = draw.normal(0, 1, (500, 23))
    units = [*map(str, range(140))]
    for held_out in (None, held_out_NH):
        scope = fit_scope(vectors_NH, groups_N, units, held_out)
        kept = (scope.distances(new_NH) <= farthest(scope, 0.9)).mean()
        assert 0.86 <= kept <= 0.97
        assert (scope.distances(outside_NH) > farthest(scope, 0.9)).mean() > 0.9


def test_two_classes_that_hardly_differ_are_told_from_texts_of_another_kind():
    draw = np.random.default_rng(4)
    kind_H, other_H, class_H = draw.normal(0, 1, (3, 23))

    def texts(number, center_H):
        groups_N = np.arange(number) % 2
        return center_H + 0.2 * groups_N[:, None] * class_H + draw.normal(0, 0.5, (number, 23)), groups_N

    scope = fit_scope(*texts(60, kind_H), [*map(str, range(60))], None)
    inside_NH, outside_NH = texts(500, kind_H)[0], texts(500, kind_H + 0.8 * other_H)[0]
    is_far = [scope.distances(part_NH) > farthest(scope, 0.9) for part_NH in (inside_NH, outside_NH)]
    assert np.mean(is_far[0]) < 0.15 and np.mean(is_far[1]) > 0.8


# --- tags and answers -------------------------------------------------------------------------------------------------


def test_entities_below_the_least_score_are_not_given(make_predictor):
    tagger = make_predictor("bert", {"tokens": 5}, labels=("O", "B-PER", "I-PER", "B-LOC", "I-LOC"))
    all_of = tagger.tag(TEXTS)
    least = least_between({one.score for found in all_of for one in found})
    assert tagger.tag(TEXTS, min_score=least) == [[one for one in found if one.score >= least] for found in all_of]
    assert tagger.tag(TEXTS[0], min_score=1.0) == []


def test_an_answer_below_the_least_score_is_empty(make_predictor):
    reader = make_predictor("bert", {"spans": 2}, max_position_embeddings=96)
    (best, second), *_ = reader.answer(["dog"], ["the cat sat on the mat"], top=2)
    least = (best.score + second.score) / 2
    assert reader.answer(["dog"], ["the cat sat on the mat"], top=2, min_score=least) == [[best]]
    (none,) = reader.answer("dog", "the cat sat on the mat", top=2, min_score=1.0)
    assert (none.text, none.start, none.end, none.score) == ("", 0, 0, best.score)


# --- files and scores -------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(judge, tmp_path):
    checkpoint.save(judge.checkpoint, tmp_path / "model")
    return tmp_path / "model"


def test_files_have_an_empty_cell_a_null_and_what_was_judged(saved, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    for suffix in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"out.{suffix}"
        options = ("--in-scope", "0.9", "--out", str(out), "--dtype", "float32")
        main(["predict", str(saved), str(tmp_path / "texts.txt"), *options])
    rows = [*csv.DictReader((tmp_path / "out.csv").read_text().splitlines())]
    assert [row["label"] == "" for row in rows] == [False] * 3 + [True] * 3
    assert [row["is_like_training"] for row in rows] == ["true"] * 3 + ["false"] * 3
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["label"] is None for line in lines] == [False] * 3 + [True] * 3
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["is_like_training"] == [True] * 3 + [False] * 3 and table["label"][3:] == [None] * 3


def test_refused_texts_are_counted_and_the_others_scored(classifier):
    plain = classifier.classify(TEXTS)
    least = least_between(one.score for one in plain)
    rows = [TextRow(text, None, one.label) for text, one in zip(TEXTS, plain, strict=True)]
    weakest = min(range(len(TEXTS)), key=lambda row: plain[row].score)
    other = next(name for name in NAMES if name != plain[0].label)
    rows[0 if weakest else 1] = TextRow(TEXTS[0 if weakest else 1], None, other)
    evaluator = CLASSIFY.evaluator(classifier, None, {"min_score": least})
    scores = evaluator.score(rows, evaluator.predict(classifier, rows), intervals=True)
    assert (scores["accuracy"], scores["answered"]) == pytest.approx((4 / 5, 5 / 6))
    assert (scores["texts"], scores["refused"]) == (6, 1)
    plainly = CLASSIFY.evaluator(classifier, None)
    assert "answered" not in plainly.score(rows, plainly.predict(classifier, rows))
    nothing = CLASSIFY.evaluator(classifier, None, {"min_score": 1.0})
    with pytest.raises(InputError, match="min_score 1: every one of 6 texts is refused"):
        nothing.score(rows, nothing.predict(classifier, rows))


@pytest.mark.parametrize("written", ["csv", "jsonl"])
def test_a_file_of_predictions_may_refuse_rows(tmp_path, written):
    gold = tmp_path / "gold.csv"
    gold.write_text("text,label\n" + "".join(f"a {row},{'xy'[row % 2]}\n" for row in range(8)))
    predicted = ["x", "y", "x", None, "y", "y", None, "y"]
    file = tmp_path / f"p.{written}"
    if written == "csv":
        file.write_text("label,score\n" + "".join(f"{one or ''},0.5\n" for one in predicted))
    else:
        file.write_text("".join(json.dumps({"label": one}) + "\n" for one in predicted))
    scores = evaluate.measure(Evaluate(model=gold, predictions=file))
    assert (scores["accuracy"], scores["answered"], scores["refused"]) == pytest.approx((5 / 6, 6 / 8, 2))
    file.write_text('{"label": null}\n' * 8 if written == "jsonl" else "label,score\n" + ",0.5\n" * 8)
    with pytest.raises(InputError, match="no row has a prediction"):
        evaluate.measure(Evaluate(model=gold, predictions=file))


def test_a_fact_below_the_least_score_is_left_out(classifier):
    least = least_between(one.score for one in classifier.classify(TEXTS))
    assert [len(found) for found in CLASSIFY.facts(classifier, TEXTS, "", least)].count(0) == 1
    assert all(len(found) == 1 for found in CLASSIFY.facts(classifier, TEXTS, ""))


def test_thresholds_of_a_model_that_has_no_use_for_them_are_refused_in_a_message(tmp_path, make_predictor, saved):
    with pytest.raises(InputError, match=r"min_score \(0.5\) is for a model"):
        Evaluate(model=tmp_path / "gold.csv", predictions=tmp_path / "p.csv", min_score=0.5)
    with pytest.raises(InputError, match="in_scope and label_next"):
        Predict(model=saved, file="x.csv", label_next=3, in_scope=0.9, out=tmp_path / "o.csv")
    tagger = make_predictor("bert", {"tokens": 3}, labels=("O", "B-PER", "I-PER"))
    checkpoint.save(tagger.checkpoint, tmp_path / "tagger")
    (tmp_path / "texts.txt").write_text("the cat")
    with pytest.raises(InputError, match=r"in_scope \(0.9\) is for labels; the task of this model is tag"):
        next(predict_blocks(Predict(model=tmp_path / "tagger", file=str(tmp_path / "texts.txt"), in_scope=0.9)))
    with pytest.raises(InputError, match="min_score is for texts with labels"):
        evaluate.measure(Evaluate(model=tmp_path / "tagger", file=tmp_path / "texts.txt", min_score=0.5))
