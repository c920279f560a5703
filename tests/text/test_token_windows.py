"""Texts as arrays: their windows and batches are those of encodings, whatever the texts, pairs, windows and rows."""

import random
from itertools import chain

import numpy as np
import pytest
import torch

from bothways.base.device import HostCopy
from bothways.base.errors import RowsError
from bothways.tasks.windows import WindowPolicy, is_truncated, own_rows, whole_length
from bothways.text.batch import Batch
from bothways.text.batching import batch_end, token_batches
from bothways.text.token_windows import TokenWindows, distinct
from tests.token_windows import ids_of

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran"]


def text_of(draw, most):
    return " ".join(draw.choices(WORDS, k=draw.randrange(most)))


@pytest.fixture(params=["bert", "roberta"])
def reader(request, make_predictor):
    """Of models with one and with two [SEP] between the texts of a pair."""
    return make_predictor(request.param).tokenizer


@pytest.mark.parametrize("has_pairs", [False, True])
@pytest.mark.parametrize("long", ["windows", "truncate"])
def test_windows_and_batches_are_the_windows_and_batches_of_encodings(reader, has_pairs, long):
    for seed in range(12):
        draw = random.Random(seed)
        texts = [text_of(draw, 30 if has_pairs else 90) for _ in range(9)]
        pairs = [text_of(draw, 200) for _ in texts] if has_pairs else None
        texts *= 2
        pairs = pairs and pairs * 2
        size = draw.choice([100, 110] if has_pairs else [8, 20, 40])
        policy = WindowPolicy(size, draw.choice([0, 7]), long)

        expected = policy.split(reader.encode_many(texts, pairs))
        different, rows = TokenWindows.encode(reader, texts, pairs)
        windows = policy.divide(different, rows).take(rows)

        assert ids_of(windows) == [[window.ids for window in parts] for parts in expected]
        assert windows.lengths.tolist() == [len(window) for parts in expected for window in parts]
        assert windows.whole_lengths.tolist() == [*map(whole_length, expected)]
        assert windows.are_truncated.tolist() == [*map(is_truncated, expected)]
        if not has_pairs:
            assert windows.own_rows.tolist() == [[*rows] for rows in chain.from_iterable(map(own_rows, expected))]

        flat = [*chain.from_iterable(expected)]
        chosen = draw.sample(range(len(flat)), len(flat) // 2)
        check_equal(windows.batch(chosen), Batch.from_encodings([flat[row] for row in chosen]))
        check_equal(TokenWindows.from_encodings(flat).batch(chosen), windows.batch(chosen))

        # The arrays from which numpy computes.
        _, lengths, second = windows.gather(chosen)
        assert windows.segments(lengths, second).tolist() == windows.batch(chosen).segment_ids.tolist()

        # As for a GPU, which computes positions and segments itself.
        segment = windows.special.second_segment_id
        check_equal(Batch.from_tokens(*windows.gather(chosen), segment, device="cpu"), windows.batch(chosen))


def check_equal(one, other):
    for name in ("input_ids", "segment_ids", "position_ids", "lengths"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.dtype == right.dtype == torch.int64
        assert torch.equal(left, right), name


def test_a_set_may_hold_single_texts_and_pairs(reader):
    encodings = [reader.encode("the cat"), reader.encode("the cat", "sat"), reader.encode(""), reader.encode("", "")]
    windows = TokenWindows.from_encodings(encodings)
    check_equal(windows.batch([3, 0, 1, 2]), Batch.from_encodings([encodings[row] for row in (3, 0, 1, 2)]))


def test_equal_texts_are_tokenized_once_and_found_by_their_rows(reader, monkeypatch):
    read = []
    plain = type(reader).encode_arrays
    monkeypatch.setattr(type(reader), "encode_arrays", lambda self, texts: read.extend(texts) or plain(self, texts))

    windows, rows = TokenWindows.encode(reader, ["cat", "dog", "cat", "the cat"])
    assert read == ["cat", "dog", "the cat"] and rows.tolist() == [0, 1, 0, 2] and len(windows) == 3

    read.clear()
    windows, rows = TokenWindows.encode(reader, ["cat", "dog", "cat"], ["dog", "dog", "dog"])
    assert read == ["cat", "dog"] and rows.tolist() == [0, 1, 0] and len(windows) == 2
    assert distinct(["b", "a", "b"])[0] == ["b", "a"]


def test_no_texts_are_no_windows(reader):
    for windows in (TokenWindows.encode(reader, [])[0], TokenWindows.from_encodings([])):
        assert len(windows) == 0 and windows.own_rows.shape == (0, 2) and windows.batch([]).num_tokens == 0


def test_errors_name_the_rows_that_were_given(reader):
    texts = ["dog", "cat " * 9, "dog", "cat " * 9]
    different, rows = TokenWindows.encode(reader, texts)
    with pytest.raises(RowsError, match="2 of 4 texts are longer than 6 tokens") as caught:
        WindowPolicy(6, 0, "error").divide(different, rows)
    assert [*caught.value.rows] == [1, 3]

    different, rows = TokenWindows.encode(reader, ["cat " * 99, "dog", "cat " * 99], ["dog " * 9] * 3)
    with pytest.raises(RowsError, match="^three: ") as caught:
        WindowPolicy(32, 0, max_length=100).divide(different.take([1, 0]), np.array([0, 0, 1]), ["one", "two", "three"])
    assert [*caught.value.rows] == [2]


def test_texts_are_taken_joined_and_kept_with_their_windows(reader):
    policy = WindowPolicy(8, 2)
    texts = ["the cat sat on the mat the dog ran", "dog", "a cat ran on the mat the cat sat", ""]
    whole, rows = TokenWindows.encode(reader, texts)
    windows = policy.divide(whole, rows)
    ids = ids_of(windows)
    assert [*map(len, ids)] == [2, 1, 2, 1]

    assert ids_of(windows.take([2, 0, 2])) == [ids[2], ids[0], ids[2]]
    assert ids_of(windows.joined(windows.take([1, 2]))) == [*ids, ids[1], ids[2]]
    assert ids_of(windows.kept(np.array([1, 2, 3, 5]))) == [ids[0][1:], ids[1], ids[2][:1], ids[3]]
    assert windows.sizes.tolist() == [sum(map(len, parts)) for parts in ids]


def test_batches_end_where_the_next_row_is_one_too_many():
    draw = random.Random(0)
    for budget in (1, 10, 30, 10_000):
        lengths = [draw.randrange(1, 25) for _ in range(80)]
        order = draw.sample(range(80), 60)
        batches = [*token_batches(order, lengths, budget)]
        assert [*chain.from_iterable(batches)] == order
        sums = [sum(lengths[row] for row in rows) for rows in batches]
        assert all(size <= budget or len(rows) == 1 for size, rows in zip(sums, batches, strict=True))
        nexts = [lengths[rows[0]] for rows in batches[1:]]
        assert all(size + more > budget for size, more in zip(sums, nexts, strict=False))
    assert batch_end(np.array([5, 6, 30]), 1, 24) == 2


def test_values_that_are_on_the_processor_are_read_as_they_are():
    values = torch.arange(3.0)
    assert HostCopy(values).read() is values
