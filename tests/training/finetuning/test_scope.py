"""What a run knows of its texts: what texts are like them, and thresholds of several labels."""

import json

import numpy as np
import pytest

from bothways.evaluation import evaluate
from bothways.settings import Classify, Evaluate
from bothways.tasks import novelty
from bothways.tasks.text_examples import TextExamples
from tests.token_windows import windows_of_sizes
from tests.training.finetuning.gallery import class_rows


def test_the_stated_share_of_the_rows_held_out_from_training_is_kept(gallery):
    run = gallery.classify
    assert (run.result.model_directory / "scope.safetensors").stat().st_mode & 0o044
    settings, kept = run.settings, []
    for file in (settings.dev, settings.test):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        found = run.predictor.classify([row["text"] for row in rows], in_scope=0.9)
        kept += [one.is_like_training for one in found]
    assert run.predictor.description.scope.rows == len(kept)
    assert 0.88 <= np.mean(kept) <= 0.96


def test_a_frozen_encoder_holds_out_its_training_texts_in_folds(table, checkpoint_of, finetuned):
    frozen = {"learning_rate": 0.0, "linear_start": True}
    run = finetuned(Classify, model=checkpoint_of(), train=table(class_rows(0, 90)), **frozen)
    rows = run.metadata["rows"]
    assert run.predictor.description.scope.rows == rows["train"] + rows["dev"]
    found = run.predictor.classify([row["text"] for row in class_rows(1, 200)], in_scope=0.8)
    assert np.mean([one.is_like_training for one in found]) > 0.7
    (outside,) = run.predictor.classify(["b " * 30], in_scope=0.8)
    assert outside.label is None


def test_texts_are_read_in_turn_from_every_group_up_to_a_number_of_texts_and_of_tokens(monkeypatch):
    targets_N = np.array([0] * 50 + [1] * 5 + [2] * 45 + [-100] * 7)
    windows = windows_of_sizes([[8]] * len(targets_N))
    examples = TextExamples(windows, targets_N, [*map(str, range(len(targets_N)))])
    monkeypatch.setattr(novelty, "MAX_TEXTS", 25)
    assert np.bincount(novelty.spread(examples).targets).tolist() == [10, 5, 10]
    monkeypatch.setattr(novelty, "MAX_TOKENS", 120)
    assert len(novelty.spread(examples).targets) == 11
    several = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0], [-100, -100, -100]])
    assert novelty.groups_of(several).tolist() == [0, 1, 2, 2, 3, -100]


@pytest.fixture(scope="module")
def several(table, checkpoint_of, finetuned):
    """A run of texts in which a word has a label in two of five texts, so that its probability is below a half."""
    draw = np.random.default_rng(0)

    def rows(number):
        texts = []
        for _ in range(number):
            words = draw.choice(["the", "sat", "on", "mat", "and", "ran"], 5).tolist()
            has_dog, has_cat = (draw.random(2) < 0.5).tolist()
            words += ["dog"] * has_dog + ["cat"] * has_cat
            labels = ["feline"] * has_cat + ["barks"] * (has_dog and draw.random() < 0.4)
            texts.append({"text": " ".join(words), "label": "|".join(labels)})
        return texts

    tables = {
        split: table(rows(number), f"{split}.csv") for split, number in (("train", 250), ("dev", 200), ("test", 150))
    }
    options = {"learning_rate": 0.0, "linear_start": True, "multi_label": True, "metric": "f1_macro"}
    return finetuned(Classify, model=checkpoint_of(), **tables, **options)


def test_labels_are_decided_by_thresholds_of_dev_everywhere(several):
    stored = several.predictor.description.metadata["calibration"]["thresholds"]
    labels = several.predictor.labels
    assert dict(zip(labels, stored, strict=True))["barks"] < 0.45
    rows = several.predictor.classify(["the mat dog", "the mat cat", "the mat ran"])
    for one in rows:
        assert {*one.labels} == {name for name, least in zip(labels, stored, strict=True) if one.scores[name] > least}
    settings = {"model": several.result.model_directory, "dtype": "float32"}
    scores = evaluate.measure(Evaluate(**settings, file=several.settings.test))
    assert scores["f1_macro"] == pytest.approx(several.result.mean, abs=1e-6)
    even = evaluate.measure(Evaluate(**settings, file=several.settings.test, min_score=0.5))
    assert even["f1_macro"] < scores["f1_macro"] - 0.05
    predictions = several.result.predictions
    names = dict(zip(labels, stored, strict=True))
    for row in predictions.to_dict("records"):
        found = {name for name in labels if row[f"probability_{name}"] > names[name]}
        assert {*filter(None, json.loads(row["predicted"]))} == found
