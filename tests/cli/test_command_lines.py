"""No command line ends in a traceback: a hundred random ones and more, 100,000 in `make soak`."""

import shutil
import sys
from collections import Counter
from random import Random

import pytest

from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from tests.cli.command_lines import command_line, run, write_files

NUMBER = 133


@pytest.fixture
def place(make_model, tokenizer, tmp_path, monkeypatch):
    """The current directory, with a small model of each kind and files to read."""
    kinds = {
        "labels": ({"classes": 3}, ("x", "\x1b[2Jé", "z")),
        "number": ({"classes": 1}, ()),
        "answers": ({"spans": 2}, ()),
        "entities": ({"tokens": 3}, ("O", "B-LOC", "I-LOC")),
        "words": ({"masked_words": 0, "next_sentence": 2}, ()),
        "vectors": ({}, ()),
    }
    for kind, (heads, labels) in kinds.items():
        checkpoint.save(Checkpoint(make_model("bert", heads), tokenizer, labels=labels), tmp_path / kind)
    shutil.copytree(tmp_path / "labels", tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"\x10")
    write_files(tmp_path)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    files = sorted(file.name for file in tmp_path.glob("*.*"))
    return [*kinds, "broken", "t.txt", "out", "no-model"], [*files, "no-file.csv"]


def refuse_tracebacks(place, capsys, number, *, seed):
    """How many of `number` random command lines end with which status; AssertionError for a traceback."""
    models, files = place
    lines = (command_line(Random(f"{seed}-{index}"), models=models, files=files) for index in range(number))
    return Counter(run(line, capsys.readouterr) for line in lines)


@pytest.mark.slow
def test_random_command_lines_end_without_a_traceback(place, capsys):
    ended = refuse_tracebacks(place, capsys, NUMBER, seed=0)
    assert min(ended[status] for status in (0, 1, 2)) > NUMBER / 30, ended
