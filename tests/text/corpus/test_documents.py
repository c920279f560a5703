"""Corpora: documents of each file type, compressed or not; skipped rows; file selection; fingerprints."""

import csv
import errno
import gzip
import io
import json
import lzma
import os
import random
import re
import tracemalloc
from collections import Counter
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from bothways.base.errors import InputError, MissingFile
from bothways.text.corpus.documents import Corpus, documents, mark_held_out, sample, skipped_summary
from bothways.text.data.columns import Table
from bothways.text.data.examples import read_table
from bothways.text.data.labels import class_indices
from bothways.text.rows.rows import open_rows
from bothways.text.rows.text_files import read_lines


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


def read(path, **settings):
    return [*Corpus((path,), **settings).documents()]


def packed(content, packing):
    if packing == ".zst":
        file = pyarrow.BufferOutputStream()
        with pyarrow.CompressedOutputStream(file, "zstd") as stream:
            stream.write(content)
        return file.getvalue().to_pybytes()
    if packing == ".xz":
        return lzma.compress(content, preset=0)
    return gzip.compress(content, 1) if packing else content


# --- running text -----------------------------------------------------------------------------------------------------


def test_blank_lines_separate_documents_of_a_txt(file):
    path = file("a.txt", "\n\none\n  two \n\n \t\nthree\n\n\n")
    assert read(path) == ["one\n  two ", "three"]


def test_a_last_line_needs_no_end_and_windows_ends_are_ends(file):
    assert read(file("a.txt", "one\r\ntwo\r\n\r\nthree")) == ["one\ntwo", "three"]


def test_only_line_feeds_end_a_line(file):
    assert read(file("a.txt", "one\x0btwo\x85three\u2028four\rfive\n")) == ["one\x0btwo\x85three\u2028four\rfive"]


def test_several_files_follow_one_another_in_order(file):
    paths = [file("b.txt", "one\n\ntwo\n"), file("a.jsonl", '{"text": "three"}\n')]
    assert [*documents(paths)] == [*Corpus(tuple(map(str, paths))).documents()] == ["one", "two", "three"]


@pytest.mark.parametrize(("unit", "texts"), [
    ("blank", [" one\ntwo", "three"]), ("line", [" one", "two", "three"]), ("file", [" one\ntwo\n\xa0\nthree"]),
])  # fmt: skip
def test_documents_of_a_txt_end_at_blank_lines_at_lines_or_with_the_file(unit, texts, file):
    assert read(file("a.txt", "\ufeff one\r\ntwo\r\n\xa0\r\nthree"), unit=unit) == texts
    assert read(file("b.txt", " one\ntwo\n\xa0\nthree"), unit=unit) == texts


def test_json_lines_in_a_txt_are_refused(file):
    for content in ('{"text": "one"}\n', '\n{"text": "one"}\n{"text": "two"}\n\n{"text": "three"}\nfour'):
        with pytest.raises(InputError, match=r"a\.txt: .*JSON lines.*end in \.jsonl.*--text-column"):
            read(file("a.txt", content), on_error="skip")
    for content in ('{"a": 1}\nis JSON\n', "{braces}\n", "[1]\n[2]\n", '"quoted"\n'):
        assert read(file("a.txt", content)) == [content.rstrip()]


def test_a_document_of_white_space_is_none(file):
    assert read(file("a.jsonl", '{"text": ""}\n{"text": " \\u3000\\n"}\n{"text": " a "}\n')) == [" a "]
    for unit in ("blank", "line", "file"):
        with pytest.raises(InputError, match=r"a\.txt: empty"):
            read(file("a.txt", "\n \n\u3000\n"), unit=unit)


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_is_not_part_of_the_text(start, file):
    assert read(file("a.txt", start + b"one\n")) == ["one"]
    assert read(file("a.jsonl", start + b'{"text": "one"}\n')) == ["one"]
    assert read(file("a.csv", start + b"text,n\none,1\n")) == ["one"]
    assert [line for _, line in read_lines(file("b.txt", b"one\n\xef\xbb\xbftwo"))] == ["one", "\ufefftwo"]


def test_jsonl_holds_an_object_a_line_and_blank_lines_hold_none(file):
    path = file("a.jsonl", '{"text": "one\\ntwo", "n": 1}\n \t\n{"text": "caf\\u00e9"}\n')
    assert read(path) == ["one\ntwo", "café"]
    assert [where for where, _ in open_rows(path).read()] == [f"{path}: row 0 (line 1)", f"{path}: row 1 (line 3)"]


