"""In-memory tables in place of files: they become the rows that a file would contain."""

import json
from dataclasses import asdict
from pathlib import Path
from re import sub

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from bothways.base.errors import InputError
from bothways.settings import Classify, Evaluate, Pretrain
from bothways.settings.tables_in_memory import MemoryTable, as_source
from bothways.text.corpus.documents import Corpus
from bothways.text.data.examples import read_table, read_tagged
from bothways.text.data.squad import read_squad
from bothways.text.rows.row_errors import RowErrors
from bothways.text.rows.rows import open_rows, read_rows

ROWS = [{"text": "a cat", "label": "x"}, {"text": "a dog, ran", "label": "y"}, {"text": "", "label": "x"}]
COLUMNS = {name: [row[name] for row in ROWS] for name in ("text", "label")}
NAMED = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["x", "y"])})
NUMBERED = {**COLUMNS, "label": [0, 1, 0]}


def backwards():
    columns = {name: values[::-1] for name, values in NUMBERED.items()}
    return datasets.Dataset.from_dict(columns, features=NAMED)


class OnlyArrow:
    """The common interface of polars, duckdb and others: Arrow's stream, and columns."""

    columns = ("text", "label")

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.table(COLUMNS).__arrow_c_stream__(requested_schema)


TABLES = {
    "list of dicts": lambda: ROWS,
    "generator of dicts": lambda: (row for row in ROWS),
    "dict of lists": lambda: COLUMNS,
    "dict of arrays": lambda: {"text": np.array(COLUMNS["text"]), "label": pd.Series(COLUMNS["label"])},
    "pandas": lambda: pd.DataFrame(COLUMNS, index=[7, 3, 5]),
    "pandas, categories": lambda: pd.DataFrame(COLUMNS).astype({"label": "category"}),
    "Arrow": lambda: pa.table(COLUMNS),
    "Arrow, chunks": lambda: pa.concat_tables([pa.table(COLUMNS).slice(0, 1), pa.table(COLUMNS).slice(1)]),
    "record batch": lambda: pa.RecordBatch.from_pydict(COLUMNS),
    "record batches": lambda: pa.table(COLUMNS).to_reader(),
    "Arrow interface": OnlyArrow,
    "dataset": lambda: datasets.Dataset.from_dict(NUMBERED, features=NAMED),
    "split of a dataset": lambda: datasets.DatasetDict(train=datasets.Dataset.from_dict(COLUMNS))["train"],
    "chosen rows": lambda: backwards().select([2, 1, 0]),
    "streamed dataset": lambda: datasets.Dataset.from_dict(NUMBERED, features=NAMED).to_iterable_dataset(),
}


def settings(train, **options):
    return Classify(model="m", out="o", train=train, **options)


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table_has_the_rows_of_a_file(kind, tmp_path):
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    expected = read_table(tmp_path / "t.jsonl", need_labels=True)
    table = settings(TABLES[kind]()).train
    actual = read_table(table, need_labels=True)
    assert (actual.texts, actual.labels, actual.pairs) == (expected.texts, expected.labels, None)
    assert actual.where == [f"train: row {number}" for number in range(3)]
    assert table.record() == {
        "kind": table.kind, "rows": 3, "columns": ["text", "label"], "fingerprint": table.fingerprint,
    }  # fmt: skip


def test_a_named_index_is_a_column_and_an_unnamed_one_is_not():
    frame = pd.DataFrame(COLUMNS, index=["u1", "u2", "u3"])
    assert settings(frame).train.columns == ("text", "label")
    table = settings(frame.rename_axis("uid")).train
    assert {*table.columns} == {"text", "label", "uid"}
    assert str(read_table(table, need_labels=True).where[1]) == "train: row 1, id u2"


def test_a_fingerprint_names_rows_and_their_order_not_their_kind_or_chunks():
    tables = {kind: settings(make()).train for kind, make in TABLES.items()}
    by_number = {"dataset", "chosen rows", "streamed dataset"}  # classes are numbers there
    assert len({table.fingerprint for kind, table in tables.items() if kind in by_number}) == 1
    assert len({table.fingerprint for kind, table in tables.items() if kind not in by_number}) == 1
    changed = [ROWS[::-1], ROWS[:2], [*ROWS[:2], {"text": " ", "label": "x"}], [*ROWS, 5], COLUMNS | {"id": [1, 2, 3]}]
    prints = {settings(table).train.fingerprint for table in [ROWS, COLUMNS, *changed]}
    assert len(prints) == 1 + len(changed)


