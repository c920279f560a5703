"""One set of odd files, read by every way that reads rows: the same rows, locations and messages in all verbs.

All verbs read rows in one way (rows.py). Fine-tuning and `evaluate` make whole tables of them (examples.py), `predict`,
`embed` and jobs the inputs of a model (model_inputs.py), and pre-training documents (corpus/documents.py).
"""

import bz2
import gzip
import io
import json
import lzma

import pyarrow
import pyarrow.parquet
import pytest

from bothways.base.errors import InputError, RowError
from bothways.text.corpus.documents import Corpus
from bothways.text.data.examples import read_table, read_tagged
from bothways.text.data.model_inputs import read_texts
from bothways.text.rows.row_errors import RowErrors
from bothways.text.rows.rows import open_rows, read_rows
from tests.text.data.test_real_exports import workbook

CSV = "id,text,label\n007,first text,a\n008,second text,b\n"
LINES = '{"id": "007", "text": "first text", "label": "a"}\n{"id": "008", "text": "second text", "label": "b"}\n'
PLAIN = [("first text", "a"), ("second text", "b")]


def parquet(**columns):
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def arrow(**columns):
    buffer = io.BytesIO()
    table = pyarrow.table(columns)
    with pyarrow.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def xlsx(*rows):
    buffer = io.BytesIO()
    workbook(buffer, rows)
    return buffer.getvalue()


COLUMNS = {"id": ["007", "008"], "text": ["first text", "second text"], "label": ["a", "b"]}

# Name of the file: its content, and the (text, label) of its rows.
READABLE = {
    "plain.csv": (CSV, PLAIN),
    "crlf.csv": (CSV.replace("\n", "\r\n"), PLAIN),
    "old-mac.csv": (CSV.replace("\n", "\r"), PLAIN),
    "no-last-line-end.csv": (CSV.rstrip("\n"), PLAIN),
    "blank-lines.csv": (CSV.replace("\n", "\n\n"), PLAIN),
    "byte-order-mark.csv": (b"\xef\xbb\xbf" + CSV.encode(), PLAIN),
    "utf-16.csv": (CSV.encode("utf-16"), PLAIN),
    "utf-16-big.csv": (b"\xfe\xff" + CSV.encode("utf-16-be"), PLAIN),
    "semicolons.csv": (CSV.replace(",", ";"), PLAIN),
    "named-separator.csv": ("sep=;\n" + CSV.replace(",", ";"), PLAIN),
    "tabs.csv": (CSV.replace(",", "\t"), PLAIN),
    "tabs.tsv": (CSV.replace(",", "\t"), PLAIN),
    "spaces-after-commas.csv": (CSV.replace(",", ", "), PLAIN),
    "quoted.csv": ('"id","text","label"\n"007","first text","a"\n"008","second text","b"\n', PLAIN),
    "line-end-in-cell.csv": ('text,label\n"first\ntext",a\nsecond text,b\n', [("first\ntext", "a"), PLAIN[1]]),
    "crlf-in-cell.csv": ('text,label\r\n"first\r\ntext",a\r\nsecond text,b\r\n', [("first\ntext", "a"), PLAIN[1]]),
    "quote-in-cell.csv": ('text,label\n"first ""text""",a\nsecond text,b\n', [('first "text"', "a"), PLAIN[1]]),
    "comma-in-cell.csv": ('text,label\n"first, text",a\nsecond text,b\n', [("first, text", "a"), PLAIN[1]]),
    "quote-in.tsv": ('text\tlabel\nfirst "text\ta\nsecond text\tb\n', [('first "text', "a"), PLAIN[1]]),
    "other-column-names.csv": (CSV.replace("text,label", "sentence,class", 1), PLAIN),
    "capital-names.csv": (CSV.replace("id,text,label", "ID,Text,Label", 1), PLAIN),
    "empty-column.csv": ("text,,label\nfirst text,,a\nsecond text,,b\n", PLAIN),
    "unnamed-index.csv": (",text,label\n0,first text,a\n1,second text,b\n", PLAIN),
    "name-with-spaces .csv": (CSV, PLAIN),
    "row 3 (line 5): a.csv": (CSV, PLAIN),
    "accents.csv": (CSV.replace("first text", "é ü ß"), [("é ü ß", "a"), PLAIN[1]]),
    "emoji.csv": (CSV.replace("first text", "\U0001f600 \U0001f3d9"), [("\U0001f600 \U0001f3d9", "a"), PLAIN[1]]),
    "next-line-characters.csv": (CSV.replace("first text", "a\x85b\u2028c"), [("a\x85b\u2028c", "a"), PLAIN[1]]),
    "formula.csv": (CSV.replace("first text", "=1+1"), [("=1+1", "a"), PLAIN[1]]),
    "numbers-as-texts.csv": ("text,label\n007,a\n1e5,b\n", [("007", "a"), ("1e5", "b")]),
    "plain.jsonl": (LINES, PLAIN),
    "crlf.jsonl": (LINES.replace("\n", "\r\n"), PLAIN),
    "blank-lines.jsonl": ("\n" + LINES.replace("\n", "\n \n"), PLAIN),
    "byte-order-mark.jsonl": (b"\xef\xbb\xbf" + LINES.encode(), PLAIN),
    "escapes.jsonl": (LINES.replace("first text", "first\\ntext"), [("first\ntext", "a"), PLAIN[1]]),
    "other-keys.jsonl": (LINES.replace('"label": "a"', '"label": "a", "more": {"x": [1]}', 1), PLAIN),
    "lines.json": (LINES, PLAIN),
    "list.json": (json.dumps([json.loads(line) for line in LINES.splitlines()], indent=1), PLAIN),
    "columns.json": (json.dumps(COLUMNS), PLAIN),
    "plain.parquet": (parquet(**COLUMNS), PLAIN),
    "nested.parquet": (parquet(**COLUMNS, more=[{"x": [1]}, {"x": []}]), PLAIN),
    "dictionary.parquet": (
        parquet(text=COLUMNS["text"], label=pyarrow.array(COLUMNS["label"]).dictionary_encode()),
        PLAIN,
    ),
    "plain.arrow": (arrow(**COLUMNS), PLAIN),
    "plain.csv.gz": (gzip.compress(CSV.encode()), PLAIN),
    "plain.jsonl.xz": (lzma.compress(LINES.encode()), PLAIN),
    "two-members.csv.gz": (gzip.compress(CSV[:30].encode()) + gzip.compress(CSV[30:].encode()), PLAIN),
    "plain.xlsx": (xlsx([*COLUMNS], *zip(*COLUMNS.values(), strict=True)), PLAIN),
}

