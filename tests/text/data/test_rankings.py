"""Rows of query, passage and label: columns, labels, ranks, and rows that repeat a passage."""

import json

import pytest

from bothways.base.errors import InputError
from bothways.settings.base import TextColumns
from bothways.text.data.rankings import read_rankings, read_relevant

ROWS = [
    {"query": "a cat", "passage": "the cat sat", "label": 1, "rank": 2},
    {"query": "a cat", "passage": "the dog ran", "label": 0, "rank": 1},
    {"query": "a dog", "passage": "the dog ran", "label": 2, "rank": 1},
]


@pytest.fixture
def written(tmp_path):
    def write(rows, name="rows.jsonl"):
        file = tmp_path / name
        if file.suffix == ".csv":
            lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        else:
            lines = map(json.dumps, rows)
        file.write_text("\n".join(lines), encoding="utf-8")
        return file

    return write


def read(file, **columns):
    return read_rankings(file, TextColumns(**columns))


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_rows_of_a_query_follow_each_other_with_labels_and_ranks(written, name):
    table = read(written([ROWS[0], ROWS[2], ROWS[1]], name))
    assert table.queries == ["a cat", "a cat", "a dog"]
    assert table.passages == ["the cat sat", "the dog ran", "the dog ran"]
    assert (table.labels, table.ranks, table.lists) == ([1.0, 0.0, 2.0], [2, 1, 1], [[0, 1], [2]])


@pytest.mark.parametrize(("yes", "no"), [(1, 0), (True, False), ("true", "false"), ("Yes", "no"), ("1.0", "0")])
def test_labels_are_numbers_or_words_of_truth(written, yes, no):
    table = read(written([{"query": "q", "passage": "a", "label": yes}, {"query": "q", "passage": "b", "label": no}]))
    assert table.labels == [1.0, 0.0] and not table.has_ranks


@pytest.mark.parametrize("empty", [None, "", float("nan")])
def test_a_passage_without_a_label_is_not_judged(written, empty):
    rows = [{**ROWS[0]}, {**ROWS[1], "label": empty}]
    assert read(written(rows)).labels == [1.0, None]


def test_a_score_gives_the_ranks_and_no_score_none(written):
    rows = [
        {"query": "q", "passage": passage, "label": label, "score": score}
        for passage, label, score in (("a", 0, 0.25), ("b", 1, None), ("c", 1, 7.5), ("d", 0, -3))
    ]
    assert read(written(rows)).ranks == [2, None, 1, 3]


def test_a_score_is_the_label_if_nothing_else_is(written):
    table = read(written([{"query": "q", "document": "a", "score": 3}, {"query": "q", "document": "b", "score": 0}]))
    assert table.labels == [3.0, 0.0] and not table.has_ranks


def test_rows_that_repeat_a_passage_count_once(written):
    clicks = [{**ROWS[1], "rank": 4}, {**ROWS[1], "label": 1, "rank": 3}, *ROWS]
    table = read(written(clicks))
    assert len(table) == 3 and table.labels == [1.0, 1.0, 2.0] and table.ranks == [1, 2, 1]
    assert table.notes == ("2 rows repeated a passage of the same query; each counts once",)


def test_columns_of_other_names_are_named(written):
    rows = [{"q": "a", "hit": "b", "good": 1}, {"q": "a", "hit": "c", "good": 0}]
    table = read(written(rows), text_column="q", pair_column="hit", label_column="good")
    assert (table.queries, table.passages, table.labels) == (["a", "a"], ["b", "c"], [1.0, 0.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": -1}, "label '-1' is below 0"),
        ({"label": "maybe"}, "label 'maybe' is not a number"),
        ({"rank": 0}, "'rank' holds 0; a rank is a whole number from 1"),
        ({"rank": 1.5}, "'rank' holds 1.5; a rank is a whole number from 1"),
        ({"rank": "first"}, "'rank' holds 'first', which is no rank"),
        ({"passage": None}, "'passage' is missing"),
    ],
)
def test_the_message_on_a_bad_row_names_its_line(written, change, message):
    with pytest.raises(InputError, match=rf"rows.jsonl: row 1 \(line 2\): {message}"):
        read(written([ROWS[0], {**ROWS[1], **change}, ROWS[2]]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"query": "a", "passage": "b"}], "no column 'label' .*--pairs with --negatives-from"),
        ([{"query": "a", "label": 1}], "no column of passages"),
        ([{"query": "a", "passage": "b", "label": 0}], "no row has a label above 0"),
        ([], "empty"),
    ],
)
def test_the_message_on_a_table_that_is_no_ranking(written, rows, message):
    with pytest.raises(InputError, match=message):
        read(written(rows))


def test_relevant_passages_are_those_of_all_rows_or_of_those_with_a_label(written):
    pairs = [{"query": "a", "passage": "b"}, {"query": "a", "passage": "c"}, {"query": "d", "passage": "e"}]
    assert read_relevant(written(pairs), TextColumns()) == {"a": {"b": 1.0, "c": 1.0}, "d": {"e": 1.0}}
    assert read_relevant(written(ROWS), TextColumns()) == {"a cat": {"the cat sat": 1.0}, "a dog": {"the dog ran": 2.0}}


def test_the_message_on_pairs_without_a_relevant_one(written):
    with pytest.raises(InputError, match="no row has a query with a relevant passage"):
        read_relevant(written([{**row, "label": 0} for row in ROWS]), TextColumns())
