"""A run killed and resumed 20 times at random moments has the losses of an uninterrupted one, bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from bothways.text.corpus.documents import sample
from tests.training import test_distributed, test_resume
from tests.training.conftest import undisturbed, work  # noqa: F401 (fixtures)

KILLS = 20
STEPS = 400


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpus")
    for book in sample():
        (directory / f"{book['title']}.txt").write_text(book["text"], encoding="utf-8")
    return directory


def command(corpus, out, *more):
    flags = f"--model tiny --vocab-size 3000 --steps {STEPS} --batch-tokens 1024 --max-length 64 --dropout 0.1"
    flags += " --documents file --checkpoint-every 9 --evaluate-every 5 --heldout-examples 512"
    given = [sys.executable, "-m", "bothways", "pretrain", str(corpus), "-o", str(out)]
    return [*given, "--token-store", str(corpus.parent / "store"), *flags.split(), *more]


@pytest.mark.parametrize(
    ("pairs", "masks", "dtype"),
    [("next", "tokens", "bfloat16"), ("order", "words", "bfloat16"), ("none", "spans", "float32")],
)
def test_twenty_kills_change_no_loss(corpus, tmp_path, pairs, masks, dtype):
    more = ["--pairs", pairs, "--masking", masks, "--dtype", dtype]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    began = time.monotonic()
    subprocess.run(command(corpus, whole, *more), check=True, capture_output=True)
    took = time.monotonic() - began
    chance = random.Random(0)
    kills = 0
    told = ""
    while kills < KILLS:
        run = subprocess.Popen(command(corpus, cut, *more, "--resume"), stderr=subprocess.PIPE, text=True)
        try:
            _, said = run.communicate(timeout=4 + chance.random() * took / 20)  # torch alone takes two seconds to start
        except subprocess.TimeoutExpired:
            os.kill(run.pid, signal.SIGKILL)
            _, said = run.communicate()
            kills += 1
        else:
            assert run.returncode == 0, said
            break
        told += said
    print(f"{pairs}, {masks}, {dtype}: {kills} kills")
    subprocess.run(command(corpus, cut, *more, "--resume"), check=True, capture_output=True)
    assert kills == KILLS and "resuming from" in told
    rows = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (whole, cut)]
    for one, other in zip(*rows, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert len({(run / "model" / "model.safetensors").read_bytes() for run in (whole, cut)}) == 1


@pytest.mark.parametrize("kill", test_resume.KILLS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_small_run_killed_anywhere_resumes_bit_for_bit(kill, dtype, work, undisturbed, tmp_path):  # noqa: F811
    test_resume.assert_a_kill_changes_no_bit(kill, dtype, work, undisturbed, tmp_path)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("shard", [False, True], ids=["replicated", "shared out"])
def test_a_small_run_resumes_in_another_number_of_processes(
    shard,
    before,
    after,
    work,  # noqa: F811
    undisturbed,  # noqa: F811
    tmp_path,
):
    test_distributed.assert_resumes_in_another_number(shard, before, after, work, undisturbed, tmp_path)
