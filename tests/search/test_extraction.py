"""Extraction: exact slices, groups, resuming after a kill with the same bytes, refusals."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

import bothways
from bothways.base.device import num_cores
from bothways.base.errors import InputError
from bothways.cli import main
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.search import commands
from bothways.search.entity_groups import group_document, normal_form
from bothways.search.fact_table import COLUMNS
from bothways.settings import Extract
from tests.random_statements import random_statements
from tests.search.test_documents import pptx, shape

ROOT = Path(__file__).parents[2]
FILES = {
    "a.txt": "the cat sat on a mat\nand the dog ran",
    "b.md": "---\nyear: 2015\n---\n# dog\n\na cat ran on the mat",
    "c.csv": "text,year\nthe dog sat,2015\na cat,2009\n",
}


@pytest.fixture(scope="module")
def models(make_model, tokenizer, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    sizes = {"max_position_embeddings": 512}
    labels = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    for name, heads, names in (
        ("tagger", {"tokens": 5}, labels),
        ("reader", {"spans": 2}, ()),
        ("sorter", {"classes": 2}, ("x", "y")),
    ):
        checkpoint.save(Checkpoint(make_model("bert", heads, **sizes), tokenizer, labels=names), root / name)
    model = make_model("bert", hidden_size=64, num_attention_heads=2, intermediate_size=96, **sizes)
    statements = random_statements(model.config)
    checkpoint.save(Checkpoint(model, tokenizer, statements=statements), root / "decider")
    return root


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "documents"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text)
    return root


def run(capsys, *arguments) -> dict:
    main.main(["extract", *map(str, arguments), "--json"])
    return json.loads(capsys.readouterr().out)


def test_every_fact_is_an_exact_slice(models, folder, tmp_path, capsys):
    out = tmp_path / "facts.parquet"
    models_used = ("--tag", models / "tagger", "--classify", models / "sorter", "--answer", models / "reader")
    result = run(capsys, folder, "-o", out, *models_used, "--question", "cat")
    rows = pq.read_table(out).to_pylist()
    assert result["facts"] == len(rows)
    assert {row["kind"] for row in rows} == {"entity", "label", "answer"}
    assert [*rows[0]] == [*COLUMNS]
    checked = 0
    for row in rows:
        name = Path(row["path"]).name
        if row["kind"] != "label" and name != "c.csv":
            assert FILES[name][row["start"] : row["end"]] == row["text"] != ""
            assert row["line"] == FILES[name].count("\n", 0, row["start"]) + 1
            checked += 1
        assert 0 <= row["score"] <= 1
        assert (row["group"] is None) == (row["kind"] != "entity")
    assert checked > 4
    assert {row["line"] for row in rows if row["path"].endswith(".csv") and row["kind"] == "label"} == {2, 3}
    assert not [*tmp_path.glob(".facts*")]


def test_options_that_are_named_are_labels(models, folder, tmp_path, capsys):
    out = tmp_path / "facts.jsonl"
    run(capsys, folder, "-o", out, "--decide", models / "decider", "--options", "a cat,the dog,rate")
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    model = bothways.load(models / "decider").asking(["a cat", "the dog", "rate"])
    decision = model.decide("the dog sat")
    found = [row for row in rows if row["path"].endswith(".csv") and row["line"] == 2]
    assert [(row["kind"], row["name"]) for row in found] == [("label", decision.label)] * (decision.label is not None)
    assert {row["kind"] for row in rows} == {"label"}

    with pytest.raises(InputError, match="is a model to embed; name its options with --options, or train one"):
        commands.extract(Extract(folders=(folder,), out=tmp_path / "other.csv", decide=models / "decider"))
    with pytest.raises(InputError, match="needs decide"):
        Extract(folders=(folder,), out=out, tag=models / "tagger", options="a,b")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_other_formats_have_the_same_rows(models, folder, tmp_path, capsys, suffix):
    facts = run(capsys, folder, "-o", tmp_path / f"facts{suffix}", "--tag", models / "tagger")["facts"]
    with (tmp_path / f"facts{suffix}").open(newline="") as file:
        rows = [*csv.DictReader(file)] if suffix == ".csv" else [*map(json.loads, file)]
    assert len(rows) == facts > 0
    assert [*rows[0]] == [*COLUMNS]


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("t.csv", 'name,note\nthe dog sat,"a cat\nran"\nthe cat,on a mat\n', {2, 4}),
        ("t.tsv", "name\tnote\nthe dog sat\ta cat ran\nthe cat\ton a mat\n", {2, 3}),
        ("t.jsonl", '{"a": "the dog\\nsat", "b": "a cat ran"}\n{"a": "the cat", "b": "on a mat"}\n', {1, 2}),
    ],
)
def test_all_entities_of_a_row_are_on_its_line(name, content, lines, models, tmp_path, capsys):
    """Also those in its second column, which is the second line of the text that the model reads."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / name).write_text(content)
    run(capsys, tmp_path / "tables", "-o", tmp_path / "facts.jsonl", "--tag", models / "tagger")
    rows = [json.loads(line) for line in (tmp_path / "facts.jsonl").read_text().splitlines()]
    assert {row["line"] for row in rows} == lines
    assert max(row["start"] for row in rows) > len("name: the dog sat\n")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_file_whose_name_is_not_utf8_has_rows_too(models, tmp_path, capsys, suffix):
    try:
        (tmp_path / os.fsdecode(b"\xe9.txt")).write_text("the cat sat")
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    out = tmp_path / f"facts{suffix}"
    assert run(capsys, tmp_path, "-o", out, "--classify", models / "sorter")["facts"] == 1
    if suffix == ".parquet":
        (row,) = pq.read_table(out).to_pylist()
    else:
        (row,) = csv.DictReader(out.read_text().splitlines()) if suffix == ".csv" else [json.loads(out.read_text())]
    assert Path(row["path"]).name == (os.fsdecode(b"\xe9.txt") if suffix == ".jsonl" else "\\udce9.txt")


