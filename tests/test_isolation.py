"""The plugin of tests/isolation.py: planted faults are caught, each by its own line, and clean tests pass.

The planted tests run in a process of their own, in which the plugin is loaded as tests/conftest.py loads it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.isolation import changed_directories, unwatch, watch

ROOT = Path(__file__).parent.parent

PLANTED = """
import os
import random
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import bothways.text.data.tags
from bothways.base import log
from bothways.tasks import TASKS

SHARED_CACHE = Path(os.environ["BOTHWAYS_CACHE"])  # as a fixture of a module sees it
forever = threading.Event()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("folder")
    (directory / "rows.csv").write_text("text")
    return directory


def test_file_in_the_shared_cache():
    (SHARED_CACHE / "left.bin").write_bytes(b"1")

def test_file_in_a_shared_folder(folder):
    (folder / "rows.csv").write_text("other text")

def test_environment():
    os.environ["BOTHWAYS_API_KEY"] = "left"

def test_environment_without_a_variable():
    del os.environ["PATH"]

def test_thread():
    threading.Thread(target=forever.wait, name="left", daemon=True).start()

def test_threads_of_torch():
    torch.set_num_threads(torch.get_num_threads() + 1)

def test_type_of_torch():
    torch.set_default_dtype(torch.float64)

def test_registry():
    TASKS.add("left", TASKS["classify"])

def test_name_of_a_module():
    log.left = 1

def test_module_imported_again(monkeypatch):
    import importlib
    import sys
    import bothways.text.data.tags
    monkeypatch.delitem(sys.modules, "bothways.text.data.tags")
    importlib.import_module("bothways.text.data.tags")

def test_logger():
    log.logger.setLevel("ERROR")

def test_signal():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

def test_working_directory(tmp_path):
    os.chdir(tmp_path)

def test_random():
    random.random()

def test_random_numpy():
    np.random.rand()

def test_random_torch():
    torch.rand(1)

def test_process():
    import subprocess
    subprocess.Popen(["sleep", "300"])


# --- none of these leaves a trace

def test_clean_own_files(tmp_path):
    cache = Path(os.environ["BOTHWAYS_CACHE"])
    assert not cache.exists() and [*Path.home().iterdir()] == [Path.cwd()] and not [*Path.cwd().iterdir()]
    cache.mkdir()
    for path in (cache, Path.home(), Path.cwd()):
        (path / "mine").write_text("x")

def test_clean_again_own_files():
    test_clean_own_files(None)

def test_clean_patched(monkeypatch, tmp_path, folder):
    monkeypatch.setenv("BOTHWAYS_API_KEY", "mine")
    monkeypatch.setitem(TASKS.entries, "mine", TASKS["classify"])
    monkeypatch.chdir(tmp_path)
    assert (folder / "rows.csv").exists()

def test_clean_thread_that_ends():
    thread = threading.Thread(target=print, name="short")
    thread.start()

def test_clean_numbers(global_seed):
    assert torch.rand(1) != torch.rand(1)
"""

CAUGHT = {  # what is planted -> what is said
    "file_in_the_shared_cache": "cache is shared and was changed: left.bin",
    "file_in_a_shared_folder": "folder0 is shared and was changed: rows.csv",
    "environment": "$BOTHWAYS_API_KEY is 'left', and was '(nothing)'",
    "environment_without_a_variable": "$PATH is '(nothing)'",
    "thread": "the thread left goes on",
    "threads_of_torch": "torch's number of threads is 2, and was 1",
    "type_of_torch": "torch's default dtype is torch.float64, and was torch.float32",
    "registry": "bothways.tasks.TASKS was changed",
    "name_of_a_module": "bothways.base.log.left was changed",
    "module_imported_again": "bothways.text.data.tags was changed",
    "logger": "the logger bothways is (40",
    "signal": "the handler of SIGTERM is <Handlers.SIG_IGN: 1>",
    "working_directory": "the working directory is ",
    "random": "the global generators of random in another state",
    "random_numpy": "the global generators of numpy.random in another state",
    "random_torch": "the global generators of torch in another state",
    "process": "the process sleep 300 goes on",
}
CLEAN = ("own_files", "again_own_files", "patched", "thread_that_ends", "numbers")

# Writes what became of each test, as JSON. Processes that a planted test leaves are ended.
RECORDER = """
import json
import os
import signal

import pytest

from tests import isolation

isolation.GUARD = 0.1  # the planted thread goes on however long one waits
outcomes = {}

def pytest_runtest_logreport(report):
    if report.failed:
        outcomes.setdefault(report.nodeid.partition("::")[2], []).append(report.longreprtext)
    else:
        outcomes.setdefault(report.nodeid.partition("::")[2], [])

def pytest_sessionfinish():
    for process in isolation.child_processes():
        os.kill(process, signal.SIGKILL)
    print("OUTCOMES" + json.dumps(outcomes))
"""


@pytest.mark.parametrize("change", ["content", "time", "new file", "removed"])
def test_a_change_of_a_watched_folder_is_found_once(change, tmp_path):
    folder = tmp_path / "run" / "model"
    folder.mkdir(parents=True)
    file = folder / "config.json"
    file.write_text("{}", encoding="utf-8")
    watch(tmp_path)
    assert changed_directories() == []

    if change == "content":
        file.write_text("{ }", encoding="utf-8")
    elif change == "time":
        os.utime(file, ns=(1, 1))
    elif change == "new file":
        (folder / "more.json").write_text("", encoding="utf-8")
    else:
        file.unlink()
    name = "more.json" if change == "new file" else "config.json"
    assert changed_directories() == [(tmp_path, f"run/model/{name}")]
    assert changed_directories() == []
    unwatch(tmp_path)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The messages of each planted test: none, if it passes."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "test_planted.py").write_text(PLANTED, encoding="utf-8")
    (folder / "recorder.py").write_text(RECORDER, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "tests.isolation", "-p", "recorder", "--basetemp", "made"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_planted.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    (line,) = (line for line in done.stdout.splitlines() if "OUTCOMES" in line) if "OUTCOMES" in done.stdout else ("",)
    assert line, done.stdout + done.stderr
    return json.loads(line.partition("OUTCOMES")[2])


@pytest.mark.slow
@pytest.mark.parametrize("planted", CAUGHT)
def test_a_trace_is_caught_and_named(planted, outcomes):
    (message,) = outcomes[f"test_{planted}"]
    assert CAUGHT[planted] in message


@pytest.mark.slow
@pytest.mark.parametrize("clean", CLEAN)
def test_a_test_without_a_trace_passes_after_others_left_theirs(clean, outcomes):
    assert outcomes[f"test_clean_{clean}"] == []


@pytest.mark.slow
def test_all_planted_tests_ran(outcomes):
    assert {*outcomes} == {f"test_{name}" for name in CAUGHT} | {f"test_clean_{name}" for name in CLEAN}
