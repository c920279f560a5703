"""Sentence pairs: whole, of one document each, half of them following, no longer than allowed."""

import numpy as np
import pytest

from bothways.data.pairs import Example, make_examples, to_batch
from bothways.data.store import TokenStore
from bothways.errors import InputError

LENGTH = 43


def store_of(seed, num_documents, *, sentences=(1, 60), tokens=(1, 15)):
    """Every token's id is its place, so that a segment says where it comes from."""
    rng = np.random.default_rng(seed)
    document_sizes = rng.integers(*sentences, num_documents)
    sentence_sizes = rng.integers(*tokens, document_sizes.sum())
    starts = [np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64) for sizes in (sentence_sizes, document_sizes)]
    return TokenStore(np.arange(starts[0][-1], dtype=np.int32), *starts)


def document_of(store, place):
    sentence = np.searchsorted(store.sentences, place, "right") - 1
    return int(np.searchsorted(store.documents, sentence, "right") - 1)


def make(store, *, length=LENGTH, pairs=True, seed=3, epoch=0):
    return make_examples(store, length=length, pairs=pairs, seed=seed, epoch=epoch)


@pytest.fixture(scope="module")
def store():
    return store_of(0, 150)


@pytest.fixture(scope="module")
def examples(store):
    return make(store)


def test_a_segment_is_of_one_document_and_never_empty(store, examples):
    for example in examples:
        for start, end in (example.first, example.second):
            assert 0 <= start < end <= store.num_tokens
            assert document_of(store, start) == document_of(store, end - 1)


def test_what_follows_follows_in_the_same_document_and_what_does_not_is_of_another(store, examples):
    bounds = set(store.sentences.tolist())
    whole = 0
    for first, second, follows in examples:
        same = document_of(store, first[0]) == document_of(store, second[0])
        assert same == follows
        if follows:
            assert first[1] <= second[0]
            whole += first[1] == second[0] and first[1] in bounds
            # What lies between was trimmed from the pair's own sentences: no sentence is jumped over.
            assert not any(first[1] < bound < second[0] for bound in bounds) or second[0] - first[1] <= 30
    assert whole > 100


def test_about_half_of_the_pairs_follow():
    store = store_of(5, 40, sentences=(300, 400))
    follows = [example.follows for example in make(store)]
    assert len(follows) > 1000
    # A document's last sentence, left alone, has nothing that follows.
    assert np.mean(follows) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("length", [5, 6, 11, 43, 128])
def test_no_pair_is_longer_than_the_length(length, store):
    examples = make(store, length=length)
    assert max(example.num_tokens for example in examples) == length
    assert min(example.first[1] - example.first[0] for example in examples) >= 1


def test_one_pair_in_ten_is_meant_to_be_shorter():
    # Sentences of one token fill a pair exactly, so a pair is short only where it is meant to be.
    store = store_of(1, 20, sentences=(3000, 4000), tokens=(1, 2))
    sizes = np.array([example.num_tokens for example in make(store, length=103)])
    short = sizes < 103
    assert short.mean() == pytest.approx(0.1, abs=0.025)
    assert 30 < np.median(sizes[short]) < 80  # uniform


def test_pairs_fill_the_length_where_there_is_text():
    store = store_of(2, 30, sentences=(200, 300))
    sizes = np.array([example.num_tokens for example in make(store)])
    assert (sizes == LENGTH).mean() > 0.75


def used_sentences(store, examples):
    """The sentences of which some token stands in a pair in its own right: in a first segment, or one that follows."""
    found = set()
    for first, second, follows in examples:
        for start, end in (first, second) if follows else (first,):
            inside = range(np.searchsorted(store.sentences, start, "right") - 1, np.searchsorted(store.sentences, end))
            found.update(int(sentence) for sentence in inside)
    return found


