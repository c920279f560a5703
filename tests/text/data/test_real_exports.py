"""Files as exported by programs: encodings, Excel, several text columns, broken rows, zip bombs."""

import csv
import gzip
import io
import json
import lzma
import pickle
import subprocess
import sys
import zipfile
from functools import partial
from types import SimpleNamespace
from xml.sax.saxutils import escape

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

from bothways.base.errors import InputError, LineLocation, RowError, RowLocation
from bothways.settings import Classify, Predict
from bothways.text.corpus.documents import Corpus
from bothways.text.data.beir import read_qrels
from bothways.text.data.examples import read_table, read_tagged
from bothways.text.data.labels import check_not_blank, class_indices, numeric_labels, parse_number
from bothways.text.data.model_inputs import ModelInput, read_questions, read_texts, resolve_columns
from bothways.text.rows import text_files
from bothways.text.rows.row_errors import RowErrors
from bothways.text.rows.rows import open_rows
from bothways.text.rows.text_files import decoded_lines, read_lines

LINES = ["text,label", "Öl für 5 €,a", "naïve “quotes”,b", "plain,a"]
TABLE = "\n".join(LINES) + "\n"


def read(path, **options):
    table = read_table(path, need_labels=True, **options)
    return list(zip(table.texts, table.labels, strict=True))


EXPECTED = [tuple(line.split(",")) for line in LINES[1:]]


# --- encodings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_order_mark_determines_the_encoding(encoding, packed, tmp_path):
    mark = "\ufeff" if encoding[-2:] in ("le", "be") else ""
    content = (mark + TABLE.replace("\n", "\r\n")).encode(encoding)
    file = tmp_path / ("t.csv.gz" if packed else "t.csv")
    file.write_bytes(gzip.compress(content) if packed else content)
    assert read(file) == read(file, encoding="cp1252") == EXPECTED
    assert [*Corpus((file,)).documents()] == [text for text, _ in EXPECTED]
    assert [one.text for one in read_texts(str(file))] == [text for text, _ in EXPECTED]


def test_windows_1252_is_suggested_with_the_decoded_line_and_works(tmp_path):
    file = tmp_path / "t.csv"
    file.write_bytes(TABLE.encode("cp1252"))
    with pytest.raises(InputError, match=r"t\.csv:2: .* 11 .*'Öl für 5 €,a'.*--encoding cp1252") as raised:
        read(file)
    assert f"{file}: line 2, line 3" in str(raised.value)  # all rows are named
    assert read(file, encoding="cp1252") == EXPECTED
    assert [*Corpus((file,), encoding="cp1252").documents()] == [text for text, _ in EXPECTED]
    assert Corpus((file,), encoding="cp1252").fingerprint() != Corpus((file,)).fingerprint()


def test_a_line_that_is_not_windows_1252_either_leads_to_the_encoding_option(tmp_path):
    file = tmp_path / "t.txt"
    file.write_bytes("日本語".encode("shift_jis") + b"\x81\n")
    with pytest.raises(InputError, match=r"t\.txt:1: .*UTF-8 .*byte 0 .*--encoding"):
        [*read_lines(file)]
    file.write_bytes("日本語\n".encode("shift_jis"))
    assert [*read_lines(file, "shift_jis")] == [(1, "日本語")]
    file.write_bytes(b"abc\xff\xff\n")
    with pytest.raises(InputError, match=r"t\.txt:1: .*shift_jis .*byte 3 .*--encoding"):
        [*read_lines(file, "shift_jis")]


def test_utf_16_without_a_mark_is_an_error_that_names_the_encoding(tmp_path):
    file = tmp_path / "t.csv"
    for encoding in ("utf-16-le", "utf-16-be"):
        file.write_bytes(TABLE.encode(encoding))
        with pytest.raises(InputError, match=rf"t\.csv: .*UTF-16 .*--encoding {encoding}"):
            read(file)
        assert read(file, encoding=encoding) == EXPECTED


def test_half_a_character_of_utf_16_is_one_bad_line_and_a_cut_file_ends_in_one_line(tmp_path):
    file = tmp_path / "t.txt"
    file.write_bytes("\ufeffone\n".encode("utf-16-le") + b"\x00\xd8a\x00\n\x00" + "last\n".encode("utf-16-le"))
    one, half, last = decoded_lines(file)
    assert (one.text, half.text, last.text) == ("one", "\ufffda", "last") and half.error and not last.error
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"t\.txt:3: .*utf-16"):
        [*decoded_lines(file)]


