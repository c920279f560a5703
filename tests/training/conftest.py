"""Training runs in separate processes, shared by several tests (worker.py)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "worker.py"


@pytest.fixture(scope="session")
def work():
    """Runs tasks in processes of their own and gives their exit codes."""
    told = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, str(WORKER)], **told) as process:

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
    """Directory of a whole run with these settings, each made once."""
    made = {}

    def run(**told):
        key = json.dumps(told, sort_keys=True)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("whole") / "run"
            assert work({"out": made[key], **told}) == [0], Path(f"{made[key]}.log").read_text()
        return made[key]

    return run
