"""Several processes train like one: gradients, losses, resuming with another number of processes."""

import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bothways.base.errors import UsageError
from bothways.training.distributed import process_group
from bothways.training.run import read_metrics

STEPS = 20
LONG = {"steps": STEPS, "parts": 4, "evaluate_every": 50, "checkpoint_every": 10, "keep_gradient": True}


def log_of(out):
    return Path(f"{out}.log").read_text()


def losses_of(out):
    return [(row["step"], row["loss"]) for row in read_metrics(out) if row["split"] == "train"]


def assert_close(out, other):
    """Losses of all steps within 1e-5."""
    actual, expected = losses_of(out), losses_of(other)
    assert [step for step, _ in actual] == [step for step, _ in expected] == list(range(1, STEPS + 1))
    assert max(abs(loss - target) for (_, loss), (_, target) in zip(actual, expected, strict=True)) < 1e-5


def distance(out, other):
    """Relative L2 of the first step's whole gradient."""
    ours, theirs = (load_file(run / "gradient.safetensors") for run in (out, other))
    assert ours.keys() == theirs.keys()
    actual, expected = (torch.cat([part[name].flatten().double() for name in ours]) for part in (ours, theirs))
    return float((actual - expected).norm() / expected.norm())


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"dropout": 0.0}, id="replicated"),
        pytest.param({"dropout": 0.1}, id="with dropout", marks=pytest.mark.soak),
        pytest.param({"dropout": 0.0, "shard": True}, id="sharded"),
    ],
)
def test_two_processes_have_the_gradient_and_the_losses_of_one(options, work, undisturbed, tmp_path):
    out = tmp_path / "run"
    run = {"out": out, **LONG, **options}
    assert work(run, run) == [0, 0], log_of(out)
    alone = undisturbed(**LONG, dropout=options["dropout"])
    assert distance(out, alone) < 1e-6
    assert_close(out, alone)
    assert "Warning" not in log_of(out)
    assert [row["step"] for row in read_metrics(out) if row["split"] == "heldout"] == [10, 20]


@pytest.mark.slow
def test_a_process_may_hold_no_rows_of_a_tensor(work, undisturbed, tmp_path):
    out, options = tmp_path / "run", {**LONG, "dropout": 0.0}
    assert work(*[{"out": out, **options, "shard": True}] * 3) == [0] * 3, log_of(out)  # two rows of segments
    assert distance(out, undisturbed(**options)) < 1e-6
    assert_close(out, undisturbed(**options))


def test_a_process_without_its_own_gpu_is_an_error(monkeypatch):
    environment = {"WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "5", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with (
        pytest.raises(UsageError, match=r"process 5 .* 4 processes \(--nproc-per-node\)"),
        process_group(torch.device("cuda")),
    ):
        pass
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(UsageError, match="'cuda:3'.* process 1"), process_group(torch.device("cuda:3")):
        pass


@pytest.mark.slow
def test_a_process_without_texts_takes_part(work, undisturbed, tmp_path):
    out, options = tmp_path / "run", {**LONG, "parts": 1, "dropout": 0.0}
    assert work({"out": out, **options}, {"out": out, **options}) == [0, 0], log_of(out)
    assert distance(out, undisturbed(**options)) < 1e-6
    assert_close(out, undisturbed(**options))
    assert_close(out, undisturbed(**LONG, dropout=0.0))


@pytest.mark.slow
@pytest.mark.parametrize(("shard", "before", "after"), [(False, 1, 2), (True, 2, 1)], ids=["replicated", "shared out"])
def test_a_run_resumes_with_a_message_in_another_number_of_processes(shard, before, after, work, undisturbed, tmp_path):
    """soak/test_resume.py has both ways for both."""
    assert_resumes_in_another_number(shard, before, after, work, undisturbed, tmp_path)


def assert_resumes_in_another_number(shard, before, after, work, undisturbed, tmp_path):
    out = tmp_path / "run"
    run = {"out": out, **LONG, "dropout": 0.0, "shard": shard}
    # When one process is killed, the others cannot continue.
    codes = work(*[{**run, "die": ["step", 13]}] * before, impatient=True)
    assert codes[0] == -signal.SIGKILL, log_of(out)
    assert work(*[{**run, "resume": True}] * after) == [0] * after, log_of(out)
    assert "step-00000010, step 10" in log_of(out)
    assert_close(out, undisturbed(**LONG, dropout=0.0))


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_all_processes_with_a_message(work, tmp_path):
    out = tmp_path / "run"
    run = {"out": out, **LONG, "spoil": 12}
    assert work(run, run) == [1, 1]
    line = next(line for line in log_of(out).splitlines() if "errors.InputError:" in line)
    assert "step 12: loss nan" in line and "batch of" in line and "checkpoints/step-00000010; restart" in line
