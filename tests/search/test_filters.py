"""Filters of metadata."""

import sqlite3

import pytest

from bothways.errors import InputError
from bothways.search.filters import parse_filter

ROWS = [
    ("a.md", 1, '{"year": 2009, "author": "Smith", "draft": true, "price": 2.5}'),
    ("notes/b.md", None, '{"year": 2015, "author": "O\'Hara"}'),
    ("c.csv", 7, None),
]


def select(text: str) -> list[str]:
    sql, values = parse_filter(text)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT)")
    connection.execute("CREATE TABLE passages (file INTEGER, page INTEGER, metadata TEXT)")
    for number, (path, page, metadata) in enumerate(ROWS):
        connection.execute("INSERT INTO files VALUES (?, ?)", (number, path))
        connection.execute("INSERT INTO passages VALUES (?, ?, ?)", (number, page, metadata))
    query = f"SELECT path FROM passages JOIN files ON files.id = file WHERE {sql} ORDER BY files.id"
    return [path for (path,) in connection.execute(query, values)]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("year > 2010", ["notes/b.md"]),
        ("year <= 2009 and author = 'Smith'", ["a.md"]),
        ("year = 2009 OR page = 7", ["a.md", "c.csv"]),
        ("not (year > 2010)", ["a.md", "c.csv"]),
        ("author = 'O''Hara'", ["notes/b.md"]),
        ('author = "Smith"', ["a.md"]),
        ("author != 'Smith'", ["notes/b.md", "c.csv"]),
        ("draft = true", ["a.md"]),
        ("price >= 2.5", ["a.md"]),
        ("path like 'notes/%'", ["notes/b.md"]),
        ("year = null", ["c.csv"]),
        ("year > 2010 or year < 2010 and draft = true", ["a.md", "notes/b.md"]),
    ],
)
def test_filters(text, paths):
    assert select(text) == paths


@pytest.mark.parametrize(
    "text",
    ["", "year", "year >", "year 2010", "year > 2010 and", "(year > 2010", "year > 2010)", "year > Smith", "1 = 1",
     "year = 1; DROP TABLE files", "year = 'x", "author = (select 1)", "year ** 2", " and ".join(["a = 1"] * 100)],
)  # fmt: skip
def test_malformed_filters_are_refused(text):
    with pytest.raises(InputError, match="filter"):
        parse_filter(text)


def test_values_never_become_sql():
    sql, values = parse_filter("""author = "x' OR '1'='1" and a.b = 'y'""")
    assert "x'" not in sql
    assert values == ['$."author"', "x' OR '1'='1", '$."a.b"', "y"]
