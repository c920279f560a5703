"""Resumable output: complete, in order, and byte-identical however often it was killed."""

import csv
import fcntl
import gzip
import io
import json
import os
import select
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest

import bothways
from bothways.cli import main
from bothways.inference.jobs import blocks, columns
from bothways.inference.jobs.facts import reproduction_facts
from bothways.inference.jobs.journal import AppendOnlyFile, PartialOutput, side_file
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings.predict import Embed

WORDS = "the cat sat on a mat and dogs ran".split()
TEXTS = [" ".join(WORDS[(i * j) % 9] for j in range(1 + i % 17)) for i in range(37)]
LABELS = ("x", "é", "z")
ENDINGS = ["npy", "parquet", "jsonl"]


@pytest.fixture(scope="module")
def models(make_model, tokenizer, tmp_path_factory):
    """A directory of each kind of model."""
    directory = tmp_path_factory.mktemp("models")
    kinds = {
        "vectors": ({}, ()), "labels": ({"classes": 3}, LABELS), "number": ({"classes": 1}, ()),
        "entities": ({"tokens": 3}, ("O", "B-LOC", "I-LOC")), "answers": ({"spans": 2}, ()),
    }  # fmt: skip
    for kind, (heads, labels) in kinds.items():
        checkpoint.save(Checkpoint(make_model("bert", heads), tokenizer, labels=labels), directory / kind)
    return directory


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "ROWS", 11)


@pytest.fixture
def texts(tmp_path):
    return written(tmp_path / "texts.txt", "".join(f"{text}\n" for text in TEXTS))


def written(file, content):
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def run(*arguments):
    main.main([*map(str, arguments), "--dtype", "float32"])


