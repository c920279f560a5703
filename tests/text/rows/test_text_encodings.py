"""Encodings and line ends of text files: read, or refused in one line with file, encoding and remedy."""

import encodings.aliases
import gzip
import lzma

import pytest

from bothways.base.errors import InputError
from bothways.cli import main
from bothways.settings.base import check_encoding
from bothways.text.data.model_inputs import read_texts
from bothways.text.rows import text_files
from bothways.text.rows.rows import open_rows
from bothways.text.rows.text_files import decoded_lines

NAMES = {*encodings.aliases.aliases.values(), "palmos", "utf_8_sig"} - {"unicode_escape", "raw_unicode_escape"}
NO_TEXT = ("idna", "punycode", "undefined", "rot13", "hex", "bz2", "uu", "no-such", "a\0b")
TABLE = "text,label\ncafé,x\n\U0001f600 tea,y\n"


def written(file, content):
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("name", NO_TEXT)
def test_codecs_that_are_not_text_encodings_are_refused(name):
    with pytest.raises(InputError, match="not a text encoding.* utf-8"):
        check_encoding(name)


@pytest.mark.parametrize(
    "content",
    [
        b"text\na\n",
        bytes(range(256)) * 3,
        b"caf\xe9\n\xff\xfe",
        "a\nb".encode("utf-16-le"),
        "中文\n".encode("utf-16-be"),
        b"",
    ],
)
def test_every_text_encoding_reads_a_file_or_names_it(content, tmp_path):
    file, num_read = written(tmp_path / "t.txt", content), 0
    for name in sorted(NAMES):
        try:
            check_encoding(name)
        except InputError:
            continue
        try:
            num_read += bool([*decoded_lines(file, name)])
        except InputError as error:
            assert str(file) in str(error) and "--encoding" in str(error)
    assert num_read > 50 or not content


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf_16_without_a_byte_order_mark_is_read_if_its_zeros_show_the_order(order, tmp_path):
    file = written(tmp_path / "t.csv", TABLE.encode(f"utf-16-{order}"))
    for name in ("utf-16", "UTF_16", "u16"):
        rows = [row for _, row in open_rows(file, encoding=name).read()]
        assert rows == [{"text": "café", "label": "x"}, {"text": "\U0001f600 tea", "label": "y"}]


@pytest.mark.parametrize(("name", "content"), [
    ("utf-16", "文字\n中文\n".encode("utf-16-le")), ("utf-16", b"text\na\n"), ("utf-32", TABLE.encode("utf-32-le")),
])  # fmt: skip
def test_an_unknown_byte_order_is_an_error_with_file_encoding_and_remedy(name, content, tmp_path):
    file = written(tmp_path / "t.txt", content)
    with pytest.raises(InputError) as caught:
        [*decoded_lines(file, name)]
    message = str(caught.value)
    assert "\n" not in message and all(part in message for part in (str(file), name, f"--encoding {name}-le"))


def test_byte_order_marks_count_more_than_the_encoding_that_is_named(tmp_path):
    for stored in ("utf-16", "utf-32", "utf-8-sig"):
        file = written(tmp_path / "t.txt", "é\nb\n".encode(stored))
        for name in ("utf-16", "utf-32", "cp1252"):
            assert [line.text for line in decoded_lines(file, name)] == ["é", "b"]


# --- old Mac line ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_a_file_that_has_only_carriage_returns_is_split_at_them(pack, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "BLOCK", 1 << 8)  # less than the file
    suffix = {gzip.compress: ".gz", lzma.compress: ".xz"}.get(pack, "")
    table = "text,label\r" + "".join(f"café {number},x\r" for number in range(99))
    file = written(tmp_path / f"t.csv{suffix}", pack(table.encode()))
    assert [row["text"] for _, row in open_rows(file).read()] == [f"café {number}" for number in range(99)]
    lines = written(tmp_path / f"t.txt{suffix}", pack(b"one\r\rthr\xe9\rlast"))
    decoded = [*decoded_lines(lines)]
    assert [(line.number, line.text) for line in decoded] == [(1, "one"), (2, ""), (3, "thr\ufffd"), (4, "last")]
    assert "byte 8 of the " in str(decoded[2].error) and not any(decoded[row].error for row in (0, 1, 3))


def test_carriage_returns_in_a_file_with_line_feeds_stay_in_their_lines(tmp_path):
    """Also if the first line feed comes after the bytes that are looked at first."""
    first = "a\rb" * text_files.HEAD_BYTES
    file = written(tmp_path / "t.txt", f"{first}\nsecond\r\n".encode())
    assert [line.text for line in decoded_lines(file)] == [first, "second"]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_carriage_return_in_a_cell_is_named_in_the_readers_words(suffix, tmp_path):
    file = written(tmp_path / f"t.{suffix}", b"text\na\rb\nc\n")
    errors = []
    rows = [row for _, row in open_rows(file).read(errors.append)]
    assert rows == [{"text": "c"}]
    assert [str(error).split(";")[0] for error in errors] == [
        f"{file}: row 0 (line 2): not valid CSV (a carriage return in a value without quotes)"
    ]


# --- columns to keep --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_columns_of_a_table_without_a_readable_row_are_the_error_of_the_first_row(suffix, tmp_path):
    content = {"csv": b"id,text\n1,caf\xe9\n2,\xe9\n", "jsonl": b'{"id": 1, "text": "caf\xe9"}\n{"id": "\xe9"}\n'}
    file = written(tmp_path / f"t.{suffix}", content[suffix])
    with pytest.raises(InputError, match=rf"t\.{suffix}:[12]: .*UTF-8 .*cp1252"):
        open_rows(file).all_names()
    assert open_rows(file, "cp1252").all_names() == ["id", "text"]


def test_the_command_names_file_and_encoding_in_one_line(tmp_path, capsys, make_model, tokenizer):
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.contents import Checkpoint

    checkpoint.save(Checkpoint(make_model(heads={"classes": 2}), tokenizer, labels=("x", "y")), tmp_path / "m")
    file = written(tmp_path / "t.csv", "id,text\n1,文\n".encode("utf-16-le"))
    for options, named in (
        (["--encoding", "utf-16-be", "--keep-columns", "id"], "t.csv: empty"),
        (["--encoding", "utf-32"], "utf-32"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            main.main(["predict", str(tmp_path / "m"), str(file), *options])
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and named in error and "there are: )" not in error
    assert [row.text for row in read_texts(str(file), encoding="utf-16")] == ["文"]