def test_csv_is_quoted_as_spreadsheets_do(file):
    path = file("a.csv", 'n,text\r\n1,"one, ""two""\r\nthree"\r\n2,four\r\n\r\n3,"five"\r\n')
    assert [row["text"] for _, row in open_rows(path).read()] == ['one, "two"\nthree', "four", "five"]
    assert [where for where, _ in open_rows(path).read()] == [
        f"{path}: row {row} (line {line})" for row, line in enumerate((2, 4, 6))
    ]  # where a row begins


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_the_delimiter_of_a_csv_is_that_of_its_header(sign, file):
    path = file("a.csv", f'\r\nn{sign}text\r\n1{sign}"a; b, c"\r\n2{sign}d.e\r\n')
    assert [row["text"] for _, row in open_rows(path).read()] == ["a; b, c", "d.e"]


def test_a_csv_header_with_a_stray_carriage_return_is_named(file):
    with pytest.raises(InputError, match=r"a\.csv:1: .*CSV"):
        [*open_rows(file("a.csv", "n\rtext\n1\r\ntwo\r\n")).read()]


@pytest.mark.parametrize("header", ['"one; two"', "one.two", "a,b;c"])
def test_a_csv_header_of_one_name_or_with_commas_is_not_divided_elsewhere(header, file):
    names = ["a", "b;c"] if "," in header else [header.strip('"')]
    path = file("a.csv", header + "\r\n" + ",".join(["v;w"] * len(names)) + "\r\n")
    assert [*open_rows(path).read()] == [(f"{path}: row 0 (line 2)", dict.fromkeys(names, "v;w"))]


def test_in_tsv_a_quote_is_a_character_and_a_comma_too(file):
    path = file("a.tsv", 'text\tn\n"one\t1\nsay "two", three\t2\n')
    assert [row["text"] for _, row in open_rows(path).read()] == ['"one', 'say "two", three']


def test_parquet_rows_come_in_order(tmp_path):
    texts = [f"text {number}" for number in range(700)]  # more than one batch
    path = parquet(tmp_path / "a.parquet", {"n": list(range(700)), "text": texts})
    assert read(path) == texts
    assert [where for where, _ in open_rows(path).read()][698] == f"{path}: row 698"


def test_a_very_long_field_is_read(file):
    assert len(read(file("a.csv", "text\n" + "a" * 300_000 + "\n"))[0]) == 300_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"one\ntw\xff\n", r"a\.txt:2: .*UTF-8 .*byte 6 "),
        ("a.txt", b"caf\xc3\xa9 \xe9\n", r"a\.txt:1: .*UTF-8 .*byte 6 "),
        ("a.txt", b"\xef\xbb\xbfone\xff\n", r"a\.txt:1: .*UTF-8 .*byte 6 "),
        ("a.txt", b"\xef\xbb\xbfone\ntwo\xc3", r"a\.txt:2: .*UTF-8 .*byte 10 "),
        ("a.txt", "", r"a\.txt: empty"),
        ("a.txt", "\n \n", r"a\.txt: empty"),
        ("a.jsonl", '{"text": "a"}\n{text}\n', r"a\.jsonl: row \d+ \(line 2\): .*JSON .* column 2"),
        ("a.jsonl", '"a"\n', r"a\.jsonl: row \d+ \(line 1\): .*JSON object.* str"),
        ("a.jsonl", '{"text": 5}\n', r"a\.jsonl: row \d+ \(line 1\): 'text' .*int"),
        ("a.jsonl", '{"text": null}\n', r"a\.jsonl: row \d+ \(line 1\): 'text' .*nothing"),
        ("a.jsonl", '{"n": 1}\n', r"a\.jsonl: row \d+ \(line 1\): no column 'text' .*: n\)"),
        ("a.jsonl", "{}\n", r"a\.jsonl: row \d+ \(line 1\): no column 'text' .*: none\)"),
        ("a.jsonl", '{"text": "a"}\n{"n": ' + "9" * 5000 + "}\n", r"a\.jsonl: row \d+ \(line 2\): .*readable as JSON"),
        ("a.jsonl", '{"text": "a"}\n' + "[" * 200_000, r"a\.jsonl: row \d+ \(line 2\): .*readable as JSON"),
        ("a.jsonl", b'{"text": "a"}\n\n{"text": "\xff"}', r"a\.jsonl:3: .*UTF-8 .*byte 25 "),
        ("a.csv", b"text\na\n\xff\n", r"a\.csv:3: .*UTF-8 .*byte 7 "),
        ("a.tsv", b"text\n\xff\n", r"a\.tsv:2: .*UTF-8 .*byte 5 "),
        ("a.csv", "body,n\na,1\n", r"a\.csv:1: no column 'text' .*: body, n\)"),
        ("a.csv", "text,n\na,1\nb\n", r"a\.csv: row \d+ \(line 3\): 1 column,.* 2"),
        ("a.csv", 'text,n\na,1\n"b,2\nc,3\n', r"a\.csv: row \d+ \(line 3\): .*CSV \(unexpected end of data\)"),
        ("a.csv", "text,n\na\rb,1\n", r"a\.csv: row \d+ \(line 2\): .*CSV"),
        ("a.csv", "", r"a\.csv: empty"),
        ("a.tsv", "text\tn\na\t1\t2\n", r"a\.tsv: row \d+ \(line 2\): 3 columns,.* 2"),
        ("a.parquet", "PAR1", r"a\.parquet: .*Parquet"),
        ("a.pdf", "text", r"a\.pdf: .*'\.pdf'.*; expected \.txt, \.jsonl, \.csv, \.tsv, \.parquet, \.xlsx"),
    ],
)
def test_unreadable_content_is_reported_with_its_location(name, content, message, file):
    path = file(name, content)
    with pytest.raises(InputError, match=message) as raised:
        read(path)
    assert str(raised.value).startswith(str(path)) and "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tsv", "a.parquet"])
