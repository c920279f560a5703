"""Readers: every format, damaged files, limits of time and memory."""

import sys
import zipfile
from pathlib import Path

import pytest

from bothways.errors import InputError
from bothways.search.html_text import html_to_text
from bothways.search.reader_process import Readers
from bothways.search.readers import DocumentPart, read_parts

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def docx(path: Path, body: str, name: str = "word/document.xml", before: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, f'{before}<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>')
    return path


def paragraph(text: str, style: str = "") -> str:
    mark = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{mark}<w:r><w:t>{text}</w:t></w:r></w:p>"


def pdf(path: Path, *pages: str) -> Path:
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    with PdfPages(path) as file:
        for text in pages:
            figure = Figure(figsize=(6, 2))
            figure.text(0.1, 0.5, text)
            file.savefig(figure)
    return path


def only(path: Path) -> DocumentPart:
    (part,) = read_parts(path)
    return part


def test_text_in_several_encodings(tmp_path):
    for name, content in {
        "utf8": "naïve\r\nfee".encode(),
        "mark": b"\xef\xbb\xbf" + "naïve\nfee".encode(),
        "utf16": "naïve\nfee".encode("utf-16"),
        "windows": "naïve\rfee".encode("cp1252"),
    }.items():
        path = tmp_path / f"{name}.txt"
        path.write_bytes(content)
        assert only(path).text == "naïve\nfee", name


def test_markdown_with_front_matter(tmp_path):
    path = tmp_path / "note.md"
    path.write_text('---\nyear: 2015\nauthor: "O\'Hara"\ndraft: true\ntags:\n  - a\n---\n# Title\ntext\n')
    part = only(path)
    assert part == DocumentPart("# Title\ntext\n", is_markdown=True, first_line=8, metadata=part.metadata)
    assert part.metadata == {"year": 2015, "author": "O'Hara", "draft": True}


def test_html_is_its_visible_text():
    source = """<html><head><title>Fees &amp; terms</title><style>p{}</style></head><body><script>alert(1)</script>
    <h2>Late   fees</h2><p>Two <b>per</b>cent.</p><div hidden><p>secret</p></div><p style="display: none">no</p>
    <ul><li>one</li><li>two</li></ul><table><tr><td>a</td><td>b</td></tr></table><pre>x
  y</pre>&lt;script&gt;</body></html>"""
    text = html_to_text(source)
    assert text.startswith("# Fees & terms\n\n## Late fees\n\nTwo percent.\n\none\n")
    assert "two" in text
    assert "a\tb" in text
    assert "<script>" in text  # as text
    for gone in ("alert", "secret", "no\n", "p{}"):
        assert gone not in text


def test_html_in_the_encoding_that_it_declares(tmp_path):
    path = tmp_path / "page.html"
    path.write_bytes('<meta charset="iso-8859-2"><p>zł'.encode("iso-8859-2"))
    assert only(path).text == "zł\n"


def test_docx(tmp_path):
    table = "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p/></w:tc></w:tr></w:tbl>"
    body = paragraph("Fees", "Heading2") + paragraph("Late &amp; high") + table
    part = only(docx(tmp_path / "a.docx", body))
    assert part == DocumentPart("## Fees\n\nLate & high\n\na\t\n", is_markdown=True)


def test_pdf_pages(tmp_path):
    parts = [*read_parts(pdf(tmp_path / "a.pdf", "late fees", "annual report"))]
    assert [(part.page, part.text.strip()) for part in parts] == [(1, "late fees"), (2, "annual report")]


def test_tables(tmp_path):
    path = tmp_path / "mails.csv"
    path.write_text('id,title,text,year\n7,Fees,"late\nfee",2015\n8,,paid,2016\n')
    first, second = read_parts(path)
    assert first == DocumentPart(
        "Fees\nlate\nfee", first_line=first.first_line, metadata={"id": 7, "title": "Fees", "year": 2015}
    )
    assert second.text == "paid"
    assert second.metadata == {"id": 8, "year": 2016}
    path = tmp_path / "rows.jsonl"
    path.write_text('{"product": "cup", "notes": "blue", "price": 2.5, "sold": true, "tags": ["x"]}\n')
    part = only(path)
    assert part.text == "product: cup\nnotes: blue"
    assert part.metadata == {"product": "cup", "notes": "blue", "price": 2.5, "sold": True}