def test_a_file_in_utf_8_is_read_so_whatever_one_byte_encoding_is_named(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text(TABLE, encoding="utf-8")
    assert read(file, encoding="cp1252") == EXPECTED


def test_standard_input_is_read_in_the_encoding_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("café\n".encode("cp1252"))))
    assert [*read_texts("-", encoding="cp1252")] == [ModelInput("café", line=1)]
    with pytest.raises(InputError, match="utf-16"):
        [*read_texts("-", encoding="utf-16")]


@pytest.mark.parametrize("name", ["klingon", "base64", "undefined", "utf-8\0"])
def test_an_unknown_encoding_is_an_error_when_settings_are_created(name, tmp_path):
    for kind, more in ((Predict, {}), (Classify, {"train": tmp_path, "out": tmp_path})):
        with pytest.raises(InputError, match=r"encoding"):
            kind(model=tmp_path, encoding=name, **more)


def test_tags_and_judgements_have_encodings_too(tmp_path):
    file = tmp_path / "t.conll"
    file.write_bytes("Köln\tB-LOC\n\nläuft\tO\n".encode("latin-1"))
    assert [one.words for one in read_tagged(file, encoding="latin-1")] == [("Köln",), ("läuft",)]
    file = tmp_path / "qrels.csv"
    file.write_bytes("query,document,grade\nMüll,d1,1\n".encode("latin-1"))
    assert read_qrels(file, "latin-1") == {"Müll": {"d1": 1.0}}


# --- Excel ------------------------------------------------------------------------------------------------------------

MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def cell(value, row, column):
    place = f'r="{chr(ord("A") + column)}{row}"'
    if isinstance(value, bool):
        return f'<c {place} t="b"><v>{value:d}</v></c>'
    if isinstance(value, int | float):
        return f"<c {place}><v>{value}</v></c>"
    return f'<c {place} t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'


def workbook(file, *sheets, hidden=()):
    """As Excel writes it, but for styles; None is an empty cell."""
    numbered = [*enumerate(sheets, 1)]
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{SHEET}.sheet.main+xml"/>'
        + "".join(f'<Override PartName="/xl/s{n}.xml" ContentType="{SHEET}.worksheet+xml"/>' for n, _ in numbered)
        + "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {MAIN} xmlns:r="{OFFICE}"><sheets>'
        + "".join(
            f'<sheet name="Sheet {n}" sheetId="{n}" r:id="r{n}" state="{"hidden" if n in hidden else "visible"}"/>'
            for n, _ in numbered
        )
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
        + "".join(f'<Relationship Id="r{n}" Type="{OFFICE}/worksheet" Target="s{n}.xml"/>' for n, _ in numbered)
        + "</Relationships>",
    }
    for n, sheet in numbered:
        parts[f"xl/s{n}.xml"] = (
            f"<worksheet {MAIN}><sheetData>"
            + "".join(
                f'<row r="{r}">{"".join(cell(v, r, c) for c, v in enumerate(row) if v is not None)}</row>'
                for r, row in enumerate(sheet, 1)
            )
            + "</sheetData></worksheet>"
        )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in parts.items():
            packed.writestr(name, content)
    return file


def test_a_workbook_is_read_as_the_table_it_shows(tmp_path):
    sheet = [[], ["text", "label", "n"], ["Öl\nfür 5 €", 3, True], [], ["b", 2.5, None], ["c", None, 1e20]]
    file = workbook(tmp_path / "t.xlsx", sheet, [])
    assert [row for _, row in open_rows(file).read()] == [
        {"text": "Öl\nfür 5 €", "label": 3, "n": True},
        {"text": "b", "label": 2.5, "n": ""},
        {"text": "c", "label": "", "n": 10**20},
    ]
    table = read_table(file, need_labels=True)
    assert table.labels == ["3", "2.5", ""] and table.where == [
        f"{file}: row {row} (line {line})" for row, line in enumerate((3, 5, 6))
    ]
    assert [*read_texts(str(file))] == [
        ModelInput("Öl\nfür 5 €", line=3),
        ModelInput("b", line=5),
        ModelInput("c", line=6),
    ]
    assert [*Corpus((file,)).documents()] == ["Öl\nfür 5 €", "b", "c"]


def test_of_several_sheets_the_hidden_and_the_empty_are_passed_over_and_two_are_refused(tmp_path):
    one, two = [["text"], ["a"]], [["text"], ["b"]]
    assert [*read_texts(str(workbook(tmp_path / "t.xlsx", [], two, one, hidden=(3,))))] == [ModelInput("b", line=2)]
    with pytest.raises(InputError, match=r"t\.xlsx: .*'Sheet 1', 'Sheet 2'"):
        [*open_rows(workbook(tmp_path / "t.xlsx", one, two)).read()]


