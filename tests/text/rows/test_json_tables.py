"""Tables in a .json, for all tasks that read tables; and the first line of Excel's CSV."""

import json

import pytest

from bothways.base.errors import InputError
from bothways.evaluation import evaluate
from bothways.evaluation.evaluate import gold_kind, is_squad_file
from bothways.settings import Classify, Evaluate
from bothways.settings.base import TextColumns
from bothways.text.data.examples import read_table, read_tagged
from bothways.text.data.model_inputs import read_questions, read_texts
from bothways.text.data.pairs import read_pair_file
from bothways.text.data.split_tables import read_tables
from bothways.text.data.squad import read_squad
from bothways.text.rows.json_tables import is_json_table
from bothways.text.rows.rows import open_rows

ROWS = [{"text": f"a {row}", "label": "xy"[row % 2], "id": row} for row in range(20)]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
LAYOUTS = {
    "list": json.dumps(ROWS),
    "indented": json.dumps(ROWS, indent=2),
    "data": json.dumps({"version": "1", "data": ROWS}),
    "lines": "\n".join(map(json.dumps, ROWS)),
    "columns": json.dumps(COLUMNS),
    "pandas": json.dumps({name: dict(enumerate(values)) for name, values in COLUMNS.items()}),
    "mark": "\ufeff" + json.dumps(ROWS),
}
SQUAD = {"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": "1", "question": "q", "answers": []}]}]}]}


@pytest.fixture
def file(tmp_path):
    def write(content, name="t.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_rows_is_a_table(layout, file):
    path = file(LAYOUTS[layout])
    table = read_table(path, need_labels=True)
    assert is_json_table(path)
    assert (table.texts, table.labels) == (COLUMNS["text"], COLUMNS["label"])
    assert [(where.row, where.id) for where in table.where][:2] == [(0, "0"), (1, "1")]
    assert [one.text for one in read_texts(str(path))] == COLUMNS["text"]


@pytest.mark.parametrize("layout", ["list", "data", "lines"])
def test_all_verbs_take_a_json_table(layout, file, tmp_path):
    path = file(LAYOUTS[layout])
    tables = read_tables(Classify(train=path, model=tmp_path, out=tmp_path / "run"))
    assert sum(map(len, tables.values())) == 20
    assert gold_kind(path, False, None) == "labels" and not is_squad_file(path)
    predicted = file("\n".join(COLUMNS["label"]), "p.txt")
    assert evaluate.run(Evaluate(model=path, predictions=predicted))["accuracy"] == 1.0
    assert {"text", "label"} <= {*open_rows(path).all_names()}


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"data": rows}])
def test_pairs_tags_and_questions_are_read_from_a_json_table(wrap, file):
    pairs = file(wrap([{"anchor": "a", "positive": "b"}] * 2))
    assert read_pair_file(pairs, TextColumns(), "pairs").texts == [["a", "a"], ["b", "b"]]
    tags = file(wrap([{"tokens": ["In", "Rome"], "ner_tags": ["O", "B-CITY"]}] * 2))
    assert [one.tags for one in read_tagged(tags)] == [("O", "B-CITY")] * 2
    answers = {"text": ["b"], "answer_start": [2]}
    rows = [{"id": str(row), "question": "q", "context": "a b", "answers": answers} for row in range(2)]
    questions = file(wrap(rows))
    assert [one.answers for one in read_squad(questions)] == [(("b", 2),)] * 2
    assert [one.text for one in read_questions(str(questions))] == ["q", "q"]
    assert gold_kind(questions, False, None) == "answers"


def test_squad_is_still_squad(file):
    path = file(SQUAD)
    assert is_squad_file(path) and gold_kind(path, False, None) == "answers"
    assert [one.id for one in read_squad(path)] == ["1"]
    with pytest.raises(InputError, match=r"t\.json: holds SQuAD's questions"):
        read_table(path, need_labels=True)


def test_a_row_that_is_no_object_is_named_and_may_be_skipped(file):
    path = file([*ROWS, 7])
    with pytest.raises(InputError, match=r"t\.json: row 20: expected an object, found int"):
        read_table(path, need_labels=True)
    assert len(read_table(path, need_labels=True, on_error="skip")) == 20


@pytest.mark.parametrize("content", ['{"a": 1}', "{", "7", '{"a": [1, 2], "b": [1]}'])
def test_a_json_without_rows_is_named(content, file):
    with pytest.raises(InputError, match=r"^.*t\.json: .*give a list of objects, "):
        read_table(file(content), need_labels=True)


# --- Excel ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('sep=;\ntext;label\n"a, b";x\nc;y\n', ["a, b", "c"]),
        ('"sep=|"\ntext|label\na;b,c|x\nd|y\n', ["a;b,c", "d"]),
        ("\nSEP=\t\ntext\tlabel\na\tx\nb\ty\n", ["a", "b"]),
        ("sep=,\ntext,label\na,x\nb,y\n", ["a", "b"]),
    ],
)
def test_the_delimiter_that_excel_names_is_used(content, texts, file):
    table = read_table(file(content, "t.csv"), need_labels=True)
    assert (table.texts, table.labels) == (texts, ["x", "y"])
    assert table.where[0].line == content.count("\n") - 1
    assert [one.text for one in read_texts(str(file(content, "t.csv")))] == texts


def test_a_text_that_begins_like_it_is_a_text(file):
    assert read_table(file("text,label\nsep=;,x\n", "t.csv"), need_labels=True).texts == ["sep=;"]
