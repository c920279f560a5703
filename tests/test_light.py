"""The base install, in an environment without torch, which `make test` makes: every verb and result that it promises.

It has the packages of `pip install 'bothways[serve,xlsx]'` and nothing of the extra `train`. BOTHWAYS_LIGHT_PYTHON: the
Python of another such environment, of another version for example (RELEASING.md).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest

import bothways
from bothways.model.checkpoint.checkpoint import save
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Evaluate

pytestmark = pytest.mark.slow
PYTHON = Path(os.environ.get("BOTHWAYS_LIGHT_PYTHON", Path(sys.prefix) / "light/bin/python"))
PACKAGE = Path(bothways.__file__).parent
HEAVY = ("torch", "pyarrow", "scipy", "sklearn", "joblib", "matplotlib", "rich", "pygments")
# What computes with torch; every other module is imported in the base.
TORCH = (
    "__main__",
    "cli.demo",
    "inference.adapters",
    "inference.backends.encoder",
    "inference.runner",
    "model",
    "model.linear.linear_head",
    "shrink",
    "tasks.embed.forward",
    "tasks.forward",
    "tasks.linear_start",
    "tasks.losses",
    "tasks.tag.linear_start",
    "text.corpus.candidates",
    "text.corpus.cooccurrence",
    "text.corpus.masking",
    "training",
)
# Of `model`, what reads a checkpoint.
BASE = (
    "model.adapters.files",
    "model.adapters.formats",
    "model.checkpoint.directory",
    "model.checkpoint.formats",
    "model.checkpoint.model_files",
    "model.checkpoint.sentence_transformers",
    "model.checkpoint.weights",
    "model.config",
    "model.families",
)
RUN = """
import contextlib, io, json, sys
from bothways.cli.main import main
results = []
for line in json.loads(sys.argv[1]):
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main(line)
            status = 0
        except SystemExit as error:
            status = error.code
    results.append((status, output.getvalue(), errors.getvalue()))
