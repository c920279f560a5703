"""Under Ray, ten kills of workers and one of the command change no byte and no row."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bothways

pytest.importorskip("ray")
from tests.inference.jobs.test_ray import cluster  # noqa: F401

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


@pytest.mark.filterwarnings("ignore")  # of Ray Data about itself
def test_models_are_stages_of_a_pipeline_as_in_the_guide(cluster, tmp_path):  # noqa: F811
    page = (Path(__file__).parent.parent / "docs" / "guide" / "scale.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    texts = [f"the cat {n}" for n in range(6)]
    (tmp_path / "texts").mkdir()
    pq.write_table(pa.table({"text": texts}), tmp_path / "texts" / "0.parquet")
    exec(block.replace("s3://my-bucket", str(tmp_path)).replace("bothways-en", "bothways-en-static"), {})
    vectors = np.stack(pq.read_table(tmp_path / "vectors")["vector"].to_pylist())
    np.testing.assert_allclose(vectors, bothways.load("bothways-en-static").embed(texts), atol=1e-6)