def refused(capsys, *arguments, status=1):
    """The messages on standard error of a command that fails."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        run(*arguments)
    output = capsys.readouterr()
    assert stopped.value.code == status and output.out == "" and "Traceback" not in output.err
    return output.err


def json_lines(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def names(directory):
    return {place.name for place in directory.iterdir()}


# --- the files written ------------------------------------------------------------------------------------------------


def test_vectors_are_the_same_in_every_format_and_no_other_file_is_written(models, texts, tmp_path, capsys):
    expected = bothways.load(models / "vectors", dtype="float32").embed(TEXTS)
    for ending in ("npy", "parquet", "jsonl"):
        run("embed", models / "vectors", texts, "-o", tmp_path / f"v.{ending}", "--json")
    output = capsys.readouterr()
    assert [json.loads(line) for line in output.out.splitlines()] == [
        {"vectors": 37, "size": 24, "file": str(tmp_path / name)} for name in ("v.npy", "v.parquet", "v.jsonl")
    ]
    assert output.err == ""  # no bar where there is no terminal
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.dtype == np.float32 and np.abs(vectors - expected).max() < 1e-6
    table = pyarrow.parquet.read_table(tmp_path / "v.parquet")
    assert (
        table.schema.names == ["row", "vector"] and str(table.schema.types[1]) == "fixed_size_list<element: float>[24]"
    )
    assert table["row"].to_pylist() == [*range(37)]
    assert np.array_equal(np.array(table["vector"].to_pylist(), np.float32), vectors)
    rows = json_lines(tmp_path / "v.jsonl")
    assert [row["row"] for row in rows] == [*range(37)]
    assert np.array_equal(np.array([row["vector"] for row in rows], np.float32), vectors)  # digits enough to be exact
    assert names(tmp_path) == {"texts.txt", "v.npy", "v.parquet", "v.jsonl"}


def test_an_npy_equals_numpys_byte_for_byte(models, texts, tmp_path):
    run("embed", models / "vectors", texts, "-o", tmp_path / "v.npy")
    np.save(tmp_path / "numpys.npy", np.load(tmp_path / "v.npy"))
    assert (tmp_path / "v.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()


@pytest.mark.parametrize("kind", ["labels", "number", "entities", "answers"])
def test_predictions_are_the_same_in_every_format(kind, models, tmp_path, capsys):
    table = "id,question,context,text\n" + "".join(f"q{i},who sat,{text},{text}\n" for i, text in enumerate(TEXTS))
    file = written(tmp_path / "t.csv", table)
    flags = (
        ("--text-column", "question", "--pair-column", "context") if kind == "answers" else ("--text-column", "text")
    )
    run("predict", models / kind, file, *flags)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for ending in ("jsonl", "parquet"):
        run("predict", models / kind, file, *flags, "-o", tmp_path / f"p.{ending}")
    rows = json_lines(tmp_path / "p.jsonl")
    assert rows == pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pylist()
    assert [(row.pop("row"), row.pop("line")) for row in rows] == [(row, row + 2) for row in range(37)]
    assert rows == printed and len({json.dumps(row) for row in rows}) > 5


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_empty_input_gives_an_empty_output(ending, models, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    run("embed", models / "vectors", "-", "-o", tmp_path / f"v.{ending}")
    if ending == "npy":
        assert np.load(tmp_path / "v.npy").shape == (0, 24)
    elif ending == "parquet":
        assert pyarrow.parquet.read_table(tmp_path / "v.parquet").num_rows == 0
    else:
        assert (tmp_path / "v.jsonl").read_bytes() == b""


def test_another_ending_is_refused_before_anything_is_read(models, tmp_path, capsys):
    error = refused(capsys, "predict", models / "labels", tmp_path / "none.txt", "-o", tmp_path / "p.npy")
    assert "p.npy: " in error and ".parquet, .jsonl, .csv or .tsv" in error


# --- rows that cannot be read -----------------------------------------------------------------------------------------


def unreadable_rows(directory):
    """A file whose rows 3, 20 and 36 cannot be read."""
    lines = [json.dumps({"text": text}).encode() for text in TEXTS]
    lines[3], lines[20], lines[36] = b'{"text": ', b'{"text": "\xff"}', b'{"text": null}'
    return written(directory / "t.jsonl", b"\n".join(lines))


def long_questions(directory):
    """A file whose row 7 cannot be read at all, and rows 4, 5 and 30 not by a model of 64 tokens."""
    questions = [{"question": "the cat", "context": f"a mat {row}"} for row in range(40)]
    for row in (4, 5, 30):
        questions[row]["question"] = "the cat " * 40
    lines = [*map(json.dumps, questions)]
    lines[7] = "{"
    return written(directory / "t.jsonl", "\n".join(lines))


@pytest.mark.parametrize(
    ("kind", "write", "skipped"),
    [("labels", unreadable_rows, (3, 20, 36)), ("answers", long_questions, (4, 5, 7, 30))],
)
def test_each_skipped_row_is_a_line_where_predictions_are_printed(kind, write, skipped, models, tmp_path, capsys):
    run("predict", models / kind, write(tmp_path), "--on-error", "skip")
    messages = [line.split(":")[:2] for line in capsys.readouterr().err.splitlines()]
    assert messages == [["warning", f" row {row} skipped"] for row in skipped]


def test_rows_that_cannot_be_read_are_set_aside_and_the_others_keep_their_numbers(models, tmp_path, capsys):
    file, out = unreadable_rows(tmp_path), tmp_path / "v.npy"
    kept = [number for number in range(37) if number not in (3, 20, 36)]
    run("embed", models / "vectors", file, "-o", out, "--on-error", "skip", "--json")
    summary = json.loads(capsys.readouterr().out)
    assert summary == {
        "vectors": 34, "size": 24, "file": str(out), "skipped": 3, "skipped_file": f"{out}.skipped.jsonl",
    }  # fmt: skip
    aside = json_lines(side_file(out))
    assert [row["row"] for row in aside] == [3, 20, 36]
    places = [
        f"{file}: row 3 (line 4): not valid JSON", f"{file}:21: not UTF-8 at byte",
        f"{file}: row 36 (line 37): 'text' is missing",
    ]  # fmt: skip
    assert [place for row, place in zip(aside, places, strict=True) if not row["reason"].startswith(place)] == []
    expected = bothways.load(models / "vectors", dtype="float32").embed([TEXTS[number] for number in kept])
    assert np.abs(np.load(out) - expected).max() < 1e-6
    for ending in ("jsonl", "parquet"):
        run("predict", models / "labels", file, "-o", tmp_path / f"p.{ending}", "--on-error", "skip", "--json")
        assert json.loads(capsys.readouterr().out)["predictions"] == 34
    rows = json_lines(tmp_path / "p.jsonl")
    assert [row["row"] for row in rows] == kept
    assert rows == pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pylist()
    run("predict", models / "labels", file, "--on-error", "skip")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows


def test_a_bad_row_stops_the_command_and_complete_blocks_are_kept(models, tmp_path, capsys):
    lines = [json.dumps({"text": text}) for text in TEXTS]
    whole, out = tmp_path / "whole.npy", tmp_path / "v.npy"
    run("embed", models / "vectors", written(tmp_path / "good.jsonl", "\n".join(lines)), "-o", whole)
    file = written(tmp_path / "t.jsonl", "\n".join([*lines[:25], "{", *lines[26:]]))
    note, error = refused(capsys, "embed", models / "vectors", file, "-o", out).splitlines()
    assert f"{file}: row 25 (line 26): not valid JSON" in error and "--on-error skip" in error
    assert note.startswith(f"{out}: 22 rows ") and "--resume" in note and not out.exists()
    written(file, "\n".join(lines))
    run("embed", models / "vectors", file, "-o", out, "--resume")
    assert out.read_bytes() == whole.read_bytes()
    assert names(tmp_path) == {"good.jsonl", "t.jsonl", "v.npy", "whole.npy"}


def test_a_bad_row_in_the_first_block_leaves_nothing(models, tmp_path, capsys):
    file = written(tmp_path / "t.jsonl", '{"text": "a"}\n{\n')
    assert "t.jsonl: row 1 (line 2)" in refused(capsys, "embed", models / "vectors", file, "-o", tmp_path / "v.npy")
    assert names(tmp_path) == {"t.jsonl"}


def test_several_answers_per_question_are_written_with_the_best(models, tmp_path, capsys):
    questions = [{"question": "the cat", "context": "a mat and the dog"}, {"question": "a", "context": ""}]
    file = written(tmp_path / "t.jsonl", "\n".join(map(json.dumps, questions)))
    for ending in ("jsonl", "parquet"):
        run("predict", models / "answers", file, "-o", tmp_path / f"p.{ending}", "--top", "3")
    rows = json_lines(tmp_path / "p.jsonl")
    assert rows == pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pylist()
    model = bothways.load(models / "answers", dtype="float32")
    for row, one in zip(rows, questions, strict=True):
        best = model.answer(one["question"], one["context"], top=3)
        assert [(actual["answer"], actual["start"], actual["end"]) for actual in row["answers"]] == [
            (answer.text, answer.start, answer.end) for answer in best
        ]
        assert {name: row[name] for name in row["answers"][0]} == row["answers"][0]
    assert len(rows[0]["answers"]) == 3 and rows[1]["answers"][0]["answer"] == ""
    run("predict", models / "answers", file, "-o", tmp_path / "one.jsonl")
    assert "answers" not in json_lines(tmp_path / "one.jsonl")[0]


def test_only_the_most_probable_labels_are_written_with_top(models, tmp_path, capsys):
    texts = written(tmp_path / "t.txt", "a cat\nthe mat sat\n")
    for ending in ("jsonl", "parquet"):
        run("predict", models / "labels", texts, "-o", tmp_path / f"p.{ending}", "--top", "2")
    rows = json_lines(tmp_path / "p.jsonl")
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pylist()
    assert [{**row, "scores": dict(row["scores"])} for row in table] == rows
    expected = bothways.load(models / "labels", dtype="float32").classify(["a cat", "the mat sat"], top=2)
    assert [list(row["scores"].items()) for row in rows] == [list(one.scores.items()) for one in expected]
    error = refused(capsys, "predict", models / "entities", texts, "--top", "3")
    assert "top (3)" in error and "tag" in error


INTENTS = tuple(f"intent {number}" for number in range(9))


@pytest.fixture(scope="module")
def intents(make_model, tokenizer, tmp_path_factory):
    """A directory of a classifier of more labels than a table has columns for."""
    directory = tmp_path_factory.mktemp("intents") / "model"
    checkpoint.save(Checkpoint(make_model("bert", {"classes": 9}), tokenizer, labels=INTENTS), directory)
    return directory


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_table_of_many_labels_has_the_five_best_in_one_column(intents, texts, tmp_path, ending):
    def table(name, *options):
        run("predict", intents, texts, "-o", tmp_path / f"{name}.{ending}", *options)
        with (tmp_path / f"{name}.{ending}").open(encoding="utf-8", newline="") as file:
            quoting = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if ending == "tsv" else {}
            return [*csv.DictReader(file, **quoting)]

    run("predict", intents, texts, "-o", tmp_path / "all.jsonl")
    rows = json_lines(tmp_path / "all.jsonl")
    assert all([*row["scores"]] == [*INTENTS] for row in rows)
    for row, cells in zip(rows, table("few"), strict=True):
        best = sorted(row["scores"], key=row["scores"].__getitem__, reverse=True)
        assert [*cells] == ["row", "line", "label", "score", "scores"] and cells["label"] == best[0]
        assert [*json.loads(cells["scores"]).items()] == [(name, row["scores"][name]) for name in best[:5]]
    for row, cells in zip(rows, table("all", "--top", "all"), strict=True):
        assert {name: float(cells[f"probability_{name}"]) for name in INTENTS} == row["scores"]
    assert {len(json.loads(cells["scores"])) for cells in table("seven", "--top", "7")} == {7}


def test_the_five_best_of_many_labels_can_be_evaluated(intents, tmp_path, capsys):
    rows = "".join(f"{text},{INTENTS[row % 9]}\n" for row, text in enumerate(TEXTS))
    gold, out = written(tmp_path / "gold.csv", f"text,label\n{rows}"), tmp_path / "p.csv"
    run("predict", intents, gold, "-o", out, "--keep-columns", "text")
    capsys.readouterr()
    main.main(["evaluate", "--predictions", str(out), str(gold), "--json"])
    accuracy = json.loads(capsys.readouterr().out)["metrics"]["accuracy"]
    with out.open(encoding="utf-8", newline="") as file:
        labels = [cells["label"] for cells in csv.DictReader(file)]
    assert accuracy == pytest.approx(np.mean([label == INTENTS[row % 9] for row, label in enumerate(labels)]))


def test_a_resumed_table_does_not_mix_two_forms(intents, texts, tmp_path, capsys, monkeypatch):
    """One that an earlier version began with a column for each of many labels."""
    lines, out = texts.read_bytes().splitlines(keepends=True), tmp_path / "p.csv"
    written(texts, b"".join([*lines[:30], b"\xff\n", *lines[30:]]))
    with monkeypatch.context() as earlier:
        earlier.setattr(columns, "SHOWN_SCORES", 99)
        refused(capsys, "predict", intents, texts, "-o", out)
    before = out.with_name(".p.csv.partial").read_bytes()
    written(texts, b"".join(lines))
    assert "top" in refused(capsys, "predict", intents, texts, "-o", out, "--resume")
    assert out.with_name(".p.csv.partial").read_bytes() == before
    run("predict", intents, texts, "-o", out, "--resume", "--top", "all")  # the form that it was begun in
    assert len(out.read_text(encoding="utf-8").splitlines()) == 1 + len(TEXTS)


def test_all_labels_are_asked_for_where_there_are_labels(models, texts, tmp_path, capsys):
    assert "top (all) is for labels" in refused(capsys, "predict", models / "answers", texts, "--top", "all")
    assert "top (all) is for labels" in refused(capsys, "predict", models / "entities", texts, "--top", "all")
    error = refused(capsys, "predict", models / "labels", texts, "--top", "al", status=2)
    assert "--top: 'al' is neither a whole number nor all" in error
    assert "--top (0) must be at least 1" in refused(
        capsys, "predict", models / "labels", texts, "--top", "0", status=2
    )


MANY_CLASSES = """
import re, sys
from pathlib import Path
from bothways.inference.load import load
from bothways.settings import Predict
from bothways.inference.jobs.verbs import predict_blocks
rows = 0
for block in predict_blocks(Predict(model=Path(sys.argv[1]), file=sys.argv[2], dtype="float32")):
    assert all(len(row["scores"]) == 10_000 for row in block)
    rows += len(block)
