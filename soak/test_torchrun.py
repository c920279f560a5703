"""Fine-tuning started by torchrun has the losses of one process: in 2, 3 and 4, and after kills at random moments."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

DATA = Path(os.environ.get("BOTHWAYS_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
ROWS, KILLS = 800, 3


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    if not (DATA / "glue/SST-2").exists():
        pytest.skip(
            f"{DATA}/glue/SST-2 is not there; set BOTHWAYS_DATA to the directory of the data sets (docs/DATA.md)"
        )
    file = tmp_path_factory.mktemp("rows") / "train.tsv"
    (source,) = (DATA / "glue/SST-2").glob("train*.tsv")
    with source.open(encoding="utf-8") as lines:
        file.write_text("".join(islice(lines, ROWS + 1)), encoding="utf-8")
    return file


def start(rows, out, processes, *more, restarts=0, launcher="--standalone"):
    flags = "--epochs 1 --dtype float32 --no-baselines --gradient-accumulation 12 --checkpoint-every 2"
    launcher = f"-m torch.distributed.run {launcher} --nproc-per-node {processes} --max-restarts {restarts}"
    given = f"-m bothways finetune classify --train {rows} --model bothways-en -o {out} {flags}"
    command = [sys.executable, *launcher.split(), *given.split(), *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def losses_of(out):
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return {(row["split"], row["step"], row["tokens"]): row["loss"] for row in map(json.loads, lines)}


@pytest.fixture(scope="module")
def undisturbed(rows, tmp_path_factory):
    """The losses of a run in some processes, each run once."""

    @cache
    def run(processes):
        out = tmp_path_factory.mktemp("whole") / "run"
        process = start(rows, out, processes)
        printed, said = process.communicate()
        assert process.returncode == 0 and printed.count("model in ") == 1, said
        return losses_of(out)

    return run


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_several_processes_have_the_losses_of_one(processes, undisturbed):
    alone, together = undisturbed(1), undisturbed(processes)
    assert together.keys() == alone.keys()
    largest = max(abs(together[key] - alone[key]) for key in alone)
    print(f"{processes} processes: {len(alone)} losses, the largest difference {largest:.1e}")
    assert largest < 1e-5  # rounding, which training multiplies


def workers_of(launcher):
    """The processes that a launcher has started, by id."""
    found = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(worker) for worker in found if b"finetune" in Path(f"/proc/{worker}/cmdline").read_bytes()]


def test_a_run_whose_processes_are_killed_at_random_moments_has_the_same_losses(rows, undisturbed, tmp_path):
    chance, out, expected = random.Random(0), tmp_path / "killed", undisturbed(2)
    process, kills = start(rows, out, 2, "--resume", restarts=KILLS), 0
    steps = len([key for key in expected if key[0] == "train"])
    for goal in sorted(chance.sample(range(2, steps - 1), KILLS)):
        metrics = out / "metrics.jsonl"
        while process.poll() is None and (not metrics.exists() or metrics.read_text().count('"train"') < goal):
            time.sleep(0.02)
        workers = workers_of(process.pid)
        os.kill(chance.choice(workers), signal.SIGKILL)
        while {*workers} & {*workers_of(process.pid)}:
            time.sleep(0.02)
        kills += 1
    _, said = process.communicate()
    assert process.returncode == 0 and kills == KILLS, said
    assert "resuming from" in said
    assert losses_of(out) == expected  # bit for bit


def test_when_a_machine_is_lost_the_others_go_on(rows, undisturbed, tmp_path):
    """Two launchers, as of two machines; that of the second process is killed with it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    how = f"--nnodes 1:2 --rdzv-backend c10d --rdzv-id soak --rdzv-endpoint 127.0.0.1:{port}"
    out, metrics = tmp_path / "run", tmp_path / "run" / "metrics.jsonl"
    how += " --rdzv-conf last_call_timeout=20"  # seconds to wait for the second launcher
    launchers = [start(rows, out, 1, "--resume", restarts=3, launcher=how) for _ in range(2)]
    while all(one.poll() is None for one in launchers) and (
        not metrics.exists() or metrics.read_text().count('"train"') < 5
    ):
        time.sleep(0.02)
    workers = {one: workers_of(one.pid)[0] for one in launchers}
    (lost,) = (one for one in launchers if b"\0RANK=1\0" in Path(f"/proc/{workers[one]}/environ").read_bytes())
    os.kill(lost.pid, signal.SIGKILL), os.kill(workers[lost], signal.SIGKILL)
    (left,) = {*launchers} - {lost}
    _, said = left.communicate()
    assert left.returncode == 0 and "resuming from" in said, said
    lost.communicate()
    expected, actual = undisturbed(1), losses_of(out)
    assert actual.keys() == expected.keys()
    assert max(abs(actual[key] - expected[key]) for key in expected) < 1e-5
