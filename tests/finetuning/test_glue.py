"""The table of GLUE on two small synthetic tasks."""

import json
from types import SimpleNamespace

import pytest

from bothways.checkpoint import checkpoint
from bothways.checkpoint.contents import Checkpoint
from bothways.cli import main
from bothways.errors import InputError
from bothways.finetuning import glue
from bothways.log import messages_to
from bothways.settings import Glue

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def directory(make_model, tokenizer, tmp_path_factory):
    """SST-2 and CoLA as published, of few rows; QNLI without training data."""
    folder = tmp_path_factory.mktemp("glue")
    checkpoint.save(
        Checkpoint(make_model("bert", {"masked_words": 0}, num_hidden_layers=1), tokenizer), folder / "model"
    )
    sst = "sentence\tlabel\n" + 'the cat sat\t1\na "dog ran\t0\n' * 12
    cola = "gj04\t1\t\tThe cat sat.\ngj04\t0\t*\tCat the on.\n" * 12
    qnli = "index\tquestion\tsentence\tlabel\n0\tthe cat\ta dog\tentailment\n"
    for name, files in {"SST-2": {"train": sst, "dev": sst}, "CoLA": {"train": cola, "dev": cola}}.items():
        (folder / name).mkdir()
        for split, text in files.items():
            (folder / name / f"{split}.tsv").write_text(text, encoding="utf-8")
    (folder / "QNLI").mkdir()
    (folder / "QNLI" / "dev.tsv").write_text(qnli, encoding="utf-8")
    return folder


def test_each_task_is_learned_and_reported_by_its_own_metric(directory, tmp_path, capsys):
    short = ["--epochs", "0.2", "--seeds", "2", "--dtype", "float32", "-o", str(tmp_path / "runs")]
    main.main(["glue", str(directory / "model"), str(directory), *short])
    output = capsys.readouterr()
    rows = [line.split()[:2] for line in output.out.splitlines()]
    assert rows[:2] == [["CoLA", "matthews"], ["SST-2", "accuracy"]] and rows[2][0] == "average"
    assert "QNLI: skipped" in output.err
    metadata = json.loads((tmp_path / "runs" / "CoLA" / "bothways.json").read_text(encoding="utf-8"))
    assert metadata["result"]["metric"] == "matthews" and metadata["result"]["n"] == 2


def test_the_average_is_that_of_the_tasks(directory, tmp_path, capsys):
    short = [
        "--epochs",
        "0.2",
        "--dtype",
        "float32",
        "--tasks",
        "SST-2",
        "CoLA",
        "-o",
        str(tmp_path / "runs"),
        "--json",
    ]
    main.main(["glue", str(directory / "model"), str(directory), *short])
    summary = json.loads(capsys.readouterr().out)
    assert [*summary["tasks"]] == ["SST-2", "CoLA"]
    assert summary["average"] == pytest.approx(sum(one["mean"] for one in summary["tasks"].values()) / 2)
    assert summary["n"] == 1 and all(one["selected_on"] == "dev" for one in summary["tasks"].values())


def test_the_average_has_the_spread_of_the_seeds_averages_and_leaves_sick_out():
    def row(name, *scores):
        return name, SimpleNamespace(scores=[*scores])

    table = glue.GlueTable((row("CoLA", 0.2, 0.4), row("RTE", 0.6, 0.7), row("SICK", 0.9, 0.9)))
    assert table.by_seed == pytest.approx([0.4, 0.55])
    assert (table.average, table.std) == pytest.approx((0.475, 0.15 / 2**0.5))
    assert glue.GlueTable((row("SICK", 0.9, 0.8),)).average == pytest.approx(0.85)


def test_glue_resumes_after_the_finished_tasks(directory, tmp_path):
    options = {"model": directory / "model", "directory": directory, "out": tmp_path / "runs"}
    recipe = {"epochs": 0.2, "dtype": "float32"}
    first = glue.run(Glue(**options, **recipe, tasks=("CoLA",)))
    messages = []
    with messages_to(messages.append):
        both = glue.run(Glue(**options, **recipe, resume=True))
    assert [name for name, _ in both.rows] == ["CoLA", "SST-2"] and both.rows[0] == first.rows[0]
    assert any("CoLA: the run is already done" in line for line in messages)


def test_an_unknown_task_and_an_empty_directory_are_refused(directory, tmp_path):
    with pytest.raises(InputError, match="task 'SST' .* CoLA, SST-2"):
        glue.run(Glue(model=directory / "model", directory=directory, out=tmp_path / "r", tasks=("SST",)))
    with pytest.raises(InputError, match=f"{tmp_path}: .*CoLA"):
        glue.run(Glue(model=directory / "model", directory=tmp_path, out=tmp_path / "r"))
