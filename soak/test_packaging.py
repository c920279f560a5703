"""Two builds of a commit are equal, byte by byte, wherever they are made, and so is the wheel of the source archive.

The wheels of all platforms are made with a script in place of zig, and with zig where it is installed.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from bothways.core.build import TARGETS, library_name

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
    outside = ("SOURCE_DATE_EPOCH", "BOTHWAYS_BUILD")
    environment = {name: value for name, value in os.environ.items() if name not in outside}
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


@pytest.mark.parametrize("value", ["", "none"])
def test_a_build_without_a_compiler_goes_on_without_the_library(tmp_path, value):
    """And says so, unless it was asked for."""
    environment = {**os.environ, "CC": "no-such-compiler", "BOTHWAYS_BUILD": value}
    source = clone(tmp_path / "source")
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-c", BUILD, str(tmp_path / "out")]
    done = subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True, text=True)

    (wheel,) = (tmp_path / "out").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if "libcore" in name]
    lines = [line for line in done.stderr.splitlines() if line.startswith("bothways: ")]
    assert len(lines) == (value == "") and all("BOTHWAYS_BUILD=zig" in line for line in lines)


def make_wheels(source, out, *packages):
    """Runs tools.wheels of a clone. packages: folders of packages which it finds first."""
    path = [str(source), *map(str, packages), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-m", "tools.wheels", "-o", str(out)]
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)


def check_wheels(source, out, targets):
    """Asserts that there is a wheel of each target, with the library of its platform, and one without a library."""
    platforms = {target.tag: target for target in targets}
    made = {wheel.stem.rpartition("-py3-none-")[2]: wheel for wheel in out.glob("*.whl")}
    assert made.keys() == {*platforms, "any"}
    for platform, wheel in made.items():
        with zipfile.ZipFile(wheel) as archive:
            libraries = [Path(name).name for name in archive.namelist() if "libcore-" in name]
        suffixes = [platforms[platform].suffix] if platform in platforms else []
        assert libraries == [library_name(source / "bothways/core", suffix) for suffix in suffixes]


def test_a_target_that_does_not_compile_is_named_and_the_others_are_made(tmp_path):
    package = tmp_path / "packages" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import sys\n"
        "if 'aarch64-macos.11.0' in sys.argv: sys.exit('error: no such thing')\n"
        "open(sys.argv[sys.argv.index('-o') + 1], 'w').write('compiled')\n"
    )
    source = clone(tmp_path / "source")
    done = make_wheels(source, tmp_path / "out", package.parent)

    assert done.returncode == 1, done.stderr
    assert done.stderr == "aarch64-macos.11.0: processor.c does not compile: error: no such thing\n"
    check_wheels(source, tmp_path / "out", [target for target in TARGETS.values() if target.zig not in done.stderr])


@pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
def test_two_builds_for_all_platforms_are_equal(tmp_path):
    wheels = []
    for name in ("first", "a/longer/path"):
        source = clone(tmp_path / name)
        out = source / "dist"
        done = make_wheels(source, out)
        assert done.returncode == 0, done.stderr
        check_wheels(source, out, TARGETS.values())
        wheels.append({wheel.name: wheel.read_bytes() for wheel in out.glob("*.whl")})
    assert wheels[0] == wheels[1]