best = load(sys.argv[1], dtype="float32").classify([f"the cat {number}" for number in range(9000)], top=3)
# Not getrusage, which counts the process that started this one too.
print(rows, len(best), int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is counted as Linux does")
@pytest.mark.soak
def test_ten_thousand_classes_are_predicted_in_less_than_a_gigabyte(make_predictor, tmp_path):
    labels = tuple(f"class {number}" for number in range(10_000))
    model = make_predictor("bert", {"classes": len(labels)}, labels=labels)
    checkpoint.save(model.checkpoint, tmp_path / "model")
    file = written(tmp_path / "t.txt", "".join(f"the cat {number}\n" for number in range(1200)))
    process = subprocess.run(
        [sys.executable, "-c", MANY_CLASSES, tmp_path / "model", file], capture_output=True, text=True, check=True
    )
    rows, best, peak = map(int, process.stdout.split())
    assert (rows, best) == (1200, 9000) and peak < 550, peak


def test_a_text_that_is_too_long_is_reported_with_its_row(models, tmp_path, capsys):
    file = written(tmp_path / "t.txt", "a\n" * 15 + "the cat " * 99)
    error = refused(capsys, "predict", models / "labels", file, "--long", "error", "-o", tmp_path / "p.jsonl")
    assert "row 15 (line 16): longer than 64 tokens (200)" in error and "--on-error skip" in error


def test_a_first_text_without_room_for_the_second_is_reported_with_its_row(models, tmp_path, capsys):
    rows = [{"question": "the cat", "context": "a mat"}] * 13 + [
        {"question": "the cat " * 40, "context": "a mat " * 40}
    ]
    file = written(tmp_path / "t.jsonl", "\n".join(map(json.dumps, rows)))
    error = refused(capsys, "predict", models / "answers", file, "-o", tmp_path / "p.jsonl")
    assert "row 13 (line 14): " in error and "80 of the 64 tokens" in error


def test_rows_the_model_cannot_read_are_set_aside_like_others(models, tmp_path, capsys):
    """Among rows that cannot be read at all, in several blocks, to a file and to a terminal."""
    file, out = long_questions(tmp_path), tmp_path / "p.jsonl"
    run("predict", models / "answers", file, "-o", out, "--on-error", "skip", "--json")
    assert json.loads(capsys.readouterr().out)["predictions"] == 36
    rows, aside = json_lines(out), json_lines(side_file(out))
    assert [row["row"] for row in rows] == [row for row in range(40) if row not in (4, 5, 7, 30)]
    assert [row["row"] for row in aside] == [4, 5, 7, 30]
    reasons = [row["reason"] for row in aside]
    assert reasons[0] == reasons[1] == reasons[3] and " 80 of the 64 tokens" in reasons[0]
    alone = bothways.load(models / "answers", dtype="float32").answer("the cat", "a mat 6")[0]
    assert next(row for row in rows if row["row"] == 6)["answer"] == alone.text
    run("predict", models / "answers", file, "--on-error", "skip")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows


def test_a_command_resumes_after_rows_the_model_could_not_read(models, tmp_path, capsys, monkeypatch):
    lines = [
        json.dumps({"question": "the cat " * (40 if row in (3, 30) else 1), "context": "a mat"}) for row in range(40)
    ]
    file, out = written(tmp_path / "t.jsonl", "\n".join(lines)), tmp_path / "p.jsonl"
    command = ("predict", models / "answers", file, "-o", out, "--on-error", "skip")
    run(*command)
    whole = out.read_bytes(), side_file(out).read_bytes()
    out.unlink(), side_file(out).unlink()
    add = PartialOutput.add

    def interrupted(self, *arguments):
        if self.journal.blocks == 2:
            raise KeyboardInterrupt
        add(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(PartialOutput, "add", interrupted)
        assert "22 rows" in refused(capsys, *command, status=130)
    run(*command, "--resume")
    assert (out.read_bytes(), side_file(out).read_bytes()) == whole and whole[1].count(b"reason") == 2


# --- input columns in the result --------------------------------------------------------------------------------------

WIDE = "id,text,label,note\n" + "".join(
    f'{i:03},{text},{"xy"[i % 2]},"a, ""b""\n{i}"\n' for i, text in enumerate(TEXTS)
)


def separated(file):
    with file.open(encoding="utf-8", newline="") as opened:
        return [*csv.DictReader(opened)]


@pytest.mark.slow
def test_kept_columns_have_unique_names_in_every_format(models, tmp_path, capsys):
    file = written(tmp_path / "t.csv", WIDE)
    expected = list(csv.DictReader(io.StringIO(WIDE)))
    run("predict", models / "labels", file, "--keep-columns", "all")
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert list(printed[0]) == ["id", "text", "input_label", "note", "label", "score", "scores"]
    for ending in ("jsonl", "parquet", "csv"):
        run("predict", models / "labels", file, "--keep-columns", "all", "-o", tmp_path / f"p.{ending}")
    rows = json_lines(tmp_path / "p.jsonl")
    assert rows == pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pylist()
    assert [{name: value for name, value in row.items() if name not in ("row", "line")} for row in rows] == printed
    for row, cells, one in zip(rows, separated(tmp_path / "p.csv"), expected, strict=True):
        assert {name: row["input_label" if name == "label" else name] for name in one} == one
        texts = {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in row.items()
            if name != "scores"
        }
        assert cells == texts | {f"probability_{label}": repr(score) for label, score in row["scores"].items()}
    run("predict", models / "labels", file, "--keep-columns", "note, id", "-o", tmp_path / "few.tsv")
    header, first, *_ = (tmp_path / "few.tsv").read_text(encoding="utf-8").splitlines()
    assert (
        header.startswith("row\tline\tnote\tid\tlabel\tscore\tprobability_")
        and "\tscores" not in header
        and first.startswith('0\t2\ta, "b" 0\t000\t')
    )
    assert "no column 'nole' (there are: id, text, label, note); did you mean 'note'" in refused(
        capsys, "predict", models / "labels", file, "--keep-columns", "nole"
    )


@pytest.mark.slow
def test_kept_values_are_those_of_the_input_whatever_they_are(models, tmp_path, capsys):
    table = pyarrow.table(
        {
            "text": TEXTS[:3], "id": pyarrow.array([7, None, 2**60], pyarrow.int64()), "ok": [True, False, None],
            "weight": [0.1, float("nan"), 2.5], "day": pyarrow.array([0, 1, None], pyarrow.date32()),
            "tags": [["a"], [], None], "input_label": ["u", "v", "w"], "label": ["k", "l", "m"],
        }
    )  # fmt: skip
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    for ending in ("jsonl", "parquet", "csv"):
        run(
            "predict",
            models / "labels",
            tmp_path / "t.parquet",
            "--keep-columns",
            "all",
            "-o",
            tmp_path / f"p.{ending}",
        )
    rows = json_lines(tmp_path / "p.jsonl")
    assert [row["id"] for row in rows] == [7, None, 2**60] and [row["weight"] for row in rows] == [0.1, None, 2.5]
    assert rows[0]["day"] == "1970-01-01" and rows[0]["tags"] == ["a"]
    assert rows[0]["input_label"] == "u" and rows[0]["input_input_label"] == "k"
    made = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    assert [str(made.schema.field(name).type) for name in ("id", "ok", "weight", "day", "tags")] == [
        "int64", "bool", "double", "string", "string",
    ]  # fmt: skip
    assert made["id"].to_pylist() == [7, None, 2**60] and made["tags"].to_pylist() == ['["a"]', "[]", None]
    assert separated(tmp_path / "p.csv")[1]["id"] == "" and separated(tmp_path / "p.csv")[0]["ok"] == "true"
    lines = written(tmp_path / "t.jsonl", "\n".join(['{"text": "a"}'] * 99 + ['{"text": "b", "late": {"x": 1}}']))
    run("predict", models / "labels", lines, "--keep-columns", "all", "-o", tmp_path / "late.csv")
    assert [row["late"] for row in separated(tmp_path / "late.csv")] == [""] * 99 + ['{"x": 1}']
    raw = pyarrow.table({"text": ["a"], "raw": [b"x"]})
    pyarrow.parquet.write_table(raw, tmp_path / "raw.parquet")
    assert "'raw' holds bytes" in refused(
        capsys, "predict", models / "labels", tmp_path / "raw.parquet", "--keep-columns", "all"
    )


def test_predictions_beside_kept_texts_can_be_scored(models, tmp_path, capsys):
    file = written(tmp_path / "t.csv", WIDE)
    run("predict", models / "labels", file, "--keep-columns", "all", "-o", tmp_path / "p.csv")
    capsys.readouterr()
    run("evaluate", "--predictions", tmp_path / "p.csv", file, "--json")
    scores = json.loads(capsys.readouterr().out)["metrics"]
    same = [row["label"] == row["input_label"] for row in separated(tmp_path / "p.csv")]
    assert scores["accuracy"] == pytest.approx(sum(same) / 37) and scores["texts"] == 37


def test_questions_keep_their_columns_beside_their_id(models, tmp_path, capsys):
    data = {"data": [{"paragraphs": [{"context": "a mat", "qas": [{"id": "q7", "question": "the cat"}]}]}]}
    for file, keep in (
        (written(tmp_path / "t.json", json.dumps(data)), "id,question"),
        (written(tmp_path / "t.csv", "id,question,context\nq7,the cat,a mat\n"), "question"),
    ):
        run("predict", models / "answers", file, "--keep-columns", keep)
        row = json.loads(capsys.readouterr().out)
        assert list(row) == ["question", "id", "answer", "start", "end", "score"]
        assert (row["question"], row["id"]) == ("the cat", "q7")


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_a_stopped_command_resumes_to_the_same_bytes_with_kept_columns(ending, models, tmp_path, capsys):
    file, whole, out = tmp_path / "t.csv", tmp_path / f"whole.{ending}", tmp_path / f"p.{ending}"
    run("predict", models / "labels", written(file, WIDE), "--keep-columns", "id,label", "-o", whole)
    refused(
        capsys, "predict", models / "labels", written(file, WIDE + "1,2\n"), "--keep-columns", "id,label", "-o", out
    )
    written(file, WIDE)
    again = ("predict", models / "labels", file, "-o", out, "--resume")
    assert "(keep_columns: 'id,label' -> 'id')" in refused(capsys, *again, "--keep-columns", "id")
    written(file, WIDE.replace("000,", "999,", 1))  # a kept value is part of what was read
    assert "the first 33 rows" in refused(capsys, *again, "--keep-columns", "id,label")
    written(file, WIDE)
    run(*again, "--keep-columns", "id,label")
    assert out.read_bytes() == whole.read_bytes()


def test_formulas_are_escaped_on_request(models, tmp_path, capsys):
    texts = ["=1+1", "@x", "-5", "+a", "a=b", "\uff1dz"]
    file = written(tmp_path / "t.jsonl", "".join(json.dumps({"text": text, "n": -2.5}) + "\n" for text in texts))
    for flags, sign in (((), ""), (("--escape-formulas",), "'")):
        out = tmp_path / f"p{len(flags)}.csv"
        run("predict", models / "labels", file, "--keep-columns", "text,n", "-o", out, *flags)
        rows = separated(out)
        assert [row["text"] for row in rows] == [text if text == "a=b" else sign + text for text in texts]
        assert {row["n"] for row in rows} == {"-2.5"}  # a number is not a formula
    error = refused(capsys, "predict", models / "labels", file, "--escape-formulas", status=2)
    assert "escape_formulas is for a .csv or .tsv" in error


def test_a_text_on_the_command_line(models, tmp_path, capsys):
    run("predict", models / "labels", "--text", "the cat")
    expected = bothways.load(models / "labels", dtype="float32").classify(["the cat"])[0]
    assert json.loads(capsys.readouterr().out)["label"] == expected.label
    run("predict", models / "answers", "--text", "the cat", "--pair", "a mat and a dog", "-o", tmp_path / "p.csv")
    best = bothways.load(models / "answers", dtype="float32").answer("the cat", "a mat and a dog")[0]
    (row,) = separated(tmp_path / "p.csv")
    assert (row["id"], row["answer"], float(row["score"])) == ("0", best.text, pytest.approx(best.score, abs=1e-6))
    for kind, flags, status, way in (
        ("answers", ("--text", "who"), 1, "--pair"),
        ("entities", ("--text", "a", "--pair", "b"), 1, "leave out --pair"),
        ("labels", ("--text", "a", "--keep-columns", "id"), 1, "--text: no column 'id'"),
        ("labels", ("--pair", "b"), 2, "is the second text of --text"),
        ("labels", ("t.txt", "--text", "b"), 2, "exclude each other"),
    ):
        assert way in refused(capsys, "predict", models / kind, *flags, status=status)


# --- a pipe -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_lines_of_a_pipe_are_answered_as_they_come(models):
    """Each before the next is written, as behind `tail -f`; what is there together is answered together."""
    command = [sys.executable, "-m", "bothways", "predict", str(models / "labels"), "-", "--keep-columns", "text"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as running:
        for text in ("the cat", "é", ""):
            running.stdin.write(f"{text}\n".encode())
            assert json.loads(running.stdout.readline())["text"] == text
        running.stdin.write(b"a\nb\nwithout its en")
        assert [json.loads(running.stdout.readline())["text"] for _ in range(2)] == ["a", "b"]
        running.stdin.write(b"d")
        running.stdin.close()
        assert [json.loads(line)["text"] for line in running.stdout] == ["without its end"]
    assert running.returncode == 0


@pytest.mark.slow
def test_what_is_there_already_is_read_in_whole_blocks(monkeypatch, tmp_path):
    from bothways.inference.jobs.blocks import split_into_blocks
    from bothways.text.data import model_inputs

    def blocks(opened, live=True):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=opened))
        return map(len, split_into_blocks(model_inputs.read_texts("-", live=live), "stop"))

    file = written(tmp_path / "t.txt", "the cat\n" * 27)
    with file.open("rb") as opened:
        assert [*blocks(opened)] == [11, 11, 5]
    assert [*blocks(io.BytesIO(file.read_bytes()))] == [11, 11, 5]


@pytest.mark.skipif(sys.platform == "win32", reason="select knows no pipes there")
def test_what_has_come_is_answered_before_more_comes(monkeypatch):
    from bothways.inference.jobs.blocks import split_into_blocks
    from bothways.text.data import model_inputs

    for live in (True, False):
        reads, writes = os.pipe()
        with open(reads, "rb") as reading, open(writes, "wb", buffering=0) as writing:
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=reading))
            blocks = map(len, split_into_blocks(model_inputs.read_texts("-", live=live), "stop"))
            writing.write(b"a\n" * 4)
            if live:
                assert next(blocks) == 4
            else:  # a resumable result does not depend on when lines arrive
                sizes = ThreadPoolExecutor(1).submit(lambda: [*blocks])  # noqa: B023
                while select.select([reading], [], [], 0)[0]:
                    time.sleep(0.001)
            writing.write(b"a\n" * 5)
            writing.close()
            assert ([*blocks] if live else sizes.result()) == ([5] if live else [9])


