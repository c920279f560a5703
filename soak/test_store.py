"""The token store at full size: all of the Wikipedia set, the same with 1 and 2 processes, within 2 GB, after kills."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.store import DATA, held_by_all
from bothways.text.corpus import array_files

pytestmark = pytest.mark.timeout(1800)
ROOT = Path(__file__).parent.parent
KILLS = 5
MOST_MEMORY = 2e9
SCRIPT = """
import sys
from pathlib import Path
from bothways import Tokenizer
from bothways.text.corpus.token_store import open_or_build
from benchmarks.store import DATA, documents

if __name__ == "__main__":
    directory, processes = sys.argv[1:]
    tokenizer = Tokenizer.load(DATA / "vocab" / "bert-base-uncased")
    built = open_or_build(
        Path(directory), "wikipedia", lambda: documents(8), tokenizer, language="en", processes=int(processes),
        drop_duplicates=True,
    )
    print("reused" if built.reused else "built", built.store.num_tokens, built.store.fingerprint)
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Starts a build of the whole set as a process of its own."""
    if not list((DATA / "wikipedia-2015-en").glob("train-*.parquet")):
        pytest.skip(f"{DATA} holds no wikipedia-2015-en; set BOTHWAYS_DATA (docs/DATA.md)")
    script = tmp_path_factory.mktemp("script") / "make_store.py"
    script.write_text(SCRIPT)

    def call(directory, processes):
        command = [sys.executable, str(script), str(directory), str(processes)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    return call


@pytest.fixture(scope="module")
def alone(start, tmp_path_factory):
    """A store made by one process, and the seconds that took."""
    directory = tmp_path_factory.mktemp("alone")
    began = time.perf_counter()
    assert finish(start(directory, 1)).startswith("built")
    return directory, time.perf_counter() - began


def finish(process):
    """What it said last."""
    said = process.communicate()[0].splitlines()
    assert process.returncode == 0
    return said[-1]


def files(directory):
    [folder] = [path for path in directory.iterdir() if not path.name.startswith(".")]
    return folder.name, {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_two_processes_make_the_same_files_within_two_gigabytes(start, alone, tmp_path, capsys):
    process = start(tmp_path, 2)
    most = 0
    while process.poll() is None:
        most = max(most, held_by_all(process.pid))
        time.sleep(0.2)
    assert finish(process).startswith("built")
    with capsys.disabled():
        print(f"\nall processes together held {most / 1e6:,.0f} MB at most")
    assert 0 < most < MOST_MEMORY
    assert files(tmp_path) == files(alone[0])


def test_a_second_start_takes_less_than_two_seconds(start, alone):
    began = time.perf_counter()
    assert finish(start(alone[0], 1)).startswith("reused")
    assert time.perf_counter() - began < 2


def test_builds_killed_at_random_moments_leave_no_store_and_the_next_is_sound(start, alone, tmp_path):
    draw = random.Random()  # other moments every time
    for _ in range(KILLS):
        process = start(tmp_path, 2)
        time.sleep(draw.uniform(0.5, 0.5 * alone[1]))
        process.send_signal(signal.SIGKILL)
        process.wait()
        for folder in (path for path in tmp_path.iterdir() if not path.name.startswith(".")):
            array_files.read_arrays(folder)  # it was quick enough to finish; Damaged if not whole
    finish(start(tmp_path, 2))
    assert files(tmp_path) == files(alone[0])
    assert {path.suffix for path in tmp_path.glob(".*")} <= {".lock"}
