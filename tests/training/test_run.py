"""Files of a run directory, and that a failed write keeps the old file."""

import errno
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from bothways.base import device
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.settings import Classify
from bothways.training.run import Run, read_metrics
from bothways.training.run_lock import LOCK, current_process, find_process, run_status
from bothways.training.signals import Stopped

SETTINGS = Classify(model=Path("m"), train=Path("t.csv"), out=Path("o"))


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "deep" / "run", "finetune classify", SETTINGS)


def read(run):
    return json.loads((run.directory / "bothways.json").read_text(encoding="utf-8"))


def test_a_new_run_writes_its_metadata_first(run):
    metadata = read(run)
    assert metadata["verb"] == "finetune classify" and metadata["status"] == "running"
    assert (
        metadata["settings"]["train"] == "t.csv"
        and metadata["settings"]["warmup"] == 0.1
        and metadata["settings"]["dev"] is None
    )
    assert set(metadata["versions"]) == {"bothways", "python", "torch", "numpy"}


def test_notes_add_up_and_later_ones_win(run):
    run.update_metadata(steps=3, data={"file": Path("x"), "sizes": (1, 2)})
    run.update_metadata(status="done", steps=5)
    metadata = read(run)
    assert (metadata["status"], metadata["steps"], metadata["data"]) == ("done", 5, {"file": "x", "sizes": [1, 2]})
    assert metadata["verb"] == "finetune classify"


def test_metrics_come_back_in_full_precision_and_order(run):
    rows = [{"step": step, "loss": 1 / (step + 3), "split": "train"} for step in range(7)]
    for row in rows:
        run.log_metrics(**row)
    assert run.metrics() == rows == read_metrics(run.directory)
    assert len((run.directory / "metrics.jsonl").read_text().splitlines()) == 7


def test_no_metrics_yet_are_none(tmp_path):
    assert read_metrics(tmp_path) == []


def test_a_run_is_never_written_over(run):
    before = (run.directory / "bothways.json").read_bytes()
    with pytest.raises(InputError, match="already contains a run"):
        Run(run.directory, "pretrain", SETTINGS)
    assert (run.directory / "bothways.json").read_bytes() == before


def test_a_directory_with_something_else_is_refused_and_an_empty_one_taken(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"full: .*thesis\.tex"):
        Run(tmp_path / "full", "pretrain", SETTINGS)
    assert [entry.name for entry in (tmp_path / "full").iterdir()] == ["thesis.tex"]
    (tmp_path / "empty").mkdir()
    assert read(Run(tmp_path / "empty", "pretrain", SETTINGS))["verb"] == "pretrain"


def test_a_model_is_not_a_run_that_can_be_resumed(tmp_path):
    (tmp_path / "bothways.json").write_text('{"format": 1}', encoding="utf-8")
    with pytest.raises(InputError, match="a model, not a run"):
        Run(tmp_path, "pretrain", SETTINGS, resume=True)
    assert (tmp_path / "bothways.json").read_text(encoding="utf-8") == '{"format": 1}'


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="file: "):
        Run(tmp_path / "file", "pretrain", SETTINGS)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("failing", [(os, "replace"), (os, "fsync"), (Path, "open")], ids=lambda pair: pair[1])
def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(failing, run, monkeypatch):
    run.update_metadata(steps=3)
    before = (run.directory / "bothways.json").read_bytes()

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(*failing, full)
        with pytest.raises(OSError, match="No space left") as raised:
            run.update_metadata(steps=4)
    assert str(run.directory) in str(raised.value) and "free some space" in str(raised.value)
    assert (run.directory / "bothways.json").read_bytes() == before
    assert [entry.name for entry in run.directory.iterdir() if entry.name != LOCK] == ["bothways.json"]


# --- going on
# -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run that can be resumed."""

    rate: float = 0.1
    steps: int | None = 5
    minutes: float | None = None
    json: bool = False
    files: tuple[Path, ...] = (Path("a"), Path("b"))


