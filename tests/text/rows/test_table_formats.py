"""A table of labelled texts is the same in every format, delimiter, compression and encoding that the guides list, for
training as for `predict`; and its columns are found by every name that they list.
"""

import csv
import gzip
import io
import json
import lzma
import re

import pandas
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

from bothways.base.errors import InputError
from bothways.settings.tables_in_memory import as_source
from bothways.text.data.examples import read_table, read_tagged
from bothways.text.data.model_inputs import read_texts
from bothways.text.rows.arrow_tables import read_schema
from tests.guides import code_in, table_of

ROWS = [
    {"text": "It broke after a week; twice.", "label": "bad"},
    {"text": "Does what it says, é.", "label": "good"},
]
TEXTS = [row["text"] for row in ROWS]
PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: pyarrow.compress(content, "zstd", asbytes=True),
}


def separated(delimiter, head=""):
    file = io.StringIO()
    writer = csv.DictWriter(file, ["text", "label"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return head + file.getvalue()


LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
TEXT_FORMATS = {
    "comma.csv": separated(","),
    "semicolon.csv": separated(";"),
    "tab.csv": separated("\t"),
    "excel.csv": separated(";", head="sep=;\r\n"),
    "tab.tsv": separated("\t"),
    "lines.jsonl": LINES,
    "lines.json": LINES,
    "list.json": json.dumps(ROWS),
    "data.json": json.dumps({"data": ROWS}),
    "pandas.json": pandas.DataFrame(ROWS).to_json(),
}


def check_rows(file):
    """Training and prediction read the rows of this file."""
    table = read_table(file, need_labels=True)
    assert [*zip(table.texts, table.labels, strict=True)] == [(row["text"], row["label"]) for row in ROWS], file.name
    assert [one.text for one in read_texts(str(file))] == TEXTS, file.name


@pytest.mark.parametrize("packed", PACK)
def test_text_formats_give_the_same_rows_in_every_compression(packed, tmp_path):
    for name, content in TEXT_FORMATS.items():
        file = tmp_path / f"{name}{packed}"
        file.write_bytes(PACK[packed](content.encode()))
        check_rows(file)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_text_formats_give_the_same_rows_in_every_encoding_with_a_byte_order_mark(encoding, tmp_path):
    for name, content in TEXT_FORMATS.items():
        (tmp_path / name).write_bytes(content.encode(encoding))
        check_rows(tmp_path / name)


def test_a_multi_byte_encoding_that_is_named_is_used_for_every_line(tmp_path):
    texts = ["\u951f\u65a4\u62f7", "\u4e2d\u6587"]
    # The bytes of the first text are valid UTF-8 too, of another text.
    assert texts[0].encode("gb18030").decode() == "\ufffd\ufffd"
    file = tmp_path / "t.csv"
    file.write_bytes(b"text,label\n" + "".join(f"{text},x\n" for text in texts).encode("gb18030"))
    assert read_table(file, need_labels=True, encoding="gb18030").texts == texts
    assert [one.text for one in read_texts(str(file), encoding="gb18030")] == texts


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("t.csv", "text,label\n\na,x\n\n\nb,x\n\n", [3, 6]),
        ("t.tsv", "text\tlabel\n\na\tx\n\nb\tx\n\n", [3, 5]),
        ("t.jsonl", '\n{"text": "a", "label": "x"}\n\n{"text": "b", "label": "x"}\n\n', [2, 4]),
        ("t.json", '{"text": "a", "label": "x"}\n\n{"text": "b", "label": "x"}\n', [1, 3]),
    ],
)
def test_empty_lines_of_a_table_and_its_header_are_no_rows(name, content, lines, tmp_path):
    (tmp_path / name).write_text(content, encoding="utf-8")
    table = read_table(tmp_path / name, need_labels=True)
    assert [(where.row, where.line) for where in table.where] == [*enumerate(lines)]
    assert [(one.text, one.line) for one in read_texts(str(tmp_path / name))] == [("a", lines[0]), ("b", lines[1])]


def test_every_line_of_a_text_file_is_a_row(tmp_path):
    (tmp_path / "t.txt").write_text("\na\n\nb\n", encoding="utf-8")
    table = read_table(tmp_path / "t.txt", need_labels=False)
    assert table.texts == ["", "a", "", "b"] and [where.row for where in table.where] == [0, 1, 2, 3]
    assert [one.text for one in read_texts(str(tmp_path / "t.txt"))] == table.texts


# --- Arrow ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [pyarrow.ipc.new_stream, pyarrow.ipc.new_file])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_arrow_is_read_as_a_stream_and_as_a_file(new, packed, tmp_path):
    table = pyarrow.Table.from_pylist(ROWS)
    buffer = io.BytesIO()
    with new(buffer, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    file = tmp_path / f"t.arrow{packed}"
    file.write_bytes(PACK[packed](buffer.getvalue()))
    check_rows(file)
    assert read_schema(file).names == ["text", "label"]


def test_arrow_as_pandas_writes_it_is_read(tmp_path):
    pandas.DataFrame(ROWS).to_feather(tmp_path / "t.arrow")
    check_rows(tmp_path / "t.arrow")


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"ARROW1\0\0" + bytes(40), b"text,label\n"])
def test_what_is_no_arrow_file_is_named_in_a_message(content, tmp_path):
    (tmp_path / "t.arrow").write_bytes(content)
    with pytest.raises(InputError, match=r"t\.arrow: not a valid Arrow file \(.*save it again"):
        read_table(tmp_path / "t.arrow", need_labels=True)


# --- columns ----------------------------------------------------------------------------------------------------------


def names_of(column):
    """The names that the guide to classes lists for a column, in their order; pairs as tuples."""
    names = next(row[1] for row in table_of("classify", "column | usual names") if row[0].startswith(column))
    if not column.startswith("second"):
        return code_in(names)
    return re.findall(r"`(\w+)`, `(\w+)`", names.partition("both of")[2])


@pytest.mark.parametrize(
    ("column", "least", "rows"),
    [
        ("text", 9, lambda name: {name: "a", "label": "x"}),
        ("label or number", 10, lambda name: {"text": "a", name: "x"}),
    ],
)
def test_a_column_is_found_by_each_name_in_the_guide(column, least, rows):
    names = names_of(column)
    assert len(names) >= least
    for name in names:
        table = read_table(memory(rows(name)), need_labels=True)
        assert (table.texts, table.labels) == (["a"], ["x"]), name


def test_a_pair_is_found_by_each_two_names_in_the_guide():
    names = [("text", "pair"), ("text", "text_pair"), *names_of("second text")]
    assert len(names) >= 8
    for first, second in names:
        table = read_table(memory({second: "b", first: "a", "label": "x"}), need_labels=True)
        assert (table.texts, table.pairs) == (["a"], ["b"]), (first, second)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"words": ["a"], "Words": ["a"], "tags": ["O"]}, "'words' or 'Words'; .*--words-column"),
        ({"words": ["a"], "ner": ["O"], "ner_tags": ["O"]}, "'ner' or 'ner_tags'; .*--tags-column"),
    ],
)
def test_several_columns_of_words_or_tags_are_refused_with_the_option(row, message):
    with pytest.raises(InputError, match=message):
        read_tagged(memory(row))


def memory(*rows):
    return as_source("train", [*rows])
