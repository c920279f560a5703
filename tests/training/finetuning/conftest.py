"""Shared fixtures of fine-tuning tests: tables of generated rows, random checkpoints, small fine-tuning runs.

A new task's test needs rows and three calls:

    def test_numbers_are_learned(table, checkpoint_of, finetuned):
        run = finetuned(Regress, model=checkpoint_of(), train=table(rows_of(0, 250)), epochs=4.0)
        assert run.result.mean > 0.9
        assert run.predictor.regress(["the cat"]) == ...

A test that only reads a finished run takes one of the gallery (gallery.py).
"""

import csv
import json

import pytest

from tests.training.finetuning.gallery import Gallery, finish, small_settings


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """Write rows, dictionaries, to a CSV or JSON lines file: table(rows, "train.csv") -> path."""

    def write(rows, name="train.jsonl", directory=None):
        rows = list(rows)
        path = (directory or tmp_path_factory.mktemp("table")) / name
        if path.suffix == ".csv":
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
        else:
            path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def checkpoint_of(make_model, tokenizer, tmp_path_factory):
    """Save a random encoder, by default as pre-training with masked words leaves one: checkpoint_of(...) -> directory.

    heads, changes: see make_model. options: fields of Checkpoint, such as pooling="mean".
    """
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.contents import Checkpoint

    def make(family="bert", heads=None, *, options=None, **changes):
        heads = {"masked_words": 0} if heads is None else heads
        directory = tmp_path_factory.mktemp("start") / "model"
        model = make_model(family, heads, **changes)
        checkpoint.save(Checkpoint(model, tokenizer, model_type=family, **(options or {})), directory)
        return directory

    return make


@pytest.fixture(scope="session")
def finetuned(tmp_path_factory):
    """Fine-tune with settings of a class (small steps, exact numbers, and no linear start unless `linear_start=True` is
    in the call): finetuned(Classify, model=..., train=...)."""

    def run(settings_class, **options):
        return finish(small_settings(settings_class, **{"out": tmp_path_factory.mktemp("run") / "run", **options}))

    return run


@pytest.fixture(scope="session")
def gallery(checkpoint_of, tmp_path_factory):
    """A finished run of each task, made on first use and only read: see gallery.py."""
    return Gallery(checkpoint_of, tmp_path_factory.mktemp)
