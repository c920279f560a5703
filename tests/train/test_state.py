"""What a run leaves on disk, and that a failed write leaves the old file."""

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from bothways.errors import InputError
from bothways.settings import Classify
from bothways.train.state import Run, read_metrics, write_whole

SETTINGS = Classify(model=Path("m"), train=Path("t.csv"), out=Path("o"))


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "deep" / "run", "finetune classify", SETTINGS)


def read(run):
    return json.loads((run.directory / "bothways.json").read_text(encoding="utf-8"))


def test_a_new_run_says_what_it_is_before_it_counts(run):
    made = read(run)
    assert made["verb"] == "finetune classify" and made["status"] == "running"
    assert (
        made["settings"]["train"] == "t.csv" and made["settings"]["epochs"] == 3.0 and made["settings"]["dev"] is None
    )
    assert set(made["versions"]) == {"bothways", "python", "torch", "numpy"}


def test_notes_add_up_and_later_ones_win(run):
    run.note(steps=3, data={"file": Path("x"), "sizes": (1, 2)})
    run.note(status="done", steps=5)
    made = read(run)
    assert (made["status"], made["steps"], made["data"]) == ("done", 5, {"file": "x", "sizes": [1, 2]})
    assert made["verb"] == "finetune classify"


def test_metrics_come_back_in_full_precision_and_order(run):
    rows = [{"step": step, "loss": 1 / (step + 3), "split": "train"} for step in range(7)]
    for row in rows:
        run.metric(**row)
    assert run.metrics() == rows == read_metrics(run.directory)
    assert len((run.directory / "metrics.jsonl").read_text().splitlines()) == 7


def test_no_metrics_yet_are_none(tmp_path):
    assert read_metrics(tmp_path) == []


def test_a_run_is_never_written_over(run):
    before = (run.directory / "bothways.json").read_bytes()
    with pytest.raises(InputError, match="holds a run already"):
        Run(run.directory, "pretrain", SETTINGS)
    assert (run.directory / "bothways.json").read_bytes() == before


def test_a_directory_with_something_else_is_refused_and_an_empty_one_taken(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"full: holds something else already \(thesis.tex\)"):
        Run(tmp_path / "full", "pretrain", SETTINGS)
    assert [entry.name for entry in (tmp_path / "full").iterdir()] == ["thesis.tex"]
    (tmp_path / "empty").mkdir()
    assert read(Run(tmp_path / "empty", "pretrain", SETTINGS))["verb"] == "pretrain"


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="a file stands there"):
        Run(tmp_path / "file", "pretrain", SETTINGS)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("failing", ["replace", "fsync", "fdopen"])
def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(failing, run, monkeypatch):
    run.note(steps=3)
    before = (run.directory / "bothways.json").read_bytes()

    def full(*given, **told):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, full)
        with pytest.raises(OSError, match="No space left"):
            run.note(steps=4)
    assert (run.directory / "bothways.json").read_bytes() == before
    assert [entry.name for entry in run.directory.iterdir()] == ["bothways.json"]


def test_a_written_file_can_be_read_by_others(tmp_path):
    write_whole(tmp_path / "file", "text")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
