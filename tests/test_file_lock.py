"""Locks of files between processes: kinds of locks, waiting, and the end of the process that holds one."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from bothways.base.file_lock import acquire_lock

HOLDER = """
import sys
from bothways.base.file_lock import acquire_lock
file = open(sys.argv[1], "ab")
print("ready", flush=True)
print(acquire_lock(file, is_shared=sys.argv[2] == "shared", is_waiting=sys.argv[3] == "waiting"), flush=True)
sys.stdin.read()
"""
PARENT = """
import os, sys
from bothways.base.file_lock import acquire_lock
file = open(sys.argv[1], "ab")
print(acquire_lock(file), flush=True)
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("forked", flush=True)
os.wait()
"""


@contextmanager
def process(code, *arguments):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **pipes) as started:
        yield started
        started.kill()


def holder(path, kind="exclusive", waits="at once"):
    return process(HOLDER, path, kind, waits)


def answers(started, number=2):
    return [started.stdout.readline().strip() for _ in range(number)]


@pytest.mark.parametrize(
    ("first", "second", "is_free"),
    [
        ("exclusive", "exclusive", False),
        ("exclusive", "shared", False),
        ("shared", "exclusive", False),
        ("shared", "shared", True),
    ],
)
def test_only_shared_locks_stand_beside_each_other(first, second, is_free, tmp_path):
    path = tmp_path / "lock"
    with holder(path, first) as other, path.open("ab") as file:
        assert answers(other) == ["ready", "True"]
        assert acquire_lock(file, is_shared=second == "shared", is_waiting=False) is is_free


def test_two_openings_of_one_process_exclude_each_other_until_the_first_is_closed(tmp_path):
    with (tmp_path / "lock").open("ab") as first, (tmp_path / "lock").open("ab") as second:
        assert acquire_lock(first, is_waiting=False)
        assert not acquire_lock(second.fileno(), is_waiting=False)
        first.close()
        assert acquire_lock(second.fileno(), is_waiting=False)


def test_who_waits_has_the_lock_once_its_holder_is_killed(tmp_path):
    path = tmp_path / "lock"
    with path.open("ab") as file:
        with holder(path) as first:
            assert answers(first) == ["ready", "True"]
            with holder(path, waits="waiting") as waiting:
                assert answers(waiting, 1) == ["ready"]
                first.kill()
                assert answers(waiting, 1) == ["True"]
                assert not acquire_lock(file, is_waiting=False)
        assert acquire_lock(file, is_waiting=False)  # both are dead


def test_a_file_that_is_locked_can_be_written_renamed_and_deleted(tmp_path):
    path = tmp_path / "lock"
    with path.open("ab") as file:
        assert acquire_lock(file, is_waiting=False)
        file.write(b"written")
        file.flush()
        assert path.read_bytes() == b"written"
        path.rename(tmp_path / "renamed").unlink()
        with path.open("ab") as other:  # another file
            assert acquire_lock(other, is_waiting=False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_forked_process_holds_the_lock_on(tmp_path):
    path = tmp_path / "lock"
    with path.open("ab") as file, process(PARENT, path) as parent:
        assert answers(parent) == ["True", "forked"]
        parent.kill()
        parent.wait()
        assert not acquire_lock(file, is_waiting=False)
        parent.stdin.close()  # upon which the forked one ends
        assert parent.stdout.read() == ""
        assert acquire_lock(file, is_waiting=False)
