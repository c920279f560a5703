"""Another package adds a task, an objective, a family, a format, a reader, a backend and a verb, by entry points alone.

tests/plugin is such a package as an installer leaves it: modules, and a folder of metadata with the entry points. It is
put on the path of a process of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "tests/plugin"
PROGRAM = """
import contextlib, io, json, sys
from pathlib import Path

import bothways
from bothways.base.registry import read_entry_points
from bothways.cli.main import main

def run(*words):
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(io.StringIO()) as messages:
        status = 0
        try:
            main([*map(str, words)])
        except SystemExit as end:
            status = end.code or 0
    return {"status": status, "shown": shown.getvalue(), "messages": messages.getvalue()}

told = {}
folder = Path(sys.argv[1])
messages = folder / "messages.jsonl"

# --- our own verbs read no entry points
run("info", "--help")
told["read for a verb of ours"] = read_entry_points.cache_info().misses

# --- a verb, of which nothing else is imported
told["shout"] = run("shout", "fire", "--json")
told["shout --help"] = run("shout", "--help")
told["shout --times"] = run("shout", "fire", "--times", "0")
told["unknown"] = run("shoot")
told["imported for a verb"] = [name for name in sys.modules if name.startswith("acme.")]
told["torch for a verb"] = "torch" in sys.modules

# --- a task
options = ["--model", folder / "start", "--train", messages, "--dev", messages, "--device", "cpu"]
options += ["--learning-rate", "0", "--no-baselines", "--no-linear-start", "--epochs", "1", "--json"]
told["finetune"] = run("finetune", "urgency", *options, "-o", folder / "run")
told["finetune --help"] = run("finetune", "urgency", "--help")
told["finetune broken"] = run("finetune", "broken", "--help")
told["finetune fill"] = run("finetune", "fill", "--help")
told["finetune classify"] = run("finetune", "classify", "--help")
model = bothways.load(folder / "run", device="cpu")
told["task"] = model.task
told["evaluate"] = run("evaluate", folder / "run", messages, "--device", "cpu", "--json")
told["predict"] = run("predict", folder / "run", messages, "-o", folder / "predicted.jsonl", "--device", "cpu")

from acme.urgency import Urgency
common = {"model": folder / "start", "learning_rate": 0, "baselines": False, "linear_start": False, "epochs": 1}
rows = [json.loads(line) for line in messages.read_text().splitlines()]
trained = bothways.finetune(rows, task="urgency", dev=rows, out=folder / "second", device="cpu", **common)
told["bothways.finetune"] = trained.task
settings = Urgency(train=messages, dev=messages, out=folder / "third", device="cpu", **common)
told["bothways.train"] = bothways.train(settings).task

# --- its route of the server
from bothways.serving.server import prepare
from bothways.settings import Serve
from tests.serving.conftest import Client

serving = prepare(Serve(models=(f"triage={folder}/run", f"plain={folder}/start"), device="cpu"))
client = Client(serving.app)
told["route"] = client.post("/urgency", {"inputs": "the barn is on fire"}).json()
told["root"] = client.post("/", {"inputs": ["a", "b"]}).json()
told["other model"] = client.post("/models/plain/urgency", {"inputs": "a"}).status
told["paths"] = [*client.get("/openapi.json").json()["paths"]]
for served in serving.models:
    served.queue.close()
serving.workers.close()

# --- an objective, a family, a format, a backend, a reader
corpus = folder / "corpus.txt"
told["pretrain"] = run("pretrain", corpus, "-o", folder / "pretrained", "--objective", "doubled", "--model", "tiny",
                       "--steps", "2", "--batch-tokens", "64", "--max-length", "16", "--device", "cpu", "--json")
told["metrics"] = [json.loads(line) for line in (folder / "pretrained/metrics.jsonl").read_text().splitlines()]
told["recorded"] = json.loads((folder / "pretrained/bothways.json").read_text())["settings"]["objective"]
told["wrong objective"] = run("pretrain", corpus, "-o", folder / "none", "--objective", "tripled")

filled = bothways.load(folder / "start", device="cpu").fill("the [MASK] sat")
start = json.loads((folder / "start/config.json").read_text())
(folder / "start/config.json").write_text(json.dumps({**start, "model_type": "acme-bert"}))
of_family = bothways.load(folder / "start", device="cpu")
told["family"] = of_family.description.model_type
told["same as bert"] = of_family.fill("the [MASK] sat") == filled

from acme.halves import HalvesFormat
from bothways.model.checkpoint import checkpoint

(folder / "halves").mkdir()
HalvesFormat().save(checkpoint.load(folder / "start"), folder / "halves")
told["files"] = sorted(path.name for path in (folder / "halves").iterdir())
told["format"] = len(bothways.load(folder / "halves", device="cpu").fill("the [MASK] sat")[0])