def test_a_missing_file_and_a_directory_are_named(name, tmp_path):
    with pytest.raises(MissingFile, match=re.escape(name)):
        read(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="a directory"):
        list(open_rows(tmp_path / name).read() if name != "a.txt" else read_lines(tmp_path / name))


def test_choices_and_files_are_checked_when_a_corpus_is_made():
    with pytest.raises(InputError, match=r"unit \(lines\) .*blank, line, file"):
        Corpus(("a.txt",), unit="lines")
    with pytest.raises(InputError, match=r"on_error \(ignore\) .*stop, skip"):
        Corpus(("a.txt",), on_error="ignore")
    with pytest.raises(InputError, match="corpus is empty"):
        Corpus(())


def test_the_novels_in_the_package_are_split_by_book():
    books = sample()
    assert {book["split"] for book in books} == {"train", "test"}
    titles = {split: {book["title"] for book in books if book["split"] == split} for split in ("train", "test")}
    assert titles["train"] and titles["test"] and not titles["train"] & titles["test"]
    authors = {split: {book["author"] for book in books if book["split"] == split} for split in ("train", "test")}
    assert authors["test"] <= authors["train"]
    assert all(len(book["text"]) > 10_000 and "\n\n" in book["text"] for book in books)


# --- packed -----------------------------------------------------------------------------------------------------------

TEXTS = ['one, "two"', "thrée\nfour", "five"]


def content(kind, texts=TEXTS):
    """The bytes of a file of this kind that holds these texts in column `body` (a .txt: between blank lines)."""
    if kind == ".parquet":
        file = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table({"n": [*range(len(texts))], "body": texts}), file)
        return file.getvalue()
    if kind in (".csv", ".tsv"):
        file = io.StringIO()
        writer = csv.writer(
            file, delimiter="\t" if kind == ".tsv" else ",", quotechar="\x00" if kind == ".tsv" else '"'
        )
        writer.writerows([("body", "n"), *((text, 1) for text in texts)])
        return file.getvalue().encode()
    return {
        ".txt": "\n\n".join(texts),
        ".jsonl": "".join(json.dumps({"n": 1, "body": text}) + "\n" for text in texts),
    }[kind].encode()