def test_lines_that_keep_coming_do_not_put_off_the_answer(monkeypatch):
    from bothways.text.data import model_inputs
    from bothways.text.rows import standard_input

    monkeypatch.setattr(standard_input, "PAUSE", 60.0)
    monkeypatch.setattr(standard_input, "LONGEST_WAIT", 0.2)
    writing = ["python3", "-c", "import time\nwhile True: print('a', flush=True); time.sleep(0.02)"]
    with subprocess.Popen(writing, stdout=subprocess.PIPE) as writer:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=writer.stdout))
        assert any(one is None for one in model_inputs.read_texts("-", live=True))
        writer.kill()


# --- going on ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(models, texts, tmp_path, capsys):
    """The place of a file whose first 22 rows are done, and the command that resumes it."""
    lines = texts.read_bytes().splitlines(keepends=True)
    written(texts, b"".join([*lines[:30], b"\xff\n", *lines[30:]]))
    command = ("embed", models / "vectors", texts, "-o", tmp_path / "v.npy")
    refused(capsys, *command)
    written(texts, b"".join(lines))
    return tmp_path / "v.npy", (*command, "--resume")


def test_an_unfinished_file_is_not_overwritten_without_a_flag(stopped, capsys):
    out, command = stopped
    before = out.with_name(".v.npy.partial").read_bytes()
    error = refused(capsys, *command[:-1])
    assert "22 rows" in error and "--resume" in error
    assert out.with_name(".v.npy.partial").read_bytes() == before


