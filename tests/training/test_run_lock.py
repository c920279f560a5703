"""One process at a time in a run's directory, over hosts that share it. A second host is a process that takes itself
for another machine."""

import gc
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bothways.errors import InputError
from bothways.log import messages_to
from bothways.settings import Classify
from bothways.training import run_lock as locking
from bothways.training.run import Run
from bothways.training.run_lock import LOCK, Lock, current_process, is_alive

SETTINGS = Classify(model=Path("m"), train=Path("t.csv"), out=Path("o"))
ELSEWHERE = """
import sys
from pathlib import Path
from bothways.training import run_lock as lock
lock.machine = lambda: "another machine"
held = lock.Lock(Path(sys.argv[1]))
print("held", flush=True)
for line in sys.stdin:
    held._beat()
    print("beaten", flush=True)
"""
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


class Clock:
    """Takes the place of `time`: it passes by sleeping only, and `on_sleep` is what happens meanwhile."""

    def __init__(self):
        self.now, self.on_sleep = 1000.0, lambda: None

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.on_sleep()


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(locking, "time", clock)
    return clock


def start(code, directory):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    return subprocess.Popen([sys.executable, "-c", code, str(directory)], **pipes)


@pytest.fixture
def elsewhere(tmp_path, clock):
    """A process on "another machine" that holds the lock of tmp_path; its heart beats while this one sleeps."""

    def beat():
        other.stdin.write("\n")
        assert other.stdout.readline() == "beaten\n"

    with start(ELSEWHERE, tmp_path) as other:
        assert other.stdout.readline() == "held\n"
        clock.on_sleep = beat
        yield other
        other.kill()


def test_an_active_run_on_another_machine_is_refused_and_left_alone(elsewhere, tmp_path):
    messages = []
    for resume in (False, True):
        match = f"active, .*process {elsewhere.pid} on "
        with pytest.raises(InputError, match=match), messages_to(messages.append):
            Run(tmp_path, "finetune classify", SETTINGS, resume=resume)
    assert len(messages) == 2 and [path.name for path in tmp_path.iterdir()] == [LOCK]
    assert json.loads((tmp_path / LOCK).read_text())["id"] == elsewhere.pid


def test_a_run_killed_on_another_machine_is_taken_over_once_its_heartbeat_stops(elsewhere, tmp_path, clock):
    elsewhere.kill()
    elsewhere.wait()
    clock.on_sleep, began, messages = lambda: None, clock.now, []
    with messages_to(messages.append):
        lock = Lock(tmp_path)
    assert clock.now - began == locking.PATIENCE
    assert len(messages) == 2 and f"process {elsewhere.pid} on " in messages[1] and "taking over" in messages[1]
    lock.release()
    assert not list(tmp_path.iterdir())


def test_a_process_that_was_suspended_finds_its_run_taken_over_and_writes_nothing_more(tmp_path, monkeypatch, clock):
    with pytest.raises(InputError, match=f"process {os.getpid()} on .* took this run over"):  # noqa: SIM117
        with Run(tmp_path / "run", "finetune classify", SETTINGS) as run:
            run.log_metrics(step=1, split="train", loss=1.0)
            run.lock.stop()  # as if the whole process were suspended
            monkeypatch.setattr(locking, "machine", lambda: "another machine")
            new = Run(tmp_path / "run", "finetune classify", SETTINGS, resume=True)
            files = {path.name: path.read_bytes() for path in new.directory.iterdir()}
            clock.sleep(3 * locking.BEAT)
            run.log_metrics(step=2, split="train", loss=0.5)
    assert {path.name: path.read_bytes() for path in new.directory.iterdir()} == files
    assert json.loads(files["bothways.json"])["status"] == "running"


@pytest.mark.slow
def test_of_many_processes_that_take_over_a_dead_lock_at_once_one_gets_it(tmp_path):
    (tmp_path / LOCK).write_text(json.dumps({**current_process(), "id": 2**22 - 1, "token": "gone", "count": 3}))
    racers = [start(RACER, tmp_path) for _ in range(6)]
    assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 6
    for racer in racers:
        racer.stdin.write("\n")
    assert sorted(racer.stdout.readline() for racer in racers) == ["held\n", *["refused\n"] * 5]
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    for racer in racers:
        racer.communicate("\n")


def test_a_lock_with_a_heartbeat_during_a_takeover_is_restored(tmp_path):
    live = Lock(tmp_path)
    seen = (tmp_path / LOCK).read_bytes()
    live._beat()
    taker = object.__new__(Lock)
    taker.file, taker.owner = tmp_path / LOCK, {"token": "other"}
    taker._remove(seen)
    assert json.loads((tmp_path / LOCK).read_text())["token"] == live.owner["token"]
    live.check()
    assert not live.lost_to and [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_the_heart_beats_until_the_lock_is_released(tmp_path, monkeypatch):
    monkeypatch.setattr(locking, "BEAT", 0.001)
    lock = Lock(tmp_path)
    lock.start()
    while lock.count < 3:
        time.sleep(0.001)
    lock.stop()
    assert json.loads((tmp_path / LOCK).read_text())["count"] == lock.count and not lock.thread.is_alive()
    lock.release()


def test_a_lock_cut_off_by_a_power_failure_is_taken_over_after_watching(tmp_path):
    (tmp_path / LOCK).write_bytes(b"")
    messages = []
    with messages_to(messages.append):
        Lock(tmp_path).release()
    assert len(messages) == 2 and "no heartbeat" in messages[1]


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
    assert not (tmp_path / LOCK).exists() and not list(Lock.held)


def test_a_second_thread_is_refused_while_the_first_runs_in_the_directory(tmp_path):
    with Run(tmp_path / "run", "finetune classify", SETTINGS) as run:
        run.log_metrics(step=1, split="train", loss=1.0)
        files = {path.name: path.read_bytes() for path in run.directory.iterdir() if path.name != LOCK}
        with ThreadPoolExecutor(1) as threads, messages_to(pytest.fail):
            second = threads.submit(Run, tmp_path / "run", "finetune classify", SETTINGS, resume=True)
            with pytest.raises(InputError, match="active in this process"):
                second.result()
        assert {path.name: path.read_bytes() for path in run.directory.iterdir() if path.name != LOCK} == files
        run.lock.check()
    assert run.metadata["status"] == "done"
    Run(tmp_path / "run", "finetune classify", SETTINGS, resume=True).close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_the_lock_of_a_zombie_is_taken_over(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as other:
        process = locking.find_process(other.pid)
        (tmp_path / LOCK).write_text(json.dumps({**process, "token": "killed", "count": 3}))
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # exited, not reaped
        os.kill(other.pid, 0)  # its id still exists
        assert is_alive(process) is False
        Lock(tmp_path).release()


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
