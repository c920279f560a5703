"""Streaming texts from every kind of file in bounded memory, with errors in place; and their blocks."""

import gzip
import io
import json
import lzma
import sys
from itertools import islice
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest

from bothways.base.errors import InputError
from bothways.inference.jobs import blocks
from bothways.inference.jobs.blocks import estimate_num_rows, split_into_blocks
from bothways.text.data.examples import read_table
from bothways.text.data.model_inputs import ModelInput, read_questions, read_texts, resolve_columns
from bothways.text.rows.rows import open_rows
from bothways.text.rows.standard_input import StandardInput

PAIRS = [("a cat", "b"), ("", "c\x07\x00d"), ("  ", "é\u2028ü"), ("e, f", "g\th")]


def written(file, content):
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def files_of(directory):
    """The pairs in every kind of file."""
    rows = [{"text": text, "pair": pair} for text, pair in PAIRS]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), directory / "t.parquet")
    written(directory / "t.jsonl", lines)
    written(directory / "t.jsonl.gz", gzip.compress(lines.encode()))
    written(directory / "t.jsonl.xz", lzma.compress(lines.encode()))
    (directory / "t.jsonl.zst").write_bytes(pyarrow.compress(lines.encode(), "zstd", asbytes=True))
    written(directory / "t.csv", "text,pair\n" + "".join(f'"{text}","{pair}"\n' for text, pair in PAIRS))
    rows = PAIRS[:-1]  # whose last pair has a tab in it
    written(directory / "t.tsv", "text\tpair\n" + "".join(f"{text}\t{pair}\n" for text, pair in rows))
    return sorted(directory.glob("t.*"))


def test_every_kind_of_file_gives_the_same_texts(tmp_path):
    files = files_of(tmp_path)
    assert len(files) == 7
    for file in files:
        expected = PAIRS[:-1] if file.suffix == ".tsv" else PAIRS
        assert [one._replace(line=None) for one in read_texts(str(file))] == [ModelInput(*pair) for pair in expected]
        table = read_table(file, need_labels=False)
        assert [(one.text, one.pair) for one in read_texts(str(file))] == [*zip(table.texts, table.pairs, strict=True)]


def test_a_text_a_line_is_every_line_whatever_is_in_it(tmp_path):
    lines = ["", "   ", "a\x07\x00\x0bb\x85c\u2028d", "", "last"]
    file = written(tmp_path / "t.txt", "\ufeff" + "\r\n".join(lines))
    assert [*read_texts(str(file))] == [ModelInput(line, line=number) for number, line in enumerate(lines, 1)]


