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
