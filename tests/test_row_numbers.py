"""Rows count from 0 wherever they leave the package: df.loc[row] is the row that is meant, beside its line and id."""

import csv
import json
import pickle
import re
from copy import copy

import pandas as pd
import pytest

import bothways
from bothways.base.errors import InputError, RowLocation
from bothways.inference.jobs.rows_to_label import write_rows_to_label
from bothways.inference.jobs.verbs import predict, predict_blocks
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Classify, Predict
from bothways.text.data.examples import read_table
from bothways.text.rows.text_files import file_type

MARKED = "marked,\nwith a line end"  # so that the line of later rows is not row + 2
ROWS = [{"id": f"n{row}", "text": f"{'good' if row % 2 else 'bad'} {row}", "label": "ab"[row % 2]} for row in range(40)]
ROWS[5]["text"] = MARKED
ROWS[20]["label"] = "a" if ROWS[20]["label"] == "b" else "b"  # a label that is wrong


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table, and the line of each row."""
    file = tmp_path_factory.mktemp("rows") / "t.csv"
    pd.DataFrame(ROWS).to_csv(file, index=False)
    return file


def line_of(row):
    return row + 2 + (row > 5)  # row 5 begins on the line that is expected and ends on the next


def test_a_location_is_its_text_and_is_copied_with_its_fields():
    for where in (
        RowLocation("a b.csv", 3, 5, "x y"), RowLocation("train", 0), RowLocation("d/t.json", 2, part="data[0].qas[1]"),
    ):  # fmt: skip
        for again in (pickle.loads(pickle.dumps(where)), copy(where)):
            assert vars(again) == vars(where) and again == where
    assert str(RowLocation("t.csv", 3, 5).with_id({"text": "x", "ID": 17})) == "t.csv: row 3 (line 5), id 17"


def test_every_output_names_a_row_as_pandas_does(table, make_model, tokenizer, tmp_path):
    checkpoint.save(Checkpoint(make_model("bert", {"masked_words": 0}), tokenizer), tmp_path / "start")
    frame = pd.read_csv(table)
    located = read_table(table, need_labels=True).where
    assert [(one.row, one.line, one.id) for one in located] == [(row, line_of(row), f"n{row}") for row in range(40)]
    run = bothways.train(Classify(model=tmp_path / "start", train=table, out=tmp_path / "run", folds=2, epochs=0.5))
    report = (run.directory / "report.html").read_text(encoding="utf-8")
    with (run.directory / "predictions.csv").open(encoding="utf-8-sig", newline="") as file:
        predictions = [*csv.DictReader(file)]
    stored = [*map(json.loads, (run.directory / "out-of-fold.jsonl").read_text(encoding="utf-8").splitlines())]
    assert len(predictions) == len(stored) == 40
    for row in (*predictions, *stored):
        number = int(row["row"])
        assert frame.loc[number, "id"] == row["id"] and int(row["line"]) == line_of(number)
        assert row["gold"] == frame.loc[number, "label"] and row.get("text") in (None, frame.loc[number, "text"])
    shown = re.findall(r"t\.csv: row (\d+) \(line (\d+)\), id n(\d+)", report)
    assert shown and all(row == id and int(line) == line_of(int(row)) for row, line, id in shown)
    settings = {"model": run.model_directory, "file": str(table)}
    predict(Predict(**settings, out=tmp_path / "p.jsonl"))
    write_rows_to_label(Predict(**settings, out=tmp_path / "l.csv", label_next=9))
    for row in pd.read_json(tmp_path / "p.jsonl", lines=True).itertuples():
        assert (row.id, row.line) == (frame.loc[row.row, "id"], line_of(row.row))
    for row in pd.read_csv(tmp_path / "l.csv").itertuples():
        assert (row.id, row.text, row.line) == (*frame.loc[row.row, ["id", "text"]], line_of(row.row))
    assert {row["id"] for block in predict_blocks(Predict(**settings)) for row in block} == {*frame["id"]}


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_an_error_names_a_row_as_pandas_does(name, tmp_path):
    rows = pd.DataFrame([*ROWS[:9], {"id": "n9", "text": "no label", "label": None}])
    file = tmp_path / name
    {".csv": lambda: rows.to_csv(file, index=False), ".jsonl": lambda: rows.to_json(file, orient="records", lines=True),
     ".parquet": lambda: rows.to_parquet(file)}[file_type(file)]()  # fmt: skip
    line = {".csv": " (line 12)", ".jsonl": " (line 10)"}.get(file_type(file), "")
    with pytest.raises(InputError) as raised:
        bothways.train(Classify(train=file, out=tmp_path / "run"))
    message = "the label is empty" if name == "t.csv" else "'label' is missing"
    assert str(raised.value).startswith(f"{file}: row 9{line}, id n9: {message}")
