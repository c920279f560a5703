"""Learning a vocabulary, against a slow formula that recounts all pairs after every merge."""

import multiprocessing
import os
import random
import string
import subprocess
import sys
from collections import Counter
from concurrent.futures import Future
from itertools import chain, pairwise
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.text.tokenizer import learn
from bothways.text.tokenizer.basic import Splitter
from bothways.text.tokenizer.learn import SPECIAL_TOKENS, count_words, merge_pieces


def slow_merges(word_counts, size, alphabet_limit=1000, min_count=2):
    """The definition, word by word: no incremental counts, no queue, no arrays."""
    characters = Counter()
    for word, count in word_counts.items():
        for character in word:
            characters[character] += count
    alphabet = sorted(characters, key=lambda character: (-characters[character], character))[:alphabet_limit]
    kept = {word: count for word, count in word_counts.items() if set(word) <= set(alphabet)}
    spelled = {word: [word[0], *("##" + character for character in word[1:])] for word in kept}
    singles = {piece for pieces in spelled.values() for piece in pieces}
    vocabulary = (
        list(SPECIAL_TOKENS) + sorted(p for p in singles if len(p) == 1) + sorted(p for p in singles if len(p) > 1)
    )
    while len(vocabulary) < size:
        counts = Counter()
        for word, pieces in spelled.items():
            for pair in pairwise(pieces):
                counts[pair] += kept[word]
        frequent = [pair for pair in counts if counts[pair] >= min_count]
        if not frequent:
            break
        left, right = min(frequent, key=lambda pair: (-counts[pair], pair))
        for pieces in spelled.values():
            place = 0
            while place + 1 < len(pieces):
                if (pieces[place], pieces[place + 1]) == (left, right):
                    pieces[place : place + 2] = [left + right[2:]]
                place += 1
        vocabulary.append(left + right[2:])
    return vocabulary


def random_words(seed, letters, num_words=60, max_count=9):
    """Short words of few letters, with runs: many ties, overlaps, and pieces that can be made in two ways."""
    draw = random.Random(seed)
    words = (
        "".join(draw.choice(letters) * draw.choice((1, 1, 2, 5)) for _ in range(draw.randint(1, 7)))
        for _ in range(num_words)
    )
    return {word: draw.randint(1, max_count) for word in words}


@pytest.mark.slow
@pytest.mark.parametrize("letters", ["a", "ab", "abc", "aé漢😀z", string.ascii_lowercase])
@pytest.mark.parametrize("max_count", [1, 3, 1000])
def test_merges_are_those_of_the_definition(letters, max_count):
    for seed in range(4):
        word_counts = random_words(seed, letters, max_count=max_count)
        for size in (61, 83, 2000):
            assert merge_pieces(word_counts, size) == slow_merges(word_counts, size), (seed, size)


@pytest.mark.parametrize("min_count", [1, 2, 7, 40])
def test_a_pair_must_stand_min_count_times(min_count):
    word_counts = random_words(5, "abcd")
    tokens = merge_pieces(word_counts, 2000, min_count=min_count)
    assert tokens == slow_merges(word_counts, 2000, min_count=min_count)


@pytest.mark.parametrize("alphabet_limit", [1, 2, 5, 25])
def test_the_alphabet_is_the_most_frequent_characters(alphabet_limit):
    word_counts = random_words(3, string.ascii_lowercase, num_words=300) | {"q": 50, "x": 5000, "z": 50}
    tokens = merge_pieces(word_counts, 97, alphabet_limit=alphabet_limit)
    assert tokens == slow_merges(word_counts, 97, alphabet_limit=alphabet_limit)


def test_the_order_of_a_vocabulary():
    word_counts = {"zaa": 3, "ab": 5, "b": 1}
    assert merge_pieces(word_counts, 2000) == [*SPECIAL_TOKENS, "a", "b", "z", "##a", "##b", "ab", "##aa", "zaa"]


def test_overlapping_pairs_merge_left_to_right():
    tokens = merge_pieces({"xaaaaa": 4}, 2000)
    assert tokens == [*SPECIAL_TOKENS, "x", "##a", "##aa", "##aaa", "##aaaaa", "xaaaaa"]  # x aa aa a, x aa aaa, x aaaaa


@pytest.mark.slow
def test_no_piece_is_made_twice():
    """So `_Line` can give each merge a new symbol, and `_Pairs` can count only downwards."""
    for seed in range(150):
        tokens = merge_pieces(random_words(seed, "ab" if seed % 2 else "abc", num_words=25), 2000, min_count=1)
        assert len(set(tokens)) == len(tokens)


def test_words_that_cannot_be_spelled_are_left_out():
    word_counts = {"a" * 13: 3}
    others = {"b" * 14: 9, "##a": 9, "##": 9, "": 9, "cd": 0}
    tokens = merge_pieces(word_counts | others, 2000, max_word_length=13)
    assert tokens == merge_pieces(word_counts, 2000)
    assert "a" * 13 in tokens


def test_a_special_token_that_is_also_a_word_is_one_entry():
    assert merge_pieces({"ab": 3, "b": 2}, 4, ["ab", "b"]) == ["ab", "b", "a", "##b"]


def test_the_order_of_words_does_not_matter():
    word_counts = random_words(11, "abcde", num_words=200)
    shuffled = list(word_counts.items())
    random.Random(2).shuffle(shuffled)
    assert merge_pieces(dict(shuffled), 301) == merge_pieces(word_counts, 301)


