"""Examples of every kind: segments whole and of one document, half of each label, no longer than allowed, the same
whatever else is made with them. Frequencies are compared by exact tests: p under 1e-6 is a failure."""

import numpy as np
import pytest
from scipy import stats

from bothways.base.errors import InputError
from bothways.base.rng import Purpose, make_keys, uniform
from bothways.text.corpus.sentence_pairs import NO_PAIR, PretrainingExamples, make_examples, to_batch
from bothways.text.corpus.token_store import TokenStore

LENGTH = 43
LEAST = 1e-6
KINDS = ["next", "order", "none"]


def store_of(seed, num_documents, *, sentences=(1, 60), tokens=(1, 15)):
    """Every token's id is its place, so that a segment shows where it comes from."""
    rng = np.random.default_rng(seed)
    document_sizes = rng.integers(*sentences, num_documents)
    sentence_sizes = rng.integers(*tokens, document_sizes.sum())
    starts = [np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64) for sizes in (sentence_sizes, document_sizes)]
    return TokenStore(np.arange(starts[0][-1], dtype=np.int32), *starts)


def make(store, *, documents=None, others=None, length=LENGTH, pairs="next", seed=3, epoch=0):
    everything = np.arange(store.num_documents)
    documents, others = (everything if numbers is None else np.array(numbers) for numbers in (documents, others))
    return make_examples(store, documents, others=others, length=length, pairs=pairs, seed=seed, epoch=epoch)


def document_of(store, places):
    sentences = np.searchsorted(store.sentences, places, "right") - 1
    return np.searchsorted(store.documents, sentences, "right") - 1


def rows(examples):
    return list(map(tuple, np.column_stack([examples.ranges, examples.labels, examples.sizes]).tolist()))


@pytest.fixture(scope="module")
def store():
    return store_of(0, 150)


@pytest.mark.parametrize("pairs", KINDS)
@pytest.mark.parametrize("length", [8, 9, 43, 128])
def test_segments_are_of_one_document_not_empty_and_no_longer_than_the_length(store, pairs, length):
    examples = make(store, pairs=pairs, length=length)
    for start, end in [examples.ranges[:, :2].T, examples.ranges[:, 2:].T][: 1 + (pairs != "none")]:
        assert (start >= 0).all() and (start < end).all() and (end <= store.num_tokens).all()
        assert np.array_equal(document_of(store, start), document_of(store, end - 1))
    tokens = examples.ranges @ [-1, 1, -1, 1]
    assert np.array_equal(examples.sizes, tokens + (2 if pairs == "none" else 3))
    assert examples.sizes.max() == length and len(examples) == len(examples.labels) == len(examples.ranges)


# --- next sentence --------------------------------------------------------------------------------------------------


