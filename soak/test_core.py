"""All tests of the core again, with a library that checks its addresses and its arithmetic."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CHECKS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
RUNTIMES = ("libasan.so", "libubsan.so")  # loaded first, since Python is not compiled with them


def runtime(name):
    """The file of one of gcc's libraries."""
    return subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("gcc"), reason="needs gcc on Linux")
def test_no_address_and_no_operation_is_out_of_bounds(tmp_path):
    for name in ("bothways", "tests"):
        left_out = shutil.ignore_patterns("__pycache__", "libcore-*", "fixtures")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1", "CC": f"gcc {CHECKS}"}
    subprocess.run([sys.executable, tmp_path / "bothways/core/build.py"], env=environment, check=True)

    # An allocation that is too large fails, as one of the tests asks for; Python itself frees little at its end.
    environment["ASAN_OPTIONS"] = "detect_leaks=0:allocator_may_return_null=1"
    environment["LD_PRELOAD"] = " ".join(map(runtime, RUNTIMES))
    command = [sys.executable, "-m", "pytest", "tests/core", "-q", "-n", "0", "-s", "-p", "no:cacheprovider"]
    command += ["--ignore", "tests/core/test_build.py"]  # which compiles
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "ERROR: AddressSanitizer" not in done.stderr, (done.stdout + done.stderr)[-3000:]
    assert "failed" not in done.stdout
