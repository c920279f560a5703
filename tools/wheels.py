"""Make the wheels of all platforms on one machine: python -m tools.wheels -o dist

zig compiles the C library for each platform (bothways/core/build.py has the targets), and the wheel without the
library, for all other platforms, is made too. The wheels depend on the commit, setuptools, zlib and zig alone. The
first run takes some minutes, in which zig compiles what it needs of each platform's C library.
"""

import argparse
import importlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from types import ModuleType

from tools.wheel.core_build import load_core_build

ROOT = Path(__file__).parent.parent
BACKEND = ROOT / "tools" / "wheel"
SETUPTOOLS_REQUIREMENT = "setuptools>=77"
# In a process of its own, since setuptools prints every file.
BUILD_PURE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
out = Path(sys.argv[2])  # setuptools replaces these
import bothways_backend
bothways_backend.build_pure_wheel(out)
"""


def make_wheels(folder: Path, targets: Sequence[str] = ()) -> list[str]:
    """Write the wheels into a folder, and print the name of each. Returns a line for each target that lacks something.

    targets: names of targets of zig; all if there are none.
    """
    backend = _load_backend()
    core_build = load_core_build(ROOT)
    folder.mkdir(parents=True, exist_ok=True)

    problems = []
    pure = _pure_wheel(folder)
    print(pure.name, flush=True)
    for name in targets or core_build.TARGETS:
        target = core_build.TARGETS[name]
        left_out: list[str] = []
        with tempfile.TemporaryDirectory() as temporary:
            for path in core_build.sources(ROOT / "bothways" / "core"):
                shutil.copy(path, temporary)
            try:
                library = core_build.build(Path(temporary), target, on_left_out=left_out.append)
            except core_build.BuildError as error:
                problems.append(f"{name}: {error}")
                continue
            print(backend.add_library(pure, library, target.tag).name, flush=True)
        problems += [f"{name}: {line}" for line in left_out]
    return problems


def _load_backend() -> ModuleType:
    """tools/wheel/bothways_backend.py, whose imports are those of a build: without the names of the folders."""
    sys.path.insert(0, str(BACKEND))
    try:
        return importlib.import_module("bothways_backend")
    finally:
        sys.path.remove(str(BACKEND))


def _pure_wheel(folder: Path) -> Path:
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = [sys.executable, "-c", BUILD_PURE, str(BACKEND), temporary]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"setuptools makes no wheel:\n{done.stderr}")
        (wheel,) = Path(temporary).glob("*.whl")
        return wheel.replace(folder / wheel.name)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.wheels", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("dist"), help="folder of the wheels (default: dist)")
    parser.add_argument("targets", nargs="*", help="names of targets of zig (default: all)")
    settings = parser.parse_args(arguments)

    core_build = load_core_build(ROOT)
    unknown = [name for name in settings.targets if name not in core_build.TARGETS]
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(core_build.TARGETS)}")
    lacking = [name for name in ("ziglang", "setuptools") if importlib.util.find_spec(name) is None]
    if lacking:
        command = f"{sys.executable} -m pip install '{core_build.ZIG_REQUIREMENT}' '{SETUPTOOLS_REQUIREMENT}'"
        print(f"{' and '.join(lacking)} not installed: {command}", file=sys.stderr)
        return 2

    folder = settings.out.absolute()
    with chdir(ROOT):
        problems = make_wheels(folder, settings.targets)
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