def test_a_finished_file_is_not_resumed(stopped, capsys):
    out, command = stopped
    run(*command)
    before = out.read_bytes()
    assert "v.npy: already exists" in refused(capsys, *command)
    assert out.read_bytes() == before


def test_resuming_without_output_starts_with_a_message(models, texts, tmp_path, capsys):
    run("embed", models / "vectors", texts, "-o", tmp_path / "v.npy", "--resume")
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'v.npy'}: nothing to resume")
    assert len(np.load(tmp_path / "v.npy")) == 37


def test_changed_input_is_refused(stopped, texts, capsys):
    out, command = stopped
    good = texts.read_bytes()
    for changed in (
        good.replace(b"cat", b"dog", 1),
        good.splitlines(keepends=True)[0],
        good.replace(b"\n", b"\n\n", 1),
    ):
        written(texts, changed)
        error = refused(capsys, *command)
        assert "v.npy: the first 22 rows" in error
    written(texts, good + b"one more\n")  # the unread part may change
    run(*command)
    assert len(np.load(out)) == 38


def test_other_settings_and_another_model_are_refused_with_the_difference(stopped, models, capsys):
    _, command = stopped
    assert "(pooling: 'auto' -> 'cls')" in refused(capsys, *command, "--pooling", "cls")
    error = refused(capsys, command[0], models / "labels", *command[2:])
    assert "(model: '" in error
    run(*command)


