"""Filters of metadata."""

import json
import sqlite3

import pytest

from bothways.base.errors import InputError
from bothways.search.filters import parse_filter

ROWS = [
    ("a.md", 1, '{"year": 2009, "author": "Smith", "draft": true, "price": 2.5}'),
    ("notes/b.md", None, '{"year": 2015, "author": "O\'Hara"}'),
    ("c.csv", 7, None),
]
CELLS = {
    "zip": ["01234", 91234, "n/a", 9],
    "version": ["1.10", 1.1, "x1", -2],
    "due date": ["2015-01-02", "", 2016, 20.5],
    'the "best"': [1, 2, 3, 4],
    "a\\b's": [1, 2, 3, 4],
    "$.x[0]": [1, 2, 3, 4],
}


def select(text: str, rows=ROWS) -> list[str]:
    sql, values, _ = parse_filter(text)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT, root INTEGER DEFAULT 1)")
    connection.execute("CREATE TABLE roots (id INTEGER PRIMARY KEY, path TEXT)")
    connection.execute("INSERT INTO roots VALUES (1, '/a.b/single.txt')")
    connection.execute("CREATE TABLE passages (file INTEGER, page INTEGER, metadata TEXT)")
    for number, (path, page, metadata) in enumerate(rows):
        connection.execute("INSERT INTO files (id, path) VALUES (?, ?)", (number, path))
        connection.execute("INSERT INTO passages VALUES (?, ?, ?)", (number, page, metadata))
    tables = "passages JOIN files ON files.id = file JOIN roots ON roots.id = root"
    query = f"SELECT files.path FROM {tables} WHERE {sql} ORDER BY files.id"
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
    sql, values, names = parse_filter("""author = "x' OR '1'='1" and a.b = 'y' and page = 2""")
    assert "x'" not in sql
    assert values == ["author", "x' OR '1'='1", "a.b", "y", 2]
    assert names == ["author", "a.b"]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("zip > 1000", "01"),
        ("zip > 0", "013"),
        ("zip <= 1234", "03"),
        ("zip = 1234", "0"),
        ("zip != 1234", "123"),
        ("zip = '01234' or zip = '91234'", "01"),
        ("zip = '1234'", ""),
        ("zip < 'a'", "013"),
        ("zip > 'a'", "2"),
        ("zip like '0%'", "0"),
        ("version = 1.1", "01"),
        ("version = '1.10'", "0"),
        ("version >= 1.1", "01"),
        ("version < 0", "3"),
        ("not version < 0", "012"),
        ('"due date" > 2000', "2"),
        ("'due date' < '2016'", "013"),
        ("'due date' like '2%'", "023"),
        ("""'the "best"' = 2""", "1"),
        ('"a\\b\'s" >= 3', "23"),
        ("'$.x[0]' = 4", "3"),
        ("zip < 99999999999999999999999999", "013"),
        (f"zip < {'9' * 5000}", "013"),
        ("zip > null", ""),
    ],
)
def test_numbers_are_compared_with_what_reads_as_a_number_and_texts_as_they_are_written(text, rows):
    cells = [json.dumps({name: values[row] for name, values in CELLS.items()}) for row in range(4)]
    assert "".join(select(text, [(str(row), None, one) for row, one in enumerate(cells)])) == rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("tags = 'bert'", "02"),
        ("tags != 'bert'", "13"),
        ("not tags = 'bert'", "13"),
        ("not tags != 'bert' or not (tags != 7 or not tags = 7)", "012"),
        ("tags = 'be'", ""),
        ("tags like 'b%'", "02"),
        ("tags = 7", "1"),
        ("tags = '7'", "1"),
        ("tags > 5 and tags < 8", "1"),
        ("tags = null", "3"),
        ("tags != null", "012"),
        ("tags = true", "1"),
        ('tags = "[1]"', ""),
    ],
)
def test_of_a_list_one_value_has_to_match(text, rows):
    lists = ['{"tags": ["bert", "a"]}', '{"tags": ["x", "7", true], "more": 1}', '{"tags": "bert"}', '{"more": 2}']
    assert "".join(select(text, [(str(row), None, one) for row, one in enumerate(lists)])) == rows


def test_the_path_of_a_single_file_is_its_name():
    rows = [("", 1, None), ("sub/single.txt", 1, None)]
    assert select("path = 'single.txt'", rows) == [""]
    assert select("path like '%single.txt'", rows) == ["", "sub/single.txt"]


@pytest.mark.parametrize("part", ["not ", "(", "not (", "a = 1 and not (", "a = 1 or a = 1 and not ("])
def test_a_filter_is_as_deep_as_sqlite_can_read_or_refused(part):
    levels = 20 // (("not" in part) + ("(" in part))
    for depth, is_allowed in ((levels, True), (levels + 1, False), (190, False)):
        text = part * depth + "year > 2010" + ")" * (part.count("(") * depth)
        if is_allowed:
            select(text)
        else:
            with pytest.raises(InputError, match="filter"):
                select(text)