def start_run(tmp_path, settings, **notes):
    run = Run(tmp_path / "run", "pretrain", settings)
    run.update_metadata(**notes)
    return run


def test_a_run_resumes_with_the_same_settings_and_keeps_its_metadata(tmp_path):
    start_run(tmp_path, RunSettings(), steps=5, data="x")
    again = Run(tmp_path / "run", "pretrain", RunSettings(json=True), resume=True)
    assert again.metadata["steps"] == 5 and again.metadata["data"] == "x" and len(again.metadata["resumed"]) == 1
    assert read(again)["settings"]["json"] is True


def test_other_settings_are_refused_with_the_difference(tmp_path):
    before = read(start_run(tmp_path, RunSettings(), steps=5))
    with pytest.raises(InputError, match=r"settings \(files: .* -> \['a'\], rate: 0.1 -> 0.2\)"):
        Run(tmp_path / "run", "pretrain", RunSettings(rate=0.2, files=(Path("a"),)), resume=True)
    with pytest.raises(InputError, match="steps: 5 -> 4"):
        Run(tmp_path / "run", "pretrain", RunSettings(steps=4), resume=True)
    with pytest.raises(InputError, match="pretrain, not of distil"):
        Run(tmp_path / "run", "distil", RunSettings(), resume=True)
    assert json.loads((tmp_path / "run" / "bothways.json").read_text()) == before


@pytest.mark.parametrize("first", [RunSettings(steps=5), RunSettings(steps=None, minutes=2.0)])
def test_more_steps_are_allowed_and_logged(first, tmp_path):
    start_run(tmp_path, first, steps=5)
    lines = []
    with messages_to(lines.append):
        again = Run(tmp_path / "run", "pretrain", RunSettings(steps=8), resume=True)
    assert len(lines) == 1 and lines[0].startswith("steps: 5 -> 8; ")
    assert again.metadata["steps"] == 8
    assert read(again)["settings"]["steps"] == 8


def test_changed_threads_cpus_and_versions_are_logged_and_recorded(tmp_path, monkeypatch):
    before = read(start_run(tmp_path, RunSettings()))
    assert before["hardware"]["threads"] == torch.get_num_threads() and before["hardware"]["processor"]
    lines = []
    with messages_to(lines.append):
        Run(tmp_path / "run", "pretrain", RunSettings(), resume=True)
    assert lines == []
    threads, processor = before["hardware"]["threads"] + 1, before["hardware"]["processor"]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(device, "processor_name", lambda: "Another one")
    monkeypatch.setattr(torch, "__version__", "9.9")
    with messages_to(lines.append):
        again = Run(tmp_path / "run", "pretrain", RunSettings(), resume=True)
    assert [line.split(":")[0] for line in lines] == [
        f"torch changed from {before['versions']['torch']} to 9.9",
        f"processor changed from {processor} to Another one",
        f"threads changed from {threads - 1} to {threads}",
    ]
    assert (read(again)["hardware"]["threads"], read(again)["versions"]["torch"]) == (threads, "9.9")


def test_a_resumed_run_keeps_the_steps_computed_from_minutes(tmp_path):
    start_run(tmp_path, RunSettings(steps=None, minutes=2.0), steps=731)
    assert Run(tmp_path / "run", "pretrain", RunSettings(steps=None, minutes=2.0), resume=True).metadata["steps"] == 731


def test_resuming_without_a_run_starts_one(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".bothways.json.0123abcd").write_text("{")
    with Run(tmp_path / "run", "pretrain", RunSettings(), resume=True) as run:
        pass
    assert [entry.name for entry in run.directory.iterdir()] == ["bothways.json"]


def test_the_status_of_a_run_whose_process_was_killed(tmp_path):
    run = start_run(tmp_path, RunSettings(), steps=5)
    assert run_status(read(run)) == "running"
    with subprocess.Popen(["sleep", "60"]) as other:
        run.update_metadata(process=find_process(other.pid))
        assert run_status(read(run)) == "running"
        other.kill()
    assert run_status(read(run)) == "killed"


