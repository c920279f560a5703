"""Run the tests of the core for ARM (NEON) on Linux on x86-64: python -m tools.arm build/arm

Needs qemu-user and debootstrap, packages of Debian, the user root for debootstrap, and ziglang. The folder gets
Debian's Python for ARM, the wheels that the tests import, and a copy of this checkout with the library that zig makes
for ARM. The first two are kept for the next run. qemu computes what ARM computes, number by number. It does not have
ARM's order of memory, so that nothing is shown about that, nor about speed.
"""

import argparse
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tools.wheel.core_build import load_core_build

ROOT = Path(__file__).parent.parent
RELEASE = "bookworm"  # of Debian, whose Python is:
PYTHON = "3.11"
TARGET = "aarch64-linux-gnu.2.17"
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_28_aarch64")
OF_TESTS = ("pytest", "pytest-timeout", "setuptools")
COPIED = ("bothways", "tests", "tools", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
# -0 gives Python this script as its name, by which the tests start it again.
SCRIPT = """#!/bin/sh
exec qemu-aarch64 -cpu max -L {root} -0 "$0" {root}/usr/bin/python{version} "$@"
"""


def make_root(folder: Path) -> None:
    """Unpack Debian's packages into a folder, if it is not there. None of them is run or configured."""
    if folder.exists():
        return

    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    options = ["--download-only", "--arch=arm64", "--variant=minbase", "--include=python3"]
    _run(["debootstrap", *options, RELEASE, str(part)])

    archives = part / "var" / "cache" / "apt" / "archives"
    for package in sorted(archives.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(part)])
    shutil.rmtree(archives)
    part.rename(folder)


def install_packages(folder: Path) -> None:
    """Unpack the wheels for ARM of the base and of its tests into a folder, if it is not there."""
    if folder.exists():
        return

    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(part)]
    command += ["--only-binary=:all:", "--python-version", PYTHON, *(f"--platform={name}" for name in PLATFORMS)]
    command += ["--constraint", str(ROOT / "constraints.txt")]
    _run([*command, *project["dependencies"], *OF_TESTS])
    part.rename(folder)


def copy_checkout(folder: Path) -> None:
    """A copy of this checkout with the library for ARM, which would have the name of this machine's."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("libcore-*", "__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)

    core_build = load_core_build(ROOT)
    try:
        core_build.build(folder / "bothways" / "core", core_build.TARGETS[TARGET])
    except core_build.BuildError as error:
        raise SystemExit(str(error)) from None


def run_tests(folder: Path, arguments: Sequence[str]) -> int:
    """Run pytest in the copy. Returns its status."""
    script = folder / "python"
    script.write_text(SCRIPT.format(root=shlex.quote(str(folder / "root")), version=PYTHON), encoding="utf-8")
    script.chmod(0o755)

    # On ARM a load (LDAR) never comes before an earlier store (STLR). In qemu 7.2 it does, so that the barrier of
    # encode.c can wait for ever. Threads that share one core see each other's stores in order.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    checkout = folder / "checkout"
    path = os.pathsep.join([str(checkout), str(folder / "site-packages")])
    command = [str(script), "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=checkout, env={**os.environ, "PYTHONPATH": path}).returncode


def _run(command: Sequence[str]) -> None:
    """Run a command that prints only if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{shlex.join(command)}: exit status {done.returncode}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.arm", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="what is made goes there")
    parser.add_argument("arguments", nargs="*", help="for pytest, options after -- (default: tests/core)")
    settings = parser.parse_args(arguments)

    lacking = [name for name in ("qemu-aarch64", "debootstrap", "dpkg-deb") if shutil.which(name) is None]
    if importlib.util.find_spec("ziglang") is None:
        lacking.append("ziglang")
    if lacking:
        command = f"apt-get install qemu-user debootstrap; {sys.executable} -m pip install ziglang"
        print(f"{' and '.join(lacking)} not installed: {command}", file=sys.stderr)
        return 2

    folder = settings.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    make_root(folder / "root")
    install_packages(folder / "site-packages")  # whose name tests/isolation.py has
    copy_checkout(folder / "checkout")
    return run_tests(folder, settings.arguments or ["tests/core"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
