"""Jobs whose input has tables without rows, and files that cannot be read: nothing that was computed is lost."""

import gzip
import json
import os

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from bothways.base.errors import InputError
from bothways.inference.jobs import source, verbs
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.scale import part, parts, plan
from bothways.settings import Embed, Predict

STATIC = "bothways-en-static"
TABLE = pyarrow.table({"id": ["a", "b"], "text": ["the cat sat", "dogs ran"]})


@pytest.fixture(scope="module")
def classifier(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "labels"
    model = make_model("bert", {"classes": 3})
    checkpoint.save(Checkpoint(model, tokenizer, labels=("x", "é", "z")), directory)
    return directory


def embed(file, out, **options):
    return verbs.embed(Embed(model=STATIC, file=str(file), out=out, **options))


def write(file, content):
    """content: rows of texts; bytes as they are; or a table."""
    file.parent.mkdir(exist_ok=True)
    if isinstance(content, pyarrow.Table):
        pyarrow.parquet.write_table(content, file)
    elif isinstance(content, bytes):
        file.write_bytes(content)
    else:
        lines = [f"{number},{text}\n" for number, text in enumerate(content)]
        file.write_text("id,text\n" + "".join(lines))


def table_of(out):
    return pyarrow.parquet.read_table(out)


def records(out):
    return json.loads((out / "_manifest.json").read_text())["parts"]


EMPTY = {
    "header.csv": b"id,text\n",
    "header.tsv": b"id\ttext",
    "header.csv.gz": gzip.compress(b"id,text\n"),
    "bytes.csv": b"",
    "bytes.jsonl": b"",
    "blank.jsonl": b"\n\n",
    "bytes.jsonl.gz": gzip.compress(b""),
    "bytes.txt": b"",
    "schema.parquet": TABLE.slice(0, 0),
}


@pytest.mark.parametrize("order", ["0", "8"])
def test_a_table_without_rows_is_a_part_without_rows(classifier, tmp_path, order):
    """It comes first, so that its columns are those a reader takes for all; and last."""
    for name, content in EMPTY.items():
        write(tmp_path / "in" / f"{order}-{name}", content)
    write(tmp_path / "in" / "5.csv", ["the cat", "a mat", "dogs"])
    journal = verbs.predict(Predict(model=classifier, file=str(tmp_path / "in"), out=tmp_path / "out", dtype="float32"))
    assert (journal.rows, journal.results, journal.set_aside) == (3, 3, 0)
    assert len(records(tmp_path / "out")) == len(EMPTY) + 1
    schemas = {str(pyarrow.parquet.read_schema(file)) for file in (tmp_path / "out").glob("part-*.parquet")}
    table = table_of(tmp_path / "out")
    assert len(schemas) == 1 and table.num_rows == 3 and table["id"].to_pylist() == ["0", "1", "2"]


def test_columns_that_are_named_are_kept_although_a_part_has_none(classifier, tmp_path):
    write(tmp_path / "in" / "0.jsonl", b"")
    write(tmp_path / "in" / "1.parquet", TABLE)
    settings = dict(model=classifier, file=str(tmp_path / "in"), dtype="float32")
    verbs.predict(Predict(**settings, out=tmp_path / "out", keep_columns="id, text"))
    assert table_of(tmp_path / "out")["text"].to_pylist() == TABLE["text"].to_pylist()


def test_vectors_of_tables_without_rows_alone_are_none(tmp_path):
    for name in ("header.csv", "schema.parquet"):
        write(tmp_path / "in" / name, EMPTY[name])
    journal, width = embed(tmp_path / "in", tmp_path / "out")
    assert journal.rows == 0 and width > 0 and table_of(tmp_path / "out").num_rows == 0


UNREADABLE = {
    "damaged.parquet": b"PAR1 and no more",
    "damaged.csv.gz": gzip.compress(b"id,text\n" + os.urandom(99))[:40],
    "empty.csv.gz": b"",
    "columns.csv": b"id,size\n1,2\n",
    "header.csv": b"id,id\n1,2\n",
    "utf16.csv": "id,text\n1,a cat\n".encode("utf-16-le"),
}


@pytest.fixture
def folder(tmp_path):
    """Two good files, and before, between and behind them those that cannot be read."""
    write(tmp_path / "in" / "1-good.csv", ["the cat", "a mat"])
    write(tmp_path / "in" / "3-good.csv", ["dogs"])
    for place, (name, content) in enumerate(UNREADABLE.items()):
        write(tmp_path / "in" / f"{place % 3 * 2}-{name}", content)
    return tmp_path / "in"


def test_files_that_cannot_be_read_are_skipped_each_with_its_line_and_counted(folder, tmp_path, caplog):
    journal, _ = embed(folder, tmp_path / "out", text_column="text", on_error="skip")
    assert (journal.results, journal.set_aside) == (3, len(UNREADABLE))
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    for name in UNREADABLE:
        assert len([line for line in lines if name in line]) == 1, (name, lines)
    unread = [record["file"][2:] for record in records(tmp_path / "out") if record["unread"]]
    assert sorted(unread) == sorted(UNREADABLE)
    listed = [json.loads(file.read_text()) for file in (tmp_path / "out" / "_skipped").iterdir()]
    assert {row["row"] for row in listed} == {0} and len(listed) == len(UNREADABLE)


def test_what_cannot_be_read_is_said_before_the_first_part_is_computed_in_one_line(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "compute_part", lambda task: 1 / 0)
    with pytest.raises(InputError, match=r"0-columns\.csv: .*\(and 5 more files cannot be read\), or skip .*skip$"):
        embed(folder, tmp_path / "out", text_column="text")
    assert not (tmp_path / "out").exists()


def test_a_job_whose_files_are_all_unreadable_ends(tmp_path):
    write(tmp_path / "in" / "1.csv", ["the cat"])
    write(tmp_path / "in" / "2.csv", ["a mat"])
    with pytest.raises(InputError, match="no column 'txt'"):
        embed(tmp_path / "in", tmp_path / "out", text_column="txt", on_error="skip")


def truncated(rows):
    """A compressed table that breaks off: some of its first rows can be read."""
    text = "text\n" + "".join(f"{n} {os.urandom(40).hex()}\n" for n in range(rows))
    whole = gzip.compress(text.encode())
    return whole[: len(whole) // 2]


def test_a_job_that_stopped_at_damage_goes_on_with_one_line_and_keeps_what_was_computed(tmp_path, monkeypatch, caplog):
    write(tmp_path / "in" / "1.csv", ["the cat", "a mat"])
    write(tmp_path / "in" / "2.csv.gz", truncated(3000))
    write(tmp_path / "in" / "3.csv", ["dogs"])
    with pytest.raises(InputError, match=r"2\.csv\.gz:\d+: .*corrupt or truncated.*--on-error skip"):
        embed(tmp_path / "in", tmp_path / "out", text_column="text")
    computed, real = [], part._compute
    monkeypatch.setattr(part, "_compute", lambda task, *rest: computed.append(task.name[:10]) or real(task, *rest))
    journal, _ = embed(tmp_path / "in", tmp_path / "out", text_column="text", resume=True, on_error="skip")
    assert sorted(computed) == ["part-00001", "part-00002"] and journal.set_aside == 1
    kept = records(tmp_path / "out")[1]
    assert kept["results"] > 100 and journal.results == kept["results"] + 3
    assert len([line for line in caplog.messages if "2.csv.gz" in line and "before it is kept" in line]) == 1


def test_a_large_file_that_breaks_off_keeps_the_parts_before(tmp_path, monkeypatch):
    rows = "".join(f"{n},the cat {n}\r\n" for n in range(200))
    write(tmp_path / "in" / "1.csv", f"id,text\r\n{rows}".encode("utf-16") + b"\0")
    write(tmp_path / "in" / "2.csv", ["dogs"])
    monkeypatch.setattr(plan, "PART_BYTES", 500)
    with pytest.raises(InputError, match=r"1\.csv:\d+: not utf-16.*--on-error skip"):
        embed(tmp_path / "in", tmp_path / "out", text_column="text")
    journal, _ = embed(tmp_path / "in", tmp_path / "out", text_column="text", on_error="skip", resume=True)
    assert journal.set_aside == 1 and journal.results == 201
    assert [record["unread"] is None for record in records(tmp_path / "out")].count(False) == 1


def test_a_single_file_that_breaks_off_keeps_the_rows_before(tmp_path):
    write(tmp_path / "t.csv.gz", truncated(3000))
    with pytest.raises(InputError, match="corrupt or truncated.*--on-error skip"):
        embed(tmp_path / "t.csv.gz", tmp_path / "v.npy")
    journal, _ = embed(tmp_path / "t.csv.gz", tmp_path / "v.npy", on_error="skip", resume=True)
    assert journal.set_aside == 1 and len(np.load(tmp_path / "v.npy")) == journal.results > 100
    write(tmp_path / "u.csv.gz", UNREADABLE["damaged.csv.gz"])
    with pytest.raises(InputError, match="corrupt or truncated"):
        embed(tmp_path / "u.csv.gz", tmp_path / "u.npy", on_error="skip")


def test_a_link_to_nothing_and_a_file_of_another_user_are_skipped(tmp_path, monkeypatch):
    write(tmp_path / "in" / "1.csv", ["the cat"])
    write(tmp_path / "in" / "2.csv", ["secret"])
    (tmp_path / "in" / "3.csv").symlink_to(tmp_path / "nothing")
    real = source.open_rows

    def refusing(file, encoding):
        if file.name == "2.csv":
            raise PermissionError(13, "Permission denied", str(file))
        return real(file, encoding)

    monkeypatch.setattr(source, "open_rows", refusing)
    journal, _ = embed(tmp_path / "in", tmp_path / "out", text_column="text", on_error="skip")
    assert (journal.results, journal.set_aside) == (1, 2)
    assert "fix its permissions" in records(tmp_path / "out")[1]["unread"]


def test_files_of_other_types_are_named_in_a_line_before_the_first_part(tmp_path, caplog):
    write(tmp_path / "in" / "1.csv", ["the cat"])
    for name in ("a.pdf", "b.pdf", "notes.docx"):
        write(tmp_path / "in" / name, b"x")
    caplog.set_level("INFO")
    embed(tmp_path / "in", tmp_path / "out", text_column="text")
    assert "unsupported files left out: 2 .pdf, 1 .docx" in caplog.messages


SMALL = {
    "ends.csv": (b"id,text\n1,a\n2,b\n", 2),
    "without-end.csv": (b"id,text\n1,a\n2,b", 2),
    "cells.csv": (b'id,text\n1,"a\nb\nc"\n2,b\n3,c\n', 3),
    "without-end.txt": (b"a\nb\nc", 3),
    "blank.jsonl": (b'{"text": "a"}\n\n\n{"text": "b"}', 2),
    "packed.csv.gz": (gzip.compress(b"id,text\n1,a\n2,b\n"), 2),
    "header.tsv": (b"id\ttext\n", 0),
    "bytes.jsonl": (b"", 0),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_dry_run_counts_the_rows_of_a_small_file(tmp_path, name):
    content, num_rows = SMALL[name]
    write(tmp_path / "in" / name, content)
    assert embed(tmp_path / "in", tmp_path / "out", dry_run=True).rows == num_rows


def test_a_dry_run_counts_the_rows_of_small_files_together(tmp_path):
    for name, (content, _) in SMALL.items():
        write(tmp_path / "in" / name, content)
    assert embed(tmp_path / "in", tmp_path / "out", dry_run=True).rows == sum(rows for _, rows in SMALL.values())
    estimate = embed(tmp_path / "in" / "without-end.csv", tmp_path / "v.npy", dry_run=True)
    assert estimate.rows == 2
