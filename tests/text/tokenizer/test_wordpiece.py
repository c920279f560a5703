"""WordPiece, against rows by hand and a slow formula; the cache stays bounded."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.text.tokenizer.wordpiece import BoundedCache, WordPiece

PIECES = ["[UNK]", "un", "##aff", "##able", "una", "##ffable", "u", "##n", "a", "##a", "##ble", "aff"]
PIECES += ["é", "##é", "\U0001f600", "##\U0001f600"]
VOCAB = {piece: index for index, piece in enumerate(PIECES)}


def slow_pieces(word, vocab, max_word_length=100):
    """Greedy longest match first, as in Wu 2016, with every candidate spelled out."""
    if len(word) > max_word_length:
        return ["[UNK]"]
    pieces, rest, prefix = [], word, ""
    while rest:
        candidates = [prefix + rest[:size] for size in range(1, len(rest) + 1)]
        known = [candidate for candidate in candidates if candidate in vocab]
        if not known:
            return ["[UNK]"]
        pieces.append(known[-1])
        rest, prefix = rest[len(known[-1]) - len(prefix) :], "##"
    return pieces


@pytest.mark.parametrize(
    "word, pieces, spans",
    [
        ("unaffable", ["una", "##ffable"], [(0, 3), (3, 9)]),  # the longest first, though un ##aff ##able fits too
        ("unable", ["una", "##ble"], [(0, 3), (3, 6)]),
        ("aff", ["aff"], [(0, 3)]),
        ("aaff", ["a", "##aff"], [(0, 1), (1, 4)]),
        ("affun", ["[UNK]"], [(0, 5)]),  # "un" starts words only, and "##u" is not there
        ("aff\u00fc", ["[UNK]"], [(0, 4)]),
        ("ffable", ["[UNK]"], [(0, 6)]),  # "##ffable" does not start one
        ("é\U0001f600é", ["é", "##\U0001f600", "##é"], [(0, 1), (1, 2), (2, 3)]),
        ("", [], []),
    ],
)
def test_a_word_becomes_its_longest_pieces(word, pieces, spans):
    wordpiece = WordPiece(VOCAB, unknown_id=0)
    assert wordpiece(word) == tuple(VOCAB[piece] for piece in pieces)
    assert wordpiece.spans(word) == spans


@settings(deadline=None)
@given(
    st.sets(st.text("abc", min_size=1, max_size=4)),
    st.sets(st.text("abc", min_size=1, max_size=4)),
    st.lists(st.text("abc", min_size=1, max_size=12), max_size=20),
)
def test_pieces_are_those_of_the_slow_formula(starts, continuations, words):
    pieces = ["[UNK]", *sorted(starts), *("##" + text for text in sorted(continuations))]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    wordpiece = WordPiece(vocab, unknown_id=0, max_word_length=9)
    for word in words:
        assert [pieces[index] for index in wordpiece(word)] == slow_pieces(word, vocab, max_word_length=9)


@pytest.mark.parametrize("size, known", [(7, True), (8, False)])
def test_a_word_of_more_characters_than_the_longest_is_unknown(size, known):
    wordpiece = WordPiece(VOCAB, unknown_id=0, max_word_length=7)
    assert wordpiece("a" * size) == ((8, *[9] * (size - 1)) if known else (0,))


def test_the_longest_word_has_a_hundred_characters_by_default():
    wordpiece = WordPiece(VOCAB, unknown_id=0)
    assert len(wordpiece("a" * 100)) == 100
    assert wordpiece("a" * 101) == (0,)


@settings(deadline=None)
@given(st.lists(st.text("ab", max_size=3), max_size=60), st.integers(1, 5))
def test_the_cache_returns_what_its_function_returns_however_small_it_is(texts, limit):
    def spell(text):
        return tuple(map(ord, text))

    cache = BoundedCache(spell, limit=limit)
    assert [cache[text] for text in texts] == [spell(text) for text in texts]


def test_the_cache_holds_two_generations_at_most_and_keeps_what_is_in_use():
    calls = []
    cache = BoundedCache(lambda text: calls.append(text) or (len(text),), limit=11)
    for number in range(500):
        cache[str(number)]
        cache["often"]
        assert len(cache) <= 11 and len(cache.previous) <= 11
    assert calls.count("often") == 1
    assert len(calls) == 501


def test_the_cache_leaves_long_strings_out():
    calls = []
    cache = BoundedCache(lambda text: calls.append(text) or (len(text),))
    for _ in range(3):
        assert cache["b" * 65] == (65,)
        assert cache["a" * 64] == (64,)
    assert list(cache) == ["a" * 64]
    assert len(calls) == 4
