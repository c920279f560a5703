"""Training runs in separate processes, shared by several tests (worker.py)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "worker.py"


@pytest.fixture(scope="session")
def work():
    """Runs tasks in separate processes and returns their exit codes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, str(WORKER)], **pipes) as process:

        def go(*runs, signalled=None, impatient=False):
            order = {"runs": [{**run, "out": str(run["out"])} for run in runs]}
            order |= {"signal": signalled, "impatient": impatient}
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield go
        process.stdin.close()


@pytest.fixture(scope="session")
def undisturbed(work, tmp_path_factory):
    """Directory of a whole run with these settings, each run once."""
    runs = {}

    def run(**options):
        key = json.dumps(options, sort_keys=True)
        if key not in runs:
            runs[key] = tmp_path_factory.mktemp("whole") / "run"
            assert work({"out": runs[key], **options}) == [0], Path(f"{runs[key]}.log").read_text()
        return runs[key]

    return run


@pytest.fixture(scope="session")
def in_processes(tmp_path_factory):
    """Trains in child processes of a worker, which loads torch once (finetune_kills.py has the keys of a case):
    in_processes({"settings": ..., "die_in": ...}) -> their exit statuses."""
    errors = tmp_path_factory.mktemp("worker") / "stderr"
    worker = Path(__file__).parent / "finetuning" / "finetune_kills.py"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with errors.open("w") as file, subprocess.Popen([sys.executable, str(worker)], stderr=file, **pipes) as process:

        def train(case):
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
            statuses = [*map(int, process.stdout.readline().split())]
            assert statuses and not errors.read_text(), errors.read_text()
            return statuses

        yield train
        process.stdin.close()