@pytest.mark.parametrize("packing", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".csv", ".tsv", ".parquet"])
def test_every_kind_of_file_packed_in_every_way_holds_the_same_documents(kind, packing, file):
    texts = [text.replace("\n", " ") for text in TEXTS] if kind == ".tsv" else TEXTS
    path = file(f"a.b{kind}{packing}", packed(content(kind, texts), packing))
    assert read(path, column="body") == texts
    loud = path.rename(path.with_name(f"A{kind}{packing}".upper()))
    assert read(loud, column="body") == texts


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
def test_packed_files_that_follow_one_another_in_one_file_are_read_on(packing, file):
    assert read(file(f"a.txt{packing}", packed(b"one\n\n", packing) + packed(b"two\n", packing))) == ["one", "two"]


HARMS = {  # and in which kinds of packed file they show: lzma passes over what follows, pyarrow writes no checksums
    "cut": lambda whole: whole[:-7],
    "changed": lambda whole: whole[: len(whole) // 2] + bytes(40) + whole[len(whole) // 2 + 40 :],
    "followed": lambda whole: whole + b"something else",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packing", "harm"),
    [
        (".gz", "cut"),
        (".gz", "changed"),
        (".gz", "followed"),
        (".xz", "cut"),
        (".xz", "changed"),
        (".zst", "cut"),
        (".zst", "followed"),
    ],
)
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".csv", ".tsv", ".parquet"])
def test_a_broken_compressed_file_is_an_error_even_with_on_error_skip(kind, packing, harm, file):
    source = random.Random(0)
    texts = [source.randbytes(40).hex() for _ in range(6000)]
    whole = content(kind, texts)
    path = file(f"a{kind}{packing}", HARMS[harm](packed(whole, packing)))
    place = "" if kind == ".parquet" else r":(\d+)"
    with pytest.raises(InputError, match=rf"^{path}{place}: .*corrupt") as raised:
        read(path, column="body", on_error="skip")
    if place and harm != "changed":
        line = int(str(raised.value).removeprefix(f"{path}:").split(":")[0])
        assert line > 0.5 * whole.count(b"\n")  # zstd packs 128 KiB at a time


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
def test_a_file_that_only_looks_packed_is_named(packing, file):
    with pytest.raises(InputError, match=rf"a\.txt\{packing}:1: .*corrupt"):
        read(file(f"a.txt{packing}", "one\n"))


def test_a_full_disk_is_not_reported_as_a_broken_file(file, monkeypatch):
    def no_space(source, target, length):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("bothways.text.rows.arrow_tables.copyfileobj", no_space)
    with pytest.raises(OSError, match="No space left on device") as raised:
        read(file("a.parquet.gz", packed(content(".parquet"), ".gz")))
    assert raised.value.errno == errno.ENOSPC


def test_positions_in_a_compressed_file_refer_to_its_content(file):
    with pytest.raises(InputError, match=r"a\.txt\.gz:2: .*byte 6 .*decompressed"):
        read(file("a.txt.gz", packed(b"one\ntw\xff\n", ".gz")))
    with pytest.raises(InputError, match=r"a\.parquet\.zst: .*Parquet"):
        read(file("a.parquet.zst", packed(b"PAR1", ".zst")))


# --- what is skipped --------------------------------------------------------------------------------------------------


def skipping(path, **settings):
    skipped = Counter()
    return [*Corpus((path,), on_error="skip", **settings).documents(skipped)], dict(skipped)


def test_errors_that_stop_reading_mention_on_error_skip(file):
    with pytest.raises(InputError, match=r"a\.jsonl: row \d+ \(line 1\): .*JSON .*--on-error skip$"):
        read(file("a.jsonl", "{\n"))


@pytest.mark.parametrize(
    ("name", "content", "texts", "count"),
    [
        ("a.txt", b"one\n\ntwo\nt\xff\xffo\nt\xffo\ntwo\n\nthree\n\n\xfe", ["one", "three"], 2),
        (
            "a.jsonl",
            b'{"text": "one"}\n{\n\n{"text": "\xff"}\n[]\n{"text": null}\n{}\n{"text": "two"}',
            ["one", "two"],
            5,
        ),
        ("a.csv", b'text,n\none,1\ntwo\n"\xff\n",3\n\xff,4\nfive,5\n', ["one", "five"], 3),
        ("a.tsv", b"text\tn\none\t1\ntwo\n\xff\t3\n\xff\nfive\t5\n", ["one", "five"], 3),
        ("a.csv", b'text,n\none,1\n"two,2\nthree,3\n"four",4\nfi"ve,5\n', ["one", "three", "four", 'fi"ve'], 1),
        ("a.csv", b'text,n\none,1\n"two" 2,2\nthree,3\n"four,4\nfive,5', ["one", "three", "five"], 2),
        ("a.csv", b'text,n\n"a\nb",1\n"c" d\n"e\nf",2\n', ["a\nb", "e\nf"], 1),
    ],
)
def test_a_broken_row_is_skipped_alone_and_counted(name, content, texts, count, file):
    path = file(name, content)
    assert skipping(path) == (texts, {str(path): count})