def test_an_invalid_workbook_is_a_one_line_error(tmp_path, monkeypatch):
    file = workbook(tmp_path / "t.xlsx", [["text"], ["a"]])
    content = file.read_bytes()
    for wrong in (content[:700], b"text\na\n", b""):
        (tmp_path / "w.xlsx").write_bytes(wrong)
        with pytest.raises(InputError, match=r"w\.xlsx: "):
            [*open_rows(tmp_path / "w.xlsx").read()]
    with zipfile.ZipFile(tmp_path / "z.xlsx", "w") as packed:
        packed.writestr("a", "b")
    with pytest.raises(InputError, match=r"z\.xlsx: .*workbook"):
        [*open_rows(tmp_path / "z.xlsx").read()]
    monkeypatch.setattr("bothways.text.rows.text_files.LARGEST_WORKBOOK", 100)
    with pytest.raises(InputError, match=r"t\.xlsx: .* MiB decompressed"):
        [*open_rows(file).read()]


def test_a_packed_workbook_is_refused(tmp_path):
    (tmp_path / "t.xlsx.gz").write_bytes(gzip.compress(workbook(tmp_path / "t.xlsx", [["text"], ["a"]]).read_bytes()))
    with pytest.raises(InputError, match=r"t\.xlsx\.gz: .*compressed"):
        [*read_texts(str(tmp_path / "t.xlsx.gz"))]


def test_without_the_package_the_error_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(InputError, match=r"t\.xlsx: .* pip install 'bothways\[xlsx\]'"):
        [*open_rows(workbook(tmp_path / "t.xlsx", [["text"], ["a"]])).read()]


# --- several columns read together ------------------------------------------------------------------------------------


