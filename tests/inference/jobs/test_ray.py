"""Parts placed by Ray: the bytes of one process; killed workers are replaced, and nothing waits for ever."""

import threading

import numpy as np
import pytest

import bothways
from bothways.base.errors import InputError
from bothways.scale import ray as placing

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Ray Data about itself


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
