"""The guide's lines for GLUE on two small synthetic tasks."""

import json
import re
import shlex
from pathlib import Path

import pytest

from bothways.cli import main
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint

pytestmark = pytest.mark.slow
GUIDE = Path(__file__).parent.parent.parent.parent / "docs/guide/finetuning.md"


@pytest.fixture
def directory(make_model, tokenizer, tmp_path, monkeypatch):
    """A model, and SST-2 and CoLA as published, of few rows; the working directory."""
    model = make_model("bert", {"masked_words": 0}, num_hidden_layers=1)
    checkpoint.save(Checkpoint(model, tokenizer), tmp_path / "my-bert")
    sst = "sentence\tlabel\n" + 'the cat sat\t1\na "dog ran\t0\n' * 12
    cola = "gj04\t1\t\tThe cat sat.\ngj04\t0\t*\tCat the on.\n" * 12
    for name, content in {"SST-2": sst, "CoLA": cola}.items():
        (tmp_path / "glue" / name).mkdir(parents=True)
        for split in ("train", "dev"):
            (tmp_path / "glue" / name / f"{split}.tsv").write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands(task):
    """The guide's commands for a task, as words: finetune, and perhaps evaluate."""
    section = GUIDE.read_text(encoding="utf-8").split("\n## GLUE\n")[1].split("\n## ")[0]
    text = "\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).replace("\\\n", " ")
    if task in re.findall("for task in (.*); do", text)[0].split():
        text = text.replace("$task", task)
    lines = [line.strip() for line in text.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("bothways ") and f"glue/{task}/" in line]


@pytest.mark.parametrize(("task", "metric"), [("SST-2", "accuracy"), ("CoLA", "matthews")])
def test_a_task_is_learned_and_reported_by_its_own_metric(task, metric, directory, capsys):
    finetune, *evaluate = commands(task)
    main.main([*finetune, "--epochs", "0.2", "--dtype", "float32", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert (result["metric"], result["n"], result["split"], result["rows"]) == (metric, 3, "dev", 24)
    for words in evaluate:
        main.main([*words, "--dtype", "float32", "--json"])
        assert metric in json.loads(capsys.readouterr().out)["metrics"]
