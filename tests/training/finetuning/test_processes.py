"""Fine-tuning in several processes: losses and files of one process; resuming with another number; who is missing."""

import json
import signal
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.training.finetuning import seeds
from bothways.training.run import read_metrics
from tests.isolation import watch
from tests.soaked import in_soak

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def train_file(table):
    """A text's class is whether it holds a cat or a dog."""
    draw, rows = np.random.default_rng(0), []
    for index in range(80):
        words = draw.choice("the and on a b mat ran".split(), int(draw.integers(3, 9))).tolist()
        words.insert(int(draw.integers(len(words) + 1)), ("cat", "dog")[index % 2])
        rows.append({"text": " ".join(words), "label": ("feline", "canine")[index % 2], "score": index % 2})
    return table(rows)


# Of each run: the settings, and what happens to its processes.
FOLDS = {"folds": 2, "quantize": "int8", "epochs": 1.0, "gradient_accumulation": 2}
KILL = {"world": 2, "die_in": "before training.step:backward 8"}
STOP = {"world": 3, "resume": True, "stops": True, "die_in": "before training.step:backward 2"}
RUNS = {
    "default": ({"linear_start": True, "learning_rate": None, "gradient_accumulation": 2}, [{}, {"world": 2}]),
    "folds": (FOLDS, [{}, {"world": 2}]),
    "killed": ({"checkpoint_every": 3, "gradient_accumulation": 3}, [{}, KILL, STOP]),
}


@pytest.fixture(scope="module")
def runs(checkpoint_of, train_file, in_processes, tmp_path_factory):
    """The exit statuses of one of RUNS, its directory in one process, and that in several: runs(name), made once."""
    common = {"model": str(checkpoint_of(num_hidden_layers=1)), "train": str(train_file), "epochs": 2.0}
    common |= {"dtype": "float32", "device": "cpu", "baselines": False, "batch_size": 16, "evaluations_per_epoch": 1.0}
    common |= {"learning_rate": 1e-3, "linear_start": False}
    directory = tmp_path_factory.mktemp("runs")

    @cache
    def run(name):
        options, parts = RUNS[name]
        statuses = []
        for part in parts:
            out = directory / f"{name}-{'together' if part else 'alone'}"
            settings = common | options | {"out": str(out), "resume": part.get("resume", False)}
            statuses.append(in_processes({"die_in": None, "settings": settings} | part))
        watch(directory)
        return statuses, directory / f"{name}-alone", directory / f"{name}-together"

    return run


def log_of(run):
    return Path(f"{run}.log").read_text(encoding="utf-8")


def losses_of(run):
    """The loss of each row of metrics, by (split, step, fold, tokens so far)."""
    return {(row["split"], row["step"], row.get("fold"), row["tokens"]): row["loss"] for row in read_metrics(run)}


def assert_same(together, alone, tolerance=1e-6):
    ours, theirs = losses_of(together), losses_of(alone)
    assert ours.keys() == theirs.keys() and len(ours) > 5
    assert max(abs(ours[key] - theirs[key]) for key in ours) < tolerance
    scores = [json.loads((run / "bothways.json").read_text())["result"]["scores"] for run in (together, alone)]
    assert scores[0] == scores[1]
    assert sorted(path.relative_to(together) for path in together.rglob("*")) == sorted(
        path.relative_to(alone) for path in alone.rglob("*")
    )


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("folds", 1e-6), *in_soak(("default", 1e-4))],  # the former's losses are over 10
)
def test_two_processes_have_the_losses_and_the_result_of_one(name, tolerance, runs):
    statuses, alone, together = runs(name)
    assert statuses == [[0], [0, 0]], log_of(together)
    assert_same(together, alone, tolerance)


def test_a_killed_run_goes_on_in_another_number_of_processes_and_a_message_names_one_that_does_not(runs):
    statuses, alone, together = runs("killed")
    log = log_of(together)
    assert statuses == [[0], [1, -signal.SIGKILL], [0, 0, 0]], log
    assert "process 0: the connection to another process is lost" in log and "step-00000003, step 3" in log
    assert "waiting for process 2 on " in log
    assert_same(together, alone)


def test_processes_with_other_examples_are_refused(monkeypatch):
    class Processes:
        world_size = 3

        def gather(self, facts):
            return [facts, facts, ("other examples", facts[1])]

    monkeypatch.setattr(seeds, "fingerprint_examples", lambda examples: "examples")
    monkeypatch.setattr(seeds, "fingerprint_weights", lambda model: "weights")
    task = SimpleNamespace(data={"train": None}, pretrained=SimpleNamespace(model=None))
    with pytest.raises(InputError, match="process 2 has other training examples than process 0"):
        seeds.check_same(SimpleNamespace(processes=Processes(), task=task))
