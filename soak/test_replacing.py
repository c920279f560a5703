"""Loading while another process keeps saving never mixes two models."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bothways.base.errors import InputError
from bothways.model.checkpoint import checkpoint
from tests.replacing import save_version, versions_of

ROOT = Path(__file__).parent.parent
LOADS = 2_000

pytestmark = pytest.mark.timeout(3600)


@pytest.mark.parametrize("pause", [0.05, 0.0])
def test_no_load_of_thousands_mixes_two_models_while_another_process_saves(pause, tmp_path, capsys):
    save_version(0, tmp_path / "m")
    command = [sys.executable, "-m", "tests.replacing", str(tmp_path / "m"), str(pause)]
    found, refused = Counter(), 0
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as saver:
        while versions_of(checkpoint.load(tmp_path / "m")) == {0}:
            pass  # until the other process has begun to save
        while found.total() < LOADS:
            try:
                found[frozenset(versions_of(checkpoint.load(tmp_path / "m")))] += 1
            except InputError as error:
                assert "while it was read" in str(error)
                refused += 1
        saves = int(saver.communicate("stop")[0])
    mixed = sum(number for versions, number in found.items() if len(versions) > 1)
    with capsys.disabled():
        print(f"\n{LOADS:,} loads beside {saves:,} saves: {mixed} mixed; {refused} refused, as replaced all the time")
    assert mixed == 0 and len(found) > 50 and refused < LOADS / 20
