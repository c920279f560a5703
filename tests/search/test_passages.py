"""Passages: exact slices within a budget, cut at headings, paragraphs, sentences and words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothways.search.passages import split_passages

MARKDOWN = "# Fees\n\nLate fees are 2 %.\n\n## Exceptions\nNone.\n\n```sh\n# no heading\n```\n"


def words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def test_headings_begin_a_passage():
    passages = split_passages(MARKDOWN, words, is_markdown=True)
    assert [(one.heading, one.line) for one in passages] == [("Fees", 1), ("Exceptions", 5)]
    assert passages[0].text == "# Fees\n\nLate fees are 2 %."
    assert passages[1].text == "## Exceptions\nNone.\n\n```sh\n# no heading\n```"
    assert len(split_passages(MARKDOWN, words)) == 1


def test_paragraphs_are_joined_up_to_the_budget():
    text = "One two three.\n\nFour five.\n\n\nSix seven eight nine."
    assert [one.text for one in split_passages(text, words, max_tokens=7)] == [
        "One two three.\n\nFour five.",
        "Six seven eight nine.",
    ]


def test_long_paragraphs_are_cut_at_sentences():
    text = "Dr. Smith pays the fee. The fee was late! Was it? Yes."
    assert [one.text for one in split_passages(text, words, max_tokens=8)] == [
        "Dr. Smith pays the fee.",
        "The fee was late! Was it?",
        "Yes.",
    ]


def test_long_sentences_are_cut_at_words_and_long_words_at_characters():
    passages = split_passages("alpha " * 25 + "b" * 1000, len, max_tokens=60)
    assert all(len(one.text) <= 60 for one in passages)
    assert passages[0].text == ("alpha " * 10).strip()
    assert sum(len(one.text) for one in passages if "b" in one.text and "a" not in one.text) == 1000


@given(
    st.text(st.sampled_from("ab .!?\n\t#`-é\u3000東\ud800"), max_size=300), st.integers(1, 12), st.booleans()
)  # fmt: skip
def test_passages_divide_the_document(text, most, is_markdown):
    passages = split_passages(text, words, max_tokens=most, is_markdown=is_markdown)
    end = 0
    for one in passages:
        assert one.text == text[one.start : one.end] == one.text.strip() != ""
        assert not text[end : one.start].strip()
        assert one.line == text.count("\n", 0, one.start) + 1
        assert words(one.text) <= most
        end = one.end
    assert not text[end:].strip()


@pytest.mark.parametrize("text", ["", " \n\n ", "\n"])
def test_nothing_to_split(text):
    assert split_passages(text, words) == []


def test_a_megabyte_without_a_space_is_split_in_linear_time():
    calls = []

    def count(text: str) -> int:
        calls.append(len(text))
        return len(text)

    passages = split_passages("x" * 1_000_000, count, max_tokens=200)
    assert "".join(one.text for one in passages) == "x" * 1_000_000
    assert sum(calls) < 5_000_000