def test_values_are_those_of_json():
    row = {
        "text": np.str_("a"), "label": np.int64(3), 5: np.array([1.5]), "set": {"b", "a"}, "pair": ("x", {"y": (1,)}),
        "gap": pd.NA, "when": pd.NaT, "yes": np.bool_(True),
    }  # fmt: skip
    [(_, values)] = as_source("t", [row]).rows()
    assert json.loads(json.dumps(values)) == {
        "text": "a", "label": 3, "5": [1.5], "set": ["a", "b"], "pair": ["x", {"y": [1]}], "gap": None, "when": None,
        "yes": True,
    }  # fmt: skip


def test_later_changes_of_the_rows_do_not_change_the_table():
    rows = [dict(row) for row in ROWS]
    copied = settings(rows, dev=rows[1:])
    rows[0]["text"] = "changed"
    rows.pop()
    assert [row["text"] for _, row in copied.train.rows()] == COLUMNS["text"]
    assert asdict(copied)["train"] is copied.train and (copied.train.name, copied.dev.name) == ("train", "dev")
    assert copied.dev.num_rows == 2 and "2 rows" in repr(copied.dev)


def test_wrong_rows_are_named_as_in_a_file(tmp_path):
    rows = [*ROWS, 5, {"text": "no label"}, {"text": ["list"], "label": "x"}, {"text": None, "label": "y"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    table, messages = settings(rows).train, []
    for source in (tmp_path / "t.jsonl", table):
        kept = read_table(source, need_labels=True, on_error="skip")
        assert kept.texts == COLUMNS["text"]
        with pytest.raises(InputError) as raised:
            read_table(source, need_labels=True, on_error="stop")
        messages.append((kept.notes[0], str(raised.value)))
    (in_file, all_in_file), (in_memory, all_in_memory) = messages
    assert "train: row 3" not in in_file and "train: row 3" in in_memory
    same = {
        f"{tmp_path}/t.jsonl:": "train:",
        "a JSON object": "a dict",
        "write one object per line": "give one dict per row",
    }
    in_file, all_in_file = (sub(r" \(line \d+\)", "", message) for message in (in_file, all_in_file))
    for old, new in same.items():
        in_file, all_in_file = in_file.replace(old, new), all_in_file.replace(old, new)
    assert (in_memory, all_in_memory) == (in_file, all_in_file)


def test_columns_are_chosen_and_missed_as_in_a_file(tmp_path):
    columns = {"review": ["a", "b"], "stars": [1, 2], "sentence": ["c", "d"]}
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    for columns_by_role in (
        {},
        {"text": "review"},
        {"text": "nothing"},
        {"text": "review,sentence"},
        {"label": "grade"},
    ):
        outcomes = []
        for source in (tmp_path / "t.parquet", settings(columns).train, settings(pa.table(columns)).train):
            try:
                table = read_table(source, need_labels=True, **columns_by_role)
                outcomes.append((table.texts, table.labels))
            except InputError as error:
                outcomes.append(str(error).replace(f"{tmp_path}/t.parquet", "train"))
        assert outcomes[0] == outcomes[1] == outcomes[2], columns_by_role


def test_classes_of_a_dataset_are_named():
    rows = read_rows(settings(datasets.Dataset.from_dict({**NUMBERED, "label": [1, -1, 0]}, features=NAMED)).train)
    assert [row["label"] for _, row in rows] == ["y", None, "x"]


def test_words_with_tags_and_questions_are_read(tmp_path):
    tagged = settings(pd.DataFrame({"tokens": [["a", "cat"], ["b"]], "ner_tags": [["O", "B-X"], ["O"]]})).train
    assert [(one.words, one.tags, one.where) for one in read_tagged(tagged)] == [
        (("a", "cat"), ("O", "B-X"), "train: row 0"), (("b",), ("O",), "train: row 1"),
    ]  # fmt: skip
    question = {"id": 1, "question": "who", "context": "The cat."}
    questions = read_squad(settings([{**question, "answers": {"text": ["cat"], "answer_start": (4,)}}]).train)
    assert questions[0].answers == (("cat", 4),) and questions[0].where == "train: row 0, id 1"
    with pytest.raises(InputError, match="train: row 0, id 1: .*'cat' .* 3"):
        read_squad(settings([{**question, "answers": [{"text": "cat", "answer_start": 3}]}]).train)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"text": "a cat", "label": "x"}, "train: column 'text' holds 'a cat'"),
        ({"text": ["a", "b"], "label": ["x"]}, "train: columns of different lengths (text 2, label 1)"),
        (datasets.DatasetDict(a=datasets.Dataset.from_dict(COLUMNS)), "train is several tables (a)"),
        (pd.DataFrame({"text": ["a", 3]}), "train: pandas.DataFrame does not fit"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "train: pandas.DataFrame does not fit"),
        (["a.csv", 5], "train (['a.csv', 5]) must be a path"),
        (5, "train (5) must be a path"),
        (np.array(["a"]), "train (array(['a'], dtype='<U1')) must be"),
    ],
)
def test_an_invalid_table_is_a_one_line_error(table, expected):
    with pytest.raises(InputError) as raised:
        settings(table)
    assert str(raised.value).startswith(expected) and "\n" not in str(raised.value)


