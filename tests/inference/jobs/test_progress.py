"""Progress within blocks, and blocks small enough for several checkpoints."""

import json
import logging

import numpy as np
import pytest

from bothways.base.log import messages_to
from bothways.base.progress import Heartbeat
from bothways.inference.jobs import blocks, job_progress, plan, verbs
from bothways.inference.jobs.job_progress import JobProgress
from bothways.inference.jobs.journal import PartialOutput
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Embed, Predict
from bothways.text.data.model_inputs import ModelInput


class Clock:
    """A clock that advances by `step` seconds at every reading."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def test_a_job_does_not_log_the_line_that_the_heartbeat_has_written(monkeypatch):
    heart, messages = Heartbeat(clock := Clock(0.0)), []
    monkeypatch.setattr(job_progress, "heartbeat", heart)
    with (
        messages_to(messages.append),
        JobProgress("p.csv", 90, clock=clock) as job,
        heart.working("predict", thread=False),
    ):
        for seconds in (32, 33, 64, 65, 100):
            clock.now = float(seconds)
            if seconds in (32, 64):
                heart.beat()
            job.finish_block(10)
    assert messages == [
        "predict: 32 s so far",
        "predict: 64 s so far",
        "p.csv: 50 of about 90 rows, 0.5 rows/s, 80 s left",
    ]


@pytest.fixture
def model(make_model, tokenizer, tmp_path):
    held = Checkpoint(make_model(heads={"classes": 3}), tokenizer, labels=("x", "y", "z"))
    checkpoint.save(held, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def file(tmp_path):
    """23 texts of different lengths and 3 to 4 bytes per character."""
    lines = ["the cat \u4e2d\u6587 \U0001f600 " * (1 + i % 7) + f"{i}\n" for i in range(23)]
    (tmp_path / "texts.txt").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "texts.txt"


def test_without_a_terminal_a_line_is_logged_every_half_minute(caplog):
    caplog.set_level(logging.INFO, logger="bothways")
    clock = Clock(0)
    with JobProgress("v.npy", 100, done=40, clock=clock) as job:
        for seconds, windows in ((29, 3), (31, 6), (50, 7), (60, 9)):
            clock.now = seconds
            job.within_block(rows=30)(windows, 9)
        clock.now = 100
        job.finish_block(30)
        clock.now = 200
        job.finish_block(33)  # more than estimated
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" rows")[0] for line in lines] == [
        "v.npy: 60 of about 100", "v.npy: 70 of about 100", "v.npy: 103",
    ]  # fmt: skip
    assert lines[0].endswith("0.65 rows/s, 62 s left")  # 20 rows in 31 s, 40 left


def test_on_a_terminal_the_bar_counts_from_the_resumed_row_and_nothing_is_logged(monkeypatch, caplog):
    for place in ("inference.jobs.job_progress", "base.progress"):
        monkeypatch.setattr(f"bothways.{place}.draws_bars", lambda: True)
    clock = Clock(0)
    with JobProgress("v.npy", 100, done=40, clock=clock) as job:
        clock.now = 40
        job.finish_block(30)
        job.within_block(rows=20)(3, 4)
    assert (job.bar.done, job.bar.total, job.bar.detail) == (85, 100, "85 rows  1.1 rows/s")
    assert not caplog.records


@pytest.mark.parametrize("verb", ["embed", "predict", "printed"])
def test_each_batch_of_a_block_is_progress(verb, model, file, tmp_path, monkeypatch):
    """One block, whose batches hold few texts."""
    shown, load = [], plan.load
    monkeypatch.setattr(plan, "load", lambda *args, **options: load(*args, **options, batch_tokens=64))
    monkeypatch.setattr(JobProgress, "show", lambda self, done: shown.append(done))
    if verb == "embed":
        verbs.embed(Embed(model=model, file=str(file), out=tmp_path / "v.npy"))
    elif verb == "predict":
        verbs.predict(Predict(model=model, file=str(file), out=tmp_path / "p.csv"))
    else:
        assert sum(map(len, verbs.predict_blocks(Predict(model=model, file=str(file))))) == 23
    assert len(shown) > 5 and shown == sorted(shown) and shown[-1] == 23


def test_a_job_logs_lines_of_its_progress(model, file, tmp_path, monkeypatch):
    monkeypatch.setattr(verbs, "JobProgress", lambda *args, **options: JobProgress(*args, **options, clock=Clock(20)))
    lines = []
    with messages_to(lines.append):
        verbs.embed(Embed(model=model, file=str(file), out=tmp_path / "v.npy"))
    assert lines and all(line.startswith("v.npy: ") for line in lines)


def test_blocks_are_bounded_by_their_bytes():
    texts = ["a" * 1300] * 900 + ["\u4e2d" * 400] * 900 + ["b" * blocks.BYTES * 2, "c"]
    all_blocks = [*blocks.split_into_blocks((ModelInput(text) for text in texts), "stop")]
    sizes = [sum(len(row.text.encode()) for row in block.inputs) for block in all_blocks]
    assert sum(map(len, all_blocks)) == 1802 and len(all_blocks) > 9
    assert all(size <= blocks.BYTES for size, block in zip(sizes, all_blocks, strict=True) if len(block) > 1)
    abstracts = blocks.split_into_blocks((ModelInput("word " * 250) for _ in range(5000)), "stop")
    assert sum(1 for _ in abstracts) > 20


def test_an_interrupted_job_resumes_at_a_border_of_bytes_to_the_same_output(model, file, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BYTES", 300)
    whole, out = tmp_path / "whole.npy", tmp_path / "v.npy"
    settings = {"model": model, "file": str(file), "dtype": "float32"}
    verbs.embed(Embed(out=whole, **settings))
    add = PartialOutput.add

    def interrupted(self, *arguments):
        if self.journal.blocks == 3:
            raise KeyboardInterrupt
        add(self, *arguments)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(PartialOutput, "add", interrupted)
        verbs.embed(Embed(out=out, **settings))
    journal = json.loads((tmp_path / ".v.npy.partial.json").read_text())
    assert 3 < journal["rows"] < 23
    with monkeypatch.context() as patched, pytest.raises(Exception, match="block: .*'bytes': 300.* -> .*'bytes': 301"):
        patched.setattr(blocks, "BYTES", 301)
        verbs.embed(Embed(out=out, resume=True, **settings))
    verbs.embed(Embed(out=out, resume=True, **settings))
    assert out.read_bytes() == whole.read_bytes() and len(np.load(out)) == 23
