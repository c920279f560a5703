"""Readers of text: documents and rows, each kind of file, errors with file and line."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from bothways.data.corpus import documents, rows, sample, text_lines
from bothways.data.examples import Table, label_numbers, read_table
from bothways.errors import InputError, MissingFile


@pytest.fixture
def file(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def parquet(path, columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def read(path):
    return [*documents([path])]


# --- running text -----------------------------------------------------------------------------------------------------


def test_documents_of_a_txt_stand_between_blank_lines(file):
    path = file("a.txt", "\n\none\n  two \n\n \t\nthree\n\n\n")
    assert read(path) == ["one\n  two ", "three"]


def test_a_last_line_needs_no_end_and_windows_ends_are_ends(file):
    assert read(file("a.txt", "one\r\ntwo\r\n\r\nthree")) == ["one\ntwo", "three"]


def test_only_line_feeds_end_a_line(file):
    assert read(file("a.txt", "one\x0btwo\x85three\u2028four\rfive\n")) == ["one\x0btwo\x85three\u2028four\rfive"]


def test_several_files_follow_one_another_in_order(file):
    paths = [file("b.txt", "one\n\ntwo\n"), file("a.jsonl", '{"text": "three"}\n')]
    assert [*documents(paths)] == ["one", "two", "three"]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_is_no_text(start, file):
    assert read(file("a.txt", start + b"one\n")) == ["one"]
    assert read(file("a.jsonl", start + b'{"text": "one"}\n')) == ["one"]
    assert read(file("a.csv", start + b"text,n\none,1\n")) == ["one"]
    assert [line for _, line in text_lines(file("b.txt", b"one\n\xef\xbb\xbftwo"))] == ["one", "\ufefftwo"]


def test_jsonl_holds_an_object_a_line_and_blank_lines_hold_none(file):
    path = file("a.jsonl", '{"text": "one\\ntwo", "n": 1}\n\n{"text": "caf\\u00e9"}\n')
    assert read(path) == ["one\ntwo", "café"]
    assert [where for where, _ in rows(path)] == [f"{path}:1", f"{path}:3"]


def test_csv_is_quoted_as_spreadsheets_do(file):
    path = file("a.csv", 'n,text\r\n1,"one, ""two""\r\nthree"\r\n2,four\r\n\r\n3,"five"\r\n')
    assert [row["text"] for _, row in rows(path)] == ['one, "two"\nthree', "four", "five"]
    assert [where for where, _ in rows(path)] == [f"{path}:3", f"{path}:4", f"{path}:6"]  # where a row ends


def test_in_tsv_a_quote_is_a_character_and_a_comma_too(file):
    path = file("a.tsv", 'text\tn\n"one\t1\nsay "two", three\t2\n')
    assert [row["text"] for _, row in rows(path)] == ['"one', 'say "two", three']


def test_parquet_rows_come_in_order(tmp_path):
    texts = [f"text {number}" for number in range(700)]  # more than one batch
    path = parquet(tmp_path / "a.parquet", {"n": list(range(700)), "text": texts})
    assert read(path) == texts
    assert [where for where, _ in rows(path)][698] == f"{path}: row 699"


def test_a_very_long_field_is_read(file):
    assert len(read(file("a.csv", "text\n" + "a" * 300_000 + "\n"))[0]) == 300_000


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"one\ntw\xff\n", r"a\.txt:2: not UTF-8 at byte 6 of the file"),
        ("a.txt", b"caf\xc3\xa9 \xe9\n", r"a\.txt:1: not UTF-8 at byte 6 of the file"),
        ("a.txt", b"\xef\xbb\xbfone\xff\n", r"a\.txt:1: not UTF-8 at byte 6 of the file"),
        ("a.txt", b"\xef\xbb\xbfone\ntwo\xc3", r"a\.txt:2: not UTF-8 at byte 10 of the file"),
        ("a.txt", "", r"a\.txt: empty"),
        ("a.txt", "\n \n", r"a\.txt: empty"),
        ("a.jsonl", '{"text": "a"}\n{text}\n', r"a\.jsonl:2: not valid JSON .* at column 2"),
        ("a.jsonl", '"a"\n', r"a\.jsonl:1: expected a JSON object, found str"),
        ("a.jsonl", '{"text": 5}\n', r"a\.jsonl:1: no column 'text' \(there are: text\)"),
        ("a.csv", "body,n\na,1\n", r"a\.csv:2: no column 'text' \(there are: body, n\)"),
        ("a.csv", "text,n\na,1\nb\n", r"a\.csv:3: 1 columns where the header has 2"),
        ("a.csv", 'text,n\na,1\n"b,2\nc,3\n', r"a\.csv:4: not valid CSV \(unexpected end of data\)"),
        ("a.csv", "text,n\na\rb,1\n", r"a\.csv:2: not valid CSV"),
        ("a.csv", "", r"a\.csv: empty"),
        ("a.tsv", "text\tn\na\t1\t2\n", r"a\.tsv:2: 3 columns where the header has 2"),
        ("a.parquet", "PAR1", r"a\.parquet: not a sound Parquet file"),
        ("a.pdf", "text", r"a\.pdf: files of kind '\.pdf' are not read; \.txt, \.jsonl, \.csv, \.tsv, \.parquet are"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(name, content, said, file):
    path = file(name, content)
    with pytest.raises(InputError, match=said) as raised:
        read(path)
    assert str(raised.value).startswith(str(path)) and "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tsv", "a.parquet"])
def test_a_missing_file_and_a_directory_are_named(name, tmp_path):
    with pytest.raises(MissingFile, match="no such file; check the path"):
        read(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="a directory; name files"):
        read(tmp_path / name)


def test_the_novels_in_the_package_are_split_by_book():
    books = sample()
    assert {book["split"] for book in books} == {"train", "test"}
    titles = {split: {book["title"] for book in books if book["split"] == split} for split in ("train", "test")}
    assert titles["train"] and titles["test"] and not titles["train"] & titles["test"]
    authors = {split: {book["author"] for book in books if book["split"] == split} for split in ("train", "test")}
    assert authors["test"] <= authors["train"]
    assert all(len(book["text"]) > 10_000 and "\n\n" in book["text"] for book in books)


# --- labelled tables --------------------------------------------------------------------------------------------------

ROWS = [{"text": "one, \"two\"", "pair": "a", "label": "x"}, {"text": "three", "pair": "b", "label": "y"}]  # fmt: skip


def written(kind, file, tmp_path):
    if kind == "parquet":
        return parquet(tmp_path / "t.parquet", {key: [row[key] for row in ROWS] for key in ROWS[0]})
    lines = {
        "jsonl": [json.dumps(row) for row in ROWS],
        "csv": ["text,pair,label", '"one, ""two""",a,x', "three,b,y"],
        "tsv": ["text\tpair\tlabel", 'one, "two"\ta\tx', "three\tb\ty"],
    }[kind]
    return file(f"t.{kind}", "\n".join(lines))


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_a_table_is_the_same_from_every_kind_of_file(kind, file, tmp_path):
    path = written(kind, file, tmp_path)
    table = read_table(path, need_labels=True)
    assert (table.texts, table.pairs, table.labels) == (['one, "two"', "three"], ["a", "b"], ["x", "y"])
    assert len(table) == 2 and table.where[0].startswith(str(path)) and table.where[0] != table.where[1]


