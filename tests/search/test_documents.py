"""Readers of text documents, slides, e-mail, notebooks and RTF."""

import json
import sys
import zipfile

import pytest

from bothways.base.errors import InputError
from tests.search.test_readers import read, text_of, write

OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns:{0}:1.0"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
SLIDES = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    f'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:r="{OFFICE}"'
)


def odt(path, body, before=""):
    spaces = " ".join(f'xmlns:{name}="{OPEN_DOCUMENT.format(name)}"' for name in ("office", "text", "table", "drawing"))
    content = f"<office:document-content {spaces}><office:body><office:text>{body}</office:text></office:body>"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("content.xml", f"{before}{content}</office:document-content>")
    return path


def pptx(path, *bodies, notes=""):
    """A presentation whose slides are stored in the reverse of their order. notes: of the first one."""
    relation = '<Relationship Id="{}" Type="{}/{}" Target="{}"/>'.format
    names = [f"slide{len(bodies) - number}.xml" for number in range(len(bodies))]
    ids = "".join(f'<p:sldId id="{256 + number}" r:id="r{number}"/>' for number in range(len(bodies)))
    listed = "".join(relation(f"r{number}", OFFICE, "slide", f"slides/{name}") for number, name in enumerate(names))
    members = {
        "presentation.xml": f"<p:presentation {SLIDES}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
        "_rels/presentation.xml.rels": f'<R xmlns="{RELATIONS}">{listed}</R>',
        **{f"slides/{name}": f"<p:sld {SLIDES}>{body}</p:sld>" for name, body in zip(names, bodies, strict=True)},
    }
    if notes:
        target = relation("n", OFFICE, "notesSlide", "../notesSlides/n1.xml")
        members[f"slides/_rels/{names[0]}.rels"] = f'<R xmlns="{RELATIONS}">{target}</R>'
        members["notesSlides/n1.xml"] = f"<p:notes {SLIDES}>{notes}</p:notes>"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"ppt/{name}", content)
    return path


def shape(*paragraphs, kind=""):
    placeholder = f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>' if kind else ""
    text = "".join(f"<a:p><a:r><a:t>{one}</a:t></a:r></a:p>" for one in paragraphs)
    return f"<p:sp>{placeholder}<p:txBody>{text}</p:txBody></p:sp>"


# --- OpenDocument -----------------------------------------------------------------------------------------------------


def test_an_open_document_is_read_as_headings_paragraphs_tables_and_notes(tmp_path):
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>".format
    row = f"<table:table-row>{cell('a')}{cell('b')}</table:table-row>"
    note = "<text:note-body><text:p>A note.</text:p></text:note-body>"
    body = f"""<text:tracked-changes><text:p>gone</text:p></text:tracked-changes>
      <text:table-of-content><text:p>Foxes 1</text:p></text:table-of-content>
      <text:h text:outline-level="2">Foxes <text:span>run</text:span></text:h>
      <text:p># They<text:s text:c="999999999"/>run
        <text:span>fa<text:span>st</text:span></text:span>,<text:tab/>too<text:line-break/>far.<text:note>
        <text:note-citation>1</text:note-citation>{note}</text:note><office:annotation><text:p>no</text:p>
        </office:annotation></text:p><text:list><text:list-item><text:p>one</text:p></text:list-item></text:list>
      <table:table><table:table-header-rows>{row}</table:table-header-rows>{row}</table:table>
      <text:p><drawing:frame><drawing:text-box><text:p>box</text:p></drawing:text-box></drawing:frame></text:p>"""
    (part,) = read(odt(tmp_path / "a.odt", body))
    expected = ["## Foxes run", "\\# They run fast,\ttoo\nfar.", "A note.", "one", "a\tb\na\tb", "box"]
    assert part.text.split("\n\n") == expected
    assert (part.is_markdown, part.page, part.first_line) == (True, None, None)


def test_a_bomb_a_document_type_and_other_archives_are_refused(tmp_path):
    for path, reason in (
        (odt(tmp_path / "a.odt", " " * 8_000_000), "decompressed"),
        (odt(tmp_path / "b.odt", "<text:p>&x;</text:p>", '<!DOCTYPE x [<!ENTITY x "boom">]>'), "document type"),
        (odt(tmp_path / "c.odt", "<text:span>" * 3000 + "</text:span>" * 3000), "nested"),
        (odt(tmp_path / "a.pptx", ""), "not a presentation"),
        (pptx(tmp_path / "d.odt", ""), "not a text document"),
        (write(tmp_path / "e.odt", "text"), "not a readable text document"),
    ):
        with pytest.raises(InputError, match=reason):
            read(path)