def test_a_txt_of_lines_loses_a_line_and_one_of_a_single_document_all(file):
    path = file("a.txt", b"one\nt\xffo\nthree\n")
    assert skipping(path, unit="line") == (["one", "three"], {str(path): 1})
    with pytest.raises(InputError, match=r"a\.txt: .*1 row: .*a\.txt 1\)"):
        skipping(path, unit="file")


def test_a_parquet_row_without_text_is_skipped_or_named(tmp_path):
    broken = pyarrow.array([b"one", b"tw\xff", None, b"four"]).cast(pyarrow.string(), safe=False)
    with pytest.raises(pyarrow.ArrowInvalid, match="UTF8"):
        broken.validate(full=True)
    path = parquet(tmp_path / "a.parquet", {"text": broken})
    assert skipping(path) == (["one", "four"], {str(path): 2})
    with pytest.raises(InputError, match=r"a\.parquet: row 1: not UTF-8"):
        read(path)
    path = parquet(tmp_path / "b.parquet", {"text": ["one"] * 300 + [None]})
    with pytest.raises(InputError, match=r"b\.parquet: row 300: 'text' .*nothing"):
        read(path)


def test_errors_of_whole_files_stop_even_with_on_error_skip(file, tmp_path):
    good = file("a.txt", "one\n")
    for name, content, message in (
        ("a.csv", b"te\xffxt,n\none,1\n", r"a\.csv:1: not UTF-8"),
        ("b.csv", b"body,n\none,1\n", r"b\.csv:1: no column 'text' .*: body, n\)"),
        ("c.parquet", b"PAR1", r"c\.parquet: .*Parquet"),
    ):
        path = file(name, content)
        with pytest.raises(InputError, match=message):
            [*Corpus((good, path), on_error="skip").documents()]
    with pytest.raises(InputError, match=r"d\.parquet: no column 'text' .*: body\)"):
        [*Corpus((good, parquet(tmp_path / "d.parquet", {"body": ["one"]})), on_error="skip").documents()]
    with pytest.raises(MissingFile):
        [*Corpus((good, tmp_path / "no.txt"), on_error="skip").documents()]


def test_an_empty_file_among_others_is_an_error_unless_skipped(file):
    paths = file("a.txt", "one\n"), file("b.txt", "\n")
    with pytest.raises(InputError, match=r"b\.txt: empty"):
        [*Corpus(paths).documents()]
    assert [*Corpus(paths, on_error="skip").documents()] == ["one"]


def test_skipped_rows_are_summarized_in_one_line():
    assert skipped_summary(Counter()) == "skipped no rows"
    assert skipped_summary(Counter({"a.txt": 1})) == "skipped 1 row: a.txt 1"
    assert skipped_summary(Counter({"more.txt": 1, "corpus.jsonl": 2})) == "skipped 3 rows: corpus.jsonl 2, more.txt 1"
    many = Counter({f"{number}.txt": 1000 + number for number in range(7)})
    assert skipped_summary(many).startswith("skipped 7,021 rows: 6.txt 1,006, 5.txt 1,005, ")
    assert skipped_summary(many).endswith(", 2.txt 1,002, 2 other files")


# --- which files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for name in (
        "b.txt",
        "a.jsonl",
        "a/z.txt.gz",
        "a-b.csv",
        "a/deep/c.parquet",
        "c.pdf",
        "d",
        ".e.txt",
        ".f/g.txt",
        "[h].txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")
    return tmp_path


def names(folder, *paths):
    return [path.relative_to(folder).as_posix() for path in Corpus(tuple(folder / path for path in paths)).files()]


def test_a_folder_is_its_files_at_any_depth_in_order_of_their_paths(folder):
    assert names(folder, "") == ["[h].txt", "a-b.csv", "a.jsonl", "a/deep/c.parquet", "a/z.txt.gz", "b.txt"]
    assert names(folder, "a") == ["a/deep/c.parquet", "a/z.txt.gz"]


