"""Readers of files: the text, its lines and metadata by type; what is refused, in one line."""

import gzip
import os
import sys
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.base.errors import InputError, MissingFile
from bothways.search.formats import plain_text
from bothways.search.formats.html_pages import html_to_markdown
from bothways.search.passages import split_passages
from bothways.search.readers import DocumentPart, find_reader, read_parts, read_table, read_text

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def pdf(*pages, page_type="Page"):
    """A minimal PDF. pages: the text of each, in one line."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    for text in pages:
        content = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET"
        resources = f"/Resources << /Font << /F1 3 0 R >> >> /Contents {len(objects) + 2} 0 R"
        objects.append(f"<< /Type /{page_type} /Parent 2 0 R /MediaBox [0 0 612 792] {resources} >>")
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    kids = " ".join(f"{number} 0 R" for number in range(4, len(objects) + 1, 2))
    objects[1] = f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>"
    data, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


def docx(path, body, *, styles="", before="", **others):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, root, content in (("styles", "styles", styles), ("document", "document", f"<w:body>{body}</w:body>")):
            archive.writestr(f"word/{name}.xml", f'{before}<w:{root} xmlns:w="{WORD}">{content}</w:{root}>')
        for name, content in others.items():
            archive.writestr(f"word/{name}.xml", f'<w:{name} xmlns:w="{WORD}">{content}</w:{name}>')
    return path


def read(path, **options):
    return [*read_parts(path, **options)]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def text_of(path):
    (part,) = read(path)
    return part.text


# --- text and Markdown ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.txt", "a.py", "README", "a.unknown"])
def test_text_is_one_part(tmp_path, name):
    assert read(write(tmp_path / name, "# one\r\ntwo\n")) == [DocumentPart("# one\ntwo")]


def test_text_is_read_in_its_encoding(tmp_path):
    assert text_of(write(tmp_path / "a.txt", "été".encode("utf-16"))) == "été"
    assert read(write(tmp_path / "b.txt", "été".encode("cp1252")), encoding="cp1252") == [DocumentPart("été")]
    assert text_of(tmp_path / "b.txt") == "été"
    with pytest.raises(InputError, match="no_such_codec"):
        read(tmp_path / "b.txt", encoding="no_such_codec")


def test_compressed_text_is_decompressed(tmp_path):
    assert text_of(write(tmp_path / "a.txt.gz", gzip.compress(b"one"))) == "one"


def test_front_matter_is_metadata_and_lines_are_those_of_the_file(tmp_path):
    matter = "---\ntitle: 'On Foxes'\nyear: 1999\ndraft: false\ntags: [a, b]\nnested:\n  key: 1\nby: nan\n---\n"
    (part,) = read(write(tmp_path / "a.md", f"{matter}# One\n\ntext"))
    metadata = {"title": "On Foxes", "year": 1999, "draft": False, "tags": ["a", "b"], "by": "nan"}
    assert part == DocumentPart("# One\n\ntext", True, None, 10, metadata, len(matter))
    (passage,) = split_passages(part.text, len, is_markdown=part.is_markdown, first_line=part.first_line)
    assert (passage.line, passage.heading) == (10, "One")


@pytest.mark.parametrize(
    ("lines", "tags"),
    [
        (" [bert, 'a, b', \"c]\", 7, 007, C#]", ["bert", "a, b", "c]", 7, "007", "C#"]),
        ("\n  - bert\n  - 'a: b'\n  - http://x", ["bert", "a: b", "http://x"]),
        ("\n- bert\n- 2.5", ["bert", 2.5]),
        (" [ one word , ]", ["one word"]),
        (" [a, [b]]", None),
        (" []", None),
        (" [a", None),
        ("\n- name: x\n- b", None),
        (f" [{'a, ' * 101}]", None),
    ],
)
def test_lists_of_front_matter_are_metadata(tmp_path, lines, tags):
    (part,) = read(write(tmp_path / "a.md", f"---\ntags:{lines}\nyear: 1\n---\ntext"))
    assert part.metadata == ({"year": 1} if tags is None else {"tags": tags, "year": 1})


@pytest.mark.parametrize("text", ["---\n\ntext", "---\nno colon\n---\ntext", "text\n---\na: b\n---"])
def test_rules_are_no_front_matter(tmp_path, text):
    assert read(write(tmp_path / "a.md", text)) == [DocumentPart(text, is_markdown=True)]


def test_an_empty_file_has_no_part(tmp_path):
    assert read(write(tmp_path / "a.txt", " \n")) == []


# --- HTML -------------------------------------------------------------------------------------------------------------


def test_html_is_read_as_headings_and_blocks(tmp_path):
    page = """<!doctype html><html><head><title>On &amp; off</title><style>p {color: red}</style></head><body>
      <h1>Foxes <em>run</em></h1><p>They run
        fast&nbsp;&eacute;t&#233;.<br>Very.<p hidden>secret<p>Next.</p><script>alert("no")</script>
      <ul><li>one<li>two</ul><table><tr><td>a</td><td>b</td></tr><tr><td>c<td>d</table>
      <div style="display: none"><p>no</div><pre>x = 1\n  # y</pre><p># no heading</p><template>no</template>
      <![1</body>"""
    (part,) = read(write(tmp_path / "a.html", page))
    assert part.text.split("\n\n") == [
        *("# On & off", "# Foxes run", "They run fast été.\nVery.", "Next.", "- one\n- two", "a\tb\nc\td"),
        *("```\nx = 1\n  # y\n```", "\\# no heading", "<![1"),
    ]
    assert (part.is_markdown, part.metadata, part.first_line) == (True, {"title": "On & off"}, None)


@pytest.mark.parametrize(
    "page",
    [
        "<meta charset=iso-8859-1><p>été".encode("latin-1"),
        "<p>été".encode("cp1252"),
        "<p>été".encode(),
        "<head><meta charset=wrong><p>été".encode("utf-16"),
    ],
)
def test_the_encoding_of_html_is_found(tmp_path, page):
    assert text_of(write(tmp_path / "a.htm", page)) == "été"


def test_elements_that_are_not_closed_hide_only_themselves(tmp_path):
    assert text_of(write(tmp_path / "a.html", "<div><span hidden>no</div><p>yes</b></i><svg><title>no")) == "yes"


BLOG = """<!doctype html><html lang=en><head><title>Late fees | Acme</title></head><body>
  <a href="#content" aria-hidden=true>skip</a>
  <div role="dialog" aria-label="Cookies"><h2>We value your privacy</h2><button>Accept</button></div>
  <section aria-label="Cookie-Banner"><p>More cookies</section>
  <header><a href=/>Acme</a><nav><ul><li>Home<li>Prices</ul></nav></header>
  <div class=row><nav><ul><li>Docs<li>Blog</ul></nav>
  <main id=content><p>{}</p><article><header><h1>Late fees</h1><p>By Ann</p></header>
    <p>Two per cent <aside>Popular: rates</aside> a month.</p>
    <div role=navigation><a>Previous</a> <a>Next</a></div><ul role=menu><li>Share</ul>
    <blockquote>Pay in time.<footer>A bank</footer></blockquote><aside role=note><p>Since 2015.</aside>
    <footer>Tags: money</footer></article></main></div>
  <div role=" ContentInfo ">Imprint</div><footer><p>&copy; Acme</p></footer></body></html>"""


def test_menus_headers_and_footers_are_no_text():
    text, title = html_to_markdown(BLOG.format("Intro"))
    assert title == "Late fees | Acme"
    assert text.split("\n\n") == [
        *("# Late fees | Acme", "Intro", "# Late fees", "By Ann", "Two per cent", "a month.", "Pay in time.", "A bank"),
        "Since 2015.",
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<main></main><nav><p>Menu</nav><div><p>All is here.</div>", "All is here."),
        ("<header><h1>Acme</h1></header><main> </main><article></article><footer>Made of tin.</footer>",
         "# Acme\n\nMade of tin."),
        ("<header>a menu<h1>Rates</h1></header><main><p>Low.</main>", "# Rates\n\nLow."),
        ("<header><h1>Acme</h1></header><h1>Rates</h1><p>Low.", "# Rates\n\nLow."),
        ("<p>One.<nav>Menu<p hidden>x</nav>two", "One.\n\ntwo"),
        ("<table><tr><td>a<div role=navigation>b</div>c</td></tr></table>", "a\n\nc"),
        ("<section><header><h2>Part</h2></header>x</section>", "## Part\n\nx"),
        ("<nav>Menu</nav>words <span role=search>find</span> more<nav>Menu", "words\n\nmore"),
        ("<nav hidden>Menu</nav>", ""),
    ],
)  # fmt: skip
def test_a_page_without_other_text_or_title_is_not_lost(page, text):
    assert html_to_markdown(page)[0] == text


PIECES = [f"<{mark}{tag}>" for tag in ("p", "td", "pre", "h2", "svg", "head") for mark in ("", "/")]
PIECES += ["<![", "<![x]>", "<![endif-]>", "<!--", "-->", "<", "&#x110000;", "<p hidden>", "\n", "# a"]


@settings(max_examples=100)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_html_without_rules_is_read(page):
    text, _ = html_to_markdown(page + "<p>")
    assert "<p>" not in text


# --- PDF --------------------------------------------------------------------------------------------------------------


def test_pages_of_a_pdf_are_parts(tmp_path):
    path = write(tmp_path / "a.pdf", pdf("Page one.", "", "Page three."))
    assert [(part.text, part.page) for part in read(path)] == [("Page one.", 1), ("Page three.", 3)]


def test_a_broken_pdf_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"a\.pdf: not a readable PDF"):
        read(write(tmp_path / "a.pdf", "%PDF-1.4\nbroken"))


def test_without_pypdfium2_the_message_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(InputError, match=r"bothways\[pdf\]"):
        read(write(tmp_path / "a.pdf", pdf("text")))


# --- Word documents ---------------------------------------------------------------------------------------------------


def paragraph(text, properties=""):
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def test_a_word_document_is_read_as_headings_paragraphs_and_tables(tmp_path):
    styles = '<w:style w:styleId="T2"><w:name w:val="heading 2"/></w:style>'
    styles += '<w:style w:styleId="Own"><w:basedOn w:val="T2"/></w:style>'
    cells = "".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in ("a", "b"))
    hidden = (
        "<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>no</w:t></w:r><w:r><w:t>yes</w:t><w:tab/><w:t>1</w:t></w:r></w:p>"
    )
    table = f"<w:tbl><w:tr>{cells}</w:tr><w:tr>{cells}</w:tr></w:tbl>"
    body = paragraph("Foxes", '<w:pStyle w:val="Own"/>') + paragraph("# They &amp; we") + table + hidden
    (part,) = read(docx(tmp_path / "a.docx", body, styles=styles))
    assert part.text.split("\n\n") == ["## Foxes", "\\# They & we", "a\tb\na\tb", "yes\t1"]
    assert part.is_markdown


def test_text_that_was_moved_or_deleted_is_only_where_it_is_now(tmp_path):
    run = "<w:r><w:t>{}</w:t><w:tab/></w:r>".format
    body = f"""<w:p>{run("one")}<w:moveFrom w:id="1">{run("two")}</w:moveFrom><w:del>{run("three")}</w:del>{run("four")}
      </w:p><w:p><w:pPr><w:rPr><w:moveFrom/><w:del/></w:rPr></w:pPr><w:moveFrom>{run("five")}</w:moveFrom></w:p>
      <w:p><w:moveTo>{run("two")}</w:moveTo><w:ins>{run("six")}</w:ins></w:p>"""
    assert text_of(docx(tmp_path / "a.docx", body)).split("\n\n") == ["one\tfour", "two\tsix"]


def test_hyphens_of_word_that_hold_numbers_together_are_hyphens(tmp_path):
    body = """<w:p><w:r><w:t>2010</w:t><w:noBreakHyphen/><w:t>2015</w:t><w:softHyphen/><w:t>b</w:t><w:ptab/>
      <w:t>c</w:t></w:r><w:r><w:rPr><w:vanish/></w:rPr><w:noBreakHyphen/><w:tab/></w:r><w:r><w:t>d</w:t></w:r></w:p>"""
    assert text_of(docx(tmp_path / "a.docx", body)) == "2010-2015b\tcd"


def test_notes_of_word_follow_the_paragraph_or_table_that_names_them(tmp_path):
    note = '<w:{0} w:id="{1}"><w:p><w:r><w:{0}Ref/><w:t>{2}</w:t></w:r></w:p></w:{0}>'.format
    named = '<w:r><w:{}Reference w:id="{}"/></w:r>'.format
    table = f"<w:tbl><w:tr><w:tc>{paragraph('cell')}<w:p>{named('footnote', 2)}</w:p></w:tc></w:tr></w:tbl>"
    body = f"<w:p><w:r><w:t>one</w:t></w:r>{named('footnote', 1)}{named('endnote', 1)}{named('endnote', 8)}"
    body += f"<w:del>{named('footnote', 3)}</w:del></w:p>{table}{paragraph('two')}"
    separator = '<w:footnote w:type="separator" w:id="0"><w:p><w:r><w:separator/></w:r></w:p></w:footnote>'
    footnotes = separator + note("footnote", 1, "first") + note("footnote", 2, "second") + note("footnote", 3, "gone")
    path = docx(tmp_path / "a.docx", body, footnotes=footnotes, endnotes=note("endnote", 1, "# last"))
    assert text_of(path).split("\n\n") == ["one", "first", "\\# last", "cell", "second", "two"]


def test_a_document_type_in_a_word_document_is_refused(tmp_path):
    path = docx(tmp_path / "a.docx", paragraph("&x;"), before='<!DOCTYPE x [<!ENTITY x "boom">]>')
    with pytest.raises(InputError, match="document type"):
        read(path)


def test_a_zip_bomb_is_refused(tmp_path):
    with pytest.raises(InputError, match="decompressed"):
        read(docx(tmp_path / "a.docx", " " * 8_000_000))


def test_a_broken_word_document_is_refused(tmp_path):
    path = docx(tmp_path / "a.docx", paragraph("text"))
    with pytest.raises(InputError, match="not a readable Word document"):
        read(write(tmp_path / "b.docx", path.read_bytes()[:300]))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.xml", "")
    with pytest.raises(InputError, match="not a Word document"):
        read(path)


# --- tables -----------------------------------------------------------------------------------------------------------


def test_rows_are_parts_with_metadata(tmp_path):
    rows = '{"id": 7, "title": "A", "text": "one", "tags": ["x", 5, null, {}], "none": null, "empty": []}\n\n'
    rows += '{"text": "two", "ok": true, "f": 0.5}'
    first, second = read(write(tmp_path / "a.jsonl", rows))
    assert first == DocumentPart("A\n\none", first_line=1, metadata={"row": 0, "id": 7, "tags": ["x", 5]}, is_row=True)
    assert second == DocumentPart("two", first_line=3, metadata={"row": 1, "ok": True, "f": 0.5}, is_row=True)


def test_rows_of_csv_are_located_by_their_first_line(tmp_path):
    path = write(tmp_path / "a.csv.gz", gzip.compress(b'body,year\n"one\ntwo",1999\nthree,2000\n'))
    assert [(part.text, part.first_line, part.metadata) for part in read(path)] == [
        ("one\ntwo", 2, {"row": 0, "year": 1999}),
        ("three", 4, {"row": 1, "year": 2000}),
    ]


def test_cells_that_a_number_would_change_stay_texts(tmp_path):
    header, cells = "text,zip,version,amount,year,share\n", ["01234", "1.10", "-0", 2015, 1.5]
    (part,) = read(write(tmp_path / "a.csv", f"{header}x,{','.join(map(str, cells))}"))
    assert [*part.metadata.values()] == [0, *cells]
    (part,) = read(write(tmp_path / "a.md", "---\nversion: 1.10\nzip: 007\nyear: 7\n---\ntext"))
    assert part.metadata == {"version": "1.10", "zip": "007", "year": 7}


def test_lone_surrogates_become_one_character_each(tmp_path):
    (part,) = read(write(tmp_path / "a.jsonl", '{"text": "a\\ud83d\\udc00b\\ud83d", "k\\udc80": "\\udfff"}'))
    assert (part.text, part.metadata) == ("a\U0001f400b\ufffd", {"row": 0, "k\ufffd": "\ufffd"})


def test_without_a_text_column_all_strings_are_the_text(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"city": "Oslo", "size": 5, "land": "Norway"}')
    assert read(path) == [
        DocumentPart(
            "city: Oslo\nland: Norway", metadata={"row": 0, "city": "Oslo", "size": 5, "land": "Norway"}, is_row=True
        )
    ]


@pytest.mark.slow
def test_times_in_parquet_are_in_iso_format(tmp_path):
    import datetime

    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"text": ["one", "two"], "day": [datetime.date(1999, 12, 31), None]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    parts = read(tmp_path / "a.parquet")
    assert [(part.text, part.first_line, part.metadata) for part in parts] == [
        ("one", 1, {"row": 0, "day": "1999-12-31"}),
        ("two", 2, {"row": 1}),
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_line_of_100_megabytes_is_refused_and_not_loaded(tmp_path, name):
    import tracemalloc

    with (tmp_path / name).open("wb") as file:
        file.write(b"text\n" + b"a" * 8192)  # NUL bytes only after that
        file.seek(100_000_000)
        file.write(b"\n")
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="16 MiB"):
            read(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()


# --- what is refused --------------------------------------------------------------------------------------------------


def test_binary_files_are_refused(tmp_path):
    for content in (b"\x7fELF\0\0\0\x01\xff", b"a\n" * 9000 + b"\0"):
        with pytest.raises(InputError, match="binary"):
            read(write(tmp_path / "a.txt", content))


def test_large_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_text, "LARGEST_FILE", 1000)
    for path in (
        write(tmp_path / "a.txt", b"a" * 1001),
        write(tmp_path / "a.txt.gz", gzip.compress(b"a" * 1001)),
        write(tmp_path / "b.html", b"a" * 1001),
        write(tmp_path / "b.html.gz", gzip.compress(b"a" * 1001)),
    ):
        with pytest.raises(InputError, match="at most"):
            read(path)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path, tmp_path / "pipe.txt"):
        with pytest.raises(InputError, match="not a regular file"):
            read(path)
    with pytest.raises(MissingFile):
        read(tmp_path / "none.txt")


@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.docx", "a.jsonl"])
def test_a_file_removed_after_the_check_is_reported_as_missing(tmp_path, monkeypatch, name):
    path = write(tmp_path / name, "text")
    monkeypatch.setattr(plain_text, "check_regular_file", lambda path: path.unlink(missing_ok=True))
    with pytest.raises(MissingFile):
        read(path)


def test_the_reader_of_a_file_follows_from_its_name(tmp_path):
    names = ["a.TXT", "a.csv.gz", "LICENSE", "a.exe", "unknown"]
    readers = [find_reader(tmp_path / name) for name in names]
    assert readers == [read_text, read_table, read_text, None, None]