@pytest.mark.slow
def test_after_a_kill_the_bytes_are_the_same(models, folder, tmp_path):
    for number in range(6):
        (folder / f"more{number}.txt").write_text(FILES["a.txt"] * (number + 1))
    whole, killed = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    code = (
        "import os, signal, sys; from bothways.cli import main; from bothways.search import extraction\n"
        "extraction.BATCH_FILES = 2; original, calls = extraction.store_facts, []\n"
        "def counted(*arguments):\n"
        "    original(*arguments); calls.append(1)\n"
        "    if len(calls) == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "extraction.store_facts = counted; main.main(sys.argv[1:])"
    )
    arguments = ["extract", str(folder), "--tag", str(models / "tagger"), "-o"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, "-c", code, *arguments, str(killed)], env=environment)
    assert result.returncode == -signal.SIGKILL
    assert not killed.exists()
    with pytest.raises(InputError, match="--resume"):
        commands.extract(Extract(folders=(folder,), tag=models / "tagger", out=killed))
    workers = num_cores() // torch.get_num_threads()  # with as many threads as this process
    main.main([*arguments, str(killed), "--resume", "--workers", str(workers)])
    main.main([*arguments, str(whole)])
    assert killed.read_bytes() == whole.read_bytes()


def test_files_that_cannot_be_read_are_named_and_skipped(models, folder, tmp_path, capsys):
    (folder / "bad.docx").write_bytes(b"no archive")
    result = run(capsys, folder, "-o", tmp_path / "facts.jsonl", "--tag", models / "tagger")
    assert [Path(name).name for name in result["skipped"]] == ["bad.docx"]
    assert result["files"] == 3


def test_slides_and_mail_are_read_and_documents_without_a_reader_are_counted(models, folder, tmp_path, capsys):
    for path in folder.iterdir():
        path.unlink()
    pptx(folder / "a.pptx", shape("nothing"), shape("Ada Lovelace lived in London."))
    (folder / "b.eml").write_text("Subject: Ada Lovelace\n\nShe lived in London.")
    (folder / "old.ppt").write_bytes(b"\0")
    out = tmp_path / "facts.jsonl"
    result = run(capsys, folder, "-o", out, "--classify", models / "sorter")
    assert (result["files"], result["unread"], result["skipped"]) == (2, {".ppt": 1}, {})
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(Path(row["path"]).name, row["page"], row["line"]) for row in rows] == [
        *(("a.pptx", page, None) for page in (1, 2)),
        ("b.eml", None, None),
    ]


def test_wrong_use_is_refused_and_nothing_is_written(models, folder, tmp_path):
    base = {"folders": (folder,), "out": tmp_path / "facts.csv"}
    for options, message in (({}, "at least one model"), ({"answer": models / "reader"}, "question")):
        with pytest.raises(InputError, match=message):
            Extract(**base, **options)
    for settings, message in (
        (Extract(**base, tag=models / "sorter"), "finetune tag"),
        (Extract(**{**base, "out": tmp_path / "facts.doc"}, tag=models / "tagger"), "must end in"),
        (Extract(**{**base, "folders": (tmp_path / "missing",)}, tag=models / "tagger"), "no such file"),
    ):
        with pytest.raises(InputError, match=message):
            commands.extract(settings)
    (tmp_path / "facts.csv").write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        commands.extract(Extract(**base, tag=models / "tagger"))
    assert (tmp_path / "facts.csv").read_text() == "mine"
    assert not [*tmp_path.glob(".facts*")]


@pytest.mark.parametrize(
    ("text", "form"),
    [("The U.S.", "us"), ("US", "us"), ("U.S.A.", "usa"), ("  Acme\nCorp.", "acme corp"), ("Acme’s", "acme"),
     ("“Zürich”", "zürich"), ("Jones'", "jones"), ("E. coli", "e. coli"), ("...", "")],
)  # fmt: skip
def test_forms_of_a_value(text, form):
    assert normal_form(text) == form


def test_a_last_name_is_the_person_of_its_document():
    values = [
        ("PER", "Jones"),
        ("PER", "Karen Jones"),
        ("LOC", "Jones"),
        ("PER", "Smith"),
        ("PER", "A. Smith"),
        ("PER", "B. Smith"),
    ]
    assert group_document(values) == ["karen jones", "karen jones", "jones", "smith", "a. smith", "b. smith"]
    assert group_document([("PER", "...")]) == ["..."]