# Name of the file: its content, the texts of the rows that can be read, and parts of the messages of the others.
BROKEN_ROWS = {
    "short-row.csv": ("text,label\nfirst text,a\nalone\nsecond text,b\n", ["row 1 (line 3): 1 column, but the header"]),
    "long-row.csv": ("text,label\nfirst text,a\nx,y,z\nsecond text,b\n", ["row 1 (line 3): 3 columns, but the header"]),
    "bad-bytes.csv": (b"text,label\nfirst text,a\n\xff,a\nsecond text,b\n", [":3: not UTF-8 at byte"]),
    "bad-line.jsonl": (LINES.replace("\n", "\n{broken\n", 1), ["row 1 (line 2): not valid JSON"]),
    "list-line.jsonl": (LINES.replace("\n", "\n[1]\n", 1), ["row 1 (line 2): expected a JSON object, found list"]),
    "deep.jsonl": (LINES.replace("\n", "\n" + "[" * 100_000 + "\n", 1), ["row 1 (line 2): not readable as JSON"]),
    "number.json": (f"[{LINES.replace(chr(10), ',7,', 1)}]", ["expected an object, found int"]),
    "bytes-text.parquet": (
        parquet(text=pyarrow.array([b"first text", b"second text"], pyarrow.binary()), label=COLUMNS["label"]),
        ["row 0: 'text' holds bytes", "row 1: 'text' holds bytes"],
    ),
}

# Name of the file: its content, and a part of the message.
REFUSED = {
    "plain.csv.bz2": (bz2.compress(CSV.encode()), "file type '.bz2' is not supported"),
    "empty.csv": ("", "empty"),
    "header-alone.csv": ("text,label\n", "empty"),
    "empty.jsonl": ("", "empty"),
    "blank.jsonl": (" \n\n", "empty"),
    "two-names.csv": ("text,text\na,b\n", "two columns are named 'text'"),
    "no-text.csv": ("a,b\n1,2\n3,4\n", "no column 'text'"),
    "cut.csv.gz": (gzip.compress(CSV.encode() * 500)[:-20], "corrupt or truncated"),
    "no-gzip.csv.gz": (CSV, "corrupt or truncated"),
    "cut.parquet": (parquet(**COLUMNS)[:-9], "Parquet"),
    "open-quote.csv": ('text,label\n"first text,a\nsecond text,b\n', "quote"),
}


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return write


def streamed(file):
    """The rows and the errors of `predict`."""
    rows = [*read_texts(str(file))]
    return [row for row in rows if not isinstance(row, InputError)], [
        row for row in rows if isinstance(row, InputError)
    ]


def collected(file):
    """The rows and the errors of `check`."""
    errors = []
    return read_rows(file, errors.append), errors


@pytest.mark.parametrize("name", READABLE)
def test_rows_and_locations_are_the_same_in_every_way_of_reading(name, write):
    content, expected = READABLE[name]
    file = write(name, content)
    table = read_table(file, need_labels=True)
    assert [*zip(table.texts, table.labels, strict=True)] == expected

    unlabelled = read_table(file, need_labels=False)
    assert (unlabelled.texts, unlabelled.where) == (table.texts, table.where)

    inputs, errors = streamed(file)
    assert [row.text for row in inputs] == table.texts and not errors
    assert [row.line for row in inputs] == [where.line for where in table.where]

    rows, errors = collected(file)
    assert [where for where, _ in rows] == table.where and not errors
    for number, (where, row) in enumerate(rows):
        assert (where.file, where.row) == (str(file), number)
        if "id" in {column.lower() for column in row}:
            assert where.id == f"00{7 + number}"

    if "text" in rows[0][1]:
        assert [*Corpus((file,)).documents()] == table.texts


