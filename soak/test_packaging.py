"""Two builds of a commit are equal, byte by byte, wherever they are made, and so is the wheel of the source archive."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="clones the checkout")
ROOT = Path(__file__).parent.parent
BUILD = """
import sys
sys.path.insert(0, "tools/wheel")
import bothways_backend as backend
out = sys.argv[1]  # setuptools replaces these
backend.build_wheel(out)
backend.build_sdist(out)
"""


def built(source, out, **variables):
    """The bytes of the wheel and of the source archive."""
    out.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    command = [sys.executable, "-c", BUILD, str(out)]
    subprocess.run(command, cwd=source, env=environment | variables, check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    (archive,) = out.glob("*.tar.gz")
    return wheel.read_bytes(), archive.read_bytes()


def clone(target):
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(target)], check=True)
    return target


def test_two_builds_of_a_commit_are_equal(tmp_path):
    """The second in another folder and time zone, from files of other modes and times."""
    first, other = clone(tmp_path / "first"), clone(tmp_path / "a/longer/path")
    for path in other.rglob("*.*"):
        if path.is_file() and ".git" not in path.parts:
            path.chmod(0o600)
            os.utime(path, (10**9, 10**9))

    wheel, archive = built(first, tmp_path / "one", TZ="UTC")
    assert built(other, tmp_path / "two", TZ="Asia/Tokyo") == (wheel, archive)

    with tarfile.open(tmp_path / "one/bothways-0.1.0.tar.gz") as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    again, _ = built(tmp_path / "unpacked/bothways-0.1.0", tmp_path / "three")
    assert again == wheel
