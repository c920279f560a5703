"""Basic tokenization: rows by hand, and Python's Unicode database where all versions must agree."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.text.tokenizer import characters
from bothways.text.tokenizer.basic import Splitter

CODE_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]
LAST_WRITTEN = 0x32000  # behind the last letter of any script
FALSE_SPACES = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"  # str.split() splits here, BERT removes them
STAYING = "\u302e\u302f\u1b44\ua953\U0001d165\U0001d16d\U000111c0"  # marks that move, but are not stripped
LETTERS = "aZ .\u034f\u0301\u0323\u00e9\u1ea5\ud55c\u4e2d\U0001d160\x0b"
MARKED_TEXT = st.text(st.sampled_from(LETTERS + STAYING), max_size=20)


@pytest.mark.parametrize(
    "text, words",
    [
        ("Ångström's naïve café", ["angstrom", "'", "s", "naive", "cafe"]),
        ("a\u0300\u0327b", ["ab"]),
        ("中文abc", ["中", "文", "abc"]),
        ("\ud55c", ["\u1112\u1161\u11ab"]),  # a Hangul syllable comes apart
        ("x$y_z^w`v~u", ["x", "$", "y", "_", "z", "^", "w", "`", "v", "~", "u"]),  # ASCII symbols count as punctuation
        ("x€y×z©w", ["x€y×z©w"]),  # other symbols do not
        ("«x»—y…z", ["«", "x", "»", "—", "y", "…", "z"]),
        ("a\u200bb\u00adc\ufeffd\x00e\ufffdf", ["abcdef"]),
        ("a\u3000b\u00a0c\u2028d\te\nf", ["a", "b", "c", "d", "e", "f"]),
        ("\u0130I\u0131", ["ii\u0131"]),
        ("ΑΣ ß ẞ", ["ασ", "ß", "ß"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_uncased_words_are_these(text, words):
    assert Splitter()(text) == words


@pytest.mark.parametrize(
    "options, words",
    [
        ({"lowercase": False}, ["Été", "中", "文"]),
        ({"lowercase": False, "strip_accents": True}, ["Ete", "中", "文"]),
        ({"strip_accents": False}, ["été", "中", "文"]),
        ({"split_chinese": False}, ["ete中文"]),
    ],
)
def test_options_change_case_accents_and_ideographs_one_by_one(options, words):
    assert Splitter(**options)("Été中文") == words


def test_a_capital_dotted_i_becomes_two_characters_where_accents_stay():
    splitter = Splitter(strip_accents=False)
    assert splitter("\u0130stanbul") == ["i\u0307stanbul"]
    assert splitter.spans("\u0130s") == [("i\u0307s", [0, 0, 1])]


def test_spans_trace_each_character_of_a_word_to_the_text():
    assert Splitter().spans(" E\u0301\u1ea5\u00ad中!") == [("ea", [1, 3]), ("中", [5]), ("!", [6])]
    assert Splitter().spans("\ud55ca") == [("\u1112\u1161\u11aba", [0, 0, 0, 1])]


@pytest.mark.parametrize("false_space", FALSE_SPACES, ids=ascii)
def test_characters_at_which_only_python_splits_are_removed(false_space):
    assert Splitter()(f"a{false_space}b é{false_space}{false_space}c") == ["ab", "ec"]


@pytest.mark.parametrize("surrogate", ["\ud800", "\udbff", "\udc00", "\udfff"], ids=ascii)
def test_lone_surrogates_are_removed(surrogate):
    assert Splitter(strip_accents=False)(f"a{surrogate}b") == ["ab"]
    assert Splitter().spans(f"a{surrogate}b") == [("ab", [0, 2])]


@settings(deadline=None)
@given(st.text(max_size=40) | MARKED_TEXT, st.booleans(), st.sampled_from([None, True, False]), st.booleans())
def test_spans_have_the_words_of_a_plain_call(text, lowercase, strip_accents, split_chinese):
    splitter = Splitter(lowercase, strip_accents, split_chinese)
    # Called with one chunk between spaces at a time, as the tokenizer does.
    chunks = text.translate(dict.fromkeys(map(ord, FALSE_SPACES))).split()
    assert [word for word, _ in splitter.spans(text)] == [word for chunk in chunks for word in splitter(chunk)]


@settings(max_examples=500, deadline=None)
@given(MARKED_TEXT)
def test_marks_that_stay_move_as_in_normalization_form_d(text):
    text = text.replace("\x0b", "").replace("中", " 中 ").replace(".", " . ")
    sorted_by_class = unicodedata.normalize("NFD", text)
    expected = "".join(char for char in sorted_by_class if unicodedata.category(char) != "Mn")
    assert Splitter(lowercase=False, strip_accents=True)(text) == expected.split()


@pytest.mark.slow
@pytest.mark.parametrize("strip_accents", [True, False])
def test_a_word_of_any_character_is_split_no_further(strip_accents):
    splitter = Splitter(strip_accents=strip_accents)
    for point in range(LAST_WRITTEN):
        for word in splitter(chr(point)):
            assert splitter(word) == [word]


def test_decompositions_are_those_of_every_unicode_version():
    changed = 0
    for char in map(chr, CODE_POINTS):
        if (parts := characters.decompose(char)) != char:
            changed += 1
            assert parts == unicodedata.normalize("NFD", char)
        elif ord(char) < 0x1000:  # where nothing was added since
            assert unicodedata.normalize("NFD", char) == char
    assert changed > 13_000  # of which 11,172 Hangul syllables


@pytest.mark.slow
def test_combining_classes_are_those_of_every_unicode_version():
    classes = {char: characters.combining_class(char) for char in map(chr, CODE_POINTS)}
    nonzero = {char: value for char, value in classes.items() if value}
    assert len(nonzero) > 700
    assert nonzero == {char: unicodedata.combining(char) for char in nonzero}


def test_lower_case_is_that_of_python_where_there_is_one():
    lowered = {char: characters.lower(char) for char in map(chr, CODE_POINTS) if characters.lower(char) != char}
    assert len(lowered) > 1300
    assert all(text == char.lower() for char, text in lowered.items() if unicodedata.category(char) != "Cn")
    assert all(char in lowered for char in map(chr, range(0x500)) if char.lower() != char)


def test_punctuation_is_ascii_symbols_and_what_unicode_classified_so():
    ascii_symbols = {char for char in map(chr, range(33, 127)) if not char.isalnum()}
    assert {char for char in map(chr, range(128)) if characters.is_punctuation(char)} == ascii_symbols
    others = {char for char in map(chr, CODE_POINTS[128:]) if characters.is_punctuation(char)}
    assert len(others) > 600
    # Two have had another category since.
    assert {char for char in others if unicodedata.category(char)[0] != "P"} <= {"\u166d", "\U000111c9"}
    early = {char for char in map(chr, range(128, 0x600)) if unicodedata.category(char)[0] == "P"}
    assert early <= others


def test_two_splitters_with_the_same_options_are_equal():
    assert Splitter(strip_accents=True) == Splitter(strip_accents=True) != Splitter(strip_accents=False)
