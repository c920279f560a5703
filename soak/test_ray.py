"""Under Ray, ten kills of workers and one of the command change no byte and no row."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("ray")
KILLS, PARTS = 10, 120


def command(folder, out, *more):
    flags = ["--dtype", "float32", "--resume", "-o", str(out), *more]
    return [sys.executable, "-m", "bothways", "embed", "bothways-en-static", str(folder), *flags]


def workers_of(out):
    """The processes that have written a part, in the order of their last one."""
    files = sorted((out / "_parts").glob("part-*.json"), key=lambda file: file.stat().st_mtime_ns)
    return [json.loads(file.read_text())["process"] for file in files]


def kill(worker):
    try:
        os.kill(worker, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_ten_kills_of_workers_and_one_of_the_command_change_no_byte(tmp_path):
    folder, out, draws = tmp_path / "in", tmp_path / "out", random.Random(0)
    folder.mkdir()
    for number in range(PARTS):
        (folder / f"{number:03}.txt").write_text("".join(f"film {n} of {number}\n" for n in range(2000)))
    subprocess.run(command(folder, tmp_path / "whole"), check=True)
    run, kills, killed, seen, driver = None, 0, set(), 0, False
    while not (out / "_manifest.json").exists():
        if run is None or run.poll() is not None:
            assert run is None or driver, run.communicate()
            run = subprocess.Popen(command(folder, out, "--ray", "local", "--workers", "2"))
        workers = workers_of(out)
        if kills < KILLS and len(workers) >= seen + draws.randint(1, 8):
            seen = len(workers)
            if workers[-1] not in killed and kill(workers[-1]):
                killed.add(workers[-1])
                kills += 1
        if kills == KILLS // 2 and not driver:
            driver = True
            run.kill()
            run.wait()
        time.sleep(0.01)
    assert run.wait() == 0
    print(f"{kills} kills of workers, by {len(set(workers_of(out)))} processes")
    assert kills == KILLS
    contents = [{file.name: file.read_bytes() for file in place.glob("part-*")} for place in (out, tmp_path / "whole")]
    assert contents[0] == contents[1] and len(contents[0]) == PARTS
