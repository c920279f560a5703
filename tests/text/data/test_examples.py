"""Labelled tables, datasets and tagged words in their usual forms: columns, and labels of all kinds."""

import gzip
import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.base.errors import InputError, MissingFile
from bothways.text.data.columns import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, Table
from bothways.text.data.examples import read_table, read_tagged
from bothways.text.data.labels import FLOAT32_MAX, class_indices, label_sets, numeric_labels
from bothways.text.rows import datasets as hub


@pytest.fixture(autouse=True)
def without_bars():
    datasets.disable_progress_bars()


@pytest.fixture
def file(tmp_path):
    def write(name, content):
        (tmp_path / name).write_text(content, encoding="utf-8")
        return tmp_path / name

    return write


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def labelled(*labels):
    return Table(["a"] * len(labels), None, [*labels], [f"t.csv:{line}" for line in range(2, len(labels) + 2)])


# --- columns by their usual names -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["text", *TEXT_NAMES, "Text", "SENTENCE"])
def test_a_text_is_found_by_its_usual_name(name, file):
    table = read_table(file("t.csv", f"id,{name},label\n7,a cat,x\n"), need_labels=True)
    assert (table.texts, table.pairs, table.labels) == (["a cat"], None, ["x"])


@pytest.mark.parametrize(
    ("first", "second"), [("text", "pair"), ("text", "text_pair"), *PAIR_NAMES, ("sentence", "Pair")]
)
def test_a_pair_is_found_by_its_usual_names_in_either_order(first, second, file):
    for columns in ((first, second), (second, first)):
        content = "\t".join([*columns, "label"]) + "\n" + "\t".join([*columns, "x"]) + "\n"
        table = read_table(file("t.tsv", content), need_labels=True)
        assert (table.texts, table.pairs) == ([first], [second])


@pytest.mark.parametrize("name", ["label", *LABEL_NAMES, "Label", "Class"])
def test_a_label_is_found_by_its_usual_name(name, file):
    assert read_table(file("t.csv", f"text,{name}\na,x\n"), need_labels=True).labels == ["x"]


def test_our_own_names_come_before_others(file):
    path = file("t.csv", "sentence,review,text,score,label,class,sentence1,sentence2\n1,2,a,3,x,4,5,6\n")
    table = read_table(path, need_labels=True)
    assert (table.texts, table.pairs, table.labels) == (["a"], None, ["x"])


def test_a_column_that_is_named_comes_before_all_others_and_makes_no_pair_by_itself(file):
    path = file("t.csv", "text,sentence1,sentence2,label,score\na,b,c,x,2\n")
    table = read_table(path, text="sentence1", label="score", need_labels=True)
    assert (table.texts, table.pairs, table.labels) == (["b"], None, ["2"])
    table = read_table(path, text="sentence2", pair="sentence1", need_labels=False)
    assert (table.texts, table.pairs, table.labels) == (["c"], ["b"], ["x"])


def test_a_text_beside_a_named_pair_is_found(file):
    path = file("t.csv", "premise,claim,label\na,b,x\n")
    assert read_table(path, pair="claim", need_labels=True).texts == ["a"]


@pytest.mark.parametrize(
    ("header", "named", "message"),
    [
        ("sentence,review,label", {}, "'sentence' or 'review'; .*--text-column"),
        ("Text,text,label", {}, "'Text' or 'text'; .*--text-column"),
        (
            "question,passage,answer,label", {},
            "'question' with 'answer' or 'question' with 'passage'; .*--text-column",
        ),
        (
            "review,sentence1,sentence2,label", {},
            "'sentence1' with 'sentence2' or 'review'; .*--text-column",
        ),
        ("text,pair,text_pair,label", {}, "'pair' or 'text_pair'; .*--pair-column"),
        ("text,score,class", {}, "'score' or 'class'; .*--label-column"),
        (
            "text,label", {"pair": "other"},
            "'other' .*: text, label.*--pair-column",
        ),
        (
            "sentence,label", {"text": "text"},
            "'text' .*: sentence, label.*--text-column",
        ),
        (
            "a,label", {},
            "'text' .*: a, label.*--text-column",
        ),
        (
            "text,a", {},
            "'label' .*: text, a.*--label-column",
        ),
    ],
)  # fmt: skip
def test_ambiguous_and_missing_columns_raise(header, named, message, file):
    path = file("t.csv", f"{header}\n{header}\n")
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: .*{message}"):
        read_table(path, **named, need_labels=True)


