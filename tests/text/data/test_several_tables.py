"""Several tables for train, dev, test and check: read as one, each row with the location in its own file."""

import json
from dataclasses import replace

import datasets
import pandas
import pyarrow
import pytest

from bothways.base.errors import InputError, location_columns
from bothways.cli.parser import parse
from bothways.settings import Answer, Check, Classify, Tag, TrainEmbed
from bothways.settings.tables_in_memory import TableList
from bothways.tasks.answer.files import read_splits as read_question_splits
from bothways.tasks.embed.files import read_pairs
from bothways.tasks.tag.files import read_splits as read_sentence_splits
from bothways.text.data.examples import read_table
from bothways.text.data.split_tables import other_columns, read_tables, read_unlabelled
from bothways.training.run import plain_value


@pytest.fixture
def file(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return write


@pytest.fixture
def files(file):
    """Two tables of other formats and names of columns."""
    one = file("a.csv", "text,label,site\n" + "".join(f"a {row},{'xy'[row % 2]},{row}\n" for row in range(20)))
    rows = [{"sentence": f"b {row}", "class": "yx"[row % 2]} for row in range(30)]
    return [one, file("b.jsonl", "\n".join(map(json.dumps, rows)))]


def test_training_reads_all_tables(files, tmp_path):
    settings = Classify(train=files, model=tmp_path, out=tmp_path / "run")
    tables = read_tables(settings)
    assert sum(map(len, tables.values())) == 50
    places = {(where.file, where.row) for table in tables.values() for where in table.where}
    assert {(str(files[0]), 0), (str(files[1]), 29)} <= places and len(places) == 50
    assert str(settings.train) == f"{files[0]}, {files[1]}"
    assert plain_value(settings.train) == [*map(str, files)]


def test_tables_of_a_run_name_the_file_of_each_row(files, tmp_path):
    rows = read_tables(Classify(train=files, model=tmp_path, out=tmp_path / "run"))["train"].where
    columns = location_columns(rows)
    assert [*columns] == ["file", "row", "line"] and {*columns["file"]} == {*map(str, files)}
    for file, row, line in zip(*columns.values(), strict=True):
        # The first table has a header, the second is of JSON lines.
        assert line == row + (2 if file == str(files[0]) else 1)


def test_dev_and_test_may_be_several_tables(files, tmp_path):
    frame = pandas.DataFrame({"text": ["c"], "label": ["x"]})
    tables = read_tables(
        Classify(train=files[0], dev=files, test=[files[1], frame], model=tmp_path, out=tmp_path / "r")
    )
    assert {split: len(table) for split, table in tables.items()} == {"train": 20, "dev": 50, "test": 31}
    assert str(tables["test"].where[-1]) == "test[1]: row 0"


def test_a_list_may_have_every_kind_of_table(files, tmp_path):
    rows = [{"text": f"c {row}", "label": "xy"[row % 2]} for row in range(7)]
    datasets.disable_progress_bars()
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    kinds = [
        str(files[0]),
        pandas.DataFrame(rows),
        pyarrow.Table.from_pylist(rows),
        datasets.Dataset.from_list(rows),
        tmp_path / "saved",
        rows,
    ]
    table = read_table(Classify(train=kinds, model=tmp_path, out=tmp_path / "run").train, need_labels=True)
    assert table.texts[20:] == [row["text"] for row in rows] * 5
    assert table.labels[20:] == [row["label"] for row in rows] * 5
    assert [table.where[20 + 7 * kind].file for kind in (0, 1, 2)] == ["train[1]", "train[2]", "train[3]"]


def test_unlabelled_texts_are_lines_or_tables_with_the_columns_of_training(file, tmp_path):
    more = [
        file("m.txt", "one\ntwo\n"),
        file("m.csv", "body,label\nthree,x\nfour,\n"),
        file("m.jsonl", '{"body": "five"}\n'),
    ]
    settings = Classify(train="t.csv", model=tmp_path, out=tmp_path / "run", teacher=tmp_path, unlabelled=more)
    table = read_unlabelled(replace(settings, text_column="body"), pairs=False)
    assert (table.texts, table.labels) == (["one", "two", "three", "four", "five"], None)
    with pytest.raises(InputError, match=r"m\.csv: no column 'text'.*--text-column"):
        read_unlabelled(settings, pairs=False)


def test_a_list_of_one_table_is_that_table(files, tmp_path):
    assert Classify(train=[files[0]], model=tmp_path, out=tmp_path / "run").train == files[0]
    assert Check(file=[str(files[0])]).file == files[0]


def test_check_reads_several_tables_and_their_columns(files):
    settings = Check(file=files)
    assert isinstance(settings.file, TableList)
    table = read_table(settings.file, need_labels=True)
    assert (len(table), table.where[20].line) == (50, 1)
    assert other_columns([settings.file], [table.where[3], table.where[20]], {}, None)["site"] == ["3", None]


def test_the_command_line_takes_several_files(files):
    names = [*map(str, files)]
    settings = parse("check", [*names, "--json"])
    assert [*settings.file.parts] == files and settings.json
    settings = parse("finetune classify", ["--train", *names, "--dev", names[0], "--out", "run"])
    assert [*settings.train.parts] == files and settings.dev == files[0]


def test_an_error_names_the_file_and_the_row(files, file):
    broken = file("c.csv", "text,label\na,x\nb,\n")
    settings = Classify(train=[*files, broken], model="m", out="run")
    with pytest.raises(InputError, match=r"c\.csv: row 1 \(line 3\): the label is empty"):
        read_tables(settings)
    paired = file("p.csv", "text,pair,label\na,b,x\n")
    with pytest.raises(InputError, match=r"pairs of texts at .*p\.csv: row 0 .*, single ones at .*a\.csv: row 0 "):
        read_tables(Classify(train=[*files, paired], model="m", out="run"))


@pytest.mark.parametrize("value", [[], [7], ["a.csv", 7], [""]])
def test_a_list_of_other_things_is_refused(value):
    with pytest.raises(InputError, match=r"^(train|.*train\[\d\]).* must be|^train"):
        Classify(train=value, model="m", out="run")


def test_tagging_questions_and_pairs_read_several_files(file):
    conll = [
        file(f"{name}.conll", "-DOCSTART- O\n\nIn O\nRome B-CITY\n\n-DOCSTART- O\n\nNo O\n\n" * 5) for name in "ab"
    ]
    sentences = read_sentence_splits(Tag(train=conll, dev=conll[0], model="m", out="run"))["train"]
    assert len(sentences) == 20 and len({sentence.document for sentence in sentences}) == 20
    question = {"question": "q", "context": "a b", "answers": {"text": ["b"], "answer_start": [2]}}
    questions = [file(f"{name}.jsonl", json.dumps({"id": name, **question})) for name in "ab"]
    splits = read_question_splits(Answer(train=questions, dev=questions[0], model="m", out="run"), {})
    assert [question.id for question in splits["train"]] == ["a", "b"]
    pairs = [file(f"{name}.csv", f"anchor,positive\n{name}1,c\n{name}2,d\n") for name in "ab"]
    splits = read_pairs(TrainEmbed(train=pairs, dev=pairs[0], model="m", out="run"))
    assert splits["train"].texts[0] == ["a1", "a2", "b1", "b2"]