def test_every_sentence_stands_in_some_pair():
    # Long pairs over short sentences: what trimming takes (from a pair's ends) is never more than a sentence.
    store = store_of(4, 40, tokens=(3, 6))
    used = set()
    for epoch in range(3):
        used |= used_sentences(store, make(store, length=83, epoch=epoch))
    assert used == set(range(len(store.sentences) - 1))


def test_a_pass_over_sentences_that_need_no_trimming_loses_no_token():
    store = store_of(6, 30, sentences=(20, 90), tokens=(1, 2))
    first_or_following = np.zeros(store.num_tokens, int)
    for first, second, follows in make(store):
        assert first[1] <= second[0] or not follows
        first_or_following[slice(*first)] += 1
        if follows:
            first_or_following[slice(*second)] += 1
    assert first_or_following.max() == 1  # nothing twice
    # A random second fills up what the first left: the first may be trimmed only if both are too long.
    assert (first_or_following == 0).mean() < 0.01


def test_sentences_too_long_for_a_pair_are_trimmed_at_either_end_and_both_segments_stay():
    store = store_of(7, 200, sentences=(2, 5), tokens=(90, 140))
    sizes, fronts = [], []
    for first, second, _ in make(store, length=63):
        sizes.append((first[1] - first[0], second[1] - second[0]))
        fronts.append(first[0] - store.sentences[np.searchsorted(store.sentences, first[0], "right") - 1])
    full = [pair for pair in sizes if sum(pair) == 60]
    assert len(full) > 0.8 * len(sizes) and all(pair == (30, 30) for pair in full)
    assert 10 < np.mean(fronts) < 80  # by the toss of a coin, not all from one end


def test_the_same_place_gives_the_same_pairs_and_another_epoch_or_seed_others(store, examples):
    assert make(store) == examples
    assert make(store, epoch=1) != examples and make(store, seed=4) != examples


def test_random_seconds_come_from_all_over():
    store = store_of(8, 25, sentences=(80, 120))
    others = [document_of(store, example.second[0]) for example in make(store) if not example.follows]
    counts = np.bincount(others, minlength=25)
    assert counts.min() > 0.3 * counts.mean() and counts.max() < 2 * counts.mean()


def test_without_pairs_every_token_stands_in_exactly_one_run(store):
    examples = make(store, pairs=False)
    covered = np.concatenate([np.arange(*example.first) for example in examples])
    assert covered.tolist() == list(range(store.num_tokens))
    for example in examples:
        assert document_of(store, example.first[0]) == document_of(store, example.first[1] - 1)
        assert example.num_tokens == example.first[1] - example.first[0] + 2 <= LENGTH
        assert example.second == (0, 0) and not example.follows


def test_one_document_has_no_pairs():
    store = store_of(0, 1, sentences=(30, 31))
    with pytest.raises(InputError, match="at least 2 documents, found 1.*--pairs none"):
        make(store)
    assert make(store, pairs=False)


def test_a_batch_is_cls_a_sep_b_sep(tokenizer):
    store = TokenStore(np.arange(20, 40, dtype=np.int32), np.array([0, 7, 20]), np.array([0, 1, 2]))
    batch, random_pair = to_batch(
        store,
        [Example((2, 5), (7, 9), True), Example((0, 2), (0, 0), False), Example((9, 10), (3, 7), False)],
        tokenizer,
    )
    c, s = tokenizer.cls_id, tokenizer.sep_id
    assert batch.input_ids.tolist() == [c, 22, 23, 24, s, 27, 28, s, c, 20, 21, s, c, 29, s, 23, 24, 25, 26, s]
    assert batch.segment_ids.tolist() == [0] * 5 + [1] * 3 + [0] * 4 + [0] * 3 + [1] * 5
    assert batch.position_ids.tolist() == [*range(8), *range(4), *range(8)]
    assert batch.lengths.tolist() == [8, 4, 8]
    assert random_pair.tolist() == [0, 1, 1]  # 0: follows
    assert [Example((2, 5), (7, 9), True).num_tokens, Example((0, 2), (0, 0), False).num_tokens] == [8, 4]