def test_lines_of_standard_input_are_texts_and_a_bad_one_yields_an_error_in_place(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a cat\n\nsome \xff\nlast")))
    first, empty, wrong, last = read_texts("-")
    assert (first, empty, last) == (ModelInput("a cat", line=1), ModelInput("", line=2), ModelInput("last", line=4))
    assert str(wrong).startswith("line 3 of standard input: not UTF-8 at byte 5;") and "Windows-1252" in str(wrong)


def test_standard_input_is_a_source_of_rows_which_may_be_empty(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a cat\nlast\n")))
    rows = open_rows(StandardInput())
    assert (rows.names(), rows.all_names(), rows.types()) == (["text"], ["text"], {})  # without reading a line
    first, last = rows.refuse_empty()
    assert (first[0].file, first[0].line, first[1]) == ("standard input", 1, {"text": "a cat"})
    assert (last[0].row, last[0].line) == (1, 2)
    assert [*rows.refuse_empty()] == [] and [*read_texts(rows)] == []  # it is read once
    with pytest.raises(InputError, match="questions need passages"):
        [*read_questions(rows)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cola.tsv", "gj04\t1\t\tA cat sat.\ngj04\t0\t*\tcat A.\n"),
        ("msr.txt", 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA "cat\tB\n0\t7\t8\tC\tD\n'),
        ("usual.csv", "id,Sentence1,sentence2,score\n1,a,b,2.5\n2,c,d,1\n"),
        ("one.jsonl", '{"review": "a", "stars": 3}\n{"review": 7.5}\n'),
    ],
)
def test_columns_and_glue_formats_are_detected_as_for_labelled_tables(name, content, tmp_path):
    file = written(tmp_path / name, content)
    table = read_table(file, need_labels=False)
    expected = [*zip(table.texts, table.pairs or [None] * len(table), strict=True)]
    assert [(one.text, one.pair) for one in read_texts(str(file))] == expected and len(expected) == 2


def test_a_named_column_is_taken_and_a_missing_one_named(tmp_path):
    file = str(written(tmp_path / "t.csv", "body,more\na,b\n"))
    assert [*read_texts(file, text="more", pair="body")] == [ModelInput("b", "a", line=2)]
    for columns in ({}, {"text": "nothing"}):
        with pytest.raises(InputError, match=r"t\.csv: .*'(text|nothing)' .*: body, more"):
            next(read_texts(file, **columns))


def test_a_bad_row_yields_an_error_in_place_in_every_kind_of_table(tmp_path):
    good = b"A cat sat."
    cases = {
        "t.txt": [good, b"b\xff", good],
        "t.jsonl": [b'{"text": "A cat sat."}', b'{"text": ["b"]}', b'{"text": "A cat sat."}'],
        "t.csv": [b"text,x\nA cat sat.,1", b"b", b"A cat sat.,2"],
        "t.tsv": [b"text\tx\nA cat sat.\t1", b"b\xff\t1", b"A cat sat.\t2"],
        "cola.tsv": [b"gj04\t1\t\tA cat sat.", b"gj04", b"gj04\t1\t\tA cat sat."],
    }
    for name, lines in cases.items():
        file = written(tmp_path / name, b"\n".join(lines))
        first, wrong, last = read_texts(str(file))
        assert first.text == last.text == good.decode(), name
        assert isinstance(wrong, InputError) and str(wrong).startswith(
            (f"{file}:{3 if name[:3] == 't.c' or name == 't.tsv' else 2}: ", f"{file}: row 1 (line ")
        )


def test_a_row_with_other_text_columns_is_an_error(tmp_path):
    rows = [{"text": "a"}] * 70 + [{"text": "b", "pair": "c"}] * 2 + [{"text": "d", "more": 1}]
    file = written(tmp_path / "t.jsonl", "\n".join(map(json.dumps, rows)))
    texts = [*read_texts(str(file))]
    assert [number for number, one in enumerate(texts) if isinstance(one, InputError)] == [70, 71]
    assert "t.jsonl: row 70 (line 71): has pair," in str(texts[70]) and texts[-1] == ModelInput("d", line=73)


def test_among_the_first_rows_all_columns_count(tmp_path):
    file = written(tmp_path / "t.jsonl", '{"other": 1}\n{"text": "b", "pair": "c"}\n{"text": "d"}\n')
    wrong, good, lacking = read_texts(str(file))
    assert good == ModelInput("b", "c", line=2)
    assert "t.jsonl: row 0 (line 1): 'text' is missing" in str(wrong)
    assert "t.jsonl: row 2 (line 3): 'pair' is missing" in str(lacking)


def test_reading_a_file_without_readable_rows_stops(tmp_path, monkeypatch):
    monkeypatch.setattr("bothways.text.rows.rows.MOST_CONSECUTIVE_ERRORS", 50)
    file = written(tmp_path / "t.jsonl", "{\n" * 60)
    with pytest.raises(InputError, match=r"t\.jsonl: row \d+ \(line 1\): .*JSON .* 50 rows"):
        list(read_texts(str(file)))


@pytest.mark.parametrize("name", ["t.txt", "t.jsonl", "t.csv", "t.tsv"])
def test_an_empty_file_is_refused(name, tmp_path):
    file = str(written(tmp_path / name, "text\n" if name == "t.csv" else ""))
    with pytest.raises(InputError, match=rf"{name}: empty"):
        list(read_texts(file))


def test_questions_have_ids_their_own_or_their_rows_number(tmp_path):
    rows = [{"question": "q", "context": "c", "id": 7}, {"question": "r"}, {"question": "s", "context": "d"}]
    file = written(tmp_path / "t.jsonl", "\n".join(map(json.dumps, rows)))
    first, wrong, last = read_questions(str(file))
    assert (first, last) == (ModelInput("q", "c", "7", line=1), ModelInput("s", "d", "2", line=3))
    assert "t.jsonl: row 1 (line 2): no 'context' (there are: question)" in str(wrong)
    rows = [{"question": "q", "context": "c", "id": None}, {"question": "r", "context": "c", "id": 0}]
    file = written(tmp_path / "n.jsonl", "\n".join(map(json.dumps, rows)))
    assert [one.id for one in read_questions(str(file))] == ["0", "0"]


def test_questions_of_squads_json_need_no_answers_and_a_bad_one_yields_an_error_in_place(tmp_path):
    questions = [
        {"id": "a", "question": "q"}, {"id": "b"}, "r",
        {"id": 4, "question": "s", "answers": [{"text": "x", "answer_start": 9}]}, {"question": "t"},
    ]  # fmt: skip
    content = {"data": [{"paragraphs": [{"context": "c", "qas": questions}, {"qas": [{"id": "d", "question": "u"}]}]}]}
    first, lacking, strange, other, plain, homeless = read_questions(
        str(written(tmp_path / "q.json", json.dumps(content)))
    )
    assert (first, other, plain) == (ModelInput("q", "c", "a"), ModelInput("s", "c", "4"), ModelInput("t", "c", "4"))
    assert "qas[1]), id b: no 'question'" in str(lacking) and "qas[2]): no 'question'" in str(strange)
    assert "paragraphs[1].qas[0]), id d: no 'context'" in str(homeless)
    with pytest.raises(InputError, match=r"e\.json: empty"):
        list(read_questions(str(written(tmp_path / "e.json", '{"data": []}'))))


def test_rows_without_any_column_lack_the_text(tmp_path):
    with pytest.raises(InputError, match=r"t\.jsonl.*column"):
        list(read_texts(str(written(tmp_path / "t.jsonl", "{}\n"))))


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_blocks_are_limited_by_rows_and_bytes_and_a_long_text_has_its_own(monkeypatch):
    monkeypatch.setattr(blocks, "ROWS", 5)
    monkeypatch.setattr(blocks, "BYTES", 100)
    sizes = [1, 2, 3, 4, 5, 6, 7, 99, 900, 1, 50, 50, 50]
    parts = [*split_into_blocks([ModelInput("a" * (size - 1), "b") for size in sizes], "stop")]
    assert [[len(one.text) + 1 for one in block.inputs] for block in parts] == [
        [1, 2, 3, 4, 5], [6, 7], [99], [900], [1, 50], [50, 50],
    ]  # fmt: skip
    assert [number for block in parts for number in block.row_numbers] == [*range(13)]


def test_no_more_is_read_than_a_block_and_the_row_that_ends_it():
    taken = []
    endless = (taken.append(number) or ModelInput("a" * 10) for number in iter(int, 1))
    assert [len(block) for block in islice(split_into_blocks(endless, "stop"), 3)] == [blocks.ROWS] * 3
    assert len(taken) == 3 * blocks.ROWS + 1


def test_wrong_rows_fill_blocks_too_and_keep_their_numbers(monkeypatch):
    monkeypatch.setattr(blocks, "ROWS", 3)
    inputs = [ModelInput("a"), InputError("x"), InputError("y"), InputError("z"), ModelInput("b")]
    first, second = split_into_blocks(inputs, "skip")
    assert (first.row_numbers, first.errors, second.row_numbers, second.errors) == (
        [0],
        {1: "x", 2: "y"},
        [4],
        {3: "z"},
    )
    with pytest.raises(InputError, match="^x, .*--on-error skip"):
        list(split_into_blocks(inputs, "stop"))


def test_a_digest_names_every_text_and_where_blocks_end():
    def digest(*blocks_of_texts):
        read = ""
        for texts in blocks_of_texts:
            (block,) = split_into_blocks(
                [one if isinstance(one, InputError) else ModelInput(*one) for one in texts], "skip"
            )
            read = block.digest(read)
        return read

    cases = [
        [["a"], ["b"]], [["a", "b"]], [["ab"]], [["a"], ["b\ud800"]], [["a"], InputError("b")], [["b"], ["a"]],
    ]  # fmt: skip
    digests = {digest(case) for case in cases} | {digest([["a"]], [["b"]])}
    assert len(digests) == len(cases) + 1 and digest(cases[0]) == digest([["a"], ["b"]])


def test_the_number_of_rows_is_estimated_from_parts_of_a_file(tmp_path):
    file = written(tmp_path / "t.txt", "".join("a" * (n % 90) + "\n" for n in range(500_000)))
    assert estimate_num_rows(str(file)) == pytest.approx(500_000, rel=0.01)
    assert estimate_num_rows(str(written(tmp_path / "t.jsonl.gz", b""))) is None and estimate_num_rows("-") is None
    cells = "".join(f'{n},"first\n\nsecond ""{n}""\n{"line" * (n % 9)}\n"\n' for n in range(2000))
    assert estimate_num_rows(str(written(tmp_path / "t.csv", f"n,text\n{cells}"))) == 2000
    assert estimate_num_rows(str(written(tmp_path / "e.csv", ""))) is None
    assert estimate_num_rows(str(written(tmp_path / "h.csv", "a,a\n1,2\n"))) == 1
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"] * 33}), tmp_path / "t.parquet")
    assert estimate_num_rows(str(tmp_path / "t.parquet")) == 33


def test_columns_named_of_lines_of_text_are_refused(tmp_path):
    file = str(written(tmp_path / "t.txt", "a\n"))
    for columns in ({"text": "body"}, {"pair": "second"}, {"text": "text", "pair": "body"}):
        with pytest.raises(InputError, match=r"t\.txt: .*'(body|second)'"):
            next(read_texts(file, **columns))


def test_the_columns_learned_from_are_found_in_glues_own_files(tmp_path):
    sick = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n1\ta\tb\t4.5\tNEUTRAL\n"
    file = str(written(tmp_path / "SICK_test.txt", sick))
    options, learned = SimpleNamespace(label_column=None), {"label_column": "relatedness_score"}
    assert resolve_columns(file, options, learned, ("label",)) == {"label": "relatedness_score"}