print(json.dumps(results))
"""


def run(*arguments, **options):
    """A run of Python in the environment; its standard output."""
    assert PYTHON.exists(), f"{PYTHON} is missing: make test makes it"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([PYTHON, *arguments], env=environment, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def verbs(folder, *lines):
    """The status, standard output and standard error of each of these command lines, in one process."""
    return json.loads(run("-c", RUN, json.dumps([line.split() for line in lines]), cwd=folder))


def results_of(folder, *lines):
    """The JSON that each of these command lines prints."""
    done = verbs(folder, *(f"{line} --json" for line in lines))
    assert [status for status, _, _ in done] == [0] * len(lines), done
    return [json.loads(output) for _, output, _ in done]


@pytest.fixture
def folder(models_and_tables, tmp_path):
    """A copy, into which the commands write."""
    return shutil.copytree(models_and_tables, tmp_path / "light")


@pytest.fixture(scope="module")
def models_and_tables(make_model, tokenizer, tmp_path_factory):
    """Models of all tasks, tables and documents."""
    root = tmp_path_factory.mktemp("light")
    heads = {"classifier": {"classes": 2}, "rater": {"classes": 1}, "tagger": {"tokens": 3}, "reader": {"spans": 2}}
    labels = {"classifier": ("good", "bad"), "tagger": ("O", "B-PER", "I-PER")}
    for name, outputs in heads.items():
        model = make_model("bert", outputs)
        save(Checkpoint(model=model, tokenizer=tokenizer, labels=labels.get(name, ())), root / name)
    words = ["cat", "dog", "rate", "the", "a"]
    texts = [f"{words[number % 5]} {words[number % 3]} {words[number % 4]}" for number in range(30)]
    rows = [f"{text},{['good', 'bad'][number % 2]},{number}" for number, text in enumerate(texts)]
    (root / "rows.csv").write_text("text,label,number\n" + "\n".join(rows) + "\n")
    questions = [{"question": "the cat", "context": "a dog and the cat"}, {"question": "dog", "context": "the rate"}]
    (root / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)) + "\n")
    (root / "documents").mkdir()
    (root / "documents/river.txt").write_text("The river flooded the village in spring.\n")
    (root / "documents/bread.txt").write_text("Bread is baked from flour, water and yeast.\n")
    return root


def test_nothing_heavy_is_installed_and_no_module_of_the_base_needs_it():
    code = (
        "import importlib, json, pkgutil, sys, bothways\n"
        "failed = []\n"
        "for module in pkgutil.walk_packages(bothways.__path__, 'bothways.'):\n"
        "    try:\n"
        "        importlib.import_module(module.name) if not module.name.endswith('__main__') else None\n"
        "    except ModuleNotFoundError:\n"
        "        failed.append(module.name.removeprefix('bothways.'))\n"
        f"print(json.dumps([failed, [name for name in {HEAVY} if importlib.util.find_spec(name)]]))"
    )
    failed, installed = json.loads(run("-c", code))
    assert installed == []
    assert [name for name in failed if not name.startswith(TORCH)] == []
    assert [name for name in failed if name.startswith(BASE)] == []


def test_a_model_computes_what_it_does_in_torch():
    code = (
        "import bothways, json; model = bothways.load(dtype='float32');"
        "print(json.dumps([model.embed(['the cat', 'a dog']).tolist(), model.fill('the [MASK] barks')[0][0].token,"
        "model.is_next('the cat', 'a dog'), repr(model), bothways.Tokenizer.__name__,"
        "bothways.load('bothways-en-static').embed('the cat').tolist()]))"
    )
    vectors, word, probability, shown, _, static = json.loads(run("-c", code))
    model = bothways.load(dtype="float32", backend="torch")
    np.testing.assert_allclose(vectors, model.embed(["the cat", "a dog"]), rtol=0, atol=1e-6)
    assert word == model.fill("the [MASK] barks")[0][0].token
    assert probability == pytest.approx(model.is_next("the cat", "a dog"), abs=1e-6)
    assert shown == repr(model)
    np.testing.assert_array_equal(np.float32(static), bothways.load("bothways-en-static").embed("the cat"))


def test_models_of_every_task_predict(folder):
    counts = {
        "predict classifier rows.csv -o classes.csv": {"predictions": 30, "file": "classes.csv"},
        "predict rater rows.csv -o numbers.jsonl": {"predictions": 30, "file": "numbers.jsonl"},
        "predict tagger rows.csv -o tags.jsonl": {"predictions": 30, "file": "tags.jsonl"},
        "predict reader questions.jsonl -o answers.jsonl": {"predictions": 2, "file": "answers.jsonl"},
        "embed rows.csv -o vectors.npy": {"vectors": 30, "size": 384, "file": "vectors.npy"},
    }
    *written, static, masks = results_of(
        folder, *counts, "embed bothways-en-static rows.csv -o static.npy", "fill the_[MASK]"
    )
    assert written == [*counts.values()]
    assert (static["vectors"], len(masks), len(masks[0])) == (30, 1, 5)
    predictions = bothways.load(folder / "classifier", dtype="float32").classify(["cat cat cat", "dog dog dog"])
    written = (folder / "classes.csv").read_text().splitlines()
    assert [prediction.label in row for prediction, row in zip(predictions, written[1:3], strict=True)] == [True] * 2
    assert np.load(folder / "vectors.npy").shape == (30, 384)


def test_models_are_scored_and_described(folder):
    lines = ["evaluate classifier rows.csv", "evaluate rater rows.csv --label-column number"]
    lines += ["info bothways-en", "info classifier", "vocab rows.csv -o words --size 60"]
    classes, numbers, packaged, classifier, vocabulary = results_of(folder, *lines)
    in_torch = bothways.evaluate(Evaluate(model=folder / "classifier", file=folder / "rows.csv", dtype="float32"))
    assert classes["metrics"]["accuracy"] == pytest.approx(in_torch["accuracy"])
    assert classes["metrics"]["texts"] == numbers["metrics"]["texts"] == 30 and "spearman" in numbers["metrics"]
    assert (packaged["parameters"], classifier["labels"]) == (22_893_116, "good, bad")
    entries = len((folder / "words" / "vocab.txt").read_text(encoding="utf-8").splitlines())
    assert vocabulary == {"entries": entries, "directory": "words"} and 10 < entries <= 60


def test_the_cache_is_listed(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("BOTHWAYS_CACHE", str(tmp_path))
    store = tmp_path / "stores" / "0123456789abcdef"
    store.mkdir(parents=True)
    (store / "ids").write_bytes(b"12345")
    _, listed = results_of(folder, "search flood documents --top 1", "cache")
    assert listed["directory"] == str(tmp_path / "stores")
    assert [one["folders"] for one in listed["indexes"]] == [[str(folder / "documents")]]
    assert [(one["path"], one["size"]) for one in listed["stores"]] == [(str(store), 5)]


def test_documents_are_searched_and_read(folder):
    call = {"name": "search", "arguments": {"query": "a flood"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    lines = ["index documents --model bothways-en -o kept", "search flood kept --top 1"]
    lines += ["search bread documents --top 1", "extract documents --tag tagger -o facts.csv"]
    index, flood, bread, facts = results_of(folder, *lines)
    assert (index["files"], facts["files"]) == (2, 2)
    assert [Path(hit["path"]).name for hit in (flood, bread)] == ["river.txt", "bread.txt"]
    assert (folder / "facts.csv").read_text().startswith('"path"')
    answers = run("-m", "bothways", "mcp", "kept", cwd=folder, input=line + "\n")
    assert "river.txt" in answers


def test_the_server_answers(folder):
    command = [PYTHON, "-m", "bothways", "serve", "bothways-en", "cl=classifier", "--port", "0", "--json"]
    command += ["--dtype", "float32"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = json.loads(server.stdout.readline())["url"]

            def post(route, body):
                data = json.dumps(body).encode()
                with urlopen(Request(url + route, data, {"content-type": "application/json"})) as reply:
                    return json.load(reply)

            (vector,) = post("/embed", {"inputs": ["the cat"], "model": "bothways-en"})
            expected = bothways.load(dtype="float32").embed("the cat")
            np.testing.assert_allclose(vector, expected, rtol=0, atol=1e-6)
            assert post("/predict", {"inputs": "the cat", "model": "cl"})[0]["label"] in ("good", "bad")
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait() == 0


def test_what_needs_an_extra_names_it_in_one_line(folder):
    lines = [
        "finetune classify --model bothways-en --train rows.csv -o run",
        "quantize classifier --with rows.csv -o q",
    ]
    lines += ["pack classifier -o packed", "export classifier -o graph", "demo --out demo", "check rows.csv"]
    for line, (status, _, errors) in zip(lines, verbs(folder, *lines), strict=True):
        assert status == 1 and errors.count("error") == 1 and "pip install 'bothways[train]'" in errors, (line, errors)