def test_ambiguous_labels_are_ignored_if_none_is_needed(file):
    assert read_table(file("t.csv", "text,score,class\na,1,x\n"), need_labels=False).labels is None


def test_the_name_pair_means_where_there_is_one(file):
    assert read_table(file("t.csv", "text,label\na,x\n"), pair="pair", need_labels=True).pairs is None
    assert read_table(file("u.csv", "text,pair\na,b\n"), pair="pair", need_labels=False).pairs == ["b"]


def test_a_value_of_another_type_than_text_is_named(file):
    path = file("t.jsonl", lines({"text": "a", "label": "x"}, {"text": ["a", "b"], "label": "x"}))
    with pytest.raises(InputError, match=r"t\.jsonl: row \d+ \(line 2\): 'text' .*list.*--text-column"):
        read_table(path, need_labels=True)
    path = file("u.jsonl", lines({"text": "a", "label": {"x": 1}}))
    with pytest.raises(InputError, match=r"u\.jsonl: row \d+ \(line 1\): 'label' .*dict.*--label-column"):
        read_table(path, need_labels=True)


def test_a_missing_file_and_a_directory_are_named(tmp_path):
    for name in ("t.csv", "t.tsv", "t.txt", "t.jsonl", "t.parquet"):
        with pytest.raises(MissingFile, match=re.escape(name)):
            read_table(tmp_path / name, need_labels=False)
    with pytest.raises(InputError, match="a directory"):
        read_table(tmp_path, need_labels=True)


# --- what labels mean -------------------------------------------------------------------------------------------------


def test_an_empty_label_is_named():
    with pytest.raises(InputError, match=r"^t\.csv:3: the label is empty"):
        class_indices(labelled("x", " "), ["", " ", "x"])


def test_a_label_that_only_dev_has_is_named_with_its_line():
    with pytest.raises(InputError, match=r"^t\.csv:4: label 'z' .*x, y;"):
        class_indices(labelled("x", "y", "z"), ["x", "y"])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["a|b", "c", ""], [{"a", "b"}, {"c"}, set()]),
        (["a; b ;", "c"], [{"a", "b"}, {"c"}]),
        (["a,b", "b"], [{"a", "b"}, {"b"}]),
        (["a, b|c", "d;e"], [{"a, b", "c"}, {"d;e"}]),
        (['["a|b", "c"]', "[]", "d|e"], [{"a|b", "c"}, set(), {"d", "e"}]),
        (["a b", "a b"], [{"a b"}, {"a b"}]),
    ],
)
def test_several_labels_are_a_list_or_separated(labels, expected):
    assert label_sets(labelled(*labels)) == [frozenset(one) for one in expected]


def test_a_label_that_is_known_is_not_divided():
    names = ["a, b", "c"]
    assert label_sets(labelled("a, b", "c"), names) == [{"a, b"}, {"c"}]
    with pytest.raises(InputError, match=r"^t\.csv:3: label 'd' .*a, b, c;"):
        label_sets(labelled("c", "c|d"), names)


def test_lists_of_labels_are_read_from_json_and_parquet(file, tmp_path):
    rows = [{"text": "a", "labels": ["x|y", "z"]}, {"text": "b", "labels": []}, {"text": "c", "labels": ["é"]}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    for path in (file("t.jsonl", lines(*rows)), tmp_path / "t.parquet"):
        assert label_sets(read_table(path, need_labels=True)) == [{"x|y", "z"}, set(), {"é"}]


@pytest.mark.parametrize("label", ["['a', b]", "[1", "[" * 20_000])
def test_an_invalid_list_is_named(label):
    with pytest.raises(InputError, match=r"^t\.csv:2: label .* JSON list"):
        label_sets(labelled(label))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.frozensets(st.text("abc |;,[\"'", min_size=1), max_size=4), min_size=1))
