"""Parts placed by Ray: the bytes of one process; killed workers are replaced, and nothing waits for ever."""

import signal
import threading

import numpy as np
import pytest

import bothways
from bothways.base.errors import InputError
from bothways.inference.jobs import verbs
from bothways.scale import ray as placing
from bothways.settings import Embed

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Ray Data about itself


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


@pytest.fixture
def folder(tmp_path):
    """40 files of 200 texts."""
    (tmp_path / "in").mkdir()
    for number in range(40):
        (tmp_path / "in" / f"{number:02}.txt").write_text("".join(f"film {n} of {number}\n" for n in range(200)))
    return tmp_path / "in"


def contents(out):
    return {file.name: file.read_bytes() for file in out.glob("part-*")}


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


def test_a_job_of_which_nothing_ends_is_named(monkeypatch):
    monkeypatch.setattr(placing, "STALL", 0.01)
    never = threading.Event()

    class Stuck:
        def iter_rows(self):
            never.wait()
            return iter(())

    with pytest.raises(InputError, match=r"no part has ended .*of 2 .*\(one, two"):
        [*placing._watched(Stuck(), ["one", "two"])]
    never.set()


def test_no_cluster_is_said_in_a_line():
    with pytest.raises(InputError, match=r"ray \(127\.0\.0\.1:9\): no cluster to connect to .*or use local"):
        placing._connect(ray, "127.0.0.1:9", 1)


def test_models_read_a_column_of_a_block(make_model, tokenizer, tmp_path):
    """As stages of a pipeline of Ray Data; soak runs that of the guide."""
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.contents import Checkpoint

    texts = [f"the cat {n}" for n in range(6)]
    vectors = placing.Embed("bothways-en-static")({"text": np.array(texts)})["vector"]
    np.testing.assert_allclose(vectors, bothways.load("bothways-en-static").embed(texts), atol=1e-6)
    checkpoint.save(Checkpoint(make_model("bert", {"classes": 2}), tokenizer, labels=("x", "y")), tmp_path / "model")
    columns = placing.Predict(str(tmp_path / "model"))({"text": np.array(texts)})
    assert [*columns["label"]] == [one.label for one in bothways.load(tmp_path / "model").classify(texts)]
    with pytest.raises(InputError, match=r"no column 'text' \(there are: body\); name it with column="):
        placing.Embed("bothways-en-static")({"body": ["a"]})