def test_an_empty_table_is_truthy_and_refused_when_it_is_read():
    for empty in ([{}], {"text": [], "label": []}, pd.DataFrame({"text": [], "label": []})):
        with_dev = settings(ROWS, dev=empty)
        assert with_dev.dev
        with pytest.raises(InputError, match="dev: "):
            read_table(with_dev.dev, need_labels=True)


def test_a_corpus_may_mix_files_and_tables(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n", encoding="utf-8")
    sources = [tmp_path / "a.txt", {"text": ("three", "four")}, pa.table({"text": ["five"]}), [{"text": "six"}]]
    corpus = Corpus(Pretrain(corpus=sources, out="o").corpus)
    assert [*corpus.documents()] == ["one", "two", "three", "four", "five", "six"]
    assert corpus.files() == [tmp_path / "a.txt"] and corpus.left_out() == ""
    names = [str(source) for source in corpus.paths if isinstance(source, MemoryTable)]
    assert names == ["corpus[1]", "corpus[2]", "corpus[3]"]
    assert corpus.fingerprint() != Corpus(Pretrain(corpus=sources[:3], out="o").corpus).fingerprint()
    other = Pretrain(corpus=[*sources[:3], [{"text": "seven"}]], out="o").corpus
    assert corpus.fingerprint() != Corpus(other).fingerprint()
    for wrong in (pa.table({"body": ["a"]}), pa.Table.from_arrays([["a"], ["b"]], names=["text", "text"])):
        with pytest.raises(InputError, match="corpus: (no column 'text' .*body|two columns .*'text')"):
            [*Corpus(Pretrain(corpus=wrong, out="o").corpus).documents()]
    broken = Pretrain(corpus=[{"text": "a"}, {"text": 3}], out="o").corpus
    with pytest.raises(InputError, match="corpus: row 1: 'text' .*int"):
        [*Corpus(broken).documents()]
    assert [*Corpus(broken, on_error="skip").documents()] == ["a"]


@pytest.mark.parametrize(
    "texts",
    [pd.Series(["one", "two"]), pa.array(["one", "two"]), datasets.Dataset.from_dict({"x": ["one", "two"]})["x"]],
)
def test_a_column_of_texts_is_a_corpus(texts):
    (table,) = Pretrain(corpus=texts, out="o").corpus
    assert [*Corpus((table,)).documents()] == ["one", "two"]


def test_strings_are_paths_and_texts_among_them_are_an_error():
    paths = ("a.txt", Path("b.txt"), "hf:owner/name")
    assert Pretrain(corpus=paths, out="o").corpus == Pretrain(corpus=iter(paths), out="o").corpus
    assert Pretrain(corpus=paths, out="o").corpus == tuple(map(Path, paths))
    assert Evaluate(model="m", file=[ROWS, "t.csv"]).file[1] == Path("t.csv")
    for text in ("Once upon a time.\nThe end.", "word " * 99):
        with pytest.raises(InputError, match="corpus holds texts"):
            Pretrain(corpus=[text, text], out="o")


def test_rows_that_arrow_cannot_give_are_left_out():
    broken = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(np.int32([0, 1, 2])), pa.py_buffer(b"\xffa")])
    table, errors = settings(pa.table({"text": broken})).train, RowErrors("skip")
    assert [row["text"] for _, row in open_rows(table).read(errors)] == ["a"]
    assert "train: row 0" in errors.notes(1)[0] and len(table.fingerprint) == 16