def test_any_sets_of_labels_come_back_from_lists(sets):
    table = labelled(*(json.dumps(sorted(labels)) for labels in sets))
    assert label_sets(table) == sets
    assert label_sets(table, sorted(set().union(*sets))) == sets


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-FLOAT32_MAX, FLOAT32_MAX), min_size=1))
def test_any_numbers_that_float32_holds_come_back(values):
    assert numeric_labels(labelled(*map(repr, values))) == values


@pytest.mark.parametrize("label", ["1e307", "-3.5e38", repr(math.nextafter(FLOAT32_MAX, math.inf))])
def test_a_number_beyond_float32_is_named(label):
    with pytest.raises(InputError, match=rf"t.csv:3: label {re.escape(repr(label))} .*3.4e"):
        numeric_labels(labelled(repr(FLOAT32_MAX), label))


@pytest.mark.parametrize("label", ["nan", "NaN", "inf", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_named(label):
    with pytest.raises(InputError, match=rf"^t\.csv:3: label {re.escape(repr(label))} .*finite"):
        numeric_labels(labelled("1", label))


@pytest.mark.parametrize("label", ["", "high", "1,5", "1_000", "0x1", "[1]"])
def test_an_invalid_number_is_named(label):
    with pytest.raises(InputError, match=rf"^t\.csv:3: label {re.escape(repr(label))} .*not a number"):
        numeric_labels(labelled("1", label))


def test_numbers_that_are_nan_in_their_file_are_named(file, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"], "score": [float("nan")]}), tmp_path / "t.parquet")
    for path in (file("t.jsonl", '{"text": "a", "score": NaN}\n'), tmp_path / "t.parquet"):
        with pytest.raises(InputError, match="'score' is missing"):
            numeric_labels(read_table(path, need_labels=True))


# --- datasets of Hugging Face -----------------------------------------------------------------------------------------

FEATURES = datasets.Features(
    {
        "sentence": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["no", "yes"]),
        "topics": datasets.List(datasets.ClassLabel(names=["a", "b", "c"])),
        "tokens": datasets.List(datasets.Value("string")),
        "ner_tags": datasets.List(datasets.ClassLabel(names=["O", "B-X", "I-X"])),
    }
)
COLUMNS = {
    "sentence": ["one", "two"],
    "label": [1, 0],
    "topics": [[2, 0], []],
    "tokens": [["the", "big", "cat"], ["dog"]],
    "ner_tags": [[0, 1, 2], [0]],
}


def dataset(**changes):
    return datasets.Dataset.from_dict({**COLUMNS, **changes}, features=FEATURES)


@pytest.fixture(params=["saved", "split", "parquet", "packed"])
def source(request, tmp_path):
    """One dataset in every form in which it can lie on a disk."""
    if request.param == "saved":
        dataset().save_to_disk(tmp_path / "saved", num_shards=2)
        return tmp_path / "saved"
    if request.param == "split":
        parts = {"train": dataset(sentence=["no", "no"]), "validation": dataset()}
        datasets.DatasetDict(parts).save_to_disk(tmp_path / "parts")
        return tmp_path / "parts" / "validation"
    dataset().to_parquet(tmp_path / "t.parquet")
    if request.param == "packed":
        (tmp_path / "t.parquet.gz").write_bytes(gzip.compress((tmp_path / "t.parquet").read_bytes()))
        return tmp_path / "t.parquet.gz"
    return tmp_path / "t.parquet"


def test_classes_of_a_dataset_have_their_names(source, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # no package is needed to read what it has written
    table = read_table(source, need_labels=True)
    assert (table.texts, table.labels) == (["one", "two"], ["yes", "no"])
    assert label_sets(read_table(source, label="topics", need_labels=True)) == [{"a", "c"}, frozenset()]
    first, second = read_tagged(source)
    assert (first.words, first.tags, first.document) == (("the", "big", "cat"), ("O", "B-X", "I-X"), None)
    assert (second.words, second.tags) == (("dog",), ("O",))
    assert table.where == [first.where, second.where] and ": row 0" in first.where


def test_a_class_of_minus_one_is_none_and_a_number_without_a_name_is_named(tmp_path):
    dataset(label=[-1, -1]).save_to_disk(tmp_path / "test")
    assert read_table(tmp_path / "test", need_labels=False).labels is None
    with pytest.raises(InputError, match=r"test: row 0: 'label' is missing"):
        read_table(tmp_path / "test", need_labels=True)
    table = pyarrow.table({"text": ["a", "b"], "label": [1, 7]})
    written = {"info": {"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}}
    table = table.replace_schema_metadata({"huggingface": json.dumps(written)})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(InputError, match="row 1: 'label' is 7, .* 2 classes"):
        read_table(tmp_path / "t.parquet", need_labels=True)


@pytest.mark.parametrize("written", ["?", "{}", '{"info": {"features": 3}}', '{"info": {"features": {"label": 3}}}'])
def test_invalid_metadata_of_a_table_is_ignored(written, tmp_path):
    table = pyarrow.table({"text": ["a"], "label": [1]}).replace_schema_metadata({"huggingface": written})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", need_labels=True).labels == ["1"]


@pytest.fixture
def on_the_hub(monkeypatch):
    """A hub of one dataset; returns the requested splits."""
    requested = []

    def load_dataset(name, config, *, split, revision, streaming):
        requested.append(split)
        return dataset().to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda self, name: SimpleNamespace(sha="a" * 40))
    hub._revision.cache_clear()
    yield requested
    hub._revision.cache_clear()


def test_a_dataset_is_read_by_its_name(on_the_hub):
    table = read_table(Path("hf:owner/name@validation"), need_labels=True)
    assert (table.texts, table.labels) == (["one", "two"], ["yes", "no"])
    assert table.where == ["hf:owner/name@validation: row 0", "hf:owner/name@validation: row 1"]
    assert set(on_the_hub) == {"validation"}
    assert read_table(Path("hf:owner/name.txt"), need_labels=False).texts == ["one", "two"]
    assert [one.tags for one in read_tagged(Path("hf:owner/name.txt"))] == [("O", "B-X", "I-X"), ("O",)]
    assert on_the_hub[-1] == "train"


# --- words with tags --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["words", "tokens", "Tokens"])
@pytest.mark.parametrize("tags", ["tags", "ner_tags", "ner", "labels"])
def test_words_and_tags_are_found_by_their_usual_names(words, tags, file):
    (sentence,) = read_tagged(file("t.jsonl", lines({"id": 1, words: ["a", "cat"], tags: ["O", "B-X"]})))
    assert (sentence.words, sentence.tags) == (("a", "cat"), ("O", "B-X")) and sentence.where.row == 0


def test_words_and_tags_are_read_from_the_named_columns(file):
    row = {"tokens": ["a"], "parts": ["b"], "ner_tags": ["O"], "labels": ["N"], "chunks": [3]}
    path = file("t.jsonl", lines(row))
    (sentence,) = read_tagged(path, words="parts", tags="chunks")
    assert (sentence.words, sentence.tags) == (("b",), ("3",))
    with pytest.raises(InputError, match="'ner_tags' or 'labels'; .*--tags-column"):
        read_tagged(path)
    with pytest.raises(InputError, match="'kinds' .*: tokens, .*--tags-column"):
        read_tagged(path, tags="kinds")


def test_a_conll_file_goes_by_the_numbers_of_its_columns(file):
    path = file("eng.train", "the DT O\ncat NN B-X\n")
    assert [one.tags for one in read_tagged(path)] == [("O", "B-X")]
    assert [one.tags for one in read_tagged(path, words="0", tags="1")] == [("DT", "NN")]
    with pytest.raises(InputError, match=r"--tags-column \(ner\)"):
        read_tagged(path, tags="ner")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"words": ["a", "b"], "tags": ["O"]}, "2 words but 1 tag"),
        ({"words": [], "tags": []}, "'words' holds an empty list"),
        ({"words": ["a", ""], "tags": ["O", "B-X"]}, "words[1] is empty"),
        ({"words": ["a"]}, "'tags' holds None"),
        ({"words": "a b", "tags": ["O"]}, "'words' holds 'a b'"),
        ({"words": ["a"], "tags": [None]}, "'tags' holds a list "),
    ],
)
def test_an_invalid_row_of_tags_raises_with_its_line(row, message, file):
    path = file("t.jsonl", lines({"words": ["a"], "tags": ["O"]}, row))
    with pytest.raises(InputError) as raised:
        read_tagged(path)
    assert str(raised.value).startswith(f"{path}: row 1 (line 2): {message}")


