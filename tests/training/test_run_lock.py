"""One process at a time in a run's directory."""

import errno
import fcntl
import gc
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.settings import Classify
from bothways.training import run_lock as locking
from bothways.training.run import Run
from bothways.training.run_lock import LOCK, Lock, current_process, is_alive

SETTINGS = Classify(model=Path("m"), train=Path("t.csv"), out=Path("o"))
RACER = """
import sys
from pathlib import Path
from bothways.training.run_lock import Lock
print("ready", flush=True)
sys.stdin.readline()
try:
    held = Lock(Path(sys.argv[1]))
    print("held", flush=True)
except ValueError:
    print("refused", flush=True)
sys.stdin.readline()
"""
PARENT = """
import os, sys
from pathlib import Path
from bothways.training.run_lock import Lock
held = Lock(Path(sys.argv[1]))
if os.fork() == 0:
    print("held", flush=True)
    sys.stdin.read()
    os._exit(0)
os.wait()
"""


def start(code, directory):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    return subprocess.Popen([sys.executable, "-c", code, str(directory)], **pipes)


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of tmp_path."""
    with start(RACER, tmp_path) as other:
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("\n")
        assert other.stdout.readline() == "held\n"
        yield other
        other.kill()


def test_an_active_run_of_another_process_is_refused_and_left_alone(holder, tmp_path):
    for resume in (False, True):
        with pytest.raises(InputError, match=f"active, .*process {holder.pid} on "), messages_to(pytest.fail):
            Run(tmp_path, "finetune classify", SETTINGS, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    assert json.loads((tmp_path / LOCK).read_text())["id"] == holder.pid


def test_the_lock_of_a_killed_process_is_taken_over_at_once_with_a_message(holder, tmp_path, monkeypatch):
    monkeypatch.setattr(locking, "time", None)  # nothing waits
    holder.kill()
    holder.wait()
    messages = []
    with messages_to(messages.append):
        lock = Lock(tmp_path)
    assert len(messages) == 1 and f"process {holder.pid} on " in messages[0] and "taking over" in messages[0]
    lock.release()
    assert not list(tmp_path.iterdir())


def test_the_processes_that_a_killed_one_leaves_are_waited_for(tmp_path, monkeypatch):
    with start(PARENT, tmp_path) as parent:
        assert parent.stdout.readline() == "held\n"
        parent.kill()
        parent.wait()
        waited = []

        def sleep(seconds):
            waited.append(seconds)
            if len(waited) == 3:
                parent.stdin.close()  # the child ends
                assert parent.stdout.read() == ""

        monkeypatch.setattr(locking.time, "sleep", sleep)
        Lock(tmp_path).release()
    assert len(waited) == 3


def test_the_processes_that_a_killed_one_leaves_are_not_waited_for_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(locking, "POLL", 0)
    with start(PARENT, tmp_path) as parent:
        assert parent.stdout.readline() == "held\n"
        parent.kill()
        parent.wait()
        with pytest.raises(InputError, match=f"active, as process {parent.pid} on "):
            Lock(tmp_path)


def test_a_file_system_without_locks_is_named_in_a_message(tmp_path, monkeypatch):
    def flock(file, flags):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    messages = []
    with messages_to(messages.append):
        Lock(tmp_path).release()
    assert len(messages) == 1 and "no locks on this file system" in messages[0]


@pytest.mark.slow
def test_of_many_processes_that_take_over_a_dead_lock_at_once_one_gets_it(tmp_path):
    (tmp_path / LOCK).write_text(json.dumps({**current_process(), "id": 2**22 - 1}))
    racers = [start(RACER, tmp_path) for _ in range(6)]
    assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 6
    for racer in racers:
        racer.stdin.write("\n")
    assert sorted(racer.stdout.readline() for racer in racers) == ["held\n", *["refused\n"] * 5]
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    for racer in racers:
        racer.communicate("\n")


def test_a_lock_file_cut_off_by_a_power_failure_is_no_lock(tmp_path):
    (tmp_path / LOCK).write_bytes(b'{"id": 1')
    with messages_to(pytest.fail):
        Lock(tmp_path).release()
    assert not (tmp_path / LOCK).exists()


def test_a_released_or_abandoned_lock_of_this_process_is_free_at_once(tmp_path):
    with messages_to(pytest.fail):
        lock = Lock(tmp_path)
        lock.release()
        assert not (tmp_path / LOCK).exists()
        lock = Lock(tmp_path)
        del lock  # never released
        gc.collect()
        lock = Lock(tmp_path)
    lock.release()
    lock.release()
    assert not (tmp_path / LOCK).exists()


def test_a_second_thread_is_refused_while_the_first_runs_in_the_directory(tmp_path):
    with Run(tmp_path / "run", "finetune classify", SETTINGS) as run:
        run.log_metrics(step=1, split="train", loss=1.0)
        files = {path.name: path.read_bytes() for path in run.directory.iterdir() if path.name != LOCK}
        with ThreadPoolExecutor(1) as threads, messages_to(pytest.fail):
            second = threads.submit(Run, tmp_path / "run", "finetune classify", SETTINGS, resume=True)
            with pytest.raises(InputError, match="active in this process"):
                second.result()
        assert {path.name: path.read_bytes() for path in run.directory.iterdir() if path.name != LOCK} == files
    assert run.metadata["status"] == "done"
    Run(tmp_path / "run", "finetune classify", SETTINGS, resume=True).close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_zombie_counts_as_ended():
    with subprocess.Popen(["sleep", "60"]) as other:
        process = locking.find_process(other.pid)
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # exited, not reaped
        os.kill(other.pid, 0)  # its id still exists
        assert is_alive(process) is False


def test_without_proc_a_process_is_alive_if_it_accepts_signals(monkeypatch):
    def refuse(*args, **options):
        raise FileNotFoundError

    machine = locking.machine()  # cached, since it reads /proc too
    monkeypatch.setattr(Path, "read_text", refuse)
    process = locking.find_process(os.getpid())
    assert process["began"] is None and process["machine"] == machine and is_alive(process) is True


def test_whether_a_process_lives_is_known_of_this_machine_alone():
    with subprocess.Popen(["sleep", "60"]) as other:
        process = locking.find_process(other.pid)
        assert is_alive(process) is True and is_alive({**process, "machine": "after a reboot"}) is None
        assert is_alive({**process, "began": "1"}) is False
        os.kill(other.pid, signal.SIGKILL)
    assert is_alive(process) is False
