"""What `predict` and `embed` read, and what their rows begin with: one table in every kind of input, and each kind of
model.
"""

import csv
import io
import json
from dataclasses import replace

import datasets
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

from bothways.cli import main
from bothways.inference.jobs.writers import Separated
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.text.rows.rows import form_of
from tests.guides import code_in, table_of, words_of

ROWS = [{"uid": f"u{row}", "text": text} for row, text in enumerate(["a cat", "the dog ran", "a mat, on the mat"])]


@pytest.fixture(scope="module")
def models(make_model, tokenizer, tmp_path_factory):
    """A directory of each kind of model."""
    directory = tmp_path_factory.mktemp("models")
    classes = Checkpoint(make_model("bert", {"classes": 3}), tokenizer, labels=("x", "y", "z"))
    checkpoint.save(classes, directory / "classes")
    checkpoint.save(replace(classes, multi_label=True), directory / "several labels")
    checkpoint.save(Checkpoint(make_model("bert", {"classes": 1}), tokenizer), directory / "numbers")
    return directory


@pytest.fixture
def inputs(tmp_path):
    """The rows in every kind of input, by name."""

    def separated(delimiter):
        lines = [["uid", "text"], *(row.values() for row in ROWS)]
        return "".join(
            delimiter.join(f'"{cell}"' if delimiter in cell else cell for cell in line) + "\n" for line in lines
        )

    contents = {
        "t.txt": "".join(f"{row['text']}\n" for row in ROWS),
        "t.csv": separated(","),
        "semicolon.csv": separated(";"),
        "t.tsv": separated("\t"),
        "t.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
        "t.json": json.dumps({"data": ROWS}),
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    table = pyarrow.Table.from_pylist(ROWS)
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pyarrow.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    datasets.disable_progress_bars()
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
    return [*(tmp_path / name for name in contents), tmp_path / "t.parquet", tmp_path / "t.arrow", tmp_path / "saved"]


def output_rows(verb, model, file, out):
    main.main([verb, str(model), str(file), "-o", str(out), "--dtype", "float32"])
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_predictions_are_the_same_for_every_kind_of_input(models, inputs, tmp_path):
    expected = output_rows("predict", models / "classes", inputs[0], tmp_path / "p.jsonl")
    assert [row["line"] for row in expected] == [1, 2, 3]
    for file in inputs[1:]:
        rows = output_rows("predict", models / "classes", file, tmp_path / f"p-{file.name}.jsonl")
        # Where there are lines, the column of the id follows their numbers.
        first = ["row", "line", "uid"] if form_of(file).has_lines else ["row", "uid"]
        assert [*rows[0]][: len(first)] == first, file.name
        for row, other, source in zip(rows, expected, ROWS, strict=True):
            assert row["uid"] == source["uid"]
            assert {name: row[name] for name in ("row", "label", "score", "scores")} == {
                name: other[name] for name in ("row", "label", "score", "scores")
            }, file.name


def test_vectors_are_the_same_for_every_kind_of_input(models, inputs, tmp_path):
    first, *others = [
        output_rows("embed", models / "classes", file, tmp_path / f"v-{file.name}.jsonl") for file in inputs
    ]
    assert [*first[0]] == ["row", "vector"] and [row["row"] for row in first] == [0, 1, 2]
    assert all(rows == first for rows in others)


@pytest.mark.parametrize("kind", ["classes", "several labels", "numbers"])
def test_a_prediction_has_the_columns_that_the_guide_lists(kind, models, inputs, tmp_path):
    cell = next(row[1] for row in table_of("classify", "model | columns after") if row[0] == kind)
    listed = code_in(cell)
    rows = output_rows("predict", models / kind, inputs[1], tmp_path / "p.jsonl")
    assert [*rows[0]] == ["row", "line", "uid", *listed]


@pytest.mark.parametrize("name", ["id", "_id", "idx", "guid", "uid", "uuid", "ID", "Guid"])
def test_a_column_that_identifies_rows_is_carried_along(name, models, tmp_path):
    (tmp_path / "t.csv").write_text(f"text,{name}\na cat,7\n", encoding="utf-8")
    (row,) = output_rows("predict", models / "numbers", tmp_path / "t.csv", tmp_path / "p.jsonl")
    assert [*row] == ["row", "line", name, "score"] and row[name] == "7"


def test_the_guide_lists_these_names_of_ids():
    listed = words_of("serving").partition("The column that identifies a row (")[2].partition(")")[0]
    assert code_in(listed) == ["id", "_id", "idx", "guid", "uid", "uuid"]


def test_quotes_and_line_ends_stay_in_a_csv_and_are_plain_or_spaces_in_a_tsv(models, tmp_path):
    note = 'x "y",\t1\n2'
    (tmp_path / "t.jsonl").write_text(json.dumps({"text": "a cat", "note": note}), encoding="utf-8")
    command = ["predict", str(models / "numbers"), str(tmp_path / "t.jsonl"), "--keep-columns", "note", "-o"]
    for name in ("p.csv", "p.tsv"):
        main.main([*command, str(tmp_path / name)])
    with (tmp_path / "p.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["note"] == note
    header, line = (tmp_path / "p.tsv").read_text(encoding="utf-8").splitlines()
    assert header.split("\t")[2] == "note" and line.split("\t")[2] == 'x "y", 1 2'


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\n", "\r"])
def test_texts_that_begin_like_formulas_are_escaped(start):
    """The signs that the guide lists: also those of full width, a tab and line ends."""
    plain, escaped = (Separated(["note"], False, escape) for escape in (False, True))
    for note in (f"{start}1", f"{start}"):
        (without,), (with_sign,) = (
            list(csv.reader(io.StringIO(b"".join(form.block([0], [{"note": note}])).decode(), newline="")))
            for form in (plain, escaped)
        )
        assert (without[-1], with_sign[-1]) == (note, f"'{note}")
    (inside,) = csv.reader(io.StringIO(b"".join(escaped.block([0], [{"note": f"a{start}"}])).decode(), newline=""))
    assert inside[-1] == f"a{start}"
