"""Atomic writes of files and directories: replacement, interruption, permissions."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bothways.base import io
from bothways.base.errors import InputError
from bothways.base.io import atomic_directory, check_target, find_backup, remove_leftovers, write_atomic
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint

ROOT = Path(io.__file__).parents[2]


def write(target, version, names=("config.json", "weights")):
    with atomic_directory(target) as temporary:
        for name in names:
            (temporary / name).write_text(version)
        (temporary / "1_Pooling").mkdir()
        (temporary / "1_Pooling" / "config.json").write_text(version)


def texts(directory):
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


NEW = {"config.json": "new", "weights": "new", "1_Pooling/config.json": "new"}


@pytest.fixture(params=["missing", "empty", "filled"])
def target(request, tmp_path):
    path = tmp_path / "parent" / "out"
    if request.param != "missing":
        path.mkdir(parents=True)
    if request.param == "filled":
        write(path, "old", ("config.json", "weights", "stale"))
    return path


def test_a_directory_is_replaced_completely(target):
    write(target, "new")
    assert texts(target) == NEW and [entry.name for entry in target.parent.iterdir()] == ["out"]


def test_a_failed_block_leaves_the_old_content(target):
    before = texts(target)
    with pytest.raises(KeyboardInterrupt), atomic_directory(target) as temporary:
        (temporary / "config.json").write_text("new")
        raise KeyboardInterrupt
    assert texts(target) == before and {entry.name for entry in target.parent.iterdir()} <= {"out"}


def test_a_symbolic_link_is_followed_and_kept(target, tmp_path):
    (tmp_path / "link").symlink_to(target)
    for _ in range(2):
        write(tmp_path / "link", "new")
        assert (tmp_path / "link").is_symlink() and texts(target) == NEW


def test_the_working_directory_is_replaced_in_place(target, monkeypatch):
    target.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(target)
    before = target.stat().st_ino
    for path in (Path(), target.absolute()):
        write(path, "new")
        assert texts(Path()) == NEW and target.stat().st_ino == before
    assert sorted(entry.name for entry in target.iterdir()) == ["1_Pooling", "config.json", "weights"]


MOUNTED = """
import sys
from pathlib import Path
from bothways.base.io import atomic_directory
out = Path(sys.argv[1])
(out / "lost+found").mkdir(exist_ok=True)
for version in "12":
    with atomic_directory(out) as temporary:
        (temporary / "config.json").write_text(version)
    assert (out / "config.json").read_text() == version
    assert sorted(path.name for path in out.parent.iterdir()) == ["out", "real"]
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "lost+found"]
"""


@pytest.mark.parametrize("mount", ["mount -t tmpfs none", "mount --bind {real}"])
def test_a_mount_point_is_replaced_in_place(mount, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "real").mkdir()
    inside = f"{mount.format(real=tmp_path / 'real')} {tmp_path / 'out'}"
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "sh", "-c", inside]).returncode:
        pytest.skip("mounting is not permitted")
    command = f"{inside} && exec '{sys.executable}' -c '{MOUNTED}' {tmp_path / 'out'}"
    run = subprocess.run(["unshare", "-rm", "sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("failing", range(1, 9))
def test_entries_that_cannot_be_replaced_are_restored(failing, tmp_path, monkeypatch):
    write(tmp_path, "old", ("config.json", "weights", "stale"))
    monkeypatch.chdir(tmp_path)
    before, calls, rename = texts(tmp_path), [], Path.rename

    def fail_once(self, path):
        calls.append(path)
        if len(calls) == failing:
            raise OSError("no")
        return rename(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fail_once)
        try:
            write(tmp_path, "new")
        except OSError:
            assert texts(tmp_path) == before
        else:
            assert texts(tmp_path) == NEW and len(calls) < failing
    assert not [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")]


class Killed(BaseException):
    """Simulates a kill: every later change of the disk raises it again."""


def kill_after(num_changes, monkeypatch):
    """Allow `num_changes` changes of the disk."""
    remaining = iter(range(num_changes))

    def counted(function):
        def run(*args, **kwargs):
            if next(remaining, None) is None:
                raise Killed
            return function(*args, **kwargs)

        return run

    for name in ("link", "unlink", "mkdir", "rename", "rmdir"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_kill_at_any_moment_leaves_one_complete_directory(in_place, tmp_path, monkeypatch):
    outcomes = set()
    for num_changes in range(60):
        target = tmp_path / str(num_changes)
        write(target, "old")
        with monkeypatch.context() as patched:
            patched.chdir(target if in_place else ROOT)
            kill_after(num_changes, patched)
            try:
                write(target, "new")
                done = True
            except Killed:
                done = False
        complete = target if (target / "config.json").exists() else find_backup(target)
        versions = {text for name, text in texts(complete).items() if not name.startswith(".")}
        assert len(versions) == 1 and len([*complete.glob("[!.]*")]) == 3, (num_changes, texts(target))
        outcomes.add((*versions, complete == target))
        if done:
            break
    assert done and outcomes == {("old", True), ("old", False), ("new", True)}


def test_directories_with_similar_names_are_kept(tmp_path):
    for name in (".out.old", ".out.backup", ".out.20261123"):
        write(tmp_path / name, "mine")
    write(tmp_path / "out", "old")
    write(tmp_path / "out", "new")
    assert {entry.name for entry in tmp_path.iterdir()} == {".out.old", ".out.backup", ".out.20261123", "out"}


def test_leftovers_of_killed_writes_are_removed_except_the_last_complete_copy(tmp_path):
    for name in (".out.0123abcd", ".out.0123abcd.old", ".other.0123abcd"):
        write(tmp_path / name, "old")
    (tmp_path / ".out.89abcdef").write_text("of a file")
    remove_leftovers(tmp_path / "out")
    assert {entry.name for entry in tmp_path.iterdir()} == {".out.0123abcd.old", ".other.0123abcd"}
    assert find_backup(tmp_path / "out") == tmp_path / ".out.0123abcd.old"
    write(tmp_path / "out", "new")
    assert {entry.name for entry in tmp_path.iterdir()} == {"out", ".other.0123abcd"}


# --- permissions ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[0o022, 0o077, 0o002, 0o000], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(path):
    entries = [*path.rglob("*")]
    return tuple(
        {stat.S_IMODE(entry.stat().st_mode) for entry in entries if is_kind(entry)}
        for is_kind in (Path.is_file, Path.is_dir)
    )


def test_permissions_follow_the_umask(umask, make_model, tokenizer, tmp_path):
    saved = Checkpoint(make_model("bert", pooler=True), tokenizer, pooling="mean")
    write_atomic(tmp_path / "report.html", "text")
    for _ in range(2):
        checkpoint.save(saved, tmp_path / "m")
    assert modes(tmp_path) == ({0o666 & ~umask}, {0o777 & ~umask})


def test_an_unwritable_path_is_rejected_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(InputError, match="no permission"):
        check_target(tmp_path / "a" / "b", holds="config.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: "):
        check_target(tmp_path / "file" / "b", holds="config.json")
    (tmp_path / "out").mkdir()
    check_target(tmp_path / "out", holds="config.json")


def test_a_full_disk_is_named_by_the_directory_that_is_written(tmp_path):
    target = tmp_path / "model"
    wrapped = OSError("model.safetensors could not be written (No space left on device)")
    for error in (OSError(errno.ENOSPC, "No space left on device"), wrapped):
        with pytest.raises(OSError, match="free some space") as raised, atomic_directory(target):
            raise error
        assert str(raised.value).startswith(f"{target}: ") and raised.value.errno == error.errno
        assert not [*tmp_path.iterdir()]
    named = OSError(errno.EACCES, "Permission denied", str(tmp_path))
    with pytest.raises(OSError, match="Permission denied") as raised, atomic_directory(target):
        raise named
    assert raised.value is named