def test_a_glob_is_the_files_it_matches_in_order_of_their_paths(folder):
    assert names(folder, "*") == ["[h].txt", "a-b.csv", "a.jsonl", "b.txt"]
    assert names(folder, "?.txt") == names(folder, "[bc]*") == ["b.txt"]
    assert names(folder, "**/*.txt*") == ["[h].txt", "a/z.txt.gz", "b.txt"]
    assert names(folder, "*/z.txt.gz") == ["a/z.txt.gz"]


def test_an_existing_file_is_not_read_as_a_glob(folder):
    (folder / "h.txt").touch()
    assert names(folder, "[h].txt") == ["[h].txt"]


def test_paths_keep_their_order_and_a_file_named_twice_is_read_once(folder):
    (folder / "link.txt").symlink_to("b.txt")
    assert names(folder, "b.txt", "a", "a/z.txt.gz", "a/../b.txt", "link.txt", "*.csv") == [
        "b.txt", "a/deep/c.parquet", "a/z.txt.gz", "a-b.csv",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("empty", "empty: no file"),
        ("*.html", r"\*.html: no file"),
        ("*.pdf", r"\*.pdf: no file"),
        ("c.pdf", "c.pdf: .*'.pdf'"),
        ("d", "d: .*'none'"),
        ("no.txt", "no.txt: no such file"),
    ],
)
def test_a_path_without_files_is_named(path, message, folder):
    (folder / "empty" / ".git").mkdir(parents=True)
    (folder / "empty" / ".git" / "a.txt").touch()
    with pytest.raises(InputError, match=message):
        names(folder, "b.txt", path)


def test_a_folder_that_may_not_be_read_is_not_passed_over(folder, monkeypatch):
    def scandir(path, list_folder=os.scandir):  # to root nothing is forbidden
        if Path(path) == folder / "a":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(InputError, match=r"a: .*Permission denied"):
        names(folder, "")


# --- what names them --------------------------------------------------------------------------------------------------


def test_a_fingerprint_follows_the_bytes_and_not_the_names(tmp_path, file):
    first, second = file("a.txt", "one\n"), file("b.txt.gz", packed(b"two\n", ".gz"))
    before = Corpus((first, second)).fingerprint()
    assert len(before) == 16 and int(before, 16)
    os.utime(first, (1, 1))
    (tmp_path / "elsewhere").mkdir()
    moved = first.rename(tmp_path / "elsewhere" / "c.txt"), second.rename(tmp_path / "elsewhere" / "d.TXT.gz")
    assert Corpus(moved).fingerprint() == Corpus((tmp_path / "elsewhere",)).fingerprint() == before


def test_a_fingerprint_changes_with_whatever_changes_the_documents(file):
    paths = file("a.txt", "one\n"), file("b.txt", "two\n")
    changed = [
        Corpus(paths),
        Corpus(paths[::-1]),
        Corpus(paths[:1]),
        Corpus(paths, unit="line"),
        Corpus(paths, column="body"),
        Corpus(paths, on_error="skip"),
        Corpus((paths[0], file("c.txt", "twp\n"))),
        Corpus((file("d.txt", "one\nt"), file("e.txt", "wo\n"))),
        Corpus((paths[0], file("f.csv", "two\n"))),
        Corpus((paths[0], file("g.txt.gz", "two\n"))),
    ]
    assert len({corpus.fingerprint() for corpus in changed}) == len(changed)
    paths[0].write_text("onf\n")
    assert Corpus(paths).fingerprint() not in {corpus.fingerprint() for corpus in changed[1:]}


# --- streamed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"one\n\n\xff\n"),
        ("a.jsonl", b'{"text": "one"}\n{\n'),
        ("a.csv", b'text\none\n"\n'),
        ("a.parquet", content(".parquet", ["one"] * 600 + [None])),
    ],
)
def test_a_document_is_yielded_before_the_next_is_read(name, content, file):
    texts = Corpus((file(name, content),), column="body" if "parquet" in name else "text").documents()
    assert next(texts) == "one"
    with pytest.raises(InputError):
        list(texts)


def test_all_paths_are_looked_up_before_anything_is_read(file):
    with pytest.raises(MissingFile):
        next(Corpus((file("a.txt", "one\n"), "no.txt")).documents())