@pytest.mark.parametrize(
    ("offset", "change", "reason"),
    [
        (24, (1000).to_bytes(4, "little"), "Bad CRC-32"),  # the size: far less than is in it
        (8, b"\1", "encrypted"),
    ],
)
def test_an_archive_with_a_false_size_or_a_password_is_refused(tmp_path, offset, change, reason):
    path = odt(tmp_path / "a.odt", "<text:p/>" * 100_000)
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\1\2") + offset  # of its list of members, which has one
    content[entry : entry + len(change)] = change
    with pytest.raises(InputError, match=reason):
        read(write(path, bytes(content)))


# --- presentations ----------------------------------------------------------------------------------------------------


def test_slides_are_pages_in_the_order_of_the_presentation(tmp_path):
    cell = "<a:tc><a:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></a:txBody></a:tc>".format
    table = f"<a:tbl><a:tr>{cell('a')}{cell('b')}</a:tr></a:tbl>"
    first = shape("Late", "fees", kind="title") + shape("Two per cent", "a month") + shape("3", kind="sldNum") + table
    notes = shape("Explain it slowly.", kind="body") + shape("1", kind="sldNum")
    runs = "<a:r><a:t>one</a:t></a:r> <a:r><a:t> two</a:t></a:r><a:br/><a:r><a:t># 3</a:t></a:r>"
    parts = read(pptx(tmp_path / "a.pptx", first, "", f"<p:sp><a:p>{runs}</a:p></p:sp>", notes=notes))
    assert [(part.page, part.text.split("\n\n")) for part in parts] == [
        (1, ["# Late fees", "Two per cent", "a month", "a\tb", "Explain it slowly."]),
        (3, ["one two\n\\# 3"]),
    ]
    assert all(part.is_markdown for part in parts)


# --- e-mail -----------------------------------------------------------------------------------------------------------

HEAD = """Subject: =?utf-8?q?Late_fe=C3=A9s?=
From: Ann <ann@example.org>
To: b@example.org
Date: Mon, 5 Jan 2015 10:00:00 +0100
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="x"

"""
HTML_PART = '--x\nContent-Type: text/html; charset="utf-8"\n\n<nav>no</nav><h2>Fees</h2><p>Two per c\u00e9nt</p>\n'
ENCODED = "Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n"
PLAIN_PART = f"--x\n{ENCODED}\n# Two per c=E9nt\na month\n"
ATTACHMENT = "--x\nContent-Type: text/plain\nContent-Disposition: attachment; filename=a.txt\n\nattached\n"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (HTML_PART + PLAIN_PART + ATTACHMENT, "\\# Two per c\u00e9nt\na month"),
        (ATTACHMENT + HTML_PART, "## Fees\n\nTwo per c\u00e9nt"),
        (HTML_PART.replace("utf-8", "unknown"), "## Fees\n\nTwo per c\u00e9nt"),
        (ATTACHMENT, ""),
    ],
)
def test_the_plain_part_of_a_message_is_read_or_else_its_html(tmp_path, parts, text):
    (part,) = read(write(tmp_path / "a.eml", f"{HEAD}{parts}--x--\n".replace("\n", "\r\n")))
    assert part.text == f"# Late fe\u00e9s\n\n{text}".strip()
    assert part.metadata == {
        "subject": "Late fe\u00e9s",
        "from": "Ann <ann@example.org>",
        "to": "b@example.org",
        "date": "2015-01-05T10:00:00+01:00",
    }


@pytest.mark.parametrize(
    "head", ["", "Date: soon\n", "From: <\nSubject:\n", "Content-Type: multipart/mixed\n", "one\n"]
)
def test_a_message_with_malformed_headers_is_read(tmp_path, head):
    assert text_of(write(tmp_path / "a.eml", f"{head}X: y\n\nbody")).endswith("body")


# --- notebooks --------------------------------------------------------------------------------------------------------


