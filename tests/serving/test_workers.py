"""Processes that compute batches: results, errors, processes that die, and how they end."""

import os
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.serving import calls
from bothways.serving.calls import Call
from bothways.serving.workers import ProcessWorker, Workers
from bothways.tasks.fill.task import fill_items

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
ITEMS = [("the cat sat", None), ("a dog ran on the mat", None)]
EMBED = Call(calls.embed, options=(("normalize", True),))
SECONDS = 250.0

# Forks from a separate process: torch's threads, which this one may have started, do not survive a fork.
PROGRAM = """
import sys, torch
import bothways
from bothways.serving.workers import Cores
from bothways.serving.workers import Workers, WorkerLost
from tests.serving.test_workers import *

model = bothways.load(sys.argv[1], dtype="float32", device="cpu")
workers = Workers.forked({"a": model, "b": model}, Cores(2))
processes = [worker.process for worker in workers._all]
"""


def run(directory, program):
    """Run a program after PROGRAM; what it printed. It has to end by itself, and all that it has forked too."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program, str(directory)],
        capture_output=True, text=True, timeout=SECONDS, check=False, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def directory(predictors, tmp_path_factory):
    directory = tmp_path_factory.mktemp("workers") / "model"
    predictors["encoder"].save(directory)
    return directory


def check_results(workers, model):
    """Results and errors are those of the model in this process."""
    assert workers.count == 2 and all(isinstance(worker, ProcessWorker) for worker in workers._all)
    for name in ("a", "b", "a"):
        np.testing.assert_allclose(
            workers.compute(name, EMBED, ITEMS), model.embed([text for text, _ in ITEMS]), atol=1e-6
        )
    filled = workers.compute("a", Call(fill_items, options=(("top", 3),)), [("the [MASK] sat", None)])
    assert [one["token"] for one in filled[0][0]] == [one.token for one in model.fill("the [MASK] sat", top=3)[0]]
    with pytest.raises(InputError, match=r"\[MASK\]"):
        workers.compute("a", Call(fill_items, options=(("top", 3),)), ITEMS)
    with pytest.raises(RuntimeError, match="TypeError"):
        workers.compute("a", Call(fill_items, options=(("tip", 3),)), ITEMS)


def check_lost(workers, model, processes):
    """Of a process that is killed one batch is lost; then the server computes itself."""
    for process in processes:
        os.kill(process, signal.SIGINT)  # ignored: Ctrl-C ends the server, which ends them
        os.kill(process, signal.SIGTERM)
    assert len(workers.compute("a", EMBED, ITEMS)) == 2
    for process in processes:
        os.kill(process, signal.SIGKILL)
    lost = 0
    for _ in range(6):
        try:
            np.testing.assert_allclose(
                workers.compute("a", EMBED, ITEMS), model.embed([text for text, _ in ITEMS]), atol=1e-6
            )
        except RuntimeError as error:
            assert "has ended" in str(error) or "is gone" in str(error)
            lost += 1
    assert lost == 2


def check_threads(workers, model):
    """Many threads at once get the results of their own texts."""
    texts = [f"the cat sat on mat {number}" for number in range(24)]
    expected, vectors = model.embed(texts), {}

    def ask(number):
        [vectors[number]] = workers.compute("ab"[number % 2], EMBED, [(texts[number], None)])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    np.testing.assert_allclose([vectors[number] for number in range(len(texts))], expected, atol=1e-5)


def test_results_and_errors_are_those_of_the_model(directory):
    run(directory, "check_results(workers, model); check_threads(workers, model); workers.close()")


def test_the_server_computes_itself_when_processes_are_killed(directory):
    run(directory, "check_lost(workers, model, processes)")


def test_processes_end_with_the_process_that_has_started_them(directory):
    """Even if that is killed. Each has an end of a pipe that closes when it is gone."""
    reading, writing = os.pipe()
    root = Path(__file__).parents[2]
    program = PROGRAM + "print(len(processes), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[writing],
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as parent:  # fmt: skip
        os.close(writing)
        assert parent.stdout.readline() == "2\n"
        assert not wait([reading], 0)
        parent.kill()
        assert wait([reading], SECONDS)  # the end of the file: nobody holds the other end any more
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_model_elsewhere_than_on_the_cpu_is_computed_in_this_process(predictors, monkeypatch):
    class Elsewhere:
        device = type("Device", (), {"type": "cuda"})

    workers = Workers.forked({"a": Elsewhere()})
    assert workers.count == 1 and not any(isinstance(worker, ProcessWorker) for worker in workers._all)
    monkeypatch.setattr(sys, "platform", "darwin")
    workers = Workers.forked({"a": predictors["encoder"]})
    assert not any(isinstance(worker, ProcessWorker) for worker in workers._all)
    assert len(workers.compute("a", EMBED, ITEMS)) == 2
