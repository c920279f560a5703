"""Killed, stopped, broken and resumed runs continue bit for bit."""

import json
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bothways.training.run_lock import read_metrics, run_status


def log_of(out):
    return Path(f"{out}.log").read_text()


def losses_of(out):
    return [(row["step"], row["loss"], row["norm"]) for row in read_metrics(out) if row["split"] == "train"]


def assert_the_same(out, other):
    """Every loss and gradient norm, which steps were measured, and the weights, bit for bit."""
    assert len(losses_of(other)) == 8
    assert losses_of(out) == losses_of(other)
    measured = [[row["step"] for row in read_metrics(run) if row["split"] == "heldout"] for run in (out, other)]
    assert measured[0] == measured[1] == [2, 3, 4, 6, 8]
    theirs = load_file(other / "weights.safetensors")
    assert all(torch.equal(value, theirs[name]) for name, value in load_file(out / "weights.safetensors").items())


KILLS = {  # where, and the checkpoint that is left
    "in a step": (["step", 5], "step-00000004"),
    "in an evaluation": (["evaluation", 4], "step-00000004"),
    "while a checkpoint is written": (["write", 4], "step-00000002"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kill", "dtype"), [("in a step", "bfloat16"), ("while a checkpoint is written", "float32")])
def test_a_run_killed_anywhere_resumes_with_a_message_bit_for_bit(kill, dtype, work, undisturbed, tmp_path):
    """soak/test_resume.py has all places in both formats."""
    assert_a_kill_changes_no_bit(kill, dtype, work, undisturbed, tmp_path)


def assert_a_kill_changes_no_bit(kill, dtype, work, undisturbed, tmp_path):
    (die, left), out = KILLS[kill], tmp_path / "run"
    assert work({"out": out, "dtype": dtype, "die": die}) == [-signal.SIGKILL]
    metadata = json.loads((out / "bothways.json").read_text())
    assert metadata["status"] == "running" and run_status(metadata) == "killed"
    assert work({"out": out, "dtype": dtype, "resume": True}) == [0], log_of(out)
    assert f"resuming from {out / 'checkpoints' / left}" in log_of(out)
    assert_the_same(out, undisturbed(dtype=dtype))
    kept = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert set(kept) <= {f"step-0000000{step}" for step in (2, 4, 6, 8)}  # no partly written checkpoint remains


@pytest.mark.slow
def test_the_state_of_the_best_weights_is_saved_too(work, undisturbed, tmp_path):
    out, options = tmp_path / "run", {"best_by": "accuracy"}
    assert work({"out": out, **options, "die": ["step", 7]}) == [-signal.SIGKILL]
    assert work({"out": out, **options, "resume": True}) == [0], log_of(out)
    theirs = load_file(undisturbed(**options) / "weights.safetensors")
    assert losses_of(out) == losses_of(undisturbed(**options))
    # The second evaluation, at step 3, is the best; the third resumed one counts afresh.
    assert any(key.startswith("best.") for key in load_file(out / "checkpoints/step-00000008/state.safetensors"))
    assert all(torch.equal(value, theirs[name]) for name, value in load_file(out / "weights.safetensors").items())


def test_a_run_killed_before_its_first_checkpoint_restarts_at_step_0_with_a_message(work, undisturbed, tmp_path):
    out = tmp_path / "run"
    assert work({"out": out, "die": ["step", 1]}) == [-signal.SIGKILL]
    assert work({"out": out, "resume": True}) == [0], log_of(out)
    assert "no valid checkpoint; starting at step 0" in log_of(out)
    assert_the_same(out, undisturbed(dtype="float32"))


@pytest.mark.slow
def test_a_broken_newest_checkpoint_is_named_in_a_message_and_the_one_before_is_used(work, undisturbed, tmp_path):
    out = tmp_path / "run"
    assert work({"out": out, "die": ["step", 7]}) == [-signal.SIGKILL]
    file = out / "checkpoints" / "step-00000006" / "state.safetensors"
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    assert work({"out": out, "resume": True}) == [0], log_of(out)
    assert f"{file}: broken (checksum" in log_of(out) and "step-00000004, step 4" in log_of(out)
    assert_the_same(out, undisturbed(dtype="float32"))


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
def test_sigterm_saves_and_stops_all_processes(world, work, undisturbed, tmp_path):
    out = tmp_path / "run"
    runs = [{"out": out, "pause": 0.05}] * world
    assert work(*runs, signalled=[3, signal.SIGTERM]) == [3] * world, log_of(out)  # the last process is signalled
    metadata = json.loads((out / "bothways.json").read_text())
    stopped_at = read_metrics(out)[-1]["step"]
    assert metadata["status"] == "stopped" and 3 <= stopped_at < 8
    assert (out / "checkpoints" / f"step-{stopped_at:08}").exists()
    assert work(*({"out": out, "resume": True},) * world) == [0] * world, log_of(out)
    assert json.loads((out / "bothways.json").read_text())["status"] == "done"
    if world == 1:
        assert_the_same(out, undisturbed(dtype="float32"))