def test_several_columns_are_read_together_in_the_order_named(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("body,title,label\nlong,Short,a\n,Alone,b\nx, ,c\n", encoding="utf-8")
    assert read(file, text="title,body") == [("Short\nlong", "a"), ("Alone", "b"), ("x", "c")]
    assert read(file, text="body, title")[0] == ("long\nShort", "a")
    assert [*read_texts(str(file), text="title,body")] == [
        ModelInput("Short\nlong", line=2),
        ModelInput("Alone", line=3),
        ModelInput("x", line=4),
    ]
    assert [*Corpus((file,), column="title,body").documents()] == ["Short\nlong", "Alone", "x"]
    assert read_table(file, text="title", pair="body,label", need_labels=False).pairs == ["long\na", "b", "x\nc"]
    for reader in (partial(read, text="title,boby"), lambda path: [*read_texts(str(path), text="title,boby")]):
        with pytest.raises(InputError, match=r"'boby' .*: body, title, label"):
            reader(file)


def test_a_column_whose_name_has_a_comma_is_that_column(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text('{"a,b": "whole", "a": "x", "b": "y"}\n', encoding="utf-8")
    assert [*read_texts(str(file), text="a,b")] == [ModelInput("whole", line=1)] and [
        *Corpus((file,), column="a,b").documents()
    ] == ["whole"]


def test_a_row_that_lacks_one_of_several_columns_is_read_and_one_that_lacks_all_is_not(tmp_path):
    file = tmp_path / "t.jsonl"
    rows = [{"title": "a", "body": "b"}, {"title": "c"}, {"body": None, "title": "d"}, {"n": 1}]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    *good, wrong = read_texts(str(file), text="title,body")
    assert [one.text for one in good] == ["a\nb", "c", "d"] and "(line 4): 'title,body' is missing" in str(wrong)
    with pytest.raises(InputError, match=r"t\.jsonl: row \d+ \(line 4\): .*'title,body'"):
        [*Corpus((file,), column="title,body").documents()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[:3]), tmp_path / "t.parquet")
    both = Corpus((tmp_path / "t.parquet",), column="title,body")
    assert [*both.documents()] == ["a\nb", "c", "d"]


def test_the_columns_a_model_learned_from_are_found_again_if_all_are_there(tmp_path):
    learned = {"text_column": "title,body", "pair_column": None}
    file = tmp_path / "t.jsonl"
    file.write_text('{"title": "a"}\n{"title": "b", "body": "c"}\n', encoding="utf-8")
    options = Predict(model=tmp_path)
    assert resolve_columns(str(file), options, learned) == {"text": "title,body", "pair": None}
    file.write_text('{"title": "a", "text": "t"}\n', encoding="utf-8")
    assert resolve_columns(str(file), options, learned) == {"text": None, "pair": None}


def test_a_question_may_be_in_several_columns(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("who,what,context\nWho,ran?,A cat ran.\n", encoding="utf-8")
    (one,) = read_questions(str(file), question="who,what")
    assert (one.text, one.pair) == ("Who\nran?", "A cat ran.")


# --- rows that cannot be read -----------------------------------------------------------------------------------------


def test_all_rows_without_a_label_are_named_at_once(tmp_path):
    file = tmp_path / "t.jsonl"
    labels = ["a", None, "b", None, None, *"ab" * 20, None]
    rows = [{"text": f"t {n}", **({} if label is None else {"label": label})} for n, label in enumerate(labels)]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(InputError) as raised:
        read(file)
    message = str(raised.value)
    rows = "row 1 (line 2), row 3 (line 4), row 4 (line 5), row 45 (line 46)"
    assert message.startswith(f"{file}: row 1 (line 2): 'label' is missing") and "4 rows cannot" in message
    assert f"({file}: {rows})" in message
    table = read_table(file, need_labels=True, on_error="skip")
    assert len(table) == 42 and None not in table.labels and "t 1" not in table.texts
    assert table.notes[0].startswith("left out 4 rows: 'label' is missing") and f"{file}: {rows}" in table.notes[0]


def test_similar_errors_show_the_first_value():
    errors = RowErrors("skip")
    for row, value in enumerate(("'1.5e+300'", "'7'", "'1.5e+300'"), 3):
        errors(RowError(LineLocation("a.csv", row), f"{value} exceeds 3.4e+38; fix it"))
    errors(RowError(RowLocation("a.csv", 7, 9), "'label' is missing"))
    assert str(errors) == "'1.5e+300' exceeds 3.4e+38 or similar (a.csv: line 3, line 4, line 5); " + (
        "'label' is missing (a.csv: row 7 (line 9))"
    )
    numbers = RowErrors("skip")
    for row, value in enumerate((1.5e300, -2e-5, 70), 3):
        numbers(RowError(LineLocation("a.csv", row), f"{value} is out of range"))
    assert str(numbers) == "1.5e+300 is out of range or similar (a.csv: line 3, line 4, line 5)"


def test_an_error_carries_its_location_whatever_the_file_is_called():
    name = "a: row 1 (line 2): b.csv:3: c"
    where = RowLocation(name, 7, 9, id="k")
    errors = RowErrors("skip")
    for location in (where, LineLocation(name, 12), where.inside("answers[2]")):
        error = RowError(location, "'text' is missing; add it")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is RowError and str(copy) == str(error) and copy.where.place == location.place
        errors(copy)
    assert str(errors) == (
        f"'text' is missing ({name}: row 7 (line 9), line 12); answers[2]: 'text' is missing ({name}: row 7 (line 9))"
    )
    assert errors.first == f"{name}: row 7 (line 9), id k: 'text' is missing; add it"


def test_of_very_many_bad_rows_the_first_few_are_named_and_all_are_counted():
    errors = RowErrors("skip")
    for row in range(2000):
        errors(RowError(RowLocation("a.csv", row), f"{'abcdefg'[row % 7]} is {row}; fix it"))
    (note,) = errors.notes(1)
    assert "left out 2,000 rows" in note and "570 others" in note
    assert "a is 0 or similar (a.csv: row 0, row 7, row 14, row 21, row 28, ...: 286 rows); b is 1" in note
    assert len(errors.places) == 5 and max(map(len, errors.places.values())) == 5
    with pytest.raises(InputError, match="^a.csv: row 0: a is 0; fix it; 2,000 rows"):
        errors.notes(0)


def test_every_kind_of_bad_row_is_left_out_and_named(tmp_path):
    file = tmp_path / "t.csv"
    file.write_bytes(b"text,label\none,a\ntw\xff,b\nthree\nfour, \nfive,b\n")
    table = read_table(file, need_labels=True, on_error="skip", check=check_not_blank)
    assert table.texts == ["one", "five"] and table.notes[0].startswith("left out 3 rows")
    assert all(f"({file}: {row})" in table.notes[0] for row in ("line 3", "row 2 (line 4)", "row 3 (line 5)"))
    file.write_text("text,label\na,1\nb,x\nc,inf\nd,2\n", encoding="utf-8")
    assert numeric_labels(read_table(file, need_labels=True, on_error="skip", check=parse_number)) == [1, 2]
    with pytest.raises(InputError, match=rf"{file}: row 1 \(line 3\): label 'x' .*; 2 rows"):
        numeric_labels(read_table(file, need_labels=True))
    with pytest.raises(InputError, match=rf"{file}: row 1 \(line 3\): label 'x' .*; 2 rows"):
        class_indices(read_table(file, need_labels=True), ["1", "2"])


def test_broken_sentences_are_left_out_whole(tmp_path):
    file = tmp_path / "t.conll"
    file.write_bytes(b"a O\nb O\n\nc O\nd\n\ne\xff O\n\n# note x y\nf B-X\n")
    errors = RowErrors("skip")
    sentences = read_tagged(file, errors=errors)
    assert [one.words for one in sentences] == [("a", "b"), ("f",)]
    (note,) = errors.notes(len(sentences))
    assert "left out 2 rows" in note and f"{file}: line 5" in note and f"{file}: line 7" in note
    with pytest.raises(InputError, match=rf"{file}:5: 1 column .*2 rows"):
        read_tagged(file)


# --- Parquet, Arrow, packed files -------------------------------------------------------------------------------------


def test_two_columns_of_one_name_are_refused_in_every_kind_of_table(tmp_path):
    table = pyarrow.Table.from_arrays([["a"], ["b"], ["x"]], names=["text", "text", "label"])
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pyarrow.ipc.new_stream(tmp_path / "t.arrow", table.schema) as out:
        out.write_table(table)
    (tmp_path / "t.csv").write_text("text,text,label\na,b,x\n", encoding="utf-8")
    workbook(tmp_path / "t.xlsx", [["text", "text", "label"], ["a", "b", "x"]])
    for kind in ("parquet", "arrow", "csv", "xlsx"):
        file = tmp_path / f"t.{kind}"
        for reader in (
            read,
            lambda path: [*read_texts(str(path))],
            lambda path: [*open_rows(path, column="label")],
        ):
            with pytest.raises(InputError, match=rf"t\.{kind}.* two columns .*'text'"):
                reader(file)


@pytest.mark.parametrize("kind", ["txt.gz", "jsonl.xz", "csv.gz"])
def test_a_packed_file_of_one_endless_line_is_refused(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 1000)
    file = tmp_path / f"t.{kind}"
    pack = lzma.compress if kind.endswith("xz") else gzip.compress
    file.write_bytes(pack(b"text\n" + b"a" * 1001 + b"\n"))
    for reader in (lambda path: [*read_texts(str(path))], lambda path: [*Corpus((path,), on_error="skip").documents()]):
        with pytest.raises(InputError, match=rf"t\.{kind}:2: a line of more than"):
            reader(file)
    plain = tmp_path / "t.txt"
    plain.write_bytes(b"a" * 5000)  # what takes no less room on the disk is its owner's choice
    assert [len(line.text) for line in decoded_lines(plain)] == [5000]
    file.write_bytes(pack("\ufeff".encode("utf-16-le") + "text\n".encode("utf-16-le") + "a".encode("utf-16-le") * 2000))
    with pytest.raises(InputError, match=rf"t\.{kind}:2: a line of more than"):
        [*decoded_lines(file)]


@pytest.mark.slow
def test_a_packed_bomb_takes_bounded_memory(tmp_path):
    bomb = tmp_path / "bomb.jsonl.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as out:
        for _ in range(1 << 6):  # 1 GiB in 5 MB
            out.write(bytes(1 << 24))
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from bothways.text.rows.text_files import decoded_lines\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "try: list(decoded_lines(Path(sys.argv[1])))\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, bomb], capture_output=True, text=True, check=False)
    assert "bomb.jsonl.gz:1: a line of more than 128 MiB" in done.stdout, done.stderr


def test_a_packed_json_of_more_than_its_bound_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LARGEST_DECOMPRESSED", 1000)
    file = tmp_path / "squad.json.gz"
    file.write_bytes(gzip.compress(b" " * 1001))
    with pytest.raises(InputError, match=r"squad\.json\.gz: more than .* MiB decompressed"):
        [*read_questions(str(file))]


def test_a_quote_that_is_never_closed_takes_bounded_memory(tmp_path, monkeypatch):
    before = csv.field_size_limit(1000)
    assert before <= 1 << 25
    try:
        file = tmp_path / "t.csv"
        file.write_text('text\na\n"b\n' + "c\n" * 2000 + "d\n", encoding="utf-8")
        texts = [*read_texts(str(file))]
    finally:
        csv.field_size_limit(before)
    assert (
        texts[0] == ModelInput("a", line=2)
        and isinstance(texts[1], InputError)
        and texts[-1] == ModelInput("d", line=2004)
        and len(texts) == 2003
    )