@pytest.mark.parametrize("name", BROKEN_ROWS)
def test_rows_that_cannot_be_read_have_the_same_message_in_every_way_of_reading(name, write):
    content, messages = BROKEN_ROWS[name]
    file = write(name, content)
    inputs, errors = streamed(file)
    assert len(errors) == len(messages)
    for error, message in zip(errors, messages, strict=True):
        assert type(error) is RowError and error.where.file == str(file) and message in str(error)

    left = [row.text for row in inputs]
    if left:
        assert left == ["first text", "second text"]
        table = read_table(file, need_labels=False, on_error="skip")
        assert table.texts == left and str(errors[0].reason).partition(";")[0] in table.notes[0]
        assert [*Corpus((file,), on_error="skip").documents()] == left
    with pytest.raises(InputError) as raised:
        read_table(file, need_labels=False)
    assert str(raised.value).startswith(str(errors[0]))


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_cannot_be_read_have_the_same_message_in_every_way_of_reading(name, write):
    content, part = REFUSED[name]
    file = write(name, content)
    ways = {
        "table": lambda: read_table(file, need_labels=False),
        "labelled table": lambda: read_table(file, need_labels=True),
        "stream": lambda: [*read_texts(str(file))],
    }
    messages = {}
    for way, read in ways.items():
        with pytest.raises(InputError) as raised:
            raise next(row for row in read() if isinstance(row, InputError))
        messages[way] = str(raised.value)
    assert all(part in message and str(file) in message for message in messages.values()), messages
    assert len({message.partition(";")[0] for message in messages.values()}) == 1, messages


def with_classes():
    """A Parquet file as `datasets` writes it, in which classes are numbers with names beside them."""
    features = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    table = pyarrow.table({"text": COLUMNS["text"], "label": [1, 0], "number": [7, 8]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def test_classes_have_their_names_in_every_way_of_reading(write):
    file = write("classes.parquet", with_classes())
    rows = open_rows(file)
    assert [row["label"] for _, row in rows.read()] == ["yes", "no"]
    assert [*rows.types()] == ["text", "number"]
    assert read_table(file, need_labels=True).labels == ["yes", "no"]
    assert [row.kept for row in read_texts(str(file), keep=["label", "number"])] == [("yes", 7), ("no", 8)]
    assert [*Corpus((file,), column="label").documents()] == ["yes", "no"]


def test_a_task_of_label_studio_is_a_text_in_every_way_of_reading(write):
    """Without annotations, as before labelling."""
    file = write("tasks.json", json.dumps([{"id": 1, "data": {"text": text}} for text in COLUMNS["text"]]))
    assert [row.text for row in read_texts(str(file))] == COLUMNS["text"]
    assert read_table(file, need_labels=False).texts == COLUMNS["text"]
    assert [*Corpus((file,)).documents()] == COLUMNS["text"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_file_of_another_kind_is_noticed_in_every_way_of_reading(name, write, monkeypatch):
    """Even if rows that cannot be read are skipped."""
    monkeypatch.setattr("bothways.text.rows.rows.MOST_CONSECUTIVE_ERRORS", 50)
    header = "a,b\n" if name == "a.csv" else ""
    file = write(name, header + "{broken\n" * 60)
    ways = [
        lambda: read_rows(file, lambda error: None),
        lambda: [*read_texts(str(file))],
        lambda: [*Corpus((file,), column="a", on_error="skip").documents()],
    ]
    for read in ways:
        with pytest.raises(InputError, match="50 rows in a row cannot be read; is it the right file"):
            read()


def test_a_broken_line_among_annotated_texts_is_the_error_of_a_row(write):
    """The first line shows that the texts are annotated; the others keep their numbers."""
    first, last = (json.dumps({"text": text, "label": [[0, 3, "X"]]}) for text in COLUMNS["text"])
    file = write("lines.json", f"{first}\n{{broken\n\n{last}\n")
    inputs, errors = streamed(file)
    assert [(row.text, row.line) for row in inputs] == [("first text", 1), ("second text", 4)]
    assert [(error.where.row, error.where.line) for error in errors] == [(1, 2)]
    assert [*Corpus((file,), on_error="skip").documents()] == COLUMNS["text"]
    assert read_table(file, need_labels=False, on_error="skip").texts == COLUMNS["text"]

    row_errors = RowErrors("skip")
    sentences = read_tagged(file, errors=row_errors)
    assert [sentence.where.row for sentence in sentences] == [0, 2] and row_errors.count == 1