@pytest.mark.parametrize("kind", ["binary", "pdf", "docx", "bomb", "doctype", "empty docx", "jsonl"])
def test_damaged_files_are_refused_by_name(tmp_path, kind):
    if kind == "binary":
        path = tmp_path / "a.txt"
        path.write_bytes(b"\x01\0\0\0" * 100)
    elif kind == "pdf":
        path = pdf(tmp_path / "a.pdf", "text")
        path.write_bytes(path.read_bytes()[:300])
    elif kind == "docx":
        path = docx(tmp_path / "a.docx", paragraph("text" * 1000))
        path.write_bytes(path.read_bytes()[:200])
    elif kind == "bomb":
        path = tmp_path / "a.docx"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("word/document.xml", b" " * (80 << 20))
        assert path.stat().st_size < 1 << 20
    elif kind == "doctype":
        path = docx(tmp_path / "a.docx", "&a;", before='<!DOCTYPE x [<!ENTITY a "aaaa">]>')
    elif kind == "empty docx":
        path = docx(tmp_path / "a.docx", "", name="other.xml")
    else:
        path = tmp_path / "a.jsonl"
        path.write_text('{"text": "x"\n')
    with pytest.raises(InputError, match="a\\."):
        [*read_parts(path)]


def test_a_file_of_a_hundred_megabytes_is_refused(tmp_path):
    path = tmp_path / "line.txt"
    with path.open("wb") as file:  # sparse
        file.seek(100 << 20)
        file.write(b"x")
    with pytest.raises(InputError, match="64 MiB"):
        [*read_parts(path)]


# --- the process ------------------------------------------------------------------------------------------------------


def replaced(reader: str) -> str:
    """The code of a reading process with another function in the place of read_parts."""
    return (
        "import sys; sys.path[:] = {path!r}; import bothways.search.reader_process as process\n"
        f"{reader}\n"
        "process.read_parts = read_parts; process.serve({memory})"
    )


@pytest.mark.slow
def test_parsers_run_in_a_process_that_can_be_replaced(tmp_path):
    good = docx(tmp_path / "good.docx", paragraph("fees"))
    bad = tmp_path / "bad.docx"
    bad.write_bytes(b"no archive")
    with Readers() as readers:
        with pytest.raises(InputError, match="damaged"):
            readers.read(bad)
        assert readers.read(good)[0].text == "fees\n"
        assert readers.process is not None
        readers.process.kill()
        readers.process.wait()
        with pytest.raises(InputError, match="crashed"):
            readers.read(good)
        assert readers.read(good)[0].text == "fees\n"
    assert readers.process is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "message"),
    [
        ("def read_parts(path):\n import time; time.sleep(600)", "not read within"),
        ("def read_parts(path):\n import ctypes; ctypes.string_at(0)", "crashed"),
        ("def read_parts(path):\n raise ZeroDivisionError('x')", "ZeroDivisionError"),
        pytest.param(
            "def read_parts(path):\n return [bytearray(1 << 33)]",
            "memory",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's"),
        ),
    ],
)
def test_a_reader_that_fails_costs_its_file_only(tmp_path, reader, message):
    path = docx(tmp_path / "a.docx", paragraph("fees"))
    limit = 3.0 if message == "not read within" else 30.0
    with Readers(start=replaced(reader), time_limit=limit) as readers, pytest.raises(InputError, match=message):
        readers.read(path)


def test_plain_text_needs_no_process(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("fees")
    with Readers() as readers:
        assert readers.read(path) == [DocumentPart("fees")]
        assert readers.process is None
