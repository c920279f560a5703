"""Training checkpoints: intact or rejected, the newest and the best kept, leftovers removed."""

import json
import os

import pytest
import torch

from bothways.base import io
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.training import run_checkpoints
from bothways.training.optimizer import LossScale
from bothways.training.run_checkpoints import Checkpoints, TrainingState, read

TENSORS = {"masters.weight": torch.arange(35.0).view(5, 7), "steps.weight": torch.tensor(3.0)}


def save(saving, step, loss=None):
    saving.save(TrainingState(step, 10 * step, step / 3, 0.5, LossScale(4.0, 2, True)), TENSORS, loss, torch.bfloat16)


def names(run):
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_what_is_saved_comes_back_with_a_message(tmp_path):
    save(Checkpoints(tmp_path, order={"seed": 3}), 7, 1.5)
    lines = []
    with messages_to(lines.append):
        saved = Checkpoints(tmp_path, order={"seed": 3}).load_latest()
    assert saved.progress == TrainingState(7, 70, 7 / 3, 0.5, LossScale(4.0, 2, True))
    assert saved.state["heldout"] == 1.5 and saved.state["torch"] == torch.__version__
    assert saved.state["dtype"] == "bfloat16"
    assert all(torch.equal(value, TENSORS[name]) for name, value in saved.tensors().items())
    assert lines == [f"resuming from {tmp_path / 'checkpoints' / 'step-00000007'}, step 7"]


def test_a_changed_number_format_is_logged(tmp_path):
    save(Checkpoints(tmp_path), 7)
    lines = []
    with messages_to(lines.append):
        Checkpoints(tmp_path).load_latest(torch.float32)
    assert lines[1:] == ["dtype changed from bfloat16 to float32: losses may differ in the last digits"]
    with messages_to(lines.append):
        Checkpoints(tmp_path).load_latest(torch.bfloat16)
    assert len(lines) == 3


def test_a_changed_number_of_processes_is_logged(tmp_path):
    save(Checkpoints(tmp_path), 7)
    file = tmp_path / "checkpoints" / "step-00000007" / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "processes": 2}))
    lines = []
    with messages_to(lines.append):
        Checkpoints(tmp_path).load_latest()
    assert lines[1:] == ["processes changed from 2 to 1: losses may differ in the last digits"]


def test_the_newest_ones_and_the_best_are_kept_and_the_best_is_named(tmp_path):
    saving = Checkpoints(tmp_path, keep=2)
    for step, loss in ((1, 5.0), (2, 3.0), (3, 4.0), (4, None), (5, 3.5)):
        save(saving, step, loss)
    assert names(tmp_path) == ["step-00000002", "step-00000004", "step-00000005"]
    newest = Checkpoints(tmp_path).load_latest()
    assert newest.state["best_checkpoint"] == {"path": "step-00000002", "loss": 3.0}


def test_the_best_survives_a_resume_and_later_checkpoints_are_deleted(tmp_path):
    first = Checkpoints(tmp_path, keep=2)
    for step, loss in ((1, 2.0), (2, 3.0), (3, 3.0), (4, 3.5)):
        save(first, step, loss)
    (tmp_path / "checkpoints" / "step-00000004" / "state.json").write_text("{")
    again = Checkpoints(tmp_path, keep=1)
    assert again.load_latest().progress.step == 3
    save(again, 3 + 2, 2.5)
    assert names(tmp_path) == ["step-00000001", "step-00000005"]
    assert again.last.name == "step-00000005"


def test_a_best_that_is_gone_is_forgotten(tmp_path):
    first = Checkpoints(tmp_path, keep=2)
    for step, loss in ((1, 2.0), (2, 3.0), (3, 1.0)):  # the third takes the first one's place as the best
        save(first, step, loss)
    (tmp_path / "checkpoints" / "step-00000003" / "state.json").write_text("{")
    again = Checkpoints(tmp_path, keep=1)
    assert again.load_latest().progress.step == 2
    save(again, 4, 2.5), save(again, 5, None)
    assert names(tmp_path) == ["step-00000004", "step-00000005"]


def remove(place):
    (place / "state.safetensors").unlink()


def cut(place):
    os.truncate(place / "state.safetensors", 100)


def flip(place):
    content = bytearray((place / "state.safetensors").read_bytes())
    content[-9] ^= 4
    (place / "state.safetensors").write_bytes(content)


def empty(place):
    (place / "state.json").write_text("")


def other(place):
    (place / "state.json").write_text("[]")


@pytest.mark.parametrize("damage", [remove, cut, flip, empty, other])
def test_a_broken_checkpoint_is_named_in_one_line_and_the_one_before_is_used(damage, tmp_path):
    saving = Checkpoints(tmp_path)
    save(saving, 7), save(saving, 9)
    damage(tmp_path / "checkpoints" / "step-00000009")
    lines = []
    with messages_to(lines.append):
        assert Checkpoints(tmp_path).load_latest().progress.step == 7
    assert len(lines) == 2 and "step-00000009" in lines[0] and "broken" in lines[0] and "\n" not in lines[0]
    assert lines[0].endswith("trying the previous one")


def test_a_missing_checkpoint_is_logged_and_leftovers_are_removed(tmp_path):
    (tmp_path / "checkpoints" / ".step-00000003.0123abcd").mkdir(parents=True)
    (tmp_path / "checkpoints" / ".step-00000003.0123abcd" / "state.safetensors").write_text("half")
    lines = []
    with messages_to(lines.append):
        assert Checkpoints(tmp_path).load_latest() is None
    assert lines == [f"{tmp_path / 'checkpoints'}: no valid checkpoint; starting at step 0"]
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "failing",
    [(run_checkpoints, "write_weights"), (io, "fsync"), (run_checkpoints, "checksum")],
    ids=lambda pair: pair[1],
)
def test_a_failed_write_keeps_the_old_content(failing, tmp_path, monkeypatch):
    saving = Checkpoints(tmp_path)
    save(saving, 7)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr(*failing, full)
        save(saving, 9)
    assert names(tmp_path) == ["step-00000007"] and read(tmp_path / "checkpoints" / "step-00000007")


def test_another_order_of_the_data_is_refused_with_the_difference(tmp_path):
    save(Checkpoints(tmp_path, order={"seed": 3, "store": "abc"}), 7)
    with pytest.raises(InputError, match="store: 'abc' -> 'abd'"):
        Checkpoints(tmp_path, order={"seed": 3, "store": "abd"}).load_latest()


def test_a_checkpoint_of_a_later_format_is_refused(tmp_path):
    save(Checkpoints(tmp_path), 7)
    file = tmp_path / "checkpoints" / "step-00000007" / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 2}))
    with pytest.raises(InputError, match="format 2, .* 1"):
        read(file.parent)
