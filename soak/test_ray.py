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
from bothways.base.errors import InputError
from bothways.inference.jobs import verbs
from bothways.scale import ray as placing
from bothways.settings import Embed

ray = pytest.importorskip("ray")

KILLS, PARTS = 10, 120


@pytest.fixture(scope="module")
def cluster():
    """Four CPUs in name, on loopback."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")
        options = {
            "object_store_memory": 10**8,
            "include_dashboard": False,
            "log_to_driver": False,
            "logging_level": "ERROR",
        }
        handler = signal.getsignal(signal.SIGTERM)
        ray.init(num_cpus=4, _node_ip_address="127.0.0.1", **options)
        yield
        ray.shutdown()
        signal.signal(signal.SIGTERM, handler)  # ray sets one of its own, and leaves it


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
def test_models_are_stages_of_a_pipeline_as_in_the_guide(cluster, tmp_path):
    page = (Path(__file__).parent.parent / "docs" / "guide" / "scale.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    texts = [f"the cat {n}" for n in range(6)]
    (tmp_path / "texts").mkdir()
    pq.write_table(pa.table({"text": texts}), tmp_path / "texts" / "0.parquet")
    exec(block.replace("s3://my-bucket", str(tmp_path)).replace("bothways-en", "bothways-en-static"), {})
    vectors = np.stack(pq.read_table(tmp_path / "vectors")["vector"].to_pylist())
    np.testing.assert_allclose(vectors, bothways.load("bothways-en-static").embed(texts), atol=1e-6)


@pytest.fixture
def folder(tmp_path):
    """40 files of 200 texts."""
    (tmp_path / "in").mkdir()
    for number in range(40):
        (tmp_path / "in" / f"{number:02}.txt").write_text("".join(f"film {n} of {number}\n" for n in range(200)))
    return tmp_path / "in"


def test_an_error_in_a_part_ends_the_job_with_its_line(cluster, folder, tmp_path):
    (folder / "07.csv").write_text('text\na\n"b')
    with pytest.raises(InputError, match=r"07\.csv: row 1 .*not valid CSV"):
        verbs.embed(Embed(out=tmp_path / "out", ray="auto", workers=1, file=str(folder), model="bothways-en-static"))
    assert not (tmp_path / "out" / "_manifest.json").exists()


def test_workers_without_room_are_refused(cluster, monkeypatch):
    with pytest.raises(InputError, match=r"workers \(4\) must be fewer than the CPUs of the cluster, which has 4"):
        [*placing.in_any_order(len, [("one", "1")], "auto", 4)]
    monkeypatch.setattr(placing, "ROOM_WAIT", 0)
    holder = ray.remote(Holder).options(num_cpus=2).remote()
    ray.get(holder.ready.remote())
    with pytest.raises(InputError, match="[12] free CPUs, and 2 workers and Ray itself need 3"):
        [*placing.in_any_order(len, [("one", "1")], "auto", 2)]
    ray.kill(holder)


class Holder:
    def ready(self):
        return True