def random_texts(seed, num_texts=40):
    draw = random.Random(seed)
    words = [*random_words(seed, "abcdeé", num_words=97), "don't", "naïve", "漢字", "(so)", "A.B.C."]
    return [
        "".join(draw.choice(words) + draw.choice(" \n\t\u3000") for _ in range(draw.randint(0, 73)))
        for _ in range(num_texts)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_words_are_counted_as_if_split_at_once(processes, monkeypatch):
    monkeypatch.setattr(learn, "BLOCK", 311)
    monkeypatch.setattr(learn, "MAX_CHUNKS", 53)
    monkeypatch.setattr(learn, "BATCH", 17)
    texts = random_texts(7)
    split = Splitter()
    expected = Counter(word for text in texts for word in split(text))
    assert count_words(texts, split, processes) == expected
    assert count_words(["\n".join(texts)], split, processes) == expected  # one long text, to be cut


def test_a_process_that_is_killed_while_words_are_counted_is_one_clear_line():
    def texts():
        yield "a b c"
        next(child for child in multiprocessing.active_children() if isinstance(child, SpawnProcess)).kill()
        yield from ("d e f",) * 9

    with pytest.raises(InputError, match="2 processes .*count words.*killed.*--processes"):
        count_words(chain(["x " * learn.BLOCK], texts(), ["y " * learn.BLOCK]), Splitter(), 2)


def test_the_number_of_characters_can_be_limited():
    texts = ["".join(chr(0x4E00 + code) for code in range(70)), "ab " * 9]
    assert len(Tokenizer.learn(texts, size=5000, alphabet=2)) < 12
    known = Tokenizer.learn(texts, size=5000, alphabet=100)
    assert len(Tokenizer.learn(texts, size=5000)) == len(known) and chr(0x4E00 + 69) in known.vocab


@pytest.mark.slow
def test_every_character_between_words_is_read_as_the_splitter_reads_it(monkeypatch):
    monkeypatch.setattr(learn, "BLOCK", 101)
    split = Splitter()
    text = " ".join(f"a{chr(code)}b" for code in [*range(0xD800), *range(0xE000, 0x20000, 1)])
    assert count_words([text], split) == Counter(split(text))


def test_memory_holds_few_chunks_at_a_time(monkeypatch):
    monkeypatch.setattr(learn, "BLOCK", 500)
    monkeypatch.setattr(learn, "MAX_CHUNKS", 100)
    sizes = []
    split = learn._split_into_words

    def counted_split(chunks, *arguments, **options):
        sizes.append(len(chunks))
        split(chunks, *arguments, **options)

    monkeypatch.setattr(learn, "_split_into_words", counted_split)
    count_words((str(number) for number in range(5000)), str.split)
    assert max(sizes) <= 100 + 500
    assert len(sizes) > 8


def test_a_long_text_is_cut(monkeypatch):
    monkeypatch.setattr(learn, "BLOCK", 17)
    parts = [part for block in learn._blocks(["short", "one three " * 41]) for part in block]
    assert max(map(len, parts)) <= 17 + len(" three")
    assert "".join(parts) == "short" + "one three " * 41


def test_texts_are_read_only_a_little_ahead(monkeypatch):
    monkeypatch.setattr(learn, "BLOCK", 1)
    read = []
    blocks = learn._map(InOrder(), 3, learn._count_chunks, (read.append(number) or ["a b"] for number in range(50)))
    assert next(blocks) == {"a": 1, "b": 1}
    assert len(read) == 3 + learn.READ_AHEAD


class InOrder:
    """An executor that runs each function immediately."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


def test_the_same_texts_give_the_same_vocabulary():
    texts = random_texts(13)
    expected = Tokenizer.learn(texts, size=211).tokens
    assert len(expected) == 211
    assert Tokenizer.learn(reversed(texts), size=211).tokens == expected
    assert Tokenizer.learn(texts, size=211, processes=2).tokens == expected


@pytest.mark.slow
def test_the_hash_seed_does_not_change_a_vocabulary():
    program = (
        "import random; from bothways.text.tokenizer.learn import merge_pieces; draw = random.Random(5);"
        "words = {''.join(draw.choices('abcde', k=draw.randint(1, 6))) for _ in range(300)};"
        "print(merge_pieces({word: len(word) for word in words}, 157))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (({"ab": 3}, 6), "of 6 entries .* 5 special tokens and 2 characters;.* 7"),
        (({}, 60), "no usable word among 0;"),
        (({"a" * 101: 2}, 60), "no usable word among 1;"),
    ],
)
def test_errors_of_learning_are_one_line(arguments, line):
    with pytest.raises(ValueError, match=line) as error:
        merge_pieces(*arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: merge_pieces({"ab": 3}, 60, alphabet_limit=0), r"alphabet_limit \(0\) .*at least 1"),
        (lambda: merge_pieces({"ab": 3}, 60, min_count=0), r"min_count \(0\) .*at least 1"),
        (lambda: count_words(["a"], str.split, 0), r"processes \(0\) .*at least 1"),
        (lambda: count_words("some text", str.split), r"^texts .*'some text'"),
        (lambda: Tokenizer.learn([], size=60), "no usable word"),
    ],
)
def test_an_argument_out_of_range_is_named(call, line):
    with pytest.raises(ValueError, match=line):
        call()
