"""Passages: exact slices, complete, within the budget; headings and their text; how often what is looked at."""

import subprocess
import sys
from pathlib import Path

import pytest
import sentencex
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bothways.search
from bothways.base.errors import InputError
from bothways.search.passages import split_passages

FOLDER = Path(bothways.search.__file__).parent


def count_words(text):
    return len(text.split())


def count_characters(text):
    return sum(not character.isspace() for character in text)


WORDS = [
    "# ",
    "## B",
    "\n",
    "\n\n",
    " ",
    "\t",
    "```",
    "~~~\n",
    "    # no",
    "#",
    "Mr. Fox ran. ",
    "It hid! ",
    "é\ud800",
    "\x1c",
    "。",
    "a" * 40,
]
documents = st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=40).map("".join)


@pytest.mark.slow
@settings(max_examples=60)
@given(documents, st.integers(1, 30), st.sampled_from([count_words, count_characters]), st.booleans())
@example("# A\n\n" + "a" * 99, 7, count_characters, True)
@example("a" * 8100 + " b. C " * 2000, 30, count_words, False)
def test_passages_are_stripped_slices_that_hold_every_character_once(text, max_tokens, count, is_markdown):
    passages = split_passages(text, count, max_tokens=max_tokens, is_markdown=is_markdown)
    position = 0
    for passage in passages:
        assert passage.text == text[passage.start : passage.end] == passage.text.strip() != ""
        assert not text[position : passage.start].strip()
        assert passage.line == text[: passage.start].count("\n") + 1
        assert count(passage.text) <= max_tokens
        position = passage.end
    assert not text[position:].strip()


@given(st.lists(st.sampled_from(["# one", "## two three", "text. More text here.", "a\nb"]), max_size=20))
def test_a_heading_stays_with_the_text_that_follows_it(blocks):
    text = "\n\n".join(blocks)
    for passage in split_passages(text, count_words, max_tokens=9, is_markdown=True):
        lines = [line for line in passage.text.split("\n") if line]
        rest = text[passage.end :].split()
        total = sum(map(count_words, lines))
        assert not lines[-1].startswith("#") or not rest or (rest[0].startswith("#") and (total + 3) * 2 > 9)


def test_paragraphs_are_joined_up_to_the_budget():
    passages = split_passages("one two\n\nthree four\n\nfive six", count_words, max_tokens=5)
    assert [(passage.text, passage.line) for passage in passages] == [("one two\n\nthree four", 1), ("five six", 5)]


def test_a_long_paragraph_is_split_at_sentences_and_a_long_sentence_at_words():
    text = "Mr. Fox ran away. He hid. It was a very dark and cold night outside."
    passages = [passage.text for passage in split_passages(text, count_words, max_tokens=6)]
    assert passages == ["Mr. Fox ran away. He hid.", "It was a very dark and", "cold night outside."]


def test_headings_name_the_passages_below_them():
    text = "start\n# One #\n\n## Two\ntext\n```\n# no heading\n```\n\n#no heading\n# C#\nend"
    passages = split_passages(text, count_words, is_markdown=True)
    assert [(passage.heading, passage.line) for passage in passages] == [("", 1), ("Two", 2), ("C#", 11)]
    assert passages[1].text.startswith("# One #") and passages[1].text.endswith("#no heading")
    assert [passage.heading for passage in split_passages(text, count_words)] == [""]


def test_a_heading_and_the_start_of_a_long_paragraph_are_one_passage():
    text = "# Foxes\n\n" + "They run fast. " * 9
    first, *others = split_passages(text, count_words, max_tokens=8, is_markdown=True)
    assert first.text == "# Foxes\n\nThey run fast. They run fast."
    assert {other.heading for other in others} == {"Foxes"}


def test_lines_and_pages_are_those_of_the_file():
    (passage,) = split_passages("\n\ntext", count_words, first_line=7, page=3)
    assert (passage.line, passage.page) == (9, 3)


def test_a_budget_of_none_is_refused():
    with pytest.raises(InputError, match="max_tokens"):
        split_passages("text", count_words, max_tokens=0)


def test_words_are_counted_once_per_paragraph_that_fits():
    counted = []
    split_passages("one\n\ntwo\n\nthree", lambda text: counted.append(text) or 1)
    assert counted == ["one", "two", "three"]


def test_each_heading_and_paragraph_is_counted_once():
    paragraph = "The fox ran over the hill and did not look back. It was cold.\n" * 8
    text, counted = "\n\n".join(f"## Part {index}\n\n{paragraph}" for index in range(10)), []
    split_passages(text, lambda text: counted.append(text) or len(text) // 5, is_markdown=True)
    assert counted == [part for index in range(10) for part in (f"## Part {index}", paragraph.strip())]


def operations(text, monkeypatch):
    """Calls of functions, of C too, and characters that are counted or given to sentencex, whose time is quadratic."""
    number = 0

    def add(more):
        nonlocal number
        number += more

    def segment(language, window, segment=sentencex.segment):
        add(len(window) ** 2 // 4000)
        return segment(language, window)

    with monkeypatch.context() as patched:
        patched.setattr(sentencex, "segment", segment)
        sys.setprofile(lambda frame, event, argument: add(1))
        try:
            split_passages(text, lambda text: add(len(text)) or len(text) // 4 + 1, is_markdown=True)
        finally:
            sys.setprofile(None)
    return number


@pytest.mark.parametrize("unit", ["a", "a ", "“a. ", "你好。", "# a\n"])
def test_operations_grow_with_the_length_only(unit, monkeypatch):
    few, many = (operations(unit * (size // len(unit)), monkeypatch) for size in (20_000, 80_000))
    assert many < 5 * few


def test_a_word_of_a_megabyte_is_cut():
    passages = split_passages("a" * 1_000_000, lambda text: 1, max_tokens=100)  # one [UNK]
    assert max(len(passage.text) for passage in passages) <= 1600


def test_the_room_imports_neither_torch_nor_other_large_packages():
    names = "folder ignore_files passages reader_process reader_worker readers".split()
    formats = "html_pages plain_text rtf office_documents email_messages".split()
    paths = [*names, *(f"formats.{name}" for name in formats)]
    modules = ", ".join(f"bothways.search.{path}" for path in paths)
    code = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "pyarrow", "pypdfium2", "sentencex"} & {*loaded}