def test_a_table_without_words_or_without_rows_is_named(file):
    with pytest.raises(InputError, match="'words' .*: text, tags.*--words-column"):
        read_tagged(file("t.jsonl", lines({"text": "a", "tags": ["O"]})))
    with pytest.raises(InputError, match="'tags' .*: tokens.*--tags-column"):
        read_tagged(file("t.jsonl", lines({"tokens": ["a"]})))
    with pytest.raises(InputError, match="t.jsonl: empty"):
        read_tagged(file("t.jsonl", "\n"))


@pytest.mark.parametrize("marks", [[0.0, 1.0, 0.0], [0, 1, 0], [True, False, True]])
def test_a_list_of_flags_is_not_a_list_of_labels(marks, file):
    table = read_table(file("t.jsonl", lines({"text": "a", "labels": marks})), need_labels=True)
    with pytest.raises(InputError, match=r"t\.jsonl: row \d+ \(line 1\): label \[.*\] "):
        label_sets(table)


@pytest.mark.parametrize(
    ("value", "held"), [(b"pos", "bytes"), ([b"pos"], "bytes"), ([["a"]], "list"), ([{"name": "a"}], "dict")]
)
def test_an_invalid_label_is_named(value, held, tmp_path):
    table = pyarrow.Table.from_pylist([{"text": "a", "label": value}])
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(InputError, match=rf"t\.parquet: row 0: 'label' holds {held}, .*--label-column"):
        read_table(tmp_path / "t.parquet", need_labels=True)
    assert read_table(tmp_path / "t.parquet", need_labels=False).labels is None


