"""The database of a store: transactions, inverted lists, refusals."""

import os
import sqlite3
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothways.base.errors import InputError
from bothways.search.database import DATABASE, Database, from_stored, to_stored
from bothways.search.indexing import index
from bothways.search.store import Store
from bothways.text.retrieval.bm25 import invert


def test_lists_of_many_batches_are_those_of_one(tmp_path):
    generator = np.random.default_rng(5)
    documents = [[f"w{word}" for word in generator.integers(0, 40, size)] for size in generator.integers(0, 300, 150)]
    database = Database(tmp_path, create=True)
    first = 0
    for size in (70, 3, 1, 40, 2, 2, 2, 30):
        with database.transaction():
            database.add_batch(first, *invert(documents[first : first + size], first))
        first += size
    whole, lengths = invert(documents)
    assert (database.lengths() == lengths).all()
    found = database.inverted_lists([*whole, "missing"])
    assert found.keys() == whole.keys()
    for term, parts in found.items():
        assert np.concatenate([part.slots for part in parts]).tolist() == whole[term].slots.tolist()
        assert np.concatenate([part.counts for part in parts]).tolist() == whole[term].counts.tolist()
    sizes = [size for (size,) in database.execute("SELECT length(lengths) / 4 FROM batches ORDER BY first")]
    assert sum(sizes) == 150
    assert all(large >= 2 * small for large, small in pairwise(sizes))


def test_a_transaction_is_whole_or_nothing(tmp_path):
    database = Database(tmp_path, create=True)
    with pytest.raises(KeyError), database.transaction():
        database.put(slots=3)
        raise KeyError
    assert database.get("slots") is None
    assert Database(tmp_path).get("format") == 1


def test_a_snapshot_does_not_see_later_commits(tmp_path):
    writer, reader = Database(tmp_path, create=True), Database(tmp_path)
    writer.put(slots=1)
    with reader.snapshot():
        assert reader.get("slots") == 1
        writer.put(slots=2)
        assert reader.get("slots") == 1
    assert reader.get("slots") == 2


def test_what_is_no_index_is_refused(tmp_path):
    with pytest.raises(InputError, match="bothways index"):
        Database(tmp_path)
    (tmp_path / DATABASE).write_bytes(b"no database" * 1000)
    with pytest.raises(InputError, match="not known to be a search index"):
        Database(tmp_path)


def as_bytes(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE accounts (name TEXT)"],
        ["CREATE TABLE meta (key TEXT, value TEXT)", "INSERT INTO meta VALUES ('format', '1')"],
        ["PRAGMA journal_mode = WAL", "CREATE TABLE files (path TEXT)", "INSERT INTO files VALUES ('a')"],
        ["PRAGMA user_version = 1"],
    ],
    ids=["other tables", "a format of its own", "with a log", "without tables"],
)
def test_a_database_of_another_program_is_left_as_it_is(tmp_path, statements):
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as theirs:
        for statement in statements:
            theirs.execute(statement)
        before = as_bytes(tmp_path)
        for use in (Store, Database, lambda directory: index([tmp_path], directory, static_model="x", encoder=None)):
            with pytest.raises(InputError, match="left as it is") as refused:
                use(tmp_path)
            assert "delete" not in str(refused.value)
        assert as_bytes(tmp_path) == before


@pytest.mark.parametrize("content", [b"", b"no database" * 1000, b"SQLite format 3\0" + bytes(5000)])
def test_a_file_that_only_has_the_name_is_left_as_it_is(tmp_path, content):
    (tmp_path / DATABASE).write_bytes(content)
    with pytest.raises(InputError, match="left as it is"):
        Database(tmp_path, create=True)
    assert as_bytes(tmp_path) == {DATABASE: content}


def test_a_kill_while_it_is_made_leaves_nothing_in_the_way(tmp_path):
    with closing(sqlite3.connect(tmp_path / f"{DATABASE}.part", isolation_level=None)) as half:
        half.execute("CREATE TABLE meta (key TEXT)")
    old = Database(tmp_path, create=True)
    old.put(slots=7)
    (tmp_path / DATABASE).unlink()  # but not its log
    assert Database(tmp_path, create=True).get("slots") is None
    old.close()


def test_a_damaged_page_is_one_line_that_says_so(tmp_path):
    database = Database(tmp_path, create=True)
    for row in range(300):
        database.put(**{f"key{row}": "value" * 50})
    database.close()
    content = bytearray((tmp_path / DATABASE).read_bytes())
    content[4096:] = b"\xff" * len(content[4096:])
    (tmp_path / DATABASE).write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        Database(tmp_path)


def test_another_version_is_refused(tmp_path):
    Database(tmp_path, create=True).put(format=99)
    with pytest.raises(InputError, match="version 99"):
        Database(tmp_path)


@given(st.binary() | st.text(st.characters(min_codepoint=0x10F700, max_codepoint=0x10F800)).map(str.encode))
def test_every_name_of_a_file_is_stored_as_utf8_and_read_as_it_was(content):
    (stored,) = to_stored([os.fsdecode(content)])
    assert from_stored(stored.encode()) == os.fsdecode(content)