def test_columns_go_by_the_names_given(file):
    path = file("t.csv", "body,other,kind,text\none,a,x,no\n")
    table = read_table(path, text="body", pair="other", label="kind", need_labels=True)
    assert (table.texts, table.pairs, table.labels) == (["one"], ["a"], ["x"])


def test_pairs_and_labels_may_be_absent_where_they_are_not_needed(file):
    table = read_table(file("t.csv", "text\none\n"), need_labels=False)
    assert (table.texts, table.pairs, table.labels) == (["one"], None, None)
    some = file("t.jsonl", '{"text": "one", "label": "x"}\n{"text": "two"}\n')
    assert read_table(some, need_labels=False).labels is None


def test_a_txt_is_one_text_a_line(file):
    table = read_table(file("t.txt", "one\n\n three\n"), need_labels=False)
    assert table.texts == ["one", "", " three"] and table.pairs is None
    with pytest.raises(InputError, match=r"a \.txt has no labels"):
        read_table(file("t.txt", "one\n"), need_labels=True)


def test_labels_that_are_numbers_are_their_digits(file):
    assert read_table(file("t.jsonl", '{"text": "one", "label": 1}\n'), need_labels=True).labels == ["1"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"text": "a", "label": "x"}\n{"label": "x"}\n', "t.jsonl:2: 'text' is missing"),
        ('{"text": "a", "label": "x"}\n\n{"text": "b", "label": null}\n', "t.jsonl:3: 'label' is missing"),
        ('{"text": "a", "label": "x", "pair": "p"}\n{"text": "b", "label": "x"}\n', "t.jsonl:2: 'pair' is missing"),
        ('{"text": "b", "label": "x"}\n{"text": "a", "label": "x", "pair": "p"}\n', "t.jsonl:1: 'pair' is missing"),
        ('{"words": "a", "label": "x"}\n', "no column 'text' .there are: words, label.*--text-column"),
        ('{"text": "a", "class": "x"}\n', "no column 'label' .there are: text, class.*--label-column"),
        ("\n\n", "t.jsonl: empty"),
    ],
)
def test_what_a_row_lacks_is_named_with_its_line(content, said, file):
    with pytest.raises(InputError, match=said):
        read_table(file("t.jsonl", content), need_labels=True)


def test_labels_are_numbered_by_the_names_and_a_strange_one_is_named():
    table = Table(["a", "b", "c"], None, ["y", "x", "y"], ["f:2", "f:3", "f:4"])
    assert label_numbers(table, ["x", "y"]) == [1, 0, 1]
    with pytest.raises(InputError, match="f:3: label 'x' is unknown; the model knows y, z"):
        label_numbers(table, ["y", "z"])