def test_the_cells_of_a_notebook_are_markdown_and_fenced_code(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# Foxes\n", "They run."]},
        {"cell_type": "code", "source": "# no heading\nx = '```'", "outputs": [{"text": "no"}]},
        {"cell_type": "code", "source": []},
        {"cell_type": "code", "outputs": []},
        {"cell_type": "markdown", "source": None},
        {"cell_type": "code", "source": "```"},
    ]
    (part,) = read(write(tmp_path / "a.ipynb", json.dumps({"nbformat": 4, "cells": cells})))
    expected = ["# Foxes\nThey run.", "```\n# no heading\nx = '```'\n```", "````\n```\n````"]
    assert part.text.split("\n\n") == expected
    assert (part.is_markdown, part.first_line) == (True, None)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"cells": 1}', b'{"cells": [{}]}', b"[" * 100_000, b"\xff"])
def test_other_files_of_the_name_of_a_notebook_are_refused(tmp_path, content):
    with pytest.raises(InputError, match="not a notebook"):
        read(write(tmp_path / "a.ipynb", content))


FLOWED = [
    ("format=flowed", "One long \nparagraph.\n\nAnother.\n", "One long paragraph.\n\nAnother."),
    ("format=flowed; delsp=yes", "Donau \ndampf \nschiff.\n", "Donaudampfschiff."),
    ("format=Flowed; delsp=no", "> quoted \n> on\n>> deeper \n> not so\n", "> quoted on\n>> deeper \n> not so"),
    ("format=flowed", " > no quotation\n From here \nto there\n", "> no quotation\nFrom here to there"),
    ("format=flowed", "text \n-- \nA signature\n", "text \n-- \nA signature"),
    ("format=fixed", "One \nline\n", "One \nline"),
]


@pytest.mark.parametrize(("parameters", "body", "expected"), FLOWED)
def test_a_flowed_text_of_an_e_mail_has_its_paragraphs(parameters, body, expected, tmp_path):
    head = f"Content-Type: text/plain; charset=utf-8; {parameters}\n\n"
    assert text_of(write(tmp_path / "a.eml", (head + body).replace("\n", "\r\n"))) == expected


# --- RTF --------------------------------------------------------------------------------------------------------------

RTF = r"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\info{\title no}}\f0 Late fe\'e9s\par Two {\b per} cent\u8364?.}"


def test_rtf_is_read_as_paragraphs(tmp_path):
    pytest.importorskip("striprtf")
    assert text_of(write(tmp_path / "a.rtf", RTF)).split("\n") == ["Late fe\u00e9s", "Two per cent\u20ac."]
    with pytest.raises(InputError, match="not RTF"):
        read(write(tmp_path / "b.rtf", "text"))


def rtf(body):
    return r"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}\f0 " + body + "}"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (r"a \u-10179?\u-8704? b", "a \N{GRINNING FACE} b"),
        (r"{\uc1\u55357 ?\u56834 ?}!", "\U0001f602!"),
        (r"half \u-10179? alone", "half \ufffd alone"),
        (r"{\uc0\u8364}5", "\u20ac5"),
        (r"before {\pict\bin6 }}{{\\}after", "before after"),
        ("x{\\*\\objdata\\bin3 {{{}y", "xy"),
        (r"kept {\deleted gone \u8364? \'e9\par {\b too}}here", "kept here"),
        (r"kept \deleted gone\deleted0 here", "kept here"),
        (r"kept {\deleted gone\plain back} here", "kept back here"),
        (r"Fees{\super\chftn{\footnote\pard\plain{\super\chftn} Of 2009.}} are due.", "Fees [ Of 2009.] are due."),
        (r"{\deleted x{\footnote gone}}y", "y"),
    ],
)
def test_rtf_that_striprtf_misreads_is_read(body, expected, tmp_path):
    pytest.importorskip("striprtf")
    assert text_of(write(tmp_path / "a.rtf", rtf(body))) == expected


DAMAGED = ["{", "}", "\\", "\\bin9 ", "\\bin ", "{\\footnote ", "{\\deleted ", "\\u-10179?", "\\'"]


@pytest.mark.parametrize("part", DAMAGED)
def test_damaged_rtf_is_read_or_refused(part, tmp_path):
    pytest.importorskip("striprtf")
    for content in (rtf(part), rtf(part * 3)[:-1], "{\\rtf1 " + part * 500):
        try:
            read(write(tmp_path / "a.rtf", content))
        except InputError as error:
            assert "RTF" in str(error)


def test_without_striprtf_the_message_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "striprtf", None)
    monkeypatch.delitem(sys.modules, "striprtf.striprtf", raising=False)
    with pytest.raises(InputError, match=r"a\.rtf.*bothways\[documents\]"):
        read(write(tmp_path / "a.rtf", RTF))