@pytest.mark.parametrize(("kind", "packing"), [(".txt", ".gz"), (".jsonl", ".zst")])
def test_memory_does_not_grow_with_the_file(kind, packing, file):
    number, text = 12_500, "a word " * 571  # 50 MB
    line = {".txt": text + "\n\n", ".jsonl": json.dumps({"text": text}) + "\n"}[kind]
    path = file(f"a{kind}{packing}", packed((line * number).encode(), packing))
    tracemalloc.start()
    try:
        assert sum(len(text) for text in Corpus((path,)).documents()) > 49_000_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_a_parquet_file(tmp_path):
    source = random.Random(0)
    texts = [source.randbytes(2000).hex() for _ in range(5000)]  # 20 MB
    table = pyarrow.table({"text": texts, "other": texts})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=False, data_page_size=100_000)
    del table
    before, most = pyarrow.total_allocated_bytes(), 0
    for text, expected in zip(Corpus((tmp_path / "a.parquet",)).documents(), texts, strict=True):
        assert text == expected
        most = max(most, pyarrow.total_allocated_bytes() - before)
    assert most < 8_000_000


# --- held out ---------------------------------------------------------------------------------------------------------


def slow_split(documents, every):
    """As it was when all documents were in a list."""
    every = min(every, len(documents))
    return [text for number, text in enumerate(documents, 1) if number % every], documents[every - 1 :: every]


@pytest.mark.parametrize("every", [2, 3, 20])
def test_every_twentieth_document_is_held_out_of_fewer_the_last(every):
    for number in range(2, 67):
        texts = [f"text {index}" for index in range(number)]
        marked = [*mark_held_out(iter(texts), every)]
        assert [text for text, _ in marked] == texts
        assert ([text for text, held in marked if not held], [text for text, held in marked if held]) == slow_split(
            texts, every
        )


def test_twenty_documents_are_read_ahead_and_no_more():
    taken = []
    marked = mark_held_out(str(taken.append(number)) + str(number) for number in range(100))
    assert next(marked) == ("None0", False) and len(taken) == 20
    assert [next(marked)[1] for _ in range(20)] == [False] * 18 + [True, False] and len(taken) == 21


def test_of_one_document_none_can_be_held_out():
    with pytest.raises(InputError, match="one document.*--heldout"):
        next(mark_held_out(["one"]))


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


def test_columns_are_read_by_their_names(file):
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
    with pytest.raises(InputError, match=r"\.txt .*labels"):
        read_table(file("t.txt", "one\n"), need_labels=True)


def test_labels_that_are_numbers_are_their_digits(file):
    assert read_table(file("t.jsonl", '{"text": "one", "label": 1}\n'), need_labels=True).labels == ["1"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a", "label": "x"}\n{"label": "x"}\n', r"t\.jsonl: row 1 \(line 2\): 'text' is missing"),
        (
            '{"text": "a", "label": "x"}\n\n{"text": "b", "label": null}\n',
            r"t\.jsonl: row 1 \(line 3\): 'label' is missing",
        ),
        (
            '{"text": "a", "label": "x", "pair": "p"}\n{"text": "b", "label": "x"}\n',
            r"t\.jsonl: row 1 \(line 2\): 'pair' is missing",
        ),
        (
            '{"text": "b", "label": "x"}\n{"text": "a", "label": "x", "pair": "p"}\n',
            r"t\.jsonl: row 0 \(line 1\): 'pair' is missing",
        ),
        ('{"words": "a", "label": "x"}\n', "'text' .*: words, label.*--text-column"),
        ('{"text": "a", "kind": "x"}\n', "'label' .*: text, kind.*--label-column"),
        ("\n\n", "t.jsonl: empty"),
    ],
)
def test_missing_values_are_reported_with_their_line(content, message, file):
    with pytest.raises(InputError, match=message):
        read_table(file("t.jsonl", content), need_labels=True)


def test_labels_are_numbered_by_the_names_and_a_strange_one_is_named():
    table = Table(["a", "b", "c"], None, ["y", "x", "y"], ["f:2", "f:3", "f:4"])
    assert class_indices(table, ["x", "y"]) == [1, 0, 1]
    with pytest.raises(InputError, match="f:3: label 'x' .*y, z"):
        class_indices(table, ["y", "z"])