def test_a_gap_in_a_list_of_labels_is_named(file):
    with pytest.raises(InputError, match=r"t\.jsonl: row \d+ \(line 1\): 'label' has a missing value"):
        read_table(file("t.jsonl", lines({"text": "a", "label": ["x", None]})), need_labels=True)


def test_words_that_are_bytes_are_named(tmp_path):
    rows = pyarrow.Table.from_pylist([{"words": [b"EU"], "tags": ["O"]}])
    pyarrow.parquet.write_table(rows, tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"row 0: 'words' holds bytes, .*--words-column"):
        read_tagged(tmp_path / "t.parquet")


def test_a_column_that_is_named_of_a_file_without_columns_is_refused(file):
    path = file("t.txt", "a\nb\n")
    assert read_table(path, text="text", need_labels=False).texts == ["a", "b"]
    with pytest.raises(InputError, match=r"t\.txt: .*'body'"):
        read_table(path, text="body", need_labels=False)


def test_a_table_with_times_outside_the_range_of_python_is_read(tmp_path):
    """Nanoseconds, which only pandas can hold, and years without end."""
    far = pyarrow.array([1700000000123456789, None, 5], pyarrow.int64())
    columns = {
        "text": ["a", "b", "c"], "label": ["x", "y", "x"], "at": far.cast(pyarrow.timestamp("ns")),
        "until": pyarrow.array([2**62, 0, None], pyarrow.int64()).cast(pyarrow.timestamp("us")),
        "long": far.cast(pyarrow.duration("ns")),
    }  # fmt: skip
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "pandas", None)
        table = read_table(tmp_path / "t.parquet", need_labels=True)
    assert table.texts == ["a", "b", "c"] and table.labels == ["x", "y", "x"]


def test_a_header_with_commas_in_its_names_is_divided_as_its_rows_are(file):
    path = file("t.csv", "text;label;Why, in your words, so?\na, b;x;1\nc;y;2,5\n")
    table = read_table(path, need_labels=True)
    assert (table.texts, table.labels) == (["a, b", "c"], ["x", "y"])
    assert read_table(file("u.csv", "text,label\na;b;c,x\n"), need_labels=True).texts == ["a;b;c"]
    longer = file("v.csv", 'text,label,more; or less\n"good; long\ntext",x,y\n')
    assert read_table(longer, need_labels=True).texts == ["good; long\ntext"]