def test_output_in_the_models_directory_does_not_change_its_fingerprint(models, tmp_path, capsys):
    model, out = tmp_path / "model", tmp_path / "model" / "v.jsonl"
    shutil.copytree(models / "labels", model)
    lines = [f'{{"text": "{text}"}}' for text in TEXTS]
    file = written(tmp_path / "t.jsonl", "\n".join([*lines[:25], "{", *lines[26:]]))
    refused(capsys, "predict", model, file, "-o", out)
    written(file, "\n".join(lines))
    run("predict", model, file, "-o", out, "--resume")
    assert len(out.read_text().splitlines()) == 37


def test_an_append_of_nothing_behind_a_cut_returns_the_end_of_the_file(tmp_path):
    file = AppendOnlyFile(tmp_path / "v.npy")
    assert file.append([b"abcdef"]) == 6
    file.truncate(2)
    assert [file.append([]), file.append([b"x"])] == [2, 3]
    file.close()


def test_other_threads_are_refused(stopped, capsys):
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(num_threads + 1)
    try:
        assert "(threads: " in refused(capsys, *stopped[1])
    finally:
        torch.set_num_threads(num_threads)


def test_two_commands_do_not_write_one_file(stopped, capsys):
    out, command = stopped
    with out.with_name(".v.npy.partial").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "v.npy: another command" in refused(capsys, *command)
    run(*command)


