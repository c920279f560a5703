"""A new task is one file and one entry: a toy (sentences.py) is fine-tuned, evaluated, predicted, served, documented.

In a process of its own, since the verbs are made from TASKS when they are imported.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRY = """
from bothways.tasks import TASKS, TaskEntry
TASKS.add("sentences", TaskEntry(
    "tests.tasks.sentences:SENTENCES", head="classes", labelled=True, settings="tests.tasks.sentences:Sentences",
    help="fine-tune a model that counts sentences", example="--train texts.csv -o counter", words="sentence counting",
))
"""
PROGRAM = (
    ENTRY
    + """
import contextlib, io, json, sys
sys.path += ["docs"]
import bothways
from bothways.cli.main import main
from bothways.serving.server import prepare
from bothways.settings import Serve
from tests.serving.conftest import Client

def run(*words):
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            main([*words])
        except SystemExit as end:
            assert not end.code, shown.getvalue()
    return shown.getvalue()

start, folder = sys.argv[1:]
table = f"{folder}/texts.jsonl"
result = json.loads(run("finetune", "sentences", "--model", start, "--train", table, "-o", f"{folder}/run",
                        "--dev", table, "--learning-rate", "0", "--no-baselines", "--device", "cpu", "--json"))
model = bothways.load(f"{folder}/run", device="cpu")
run("predict", f"{folder}/run", table, "-o", f"{folder}/counts.jsonl", "--device", "cpu")
with contextlib.redirect_stderr(io.StringIO()) as unknown:
    run("counting") if False else None
    try:
        main(["counting"])
    except SystemExit:
        pass
serving = prepare(Serve(models=(f"counter={folder}/run",), device="cpu"))
client = Client(serving.app)
import option_tables
print(json.dumps({
    "result": result,
    "task": model.task,
    "labels": model.labels,
    "scores": json.loads(run("evaluate", f"{folder}/run", table, "--device", "cpu", "--json"))["metrics"],
    "rows": [json.loads(line) for line in open(f"{folder}/counts.jsonl")],
    "overview": run("--help"),
    "help": run("finetune", "sentences", "--help"),
    "unknown": unknown.getvalue(),
    "reference": option_tables.all_tables(),
    "one": client.post("/sentences", {"inputs": "a cat sat"}).json(),
    "root": client.post("/", {"inputs": ["a cat sat", "a dog ran"]}).json(),
    "predict": client.post("/predict", {"inputs": "a cat sat"}).status,
    "routes": client.get("/info").json()["routes"],
    "paths": [*client.get("/openapi.json").json()["paths"]],
}))
for served in serving.models:
    served.queue.close()
serving.workers.close()
"""
)


@pytest.fixture(scope="module")
def told(make_predictor, tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    make_predictor(heads={}).save(folder / "start")
    rows = [{"text": "the cat sat. " * count, "sentences": count} for count in (1, 2) for _ in range(6)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-c", PROGRAM, str(folder / "start"), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_it_is_fine_tuned_and_loaded(told):
    assert told["task"] == told["result"]["task"] == "sentences"
    assert told["labels"] == ["1", "2"] and told["result"]["mean"] == 1.0


def test_it_is_evaluated_and_predicted(told):
    assert told["scores"]["accuracy"] == 1.0 and told["scores"]["texts"] == 12
    assert [row["sentences"] for row in told["rows"]] == [1] * 6 + [2] * 6
    assert all({*row} == {"row", "line", "sentences", "score"} for row in told["rows"])


def test_it_is_served_with_its_route(told):
    assert {*told["one"]} == {"sentences", "score"} and len(told["root"]) == 2
    assert "sentences" in told["routes"] and "predict" not in told["routes"] and told["predict"] == 424
    assert "/models/{model}/sentences" in told["paths"]


def test_it_is_in_the_help_and_the_reference(told):
    assert "finetune sentences" in told["overview"] and "counts sentences" in told["overview"]
    assert "example: bothways finetune sentences --train texts.csv -o counter" in told["help"]
    assert "`bothways finetune sentences`" in told["unknown"]
    assert "## finetune sentences" in told["reference"] and "`--count-column`" in told["reference"]
