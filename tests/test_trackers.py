"""The examples that log a run with trackio, MLflow and Weights & Biases run as they are: with a stand-in that records
the calls, and offline with the package if it is installed."""

import importlib
import os
import re
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import pytest

from tests.soaked import in_soak
from tests.test_examples import TRACKERS

EXAMPLES = Path(__file__).parent.parent / "examples"


class StandInTracker:
    """The functions of a tracker that an example calls. logged: [(numbers, step)], also those of the result."""

    def __init__(self):
        self.logged = []
        self.config = {}

    def log(self, values, step=None):
        self.logged.append((values, step))

    def init(self, *, project, config, mode="online", dir=None):
        assert project == "support"
        self.config = config
        tracked = MagicMock()
        tracked.__enter__.return_value = SimpleNamespace(
            log=self.log,
            summary=SimpleNamespace(update=self.log),
        )
        return tracked

    def modules(self):
        """The stand-in of each package, by name."""
        mlflow = SimpleNamespace(
            set_tracking_uri=lambda uri: None,
            start_run=lambda run_name: MagicMock(),
            log_params=self.config.update,
            log_metrics=self.log,
        )
        trackio = SimpleNamespace(init=self.init, log=self.log, finish=lambda: None)
        wandb = SimpleNamespace(init=self.init)
        return {"mlflow": mlflow, "trackio": trackio, "wandb": wandb}


def run_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name])
    for variable in ("TRACKIO_DIR", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / "tracker"))
    with patch.dict(os.environ):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("name", [TRACKERS[0], *in_soak(*TRACKERS[1:])])
def test_an_example_logs_steps_evaluations_and_the_result_and_prints_it(name, tmp_path, monkeypatch, capsys):
    tracker = StandInTracker()
    module = name.removeprefix("log_with_")
    monkeypatch.setitem(sys.modules, module, tracker.modules()[module])
    run_example(name, tmp_path, monkeypatch)

    shown = re.search(r"^accuracy (0\.\d\d), logged with its 95 % interval$", capsys.readouterr().out, re.MULTILINE)
    *rows, (result, _) = tracker.logged
    assert f"{result['result/mean']:.2f}" == shown[1]
    assert result["result/low"] < result["result/mean"] < result["result/high"]

    steps = [step for _, step in rows]
    assert steps == sorted(steps) and steps[-1] > steps[0]
    assert {"train/loss", "heldout/accuracy"} <= {key for values, _ in rows for key in values}
    assert all(isinstance(value, float | int) for values, _ in rows for value in values.values())
    assert tracker.config == {"model": "bothways-en-static", "epochs": 2.0}
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACKERS)
@pytest.mark.filterwarnings("ignore")  # of the package
def test_an_example_runs_with_the_package_and_prints_its_result(name, tmp_path, monkeypatch, capsys):
    module = name.removeprefix("log_with_")
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    importlib.import_module(module)
    run_example(name, tmp_path, monkeypatch)
    assert "logged with its 95 % interval" in capsys.readouterr().out