def test_a_broken_journal_and_a_cut_file_are_named(stopped, capsys):
    out, command = stopped
    partial, journal = out.with_name(".v.npy.partial"), out.with_name(".v.npy.partial.json")
    partial.write_bytes(partial.read_bytes()[:99])
    assert ".v.npy.partial: shorter than" in refused(capsys, *command)
    journal.write_text("{")
    assert ".v.npy.partial.json: not a journal" in refused(capsys, *command)
    journal.unlink()
    run(*command)  # as if nothing had been started
    assert len(np.load(out)) == 37


def test_resuming_needs_an_output_file(models, texts, capsys):
    assert "--out" in refused(capsys, "predict", models / "labels", texts, "--resume")


# --- killed -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(models):
    """A function that runs kills.py in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("kills.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:

        def run_job(file, out, *, on_error="stop", rows, shares=None, stride=1):
            job = {"model": str(models / "vectors"), "file": str(file), "out": str(out)}
            job |= {"on_error": on_error, "rows": rows, "shares": shares, "stride": stride}
            worker.stdin.write(json.dumps(job) + "\n")
            worker.stdin.flush()
            return json.loads(worker.stdout.readline())

        yield run_job


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_killed_at_every_third_write_it_resumes_to_the_same_bytes(ending, killed, tmp_path):
    """Writes of each kind: there are more than three of each. At all writes: soak/."""
    kill_at_writes(ending, killed, tmp_path, stride=3)


def kill_at_writes(ending, killed, tmp_path, stride):
    lines = [json.dumps({"text": text}) for text in TEXTS[:25]]
    file, out = written(tmp_path / "t.jsonl", "\n".join([*lines[:12], "{", *lines[12:]])), tmp_path / f"v.{ending}"
    result = killed(file, out, on_error="skip", rows=9, stride=stride)
    assert set(result["digests"]) == {result["whole"]} and result["kills"] > 15 // stride


@pytest.mark.slow
def test_ten_thousand_lines_killed_at_random_moments_are_the_same_bytes(killed, tmp_path):
    file = tmp_path / "t.txt.gz"
    file.write_bytes(gzip.compress("".join(f"{text} {n}\n" for n in range(271) for text in TEXTS).encode(), 1))
    out = tmp_path / "v.npy"
    result = killed(file, out, rows=512, shares=[0.1, 0.4, 0.7])
    assert result["digests"] == [result["whole"]] and len(np.load(out)) == 271 * 37
    assert result["kills"] > 0 and result["memory"] < 1e9


def test_a_job_names_the_library_that_computes_whether_or_not_another_is_loaded(models):
    """Static vectors are resumed by a process with or without torch."""
    for model, library in {"bothways-en-static": "numpy", str(models / "vectors"): "torch"}.items():
        facts = reproduction_facts(Embed(model=model, file="texts.txt", out=Path("out.npy")), bothways.load(model))
        assert {"numpy", "torch"} & facts.keys() == {library}
