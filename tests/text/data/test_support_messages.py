"""The hand-written data of the package: messages to a shop's support in seven kinds, passages and questions."""

import json
import re
from collections import Counter, defaultdict
from importlib.resources import files
from itertools import product

import pytest

KINDS = {"account", "billing", "defect", "delivery", "praise", "product", "returns"}
STOP_WORDS = set(
    "a an and are as at be by can do for from have how i if in is it my of on or out should so that the they this to "
    "up we what when which who whom why will with you your".split()
)


def read_rows(name):
    text = files("bothways").joinpath("sample", name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def plain(text):
    """Lower case, words only, spaces around: so that `in` finds whole words."""
    return f" {' '.join(re.findall(r'[a-z0-9]+', text.lower()))} "


def content_words(text):
    words = (word for word in plain(text).split() if word not in STOP_WORDS)
    return {word.removesuffix("s") for word in words}


@pytest.fixture(scope="module")
def messages():
    return read_rows("support.jsonl")


@pytest.fixture(scope="module")
def passages():
    return {row["id"]: row["text"] for row in read_rows("passages.jsonl") if "text" in row}


@pytest.fixture(scope="module")
def questions():
    return [row for row in read_rows("passages.jsonl") if "question" in row]


def test_every_message_has_all_fields_and_4_to_25_words(messages):
    assert [row["id"] for row in messages] == list(range(len(messages)))
    for row in messages:
        assert list(row) == ["id", "text", "label", "group", "split"]
        assert row["split"] in ("train", "test")
        assert type(row["group"]) is int
        assert 4 <= len(row["text"].split()) <= 25, row["text"]
        assert row["text"] == " ".join(row["text"].split())


def test_every_kind_has_enough_messages_in_both_splits(messages):
    counts = Counter((row["label"], row["split"]) for row in messages)
    assert {label for label, _ in counts} == KINDS
    assert all(counts[kind, "train"] >= 32 and counts[kind, "test"] >= 24 for kind in KINDS)
    assert 400 <= len(messages) <= 460


def test_about_two_fifths_of_the_groups_of_each_kind_are_test(messages):
    groups = {(row["label"], row["split"], row["group"]) for row in messages}
    counts = Counter((label, split) for label, split, _ in groups)
    for kind in KINDS:
        assert 0.37 <= counts[kind, "test"] / (counts[kind, "test"] + counts[kind, "train"]) <= 0.43


def test_a_group_is_1_to_4_messages_of_one_kind_and_one_split(messages):
    rows_by_group = defaultdict(list)
    for row in messages:
        rows_by_group[row["group"]].append(row)
    for rows in rows_by_group.values():
        assert len(rows) <= 4
        assert len({(row["label"], row["split"]) for row in rows}) == 1


def test_no_message_occurs_twice(messages):
    counts = Counter(plain(row["text"]) for row in messages)
    assert max(counts.values()) == 1, counts.most_common(1)


def test_no_text_of_one_split_lies_within_one_of_the_other(messages):
    train, test = ([plain(row["text"]) for row in messages if row["split"] == split] for split in ("train", "test"))
    assert [pair for pair in product(train, test) if pair[0] in pair[1] or pair[1] in pair[0]] == []


@pytest.mark.parametrize("word", "back box broken card email number order package parcel phone".split())
def test_words_that_seem_to_name_a_kind_occur_in_several(messages, word):
    kinds = {row["label"] for row in messages if {word, f"{word}s"} & set(plain(row["text"]).split())}
    assert len(kinds) >= 4, kinds


def test_every_kind_also_occurs_without_its_usual_words(messages):
    usual = {
        "account": "account accounts password passwords email login log logged logs profile register registered",
        "billing": "pay paid payment price charged charge card invoice bill discount money",
        "defect": "broken broke damaged faulty stopped working work works leaks torn arrived crack",
        "delivery": "delivery deliveries delivered deliver delivers parcel parcels package courier driver tracking",
        "praise": "thank thanks great love loves happy best excellent wonderful lovely pleased glad beautiful perfect",
        "product": "fit suitable size use safe how",
        "returns": "return returned returning refund back exchange swap",
    }
    for kind in KINDS:
        of_kind = [set(plain(row["text"]).split()) for row in messages if row["label"] == kind]
        assert sum(not words & set(usual[kind].split()) for words in of_kind) / len(of_kind) >= 0.25, kind


def test_there_are_14_passages_of_15_to_40_words_and_7_questions(passages, questions):
    assert len(passages) == 14 and len(questions) == 7
    assert all(15 <= len(text.split()) <= 40 for text in passages.values())
    assert {row["id"] for row in questions} <= set(passages)
    assert len({row["id"] for row in questions}) == 7


def test_a_question_shares_no_content_word_with_its_answer_but_some_with_another_passage(passages, questions):
    for row in questions:
        words = content_words(row["question"])
        shared = {id: words & content_words(text) for id, text in passages.items()}
        assert not shared.pop(row["id"]), row["question"]
        assert any(shared.values()), row["question"]
