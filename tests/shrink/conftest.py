"""Shared fixtures of compression tests: labelled rows, and a small model that was fine-tuned on them."""

import json
from dataclasses import replace

import pytest

import bothways
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Classify
from bothways.shrink.measuring import Scale

WORDS = ["the", "sat", "on", "mat", "and", "ran"]


@pytest.fixture(scope="session")
def class_rows():
    def rows(number=150):
        texts = [f"{WORDS[row % 6]} {('dog', 'cat')[row % 2]} {'on ' * (row // 6)}" for row in range(number)]
        return [{"text": text, "label": "ab"["cat" in text]} for text in texts]

    return rows


@pytest.fixture(scope="session")
def data(class_rows, tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, class_rows())), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def model(data, make_model, tokenizer, tmp_path_factory):
    """A fine-tuned small model."""
    folder = tmp_path_factory.mktemp("model")
    checkpoint.save(Checkpoint(make_model("bert", {"masked_words": 0}), tokenizer), folder / "start")
    settings = Classify(
        model=folder / "start", train=data, out=folder / "run", baselines=False, epochs=6.0, learning_rate=5e-3,
        dropout=0.0, dtype="float32", batch_tokens=256,
    )  # fmt: skip
    return bothways.train(settings).directory


def with_drops(monkeypatch, drops, speeds=None):
    """Candidates measured with these drops on dev and these speeds, in turn."""
    measure, values = Scale.measure, zip(drops, speeds or [1.0] * len(drops), strict=True)

    def measured(self, candidate):
        one, (drop, speed) = measure(self, candidate), next(values)
        return replace(one, dev_drop=replace(one.dev_drop, points=drop), speed=speed)

    monkeypatch.setattr(Scale, "measure", measured)
