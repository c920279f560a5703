"""Runs, models and results in object storage: the same bytes and losses as in local files."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import bothways
from bothways.base.errors import InputError
from bothways.base.paths import as_path
from bothways.cli.verbs import VERBS
from bothways.scale import object_storage as cloud
from bothways.scale import shards
from bothways.scale.shards import ShardedArray
from bothways.settings import Classify, Embed, Predict, Pretrain
from bothways.text.corpus import array_files
from tests.cloud.conftest import at_random
from tests.soaked import in_soak

TINY = dict(model="tiny", steps=5, batch_tokens=512, max_length=64, evaluate_every=1, checkpoint_every=1)
TINY |= dict(vocab_size=200, heldout_examples=8, pairs="none", dtype="float32", seed=3)
SPEEDS = ("seconds", "tokens_per_second")


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    file = tmp_path_factory.mktemp("texts") / "corpus.txt"
    lines = [f"The {word} cat number {n} sat on the mat. It saw a {word} dog." for n in range(200) for word in "ab"]
    file.write_text("\n\n".join(lines))
    return file


@pytest.fixture(scope="module")
def local_run(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("local") / "run"
    bothways.train(Pretrain(corpus=corpus, out=out, **TINY))
    return out


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "rows.csv"
    words = ["good", "bad"]
    file.write_text("text,label\n" + "".join(f"a {words[n % 2]} film {n},{words[n % 2]}\n" for n in range(60)))
    return file


def losses(run):
    """The rows of metrics, without times. run: a local directory or one in object storage."""
    path = as_path(run)
    if isinstance(path, cloud.CloudPath):
        text = b"".join(piece.read_bytes() for piece in (path / "metrics.jsonl").files()).decode()
    else:
        text = (path / "metrics.jsonl").read_text()
    return [{key: value for key, value in json.loads(line).items() if key not in SPEEDS} for line in text.splitlines()]


def weights(model):
    return (as_path(model) / "model.safetensors").read_bytes()


def test_a_run_in_object_storage_is_that_of_local_files(bucket, local_run, corpus, proxy, monkeypatch):
    """Of its token store, a part fits into the cache."""
    (as_path(bucket) / "corpus.txt").put(corpus)
    for module, name, value in ((array_files, "CHECKSUM_BYTES", 1024), (shards, "BLOCK", 512), (shards, "PAGE", 256)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setenv("BOTHWAYS_CACHE_GB", "0.00004")
    opened = []
    monkeypatch.setattr(shards, "ShardedArray", lambda *parts: opened.append(ShardedArray(*parts)) or opened[-1])
    proxy.plan = at_random(1, ["500", "reset", "cut", "lost", "503"], 0.1)
    places = dict(corpus=f"{bucket}/corpus.txt", out=f"{bucket}/runs/one", token_store=f"{bucket}/stores")
    result = bothways.train(Pretrain(**places, **TINY))
    proxy.plan = lambda method, path: ""
    assert opened and 0 < opened[0].present.sum() < len(opened[0].present)
    assert proxy.faults > 2 and str(result.model_directory) == f"{bucket}/runs/one/model"
    assert losses(f"{bucket}/runs/one") == losses(local_run)
    assert weights(f"{bucket}/runs/one/model") == weights(local_run / "model")
    names = {file.key.removeprefix("runs/one/") for file in as_path(f"{bucket}/runs/one").files()}
    local = {file.relative_to(local_run).as_posix() for file in (local_run).rglob("*") if file.is_file()}
    assert {name for name in names if not name.startswith("metrics.jsonl/")} == local - {"metrics.jsonl"}
    with pytest.raises(InputError, match=f"^{bucket}/runs/one: already contains a run"):
        bothways.train(Pretrain(corpus=corpus, out=f"{bucket}/runs/one", **TINY))
    with pytest.raises(InputError, match=f"^{bucket}/corpus.txt"):
        bothways.train(Pretrain(corpus=corpus, out=f"{bucket}/corpus.txt", **TINY))
    predictor = bothways.load(f"{bucket}/runs/one")
    text = "The a [MASK] sat on the mat."
    assert predictor.fill(text) == bothways.load(local_run).fill(text)


@pytest.mark.parametrize("copy, moment", [("lost", "step-00000003/state.json"), *in_soak(("there", "step-00000002/"))])
def test_a_killed_run_goes_on_from_object_storage(
    bucket, tmp_path, local_run, corpus, proxy, monkeypatch, copy, moment
):
    """The process is killed while it puts a checkpoint. Its local copy is lost; or it is there, with files that were
    never put, which must not count."""
    out, reached = f"{bucket}/run", threading.Event()

    def plan(method, path):
        if method == "PUT" and moment in path and not reached.is_set():
            reached.set()
            process.send_signal(signal.SIGKILL)
            process.wait()
            return "reset"
        return ""

    flags = [part for name, value in TINY.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "bothways", "pretrain", str(corpus), "-o", out, *flags]
    started = threading.Event()
    proxy.plan = lambda method, path: (started.wait(), plan(method, path))[1]
    process = subprocess.Popen(command, env={**os.environ, "BOTHWAYS_CACHE": str(tmp_path / "killed")})
    started.set()
    assert process.wait() == -signal.SIGKILL and reached.is_set()
    if copy == "there":
        monkeypatch.setenv("BOTHWAYS_CACHE", str(tmp_path / "killed"))
        [run] = (tmp_path / "killed" / "outputs").glob("*/run")
        assert (run / "checkpoints").is_dir()
        for file in run.rglob("*.json*"):
            file.write_text("changed after it was put")
    settings = Pretrain(corpus=corpus, out=out, **TINY)
    with pytest.raises(InputError, match=f"^{out}: is being written by process {process.pid} on .* --resume"):
        bothways.train(settings)
    bothways.train(Pretrain(corpus=corpus, out=out, resume=True, **TINY))
    record = json.loads((as_path(out) / "bothways.json").read_bytes())
    assert record["status"] == "done" and len(record["resumed"]) == 1
    assert losses(out) == losses(local_run)
    assert weights(f"{out}/model") == weights(local_run / "model")
    assert not [file for file in as_path(bucket).files() if file.name.endswith(".claim")]


def test_a_bucket_that_is_read_only_is_one_line(bucket, rows, proxy):
    (as_path(bucket) / "rows.csv").put(rows)
    proxy.plan = lambda method, path: "403" if method == "PUT" else ""
    denied = f"^{bucket}/.run.claim: access denied; check the credentials and what they allow$"
    with pytest.raises(InputError, match=denied):
        bothways.train(Classify(train=f"{bucket}/rows.csv", out=f"{bucket}/run"))
    assert [file.key for file in as_path(bucket).files()] == ["rows.csv"]


def test_predictions_and_vectors_are_the_bytes_of_local_files(bucket, tmp_path, local_run, rows):
    options = dict(model=local_run, dev=rows, epochs=1, window=32, baselines=False)
    bothways.train(Classify(train=rows, out=tmp_path / "run", **options))
    (as_path(bucket) / "rows.csv").put(rows)
    bothways.train(Classify(train=f"{bucket}/rows.csv", out=f"{bucket}/run", **options))
    assert weights(f"{bucket}/run/model") == weights(tmp_path / "run/model")
    for place, model in ((tmp_path, tmp_path / "run"), (bucket, f"{bucket}/run")):
        VERBS["predict"].load("predict")(Predict(model=model, file=f"{place}/rows.csv", out=f"{place}/found.csv"))
        VERBS["embed"].load("embed")(
            Embed(model=model, file=f"{place}/rows.csv", text_column="text", out=f"{place}/vectors.npy")
        )
    for name in ("found.csv", "vectors.npy"):
        assert as_path(f"{bucket}/{name}").read_bytes() == (tmp_path / name).read_bytes()
    with pytest.raises(InputError, match=f"^{bucket}/found.csv: already exists"):
        VERBS["predict"].load("predict")(
            Predict(model=f"{bucket}/run", file=f"{bucket}/rows.csv", out=f"{bucket}/found.csv")
        )
    scores = bothways.evaluate(f"{bucket}/run", f"{bucket}/rows.csv")
    assert scores["accuracy"] == bothways.evaluate(tmp_path / "run", rows)["accuracy"]
    assert not [path for path in Path(os.environ["BOTHWAYS_CACHE"], "outputs").glob("*")]
