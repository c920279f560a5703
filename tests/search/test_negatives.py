"""Mined rows: which passages of a search are negatives, and which are left out."""

import json

import pytest

from bothways.base.errors import InputError
from bothways.search.negatives import (
    FoundPassage,
    MiningOptions,
    find_in_documents,
    is_mined,
    query_rows,
    write_negatives,
    write_triplets,
)

FOUND = [FoundPassage(text, score) for text, score in (("b", 0.9), ("The cat, sat!", 0.8), ("c", 0.7), ("d", 0.2))]
PART = "the ferry sails at six in the morning"
WHOLE = f"Timetable. {PART}, but not on Sundays."


def labels(relevant, found=FOUND, **options):
    rows = query_rows("q", relevant, found, MiningOptions(**{"passages": 4, **options}))
    return {row["passage"]: (row["label"], row["rank"]) for row in rows}


def test_what_the_search_finds_beside_the_relevant_passage_is_negative():
    assert labels({"d": 1.0}) == {"b": (0, 1), "The cat, sat!": (0, 2), "c": (0, 3), "d": (1, 4)}


@pytest.mark.parametrize("spelling", ["the cat sat", "The cat, sat!", "THE  CAT SAT."])
def test_a_near_duplicate_of_a_relevant_passage_is_relevant(spelling):
    found = labels({spelling: 2.0})
    assert found["The cat, sat!"] == (2, 2) and len(found) == 4


def test_a_relevant_passage_that_was_not_found_has_no_rank():
    assert labels({"elsewhere": 1.0})["elsewhere"] == (1, None)


@pytest.mark.parametrize(
    ("relevant", "passage", "again"),
    [(WHOLE, PART, "at six in the morning, but not on Sundays"), (PART, WHOLE, f"{PART} (continued)")],
)
def test_the_first_passage_that_is_a_part_of_a_relevant_one_or_holds_it_is_relevant(relevant, passage, again):
    found = [FoundPassage(text, 0.5) for text in ("b", passage, again)]
    assert labels({relevant: 1.0}, found) == {"b": (0, 1), passage: (1, 2), again: (None, 3)}


def test_few_words_that_both_have_make_no_part():
    found = [FoundPassage(text, 0.5) for text in ("b", "on mondays")]
    assert labels({"closed on mondays": 1.0}, found)["on mondays"] == (0, 2)


def test_a_passage_that_is_the_query_is_no_negative():
    assert labels({"d": 1.0}, [FoundPassage("Q.", 0.9), *FOUND])["Q."] == (None, 1)


def test_the_first_places_are_left_out_on_request():
    found = labels({"d": 1.0}, first_rank=3)
    assert [label for label, _ in found.values()] == [None, None, 0, 1]


@pytest.mark.parametrize(
    ("share", "expected"), [(None, [0, 0, 1, 0]), (1.2, [None, 0, 1, 0]), (0.95, [None, None, 1, 0])]
)
def test_passages_with_a_score_near_that_of_the_relevant_one_are_left_out_on_request(share, expected):
    found = labels({"c": 1.0}, max_share=share)
    assert [label for label, _ in found.values()] == expected


def test_rows_are_written_whole_and_known_again(tmp_path):
    file, options, facts = tmp_path / "rows.jsonl", MiningOptions(4), {"pairs": "p", "negatives_from": "n"}
    assert not is_mined(file, options, facts)
    write_negatives({"q": {"c": 1.0}, "r": {"d": 1.0}}, lambda query, number: FOUND[:number], options, file, facts)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [row["query"] for row in rows] == ["q"] * 4 + ["r"] * 4
    assert rows[2] == {"query": "q", "passage": "c", "label": 1.0, "rank": 3, "score": 0.7}
    assert is_mined(file, options, facts)
    with pytest.raises(InputError, match="was mined with passages 4, not 3; give the same options"):
        is_mined(file, MiningOptions(3), facts)


def test_each_relevant_passage_has_another_negative_and_the_message_counts_those_without(tmp_path, caplog):
    facts = {"pairs": "p", "negatives_from": "n"}
    relevant = {"q": {"c": 1.0, "d": 1.0}, "alone": {"b": 1.0}}

    def find(query, number):
        return FOUND[:1] if query == "alone" else FOUND

    caplog.set_level("INFO")
    write_triplets(relevant, find, MiningOptions(4), tmp_path / "rows.jsonl", facts)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows == [
        {"text": "q", "pair": "c", "negative": "b"},
        {"text": "q", "pair": "d", "negative": "The cat, sat!"},
    ]
    assert "mined a negative for 2 pairs; 1 are left out" in caplog.text


def test_the_message_on_a_search_without_negatives(tmp_path):
    facts = {"pairs": "p", "negatives_from": "folder"}
    with pytest.raises(InputError, match="folder: no negatives were found for 1 query"):
        write_negatives({"q": {"b": 1.0}}, lambda query, number: FOUND[:1], MiningOptions(4), tmp_path / "r", facts)
    assert not [*tmp_path.iterdir()]


def test_documents_in_memory_are_searched_by_words_and_vectors(tmp_path, checkpoint_with_vectors):
    documents = {"1": "the cat sat on a mat", "2": "a dog ran", "3": "mat and mat"}
    find = find_in_documents(documents, ["a cat"], str(checkpoint_with_vectors), dtype="float32")
    found = find("a cat", 2)
    assert found[0].text == documents["1"] and len(found) == 2 and found[0].score >= found[1].score
