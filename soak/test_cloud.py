"""Object storage that fails at random, and processes that are killed at random: same bytes, nothing lost or doubled."""

import json
import os
import random
import signal
import subprocess
import sys

import psutil
import pytest

from bothways.base.paths import as_path
from bothways.scale import object_storage as cloud
from tests.cloud import test_verbs
from tests.cloud.conftest import at_random, bucket, proxy  # noqa: F401
from tests.cloud.test_verbs import here, made, places  # noqa: F401

FAULTS = 100
KILLS = 20
FAILURES = ["500", "503", "429", "reset", "cut", "lost"]
PRETRAIN = "--model tiny --vocab-size 500 --steps 20 --batch-tokens 512 --max-length 64 --checkpoint-every 2"
PRETRAIN += " --evaluate-every 4 --heldout-examples 16 --pairs none --dtype float32"


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    lines = [f"The {word} cat number {n} sat on the mat. It saw a {word} dog." for n in range(400) for word in "abc"]
    (tmp_path / "corpus.txt").write_text("\n\n".join(lines))
    (tmp_path / "rows.csv").write_text("text\n" + "\n".join(f"film {n} was good" for n in range(20_000)) + "\n")
    (tmp_path / "labels.csv").write_text(
        "text,label\n" + "".join(f"a {word} film {n},{word}\n" for n in range(300) for word in ("good", "bad"))
    )
    return tmp_path


def commands(texts, place):
    return [
        ["pretrain", texts / "corpus.txt", "-o", f"{place}/run", "--token-store", f"{place}/stores", *PRETRAIN.split()],
        ["finetune", "classify", "--train", texts / "labels.csv", "-o", f"{place}/tuned", "--model", f"{place}/run"],
        ["embed", "bothways-en-static", texts / "rows.csv", "--text-column", "text", "-o", f"{place}/vectors.npy"],
        ["predict", f"{place}/tuned", texts / "labels.csv", "-o", f"{place}/labels.csv"],
    ]


def command(arguments):
    return [sys.executable, "-m", "bothways", *map(str, arguments)]


def results(place):
    """The bytes that must not depend on faults and kills, and the rows of the runs' metrics without times."""
    files = ("run/model/model.safetensors", "tuned/encoder/model.safetensors", "vectors.npy", "labels.csv")
    rows = []
    for run in ("run", "tuned"):
        metrics = as_path(place) / run / "metrics.jsonl"
        pieces = metrics.files() if isinstance(metrics, cloud.CloudPath) else [metrics]
        text = b"".join(piece.read_bytes() for piece in pieces).decode()
        rows.append([{**json.loads(line), "seconds": 0, "tokens_per_second": 0} for line in text.splitlines()])
    return [(as_path(place) / file).read_bytes() for file in files], rows


def test_a_hundred_faults_lose_and_double_nothing(texts, bucket, proxy):  # noqa: F811
    for arguments in commands(texts, texts / "local"):
        subprocess.run(command(arguments), check=True)
    proxy.faults, rounds = 0, 0
    while proxy.faults < FAULTS:
        place, rounds = f"{bucket}/{rounds}", rounds + 1
        proxy.plan = at_random(rounds, FAILURES, 0.2)
        for arguments in commands(texts, place):
            subprocess.run(command(arguments), check=True)
        proxy.plan = lambda method, path: ""
        assert results(place) == results(texts / "local")
    print(f"{proxy.faults} faults in {rounds} rounds")
    assert not [file for file in as_path(bucket).files() if file.name.endswith(".claim")]


def test_twenty_kills_lose_and_double_nothing(texts, bucket, proxy):  # noqa: F811
    """At random requests; of every second one the local copy is lost."""
    for arguments in commands(texts, texts / "local"):
        subprocess.run(command(arguments), check=True)
    draws, kills = random.Random(8), 0
    while kills < KILLS:
        for arguments in commands(texts, bucket):
            is_done = False
            while not is_done:
                cache = str(texts / f"cache{kills // 2}")
                left = [draws.randint(1, 40) if kills < KILLS else 10**9]
                run = []

                def plan(method, path, left=left, run=run):
                    left[0] -= 1
                    if left[0] == 0:
                        run[0].send_signal(signal.SIGKILL)
                        run[0].wait()
                        return "reset"
                    return ""

                proxy.plan = plan
                environment = {**os.environ, "BOTHWAYS_CACHE": cache}
                run.append(subprocess.Popen(command([*arguments, "--resume"]), env=environment))
                status = run[0].wait()
                assert status in (0, -signal.SIGKILL)
                kills += status != 0
                is_done = status == 0
        proxy.plan = lambda method, path: ""
        print(f"{kills} kills")
        assert results(bucket) == results(texts / "local")
        if kills < KILLS:
            for file in as_path(bucket).files():
                file.unlink()
    assert not [file for file in as_path(bucket).files() if file.name.endswith(".claim")]


def test_twenty_kills_of_two_processes_with_parts_lose_and_double_nothing(texts, bucket, proxy):  # noqa: F811
    """Of the command or one of its workers, each time after a random number of further parts."""
    (texts / "in").mkdir()
    for number in range(120):
        (texts / "in" / f"{number:03}.txt").write_text("".join(f"film {n} of {number}\n" for n in range(300)))
    arguments = ["embed", "bothways-en-static", texts / "in", "--workers", "2", "--resume", "-o"]
    subprocess.run(command([*arguments, texts / "whole"]), check=True)
    draws, kills = random.Random(5), 0
    while kills < KILLS:
        is_done = False
        while not is_done:
            left, run, killed = [draws.randint(1, 12) if kills < KILLS else 10**9], [], []

            def plan(method, path, left=left, run=run, killed=killed):
                left[0] -= method == "PUT" and "/_parts/" in path
                if left[0] == 0:
                    left[0] = 10**9
                    killed.append(path)
                    workers = psutil.Process(run[0].pid).children()
                    (draws.choice(workers) if draws.random() < 0.5 and workers else run[0]).kill()
                return ""

            proxy.plan = plan
            run.append(subprocess.Popen(command([*arguments, f"{bucket}/out"])))
            is_done = run[0].wait() == 0
            kills += len(killed)
        proxy.plan = lambda method, path: ""
        parts = {file.name: file for file in as_path(f"{bucket}/out").files() if file.suffix == ".parquet"}
        assert {*parts} == {file.name for file in (texts / "whole").glob("part-*")}
        assert all(file.read_bytes() == (texts / "whole" / name).read_bytes() for name, file in parts.items())
        for file in as_path(bucket).files():
            file.unlink()
    print(f"{kills} kills")


@pytest.mark.parametrize("command", [command for commands in test_verbs.COMMANDS.values() for command in commands])
def test_the_answers_of_every_verb_are_those_of_local_directories(command, here, bucket, capsys, monkeypatch):  # noqa: F811
    test_verbs.assert_answers_are_alike(command, here, bucket, capsys, monkeypatch)
