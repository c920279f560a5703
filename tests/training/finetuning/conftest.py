"""Shared fixtures of fine-tuning tests: tables of generated rows, random checkpoints, small fine-tuning runs.

A new task's test needs rows and three calls:

    def test_numbers_are_learned(table, checkpoint_of, finetuned):
        run = finetuned(Regress, model=checkpoint_of(), train=table(rows_of(0, 250)), epochs=4.0)
        assert run.result.mean > 0.9
        assert run.predictor.regress(["the cat"]) == ...
"""

import csv
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest


@dataclass
class FinetunedRun:
    """A finished run: its settings, its result and what was logged."""

    settings: Any
    result: Any
    messages: list[str] = field(default_factory=list)

    @property
    def log(self):
        return "\n".join(self.messages)

    @property
    def metadata(self):
        """bothways.json."""
        return json.loads((self.result.directory / "bothways.json").read_text(encoding="utf-8"))

    @property
    def metrics(self):
        """The rows of metrics.jsonl."""
        from bothways.training.run import read_metrics

        return read_metrics(self.result.directory)

    @property
    def predictions(self):
        """The rows of predictions.csv."""
        with (self.result.directory / "predictions.csv").open(encoding="utf-8-sig", newline="") as file:
            return [*csv.DictReader(file)]

    @property
    def report(self):
        return (self.result.directory / "report.html").read_text(encoding="utf-8")

    @cached_property
    def predictor(self):
        import bothways

        return bothways.load(self.result.model_directory, dtype="float32")


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
    """Fine-tune with settings of a class (small steps, exact numbers): finetuned(Classify, model=..., train=...)."""
    import bothways
    from bothways.log import messages_to

    small = {"epochs": 1.0, "batch_tokens": 256, "learning_rate": 5e-3, "dropout": 0.0, "dtype": "float32"}

    def run(settings_class, **options):
        out = tmp_path_factory.mktemp("run") / "run"
        settings = settings_class(**{"baselines": False, "out": out, **small, **options})
        messages = []
        with messages_to(messages.append):
            return FinetunedRun(settings, bothways.train(settings), messages)

    return run
