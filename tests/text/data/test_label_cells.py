"""Labels as other programs write them: no gold label, lists as text, fractions of zero, spaces, one column a label."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import pandas
import pytest

from bothways.base.errors import InputError, RowLocation
from bothways.evaluation import evaluate
from bothways.evaluation.check import decide_task
from bothways.settings import Check, Classify, Evaluate
from bothways.settings.tables_in_memory import as_source
from bothways.tasks.classify.task import CLASSIFY
from bothways.text.data.columns import Table
from bothways.text.data.examples import read_table
from bothways.text.data.label_cells import read_labels
from bothways.text.data.labels import class_indices, find_quantity, label_sets
from bothways.text.data.model_inputs import resolve_columns
from bothways.text.data.split_tables import read_tables


def labelled(*labels):
    where = [RowLocation("t.csv", row) for row in range(len(labels))]
    return Table([f"text {row}" for row in range(len(labels))], None, [*labels], where)


def read(*labels, several=False, names=()):
    return read_labels(labelled(*labels), several=several, names=names)


def scored(tmp_path, gold, predicted, **options):
    """The scores of predictions for a file of gold labels."""
    with (tmp_path / "gold.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *((f"text {row}", label) for row, label in enumerate(gold))])
    (tmp_path / "predicted.txt").write_text("\n".join(predicted), encoding="utf-8")
    return evaluate.run(Evaluate(model=tmp_path / "gold.csv", predictions=tmp_path / "predicted.txt", **options))


# --- no gold label ----------------------------------------------------------------------------------------------------


def test_rows_without_a_gold_label_are_left_out():
    table = read("entailment", "-", "neutral", "contradiction", "-")
    assert table.labels == ["entailment", "neutral", "contradiction"]
    assert [where.row for where in table.where] == [0, 2, 3]


def test_the_rows_left_out_are_named_in_a_line():
    (note,) = read("entailment", "-", "neutral").notes
    assert note == "left out 1 row without a gold label ('-'): t.csv: row 1"


def test_a_dash_among_other_classes_is_a_class():
    assert read("+", "-", "+").labels == ["+", "-", "+"]
    assert read("a", "-", "b").labels == ["a", "-", "b"]


def test_only_dashes_are_refused():
    with pytest.raises(InputError, match=r"row 0: no row has a gold label"):
        read("-", "-")


def test_training_and_predictions_leave_out_the_same_rows(tmp_path):
    rows = [
        {"gold_label": label, "sentence1": f"a {row}", "sentence2": f"b {row}"}
        for row, label in enumerate([*["neutral", "-", "entailment"] * 20])
    ]
    settings = Classify(train=rows, model=tmp_path, out=tmp_path / "run")
    tables = read_tables(settings)
    assert {label for table in tables.values() for label in table.labels} == {"neutral", "entailment"}
    assert sum(map(len, tables.values())) == 40
    scores = scored(tmp_path, ["neutral", "-", "entailment"] * 2, ["neutral", "neutral", "entailment"] * 2)
    assert (scores["accuracy"], scores["texts"]) == (1.0, 4)


# --- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("['bad', 'all']", {"bad", "all"}),
        ("{'bad', 'all'}", {"bad", "all"}),
        ("('bad', 'all')", {"bad", "all"}),
        ("['bad' 'all']", {"bad", "all"}),
        ("[\"it's\", 'all']", {"it's", "all"}),
        ("[3 17 4]", {"3", "17", "4"}),
        ("[3, 17]", {"3", "17"}),
        ('["bad"]', {"bad"}),
        ("[]", set()),
    ],
)
def test_a_list_that_is_written_as_text_is_a_set_of_labels(label, expected):
    assert label_sets(labelled(label)) == [expected]
    assert label_sets(read(label, several=True)) == [expected]


@pytest.mark.parametrize("label", ["['bad', 'all']", "[0 1 0]", '["bad"]', "['a' 'b']", "{'a'}"])
def test_a_list_is_no_class(label):
    with pytest.raises(InputError, match=r"t\.csv: row 1: the label is a list; .*--multi-label"):
        read("good", label)


@pytest.mark.parametrize("label", ["[0 1 0]", "[0. 1. 0.]", "[False  True False]", "[0, 1, 0]"])
def test_flags_of_labels_are_refused(label):
    with pytest.raises(InputError, match=r"row 0: label \[.*yes or no for each label.*--label-column"):
        label_sets(read(label, several=True))


@pytest.mark.parametrize("label", ["[unk]", "(0, 10)", "(0, 10]", "{spam}", "[1 [2]]", "(bad)", "[bug] it's"])
def test_a_bracket_alone_makes_no_list(label):
    assert read("good", label).labels == ["good", label]


def test_lists_that_are_read_are_named_in_a_line():
    (note,) = read("['bad', 'all']", "good", '["a"]', several=True).notes
    assert note == "labels that are lists in 1 row are read as such, for example ['bad', 'all']"


@pytest.mark.parametrize("form", ["csv", "empty.jsonl", "list.jsonl"])
def test_an_empty_cell_or_list_is_a_text_without_labels(form, tmp_path):
    rows = [{"text": "a", "labels": "x|y"}, {"text": "b", "labels": [] if form == "list.jsonl" else ""}]
    file = tmp_path / f"t.{form}"
    if form == "csv":
        pandas.DataFrame(rows).to_csv(file, index=False)
    else:
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    tables = read_tables(Classify(train=file, dev=file, multi_label=True, model=tmp_path, out=tmp_path / "run"))
    assert label_sets(tables["train"]) == [{"x", "y"}, set()]


@pytest.mark.parametrize("form", ["null.jsonl", "parquet", "frame"])
def test_a_missing_value_is_no_text_without_labels(form, tmp_path):
    rows = [{"text": "a", "labels": "x|y"}, {"text": "b", "labels": None}]
    file = tmp_path / f"t.{form}"
    if form == "parquet":
        pandas.DataFrame(rows).to_parquet(file)
    elif form == "null.jsonl":
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    source = pandas.DataFrame(rows) if form == "frame" else file
    settings = Classify(train=source, dev=source, multi_label=True, model=tmp_path, out=tmp_path / "run")
    with pytest.raises(InputError, match=r"row 1( \(line 2\))?: 'labels' is missing; fill it in"):
        read_tables(settings)


# --- spaces and fractions ---------------------------------------------------------------------------------------------


def test_a_space_after_a_comma_is_no_part_of_a_label(tmp_path):
    (tmp_path / "t.csv").write_text('text, label\nhello, spam\n"a, b", ham\nc, "so, so"\n', encoding="utf-8")
    table = read_table(tmp_path / "t.csv", label="label", need_labels=True)
    assert (table.labels, table.texts) == (["spam", "ham", "so, so"], ["hello", "a, b", "c"])
    (tmp_path / "u.csv").write_text("text,label\nhello, spam\n", encoding="utf-8")
    assert read_labels(read_table(tmp_path / "u.csv", need_labels=True), several=False).labels == ["spam"]
    (note,) = read("spam", " spam", "ham ").notes
    assert note == "the spaces around 2 labels are left out, such as in ' spam'"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["0.0", "1.0"], ["0", "1"]),
        (["0.0", "1.0", ""], ["0", "1", ""]),
        (["1.", "12", "-1.0"], ["1", "12", "-1"]),
        (["0.5", "1.0"], ["0.5", "1.0"]),
        (["1.0", "many"], ["1.0", "many"]),
        (["007", "08"], ["007", "08"]),
    ],
)
def test_whole_numbers_have_no_fraction(labels, expected):
    assert read(*labels).labels == expected


def test_an_empty_cell_does_not_rename_the_classes(tmp_path):
    rows = [{"text": f"a {row}", "label": row % 2} for row in range(40)]
    frame = pandas.DataFrame([*rows, {"text": "b", "label": None}])
    settings = Classify(train=frame, dev=rows, on_error="skip", model=tmp_path, out=tmp_path / "run")
    tables = read_tables(settings)
    assert {*tables["train"].labels} == {*tables["dev"].labels} == {"0", "1"}
    frame.to_csv(tmp_path / "t.csv", index=False)
    of_file = read_tables(replace(settings, train=tmp_path / "t.csv"))
    assert of_file["train"].labels == tables["train"].labels
    assert scored(tmp_path, ["0.0", "1.0"] * 4, ["0", "1"] * 4)["accuracy"] == 1.0


# What the reading of labels needs of a model.
LEARNED = SimpleNamespace(labels=("0.0", "1.0"), description=SimpleNamespace(multi_label=False))


def test_labels_are_spelled_as_the_model_has_learned_them():
    table = CLASSIFY.readable(LEARNED, labelled("0", "1", "1.0", " 1"))
    assert table.labels == ["0.0", "1.0", "1.0", "1.0"] and class_indices(table, LEARNED.labels) == [0, 1, 1, 1]
    assert CLASSIFY.readable(LEARNED, labelled("0", "2")).labels == ["0.0", "2"]


# --- a column for each label ------------------------------------------------------------------------------------------

COMMENTS = "id,text,toxic,insult\n1,a,1,0\n2,b,1.0,1\n3,c,0,0\n"


@pytest.mark.parametrize("named", ["toxic,insult", "insult, toxic"])
def test_a_column_for_each_label_gives_a_set_of_labels(named, tmp_path):
    (tmp_path / "t.csv").write_text(COMMENTS, encoding="utf-8")
    table = read_table(tmp_path / "t.csv", label=named, need_labels=True)
    assert label_sets(table) == [{"toxic"}, {"toxic", "insult"}, set()]
    assert label_sets(read_labels(table, several=True), ["insult", "toxic"]) == label_sets(table)
    with pytest.raises(InputError, match="row 0 .*: the label is a list; .*--multi-label"):
        read_labels(table, several=False)


def test_columns_of_flags_in_memory_are_read_alike():
    rows = [{"text": "a", "toxic": True, "insult": False}, {"text": "b", "toxic": True, "insult": True}]
    numbers = pandas.DataFrame(rows).astype({"toxic": float, "insult": int})
    for source in (rows, pandas.DataFrame(rows), numbers):
        table = read_table(as_source("train", source), label="toxic,insult", need_labels=True)
        assert label_sets(table) == [{"toxic"}, {"toxic", "insult"}]


def test_a_model_of_several_columns_reads_them_again(tmp_path):
    (tmp_path / "t.csv").write_text(COMMENTS, encoding="utf-8")
    names = resolve_columns(tmp_path / "t.csv", None, {"label_column": "toxic,insult"}, ("label",))
    assert names == {"label": "toxic,insult"}
    (tmp_path / "p.jsonl").write_text('{"labels": ["toxic"]}\n' * 3, encoding="utf-8")
    options = {"label_column": "toxic,insult", "predictions": tmp_path / "p.jsonl"}
    assert evaluate.run(Evaluate(model=tmp_path / "t.csv", **options))["accuracy"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("value", ["-1", "", "yes", "0.4"])
def test_a_flag_that_is_neither_0_nor_1_is_named(value, tmp_path):
    (tmp_path / "t.csv").write_text(f"text,toxic,insult\na,1,{value}\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"row 0 \(line 2\): 'insult' holds '{value}', not 0 or 1"):
        read_table(tmp_path / "t.csv", label="toxic,insult", need_labels=True)


def test_the_message_for_no_label_column_names_the_columns_of_flags(tmp_path):
    (tmp_path / "t.csv").write_text(COMMENTS, encoding="utf-8")
    with pytest.raises(InputError, match=r"no column 'label' .*; a column for each label: --label-column toxic,insult"):
        read_table(tmp_path / "t.csv", need_labels=True)


# --- what is a number -------------------------------------------------------------------------------------------------

FRACTIONS = [f"{number / 4:g}" for number in range(40)]


@pytest.mark.parametrize(
    ("labels", "is_quantity"),
    [
        ([*map(str, range(77))], False),
        (FRACTIONS, True),
        (["0.5", "1", "1.5", "2"], False),
        ([*FRACTIONS, "high"], False),
    ],
)
def test_check_and_finetune_and_evaluate_agree_what_is_a_number(labels, is_quantity, tmp_path):
    assert (find_quantity(labels) is not None) is is_quantity
    settings = Check(file=[{"text": "a"}])
    assert decide_task(labelled(*labels), settings)[0] is is_quantity
    rows = [{"text": f"{n} {label}", "label": label} for n, label in enumerate(labels * 3)]
    training = Classify(train=rows, model=tmp_path, out=tmp_path / "run", dev=rows)
    if is_quantity:
        with pytest.raises(InputError, match="finetune regress"):
            read_tables(training)
    else:
        read_tables(training)
    scores = scored(tmp_path, labels, labels)
    assert ("accuracy" in scores) is not is_quantity


def test_an_option_decides_what_is_a_number(tmp_path):
    check = Check(file=as_source("file", [{"text": "a"}]), task="regress")
    ids = labelled(*map(str, range(77)))
    assert decide_task(ids, check) == (True, [])
    assert decide_task(labelled(*FRACTIONS), replace(check, task="classify")) == (False, [])
    assert "spearman" in scored(tmp_path, ids.labels, ids.labels, task="regress")
    assert "accuracy" in scored(tmp_path, FRACTIONS, FRACTIONS, task="classify")


def test_a_line_says_what_whole_numbers_are_taken_for():
    check = Check(file=[{"text": "a"}])
    (note,) = decide_task(labelled(*map(str, range(77))), check)[1]
    assert note == "77 different whole numbers are judged as classes; --task regress judges them as numbers"
    (note,) = decide_task(labelled(*FRACTIONS), check)[1]
    assert note.startswith("the labels are 40 different numbers such as 0.25, ")