def test_a_number_that_another_process_has_now_is_not_the_runs(tmp_path):
    run = start_run(tmp_path, RunSettings())
    run.update_metadata(process={**current_process(), "began": "12345678901"})
    assert run_status(read(run)) == "killed"
    run.update_metadata(process={**current_process(), "host": "elsewhere"})
    assert run_status(read(run)) == "running or killed, on elsewhere"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "done"),
        (Stopped("at 3"), "stopped"),
        (KeyboardInterrupt(), "stopped"),
        (InputError("loss nan"), "failed"),
    ],
)
def test_a_run_notes_how_it_ended(error, status, run):
    run.log_metrics(step=1, split="train", loss=1.0)
    try:
        with run:
            if error:
                raise error
    except (Stopped, KeyboardInterrupt, InputError):
        pass
    assert read(run)["status"] == status == run_status(read(run))
    assert read(run).get("reason") == ("loss nan" if status == "failed" else None)


def test_a_run_that_fails_before_its_first_step_leaves_nothing_in_a_second_trys_way(run):
    (run.directory / "tokenizer").mkdir()
    with pytest.raises(InputError), run:
        raise InputError("no such file")
    assert not run.directory.exists()


def test_a_run_that_fails_early_keeps_files_of_others(tmp_path):
    (tmp_path / "lost+found").mkdir()  # as in the root directory of a new file system, which counts as empty
    with pytest.raises(InputError, match="wrong"), Run(tmp_path, "finetune classify", SETTINGS):
        raise InputError("wrong")
    assert [entry.name for entry in tmp_path.iterdir()] == ["lost+found"]
    with pytest.raises(InputError, match="wrong"), Run(tmp_path / "gone", "finetune classify", SETTINGS):
        shutil.rmtree(tmp_path / "gone")
        raise InputError("wrong")


def test_a_resume_that_fails_before_its_first_step_changes_nothing(run):
    run.log_metrics(step=1, split="train", loss=1.0)
    run.update_metadata(status="done", steps=1)
    before = read(run)
    with pytest.raises(InputError), Run(run.directory, run.metadata["verb"], SETTINGS, resume=True) as resumed:
        resumed.update_metadata(steps=5)
        raise InputError("the text has changed")
    assert read(run) == before


def test_a_resumed_run_removes_the_reason_of_its_earlier_failure(run):
    run.log_metrics(step=1, split="train", loss=1.0)
    with pytest.raises(InputError), run:
        raise InputError("loss nan")
    with Run(run.directory, run.metadata["verb"], SETTINGS, resume=True) as resumed:
        resumed.log_metrics(step=2, split="train", loss=1.0)
    assert read(run)["status"] == "done" and "reason" not in read(run)


def test_another_process_than_the_main_one_fails_with_the_same_error(tmp_path):
    with (
        pytest.raises(InputError, match="no such file"),
        Run(tmp_path / "run", "pretrain", SETTINGS, is_main_process=False),
    ):
        raise InputError("no such file")
    assert not (tmp_path / "run").exists()


def test_metrics_are_cut_back_and_a_half_written_row_does_not_matter(run):
    for step in range(1, 6):
        run.log_metrics(step=step, split="train", loss=1 / step)
    with (run.directory / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "spl')
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4, 5]
    run.truncate_metrics(3)
    run.log_metrics(step=4, split="train", loss=0.125)
    assert [(row["step"], row["loss"]) for row in run.metrics()] == [(1, 1.0), (2, 0.5), (3, 1 / 3), (4, 0.125)]


def test_a_process_that_does_not_lead_writes_nothing(run):
    before = {path.name: path.read_bytes() for path in run.directory.iterdir()}
    other = Run(run.directory, "finetune classify", SETTINGS, is_main_process=False)
    with other:
        other.update_metadata(steps=4)
        other.log_metrics(step=1, loss=2.0)
        other.truncate_metrics(0)
    assert {path.name: path.read_bytes() for path in run.directory.iterdir()} == before