(folder / "words").mkdir()
(folder / "words/config.json").write_text('{"model_type": "acme-words"}')
(folder / "words/words.json").write_text('{"cat": [3, 0, 4]}')
told["backend"] = bothways.load(folder / "words").embed("a cat").tolist()

(folder / "notes").mkdir()
(folder / "notes/barn.memo").write_text("Barn\\nThe barn is on fire.\\n")
told["search"] = run("search", "fire", folder / "notes", "--how", "words", "--json")
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(make_predictor, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    make_predictor(heads={"masked_words": 0}).save(folder / "start")
    rows = [{"text": f"the {word} sat", "label": label} for word, label in (("cat", "low"), ("dog", "high"))]
    (folder / "messages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 5))
    words = "the cat sat on a mat and the dog ran to the barn".split()
    lines = [" ".join(words[start:] + words[:start]) + ".\n\n" for start in range(12)]
    (folder / "corpus.txt").write_text("".join(lines))
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(PLUGIN)])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def shown(told, name):
    """The JSON that a command printed."""
    assert told[name]["status"] == 0, told[name]["messages"]
    return json.loads(told[name]["shown"])


def test_entry_points_are_read_only_for_names_that_are_not_ours(told):
    assert told["read for a verb of ours"] == 0


def test_a_verb_is_run_and_nothing_else_of_the_package_is_imported(told):
    assert shown(told, "shout") == {"text": "FIRE", "times": 1}
    assert told["imported for a verb"] == ["acme.shout"]
    assert told["torch for a verb"] is False


def test_a_verb_has_help_and_messages_of_its_options(told):
    assert told["shout --help"]["status"] == 0
    assert told["shout --help"]["shown"].startswith("usage: bothways shout TEXT [options]\n")
    assert told["shout --times"]["status"] == 2
    assert told["shout --times"]["messages"] == "bothways shout: error: --times (0) must be at least 1\n"


def test_the_message_about_an_unknown_verb_lists_those_of_packages(told):
    assert told["unknown"]["status"] == 2
    assert "shout, finetune urgency" in told["unknown"]["messages"]


def test_the_message_about_a_task_that_is_not_fine_tuned_calls_its_verb_unknown(told):
    assert told["finetune fill"]["status"] == 2
    assert told["finetune fill"]["messages"].startswith("bothways: unknown verb 'finetune fill'")


def test_a_task_is_fine_tuned_evaluated_and_predicted(told):
    result = shown(told, "finetune")
    assert result["task"] == told["task"] == "urgency"
    assert shown(told, "evaluate")["metrics"]["texts"] == 10
    assert told["predict"]["status"] == 0
    assert told["bothways.finetune"] == told["bothways.train"] == "urgency"


def test_a_task_is_in_the_help_of_its_verb(told):
    assert told["finetune --help"]["status"] == 0
    assert "example: bothways finetune urgency --train messages.csv" in told["finetune --help"]["shown"]


def test_a_task_of_ours_is_not_replaced_in_the_help_or_elsewhere(told):
    assert "Fine-tune a classifier of texts" in told["finetune classify"]["shown"]


def test_a_package_that_cannot_be_imported_is_named_in_one_line(told):
    assert told["finetune broken"]["status"] == 2
    (line,) = told["finetune broken"]["messages"].splitlines()
    assert "task 'broken': acme.no_such_module:TASK cannot be imported" in line


def test_a_task_is_served_with_its_route(told):
    assert {*told["route"]} == {"urgency", "score"}
    assert [{*one} for one in told["root"]] == [{"urgency", "score"}] * 2
    assert told["other model"] == 424
    assert {"/urgency", "/models/{model}/urgency"} <= {*told["paths"]}


def test_an_objective_of_pre_training_is_chosen_by_its_name(told):
    result = shown(told, "pretrain")
    assert result["heldout"]["doubled"] == result["heldout"]["loss"]
    assert [{*row} & {"doubled", "masked_lm"} for row in told["metrics"]] == [{"doubled"}] * 3
    assert told["recorded"] == "doubled"
    assert told["wrong objective"]["status"] == 2


def test_a_model_of_its_family_is_loaded(told):
    assert told["family"] == "acme-bert"
    assert told["same as bert"] is True


def test_a_model_in_its_format_is_loaded(told):
    assert "halves.npz" in told["files"] and "model.safetensors" not in told["files"]
    assert told["format"] == 5


def test_a_model_of_its_backend_is_loaded(told):
    vector = told["backend"]
    assert vector == pytest.approx([0.6, 0.0, 0.8])


def test_a_document_is_read_by_its_reader(told):
    hit = shown(told, "search")
    assert (hit["text"], hit["line"], hit["metadata"]) == ("The barn is on fire.", 2, {"title": "Barn"})