def slow_next_sentence(store, document, others, room, seed, epoch):
    """Chunk after chunk, as in the paper, with the draws of the chunk's first sentence."""
    at, values = store.sentences.tolist(), []
    sentence, last = store.documents[document : document + 2].tolist()
    while sentence < last:
        short, cut, coin, which, *trim = uniform(make_keys(seed, Purpose.PAIRS, epoch, sentence), 6)[:, 0].tolist()
        target = 2 + int(short / 0.1 * (room - 1)) if short < 0.1 else room
        end = sentence
        while end < last and (at[end] - at[sentence] < target or end < sentence + 2):
            end += 1
        middle = sentence + 1 + int(cut * (end - sentence - 1))
        first = at[sentence], at[middle]
        follows = coin >= 0.5 and middle < end
        if follows:
            second = at[middle], at[end]
            sentence = end
        else:
            rest = [number for other in others if other != document for number in range(*store.documents[other:][:2])]
            size = at[end] - at[middle] or max(target - (first[1] - first[0]), target // 2)
            start = rest[int(which * len(rest))]
            begin, stop = store.documents[document_of(store, at[start]) :][:2].tolist()
            while start > begin and at[stop] - at[start] < size:
                start -= 1
            second = at[start], min(at[stop], at[start] + size)
            sentence = middle
        kept = [first[1] - first[0], second[1] - second[0]]
        while sum(kept) > target:  # one token after another, from the longer
            kept[kept[1] >= kept[0]] -= 1
        for number, (start, end) in enumerate((first, second)):
            start += int(trim[number] * (end - start - kept[number] + 1))
            values += [start, start + kept[number]]
        values += [int(not follows), 3 + sum(kept)]
    return list(map(tuple, np.array(values).reshape(-1, 6).tolist()))


def test_pairs_are_those_of_a_slow_implementation(store):
    others = np.arange(0, 150, 3)
    examples = make(store, documents=others, others=others, seed=5, epoch=2)
    slow = [row for document in others.tolist() for row in slow_next_sentence(store, document, others, 40, 5, 2)]
    assert rows(examples) == slow and len(slow) > 350


def test_true_pairs_are_consecutive_and_random_ones_are_from_another_document(store):
    bounds = set(store.sentences.tolist())
    examples = make(store)
    one, other = (document_of(store, examples.ranges[:, column]) for column in (0, 2))
    assert np.array_equal(one == other, examples.labels == 0)
    whole = 0
    for start, end, begins, _ in examples.ranges[examples.labels == 0].tolist():
        assert start < end <= begins
        whole += end == begins and end in bounds
        # What lies between was trimmed from the pair's own sentences: no sentence is jumped over.
        assert not any(end < bound < begins for bound in bounds) or begins - end <= 30
    assert whole > 100


def test_a_random_second_is_never_of_the_same_document_however_few_there_are():
    store = store_of(9, 3, sentences=(4000, 5000))
    for documents in ([0, 1], [0, 2], [0, 1, 2]):
        examples = make(store, documents=documents, others=documents)
        first, second = (document_of(store, examples.ranges[examples.labels == 1, column]) for column in (0, 2))
        assert len(first) > 1000 and (first != second).all() and set(second) == set(documents)


@pytest.mark.slow
def test_random_seconds_begin_with_any_sentence_of_the_others_as_often_and_are_never_of_any_else():
    store = store_of(8, 25, sentences=(150, 400), tokens=(1, 2))  # where nothing is trimmed
    others = np.array([2, 3, 5, 7, 11, 13, 17, 19, 23])
    epochs = [make(store, documents=[11], others=others, length=16, epoch=epoch) for epoch in range(700)]
    seconds = np.concatenate([examples.ranges[examples.labels == 1, 2] for examples in epochs])
    inside = np.concatenate([np.arange(*store.documents[other:][:2]) for other in others if other != 11])
    assert len(seconds) > 9000 and np.isin(seconds, inside).all()
    # Where a document ends, what would not fit moves back: its last sentences are left out, and those it moves to.
    whole = np.concatenate([np.arange(*store.documents[other:][:2])[:-26] for other in others if other != 11])
    tenths = np.array_split(whole, 10)
    counts = [int(np.isin(seconds, tenth).sum()) for tenth in tenths]
    assert stats.chisquare(counts, sum(counts) * np.array([*map(len, tenths)]) / len(whole)).pvalue > LEAST
    assert stats.binomtest(sum(counts), len(seconds), len(whole) / len(inside)).pvalue > LEAST


def test_segment_sizes_do_not_reveal_random_pairs():
    store = store_of(13, 400, sentences=(2, 90), tokens=(1, 40))
    examples = make(store, length=84)
    first = np.searchsorted(store.sentences, examples.ranges[:, 0], "right") - 1
    alone = np.isin(first, store.documents[1:] - 1)
    follows, random = (np.diff(examples.ranges)[(examples.labels == label) & ~alone] for label in (0, 1))
    assert len(follows) > 2500
    for sizes in ([0], [2], [0, 2]):
        assert stats.ks_2samp(follows[:, sizes].sum(1), random[:, sizes].sum(1)).pvalue > LEAST


@pytest.mark.parametrize("length", [43, 128])
def test_half_of_the_pairs_that_could_follow_do(length):
    store = store_of(5, 60, sentences=(700, 900))
    examples = make(store, length=length)
    last = store.sentences[store.documents[1:] - 1]  # where each document's last sentence begins
    alone = examples.ranges[:, 0] >= last[document_of(store, examples.ranges[:, 0])]
    assert (examples.labels[alone] == 1).all()
    follows, pairs = int((examples.labels == 0).sum()), int((~alone).sum())
    assert pairs > 3000 and stats.binomtest(follows, pairs, 0.5).pvalue > LEAST


def test_one_pair_in_ten_is_meant_to_be_shorter_to_any_length_and_is_split_anywhere():
    # Sentences of one token fill a pair exactly, so what follows is short only where it is meant to be.
    store, room = store_of(1, 60, sentences=(9000, 10_000), tokens=(1, 2)), 37
    examples = make(store, length=room + 3)
    far = examples.ranges[:, 3] < store.documents[1:][document_of(store, examples.ranges[:, 0])]  # not cut by the end
    chosen = (examples.labels == 0) & far
    sizes, firsts = examples.sizes[chosen] - 3, np.diff(examples.ranges)[chosen, 0]
    short = int((sizes < room).sum())
    # Of the lengths from 2 to 37 one is the full one.
    assert len(sizes) > 10_000 and stats.binomtest(short, len(sizes), 0.1 * 35 / 36).pvalue > LEAST
    assert stats.chisquare(np.bincount(sizes, minlength=room)[2:room]).pvalue > LEAST
    assert stats.chisquare(np.bincount(firsts[sizes == room], minlength=room)[1:room]).pvalue > LEAST


def test_pairs_fill_the_length_if_there_is_enough_text():
    sizes = make(store_of(2, 30, sentences=(200, 300))).sizes
    assert (sizes == LENGTH).mean() > 0.75


def used(examples):
    """The ranges in which text stands in its own right: first segments, and second ones that follow."""
    return [*examples.ranges[:, :2].tolist(), *examples.ranges[examples.labels == 0, 2:].tolist()]


def test_every_sentence_is_part_of_some_pair():
    # Long pairs over short sentences: what trimming takes (from a pair's ends) is never more than a sentence.
    store = store_of(4, 40, tokens=(3, 6))
    covered = np.zeros(store.num_tokens, bool)
    for start, end in [part for epoch in range(3) for part in used(make(store, length=83, epoch=epoch))]:
        covered[start:end] = True
    assert np.add.reduceat(covered, store.sentences[:-1]).all()


def test_a_pass_over_sentences_that_need_no_trimming_loses_no_token():
    store = store_of(6, 30, sentences=(20, 90), tokens=(1, 2))
    counts = np.zeros(store.num_tokens, int)
    for start, end in used(make(store)):
        counts[start:end] += 1
    assert counts.max() == 1  # nothing twice
    # A random second fills up what the first left: the first may be trimmed only if both are too long.
    assert (counts == 0).mean() < 0.01


def test_sentences_too_long_for_a_pair_are_trimmed_at_either_end_and_both_segments_stay():
    store = store_of(7, 900, sentences=(2, 5), tokens=(100, 101))
    examples = make(store, length=63)
    pairs = np.diff(examples.ranges)[:, [0, 2]][examples.sizes == 63]
    assert len(pairs) > 0.8 * len(examples) and (pairs == 30).all()
    fronts = (examples.ranges[:, 0] % 100)[examples.sizes == 63]  # of 70 tokens that go, any number at the front
    one_sentence = (np.diff(examples.ranges)[:, 0] == 30)[examples.sizes == 63]
    assert one_sentence.all() and set(fronts) <= set(range(100))
    second = examples.ranges[examples.labels == 0]
    only = second[np.diff(second)[:, 2] == 30]
    assert 0 < np.mean(only[:, 2] % 100) < 99


# --- sentence order -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ordered():
    """A store whose sentences are very unequal, and the pairs of every other document, as held-out ones would be."""
    rng = np.random.default_rng(11)
    sentence_sizes = np.minimum(1 + rng.geometric(0.07, 120 * 450), 90)
    starts = np.concatenate([[0], np.cumsum(sentence_sizes)]).astype(np.int64)
    store = TokenStore(np.arange(starts[-1], dtype=np.int32), starts, np.arange(0, 120 * 450 + 1, 450))
    return store, make(store, pairs="order", length=84, documents=range(1, 120, 2))


def test_both_segments_are_of_one_document_and_swapped_if_the_label_is_1(ordered):
    store, examples = ordered
    first, end, second, stop = examples.ranges.T
    assert np.array_equal(document_of(store, first), document_of(store, second))
    written = examples.labels == 0
    assert (end[written] <= second[written]).all() and (stop[~written] <= first[~written]).all()
    # Nothing lies between but what was trimmed from two sentences, or from one that stood alone.
    before, after = np.where(written, end - 1, stop - 1), np.where(written, second, first)
    jump = np.searchsorted(store.sentences, after, "right") - np.searchsorted(store.sentences, before, "right")
    assert np.isin(jump, [0, 1]).all() and (jump == 1).mean() > 0.98
    whole = np.isin(np.where(written, end, stop), store.sentences)
    assert whole.mean() > 0.9  # the others were trimmed, or stood alone


def test_half_of_the_pairs_are_swapped(ordered):
    _, examples = ordered
    assert len(examples) > 5000
    assert stats.binomtest(int(examples.labels.sum()), len(examples), 0.5).pvalue > LEAST


def test_segment_sizes_do_not_reveal_the_order(ordered):
    _, examples = ordered
    sizes = np.diff(examples.ranges)[:, [0, 2]]
    for label in (0, 1):
        one, other = sizes[examples.labels == label].T
        assert stats.binomtest(int((one > other).sum()), int((one != other).sum()), 0.5).pvalue > LEAST
        assert stats.ks_2samp(one, other).pvalue > LEAST


def test_truncation_does_not_reveal_the_order():
    store = store_of(12, 500, sentences=(2, 3), tokens=(60, 90))
    examples = make(store, pairs="order", length=64)
    long = examples.sizes == 64
    assert set(examples.labels[long]) == {0, 1} and long.sum() > 400
    assert set(map(tuple, np.diff(examples.ranges)[long][:, [0, 2]].tolist())) == {(31, 30)}


def test_an_epoch_of_sentence_order_loses_no_token_but_what_is_trimmed(store):
    examples = make(store, pairs="order")
    counts = np.zeros(store.num_tokens, int)
    for start, end, begins, stop in examples.ranges.tolist():
        counts[start:end] += 1
        counts[begins:stop] += 1
    assert counts.max() == 1
    # Sentences of at most 14 tokens always fit; one token alone at a document's end has no order.
    last = store.documents[1:] - 1
    alone = store.sentences[last][np.diff(store.sentences)[last] == 1]
    missing = np.flatnonzero(counts == 0)
    assert 0 < len(missing) < 0.02 * store.num_tokens and np.isin(missing, alone).mean() > 0
    shorter = make(store, pairs="order", length=8)  # where no two sentences fit, they are trimmed
    assert shorter.sizes.max() == 8 and shorter.sizes.min() == 5


def test_a_sentence_alone_is_split_at_any_token_and_a_token_alone_is_left_out():
    starts = np.cumsum([0] + [11] * 3000 + [1] * 5)
    store = TokenStore(np.arange(starts[-1], dtype=np.int32), starts, np.arange(3006))
    examples = make(store, pairs="order")
    assert len(examples) == 3000 and (examples.sizes <= 14).all()
    sizes = np.diff(examples.ranges)[examples.sizes == 14, 0]  # some are meant to be shorter
    assert len(sizes) > 2800 and stats.chisquare(np.bincount(sizes, minlength=11)[1:]).pvalue > LEAST
    assert stats.binomtest(int(examples.labels.sum()), 3000, 0.5).pvalue > LEAST


# --- without pairs --------------------------------------------------------------------------------------------------


def test_without_pairs_every_token_is_in_one_run_of_whole_sentences(store):
    examples = make(store, pairs="none")
    covered = np.concatenate([np.arange(start, end) for start, end, *_ in examples.ranges.tolist()])
    assert covered.tolist() == list(range(store.num_tokens))
    assert not examples.ranges[:, 2:].any() and (examples.labels == NO_PAIR).all()
    assert np.isin(examples.ranges[:, :2], store.sentences).all()
    # As many as fit: with the next sentence it would be too long, or of two documents.
    ends = examples.ranges[:-1, 1]
    longer = store.sentences[np.searchsorted(store.sentences, ends) + 1] - examples.ranges[:-1, 0]
    assert ((longer > LENGTH - 2) | np.isin(ends, store.sentences[store.documents])).all()


def test_a_sentence_longer_than_a_run_becomes_equal_parts():
    starts = np.cumsum([0, 7, 100, 5, 42, 41, 3])
    store = TokenStore(np.arange(starts[-1], dtype=np.int32), starts, np.array([0, 6]))
    ranges = make(store, pairs="none").ranges[:, :2].tolist()
    # 100 in three; 42 is one more than fits.
    assert ranges == [[0, 7], [7, 40], [40, 73], [73, 107], [107, 112], [112, 133], [133, 154], [154, 195], [195, 198]]


# --- all kinds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", KINDS)
def test_a_documents_examples_do_not_depend_on_company_or_order(store, pairs):
    of_each = {}
    for document in range(store.num_documents):
        alone = make(store, documents=[document], others=range(store.num_documents), pairs=pairs)
        of_each[document] = rows(alone)
    order = np.random.default_rng(2).permutation(150)[:67].tolist()
    together = rows(make(store, documents=order, others=range(150), pairs=pairs))
    assert together == [row for document in order for row in of_each[document]]


@pytest.mark.parametrize("pairs", ["next", "order"])
def test_the_same_place_gives_the_same_pairs_and_another_epoch_or_seed_others(store, pairs, global_seed):
    np.random.seed(1)
    examples = rows(make(store, pairs=pairs))
    assert rows(make(store, pairs=pairs)) == examples
    assert rows(make(store, pairs=pairs, epoch=1)) != examples != rows(make(store, pairs=pairs, seed=4))


def test_one_document_has_no_next_sentences_to_tell_from_others_but_an_order():
    store = store_of(0, 1, sentences=(30, 31))
    with pytest.raises(InputError, match="at least 2 documents.* 1.*--pairs none"):
        make(store)
    assert len(make(store, pairs="order")) and len(make(store, pairs="none"))


def test_no_documents_have_no_examples(store):
    for pairs in KINDS:
        assert len(make(store, documents=np.array([], np.int64), pairs=pairs)) == 0


@pytest.mark.parametrize("kind", [np.int32, np.uint16])
def test_a_batch_is_cls_a_sep_b_sep(tokenizer, kind):
    store = TokenStore(np.arange(20, 40).astype(kind), np.array([0, 7, 20]), np.array([0, 1, 2]))
    store.ids.flags.writeable = False
    ranges = np.array([[3, 6, 0, 1], [2, 5, 7, 9], [0, 2, 0, 0], [9, 10, 3, 7]])
    examples = PretrainingExamples(ranges, np.array([0, 1, 0, 1]), np.array([7, 8, 4, 8]))
    batch, labels = to_batch(store, examples, np.array([1, 2, 3]), tokenizer)
    c, s = tokenizer.cls_id, tokenizer.sep_id
    assert batch.input_ids.tolist() == [c, 22, 23, 24, s, 27, 28, s, c, 20, 21, s, c, 29, s, 23, 24, 25, 26, s]
    assert batch.segment_ids.tolist() == [0] * 5 + [1] * 3 + [0] * 4 + [0] * 3 + [1] * 5
    assert batch.position_ids.tolist() == [*range(8), *range(4), *range(8)]
    assert batch.lengths.tolist() == [8, 4, 8] and labels.tolist() == [1, 0, 1]
