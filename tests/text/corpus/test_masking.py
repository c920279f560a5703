"""Masked tokens, words and spans: how many, their replacements, and independence of the batch.

Frequencies are compared by exact tests: p under 1e-6 is a failure.
"""

from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np
import pytest
import torch
from scipy import stats

from bothways.base.rng import Purpose, make_keys
from bothways.text.batch import Batch
from bothways.text.corpus.masking import MaskRule, draw_spans, mask_tokens

LEAST = 1e-6
KINDS = ["tokens", "words", "spans"]


def batch_of(tokenizer, lengths, seed=0):
    """Texts of ordinary and special entries: [CLS], anything, [SEP]."""
    rng = np.random.default_rng(seed)
    lengths = np.array(lengths)
    ids = rng.integers(0, len(tokenizer), lengths.sum())
    ends = lengths.cumsum()
    ids[ends - lengths], ids[ends - 1] = tokenizer.cls_id, tokenizer.sep_id
    return Batch.from_arrays(ids, np.zeros_like(ids), lengths)


def mask(batch, rule, *, seed=1, epoch=2, section=0, examples=None, rate=None):
    examples = np.arange(len(batch)) if examples is None else np.array(examples)
    places = np.stack(np.broadcast_arrays(epoch, section, examples), axis=1)
    rule = rule if rate is None else replace(rule, rate=rate)
    return mask_tokens(batch, rule, seed=seed, example_ids=places)


@pytest.fixture(scope="module", params=KINDS)
def rule(request, tokenizer):
    return MaskRule.from_tokenizer(tokenizer, 0.15, request.param)


@pytest.fixture(scope="module")
def big(tokenizer):
    return batch_of(tokenizer, [997] * 150)


def words_of(tokenizer, batch):
    """The places of each whole word, by the plain definition: `##` belongs to the word before; specials part words."""
    tokens, words = {index: token for token, index in tokenizer.vocab.items()}, []
    before = None
    for place, index in enumerate(batch.input_ids.tolist()):
        if index in tokenizer.special_ids:
            before = None
        elif tokens[index].startswith("##") and before is not None:
            before.append(place)
        else:
            before = [place]
            words.append(before)
    return words


def test_the_mask_rule_contains_all_ordinary_entries_and_no_special_tokens(tokenizer):
    rule = MaskRule.from_tokenizer(tokenizer)
    assert (rule.rate, rule.kind) == (0.15, "tokens")
    assert set(rule.ordinary_ids.tolist()) == set(range(97)) - tokenizer.special_ids
    assert len(rule.ordinary_ids) == 92 and rule.mask_id == tokenizer.vocab["[MASK]"]
    assert {token for token, index in tokenizer.vocab.items() if rule.continues_word[index]} == {
        token for token in tokenizer.vocab if token.startswith("##")
    }


@pytest.mark.parametrize("rate", [0.15, 0.3])
def test_ordinary_tokens_are_chosen_at_the_rate(rate, tokenizer, big):
    masked = mask(big, MaskRule.from_tokenizer(tokenizer, rate))
    ordinary = int(np.isin(big.input_ids, MaskRule.from_tokenizer(tokenizer).ordinary_ids).sum())
    assert stats.binomtest(len(masked.masked_positions), ordinary, rate).pvalue > LEAST


def test_the_rate_of_a_step_takes_precedence(tokenizer, big):
    for kind in KINDS:
        rule = MaskRule.from_tokenizer(tokenizer, 0.15, kind)
        masked = mask(big, rule, rate=0.4)
        assert torch.equal(masked.input_ids, mask(big, MaskRule.from_tokenizer(tokenizer, 0.4, kind)).input_ids)
        assert len(masked.masked_positions) > 2 * len(mask(big, rule).masked_positions)


def test_tokens_are_chosen_one_by_one(tokenizer, big):
    """As often beside a chosen one as anywhere, and in each text as often as in any."""
    chosen = np.zeros(big.num_tokens, bool)
    chosen[mask(big, MaskRule.from_tokenizer(tokenizer)).masked_positions] = True
    ordinary = ~np.isin(big.input_ids, list(tokenizer.special_ids))
    beside = chosen[1:][chosen[:-1] & ordinary[1:]]
    assert stats.binomtest(int(beside.sum()), len(beside), 0.15).pvalue > LEAST
    chosen_by_text, all_by_text = (values.reshape(150, 997).sum(1) for values in (chosen, ordinary))
    assert stats.chi2_contingency([chosen_by_text, all_by_text - chosen_by_text]).pvalue > LEAST


@pytest.mark.slow
def test_special_tokens_are_never_chosen_and_unchosen_ones_never_change(tokenizer, rule, big):
    for rate in (0.15, 1.0):
        masked = mask(big, rule, rate=rate)
        assert not np.isin(big.input_ids[masked.masked_positions], list(tokenizer.special_ids)).any()
        others = np.setdiff1d(np.arange(big.num_tokens), masked.masked_positions)
        assert torch.equal(masked.input_ids[others], big.input_ids[others])
    assert np.isin(big.input_ids[others], list(tokenizer.special_ids)).all()  # at 100 % all else is chosen


def roles(tokenizer, batch, masked):
    """How many became [MASK], another entry, or stayed as they were."""
    became, was = masked.input_ids[masked.masked_positions].numpy(), batch.input_ids[masked.masked_positions].numpy()
    masks, kept = int((became == tokenizer.mask_id).sum()), int((became == was).sum())
    return [masks, len(was) - masks - kept, kept]


@pytest.mark.parametrize("kind", ["tokens", "words"])
def test_of_the_chosen_eight_tenths_are_masks_one_tenth_random_and_one_tenth_kept(kind, tokenizer, big):
    counts = np.array(roles(tokenizer, big, mask(big, MaskRule.from_tokenizer(tokenizer, 0.15, kind))))
    assert counts.sum() > 20_000
    # A random entry is the original itself once in 92.
    assert stats.chisquare(counts, counts.sum() * np.array([0.8, 0.1 * 91 / 92, 0.1 + 0.1 / 92])).pvalue > LEAST


def test_random_entries_are_ordinary_and_uniform(tokenizer, rule):
    big = batch_of(tokenizer, [997] * 300)
    masked = mask(big, rule, rate=0.9)
    became, was = masked.input_ids[masked.masked_positions].numpy(), masked.masked_labels.numpy()
    random = became[(became != was) & (became != tokenizer.mask_id)]
    assert len(random) > 20_000 and np.isin(random, rule.ordinary_ids).all()
    assert stats.chisquare(np.bincount(random, minlength=97)[rule.ordinary_ids]).pvalue > LEAST
    # Beside each other they are independent, in one span too.
    assert (random[1:] == random[:-1]).mean() < 0.02


def test_labels_are_the_original_ids_at_the_masked_positions(rule, big):
    masked = mask(big, rule)
    assert torch.equal(masked.masked_labels, big.input_ids[masked.masked_positions])
    assert (masked.masked_positions.diff() > 0).all()
    assert big.masked_positions is None and masked.lengths is big.lengths  # the input is not changed


# --- whole words ----------------------------------------------------------------------------------------------------


def test_words_are_chosen_whole_and_at_the_rate(tokenizer, big):
    chosen = np.zeros(big.num_tokens, bool)
    masked = mask(big, MaskRule.from_tokenizer(tokenizer, 0.15, "words"))
    chosen[masked.masked_positions] = True
    words = words_of(tokenizer, big)
    assert max(map(len, words)) > 5
    whole = [set(chosen[word]) for word in words]
    assert all(len(states) == 1 for states in whole)
    assert stats.binomtest(sum(states == {True} for states in whole), len(words), 0.15).pvalue > LEAST
    long = [chosen[word[0]] for word in words if len(word) > 2]
    assert stats.binomtest(int(sum(long)), len(long), 0.15).pvalue > LEAST


def test_a_piece_after_a_special_token_is_a_word_of_its_own(tokenizer):
    cls, sep, dog, piece = (tokenizer.vocab[token] for token in ("[CLS]", "[SEP]", "dog", "##s"))
    flat = np.tile([cls, dog, sep, piece, sep], 5003)
    batch = Batch.from_arrays(flat, np.zeros_like(flat), np.full(5003, 5))
    chosen = np.zeros(len(flat), bool)
    chosen[mask(batch, MaskRule.from_tokenizer(tokenizer, 0.15, "words")).masked_positions] = True
    both = int((chosen[1::5] & chosen[3::5]).sum())
    assert stats.binomtest(both, 5003, 0.15**2).pvalue > LEAST


@pytest.mark.slow
def test_the_tokens_of_a_chosen_word_become_masks_one_by_one(tokenizer, big):
    masked = mask(big, MaskRule.from_tokenizer(tokenizer, 0.15, "words"))
    chosen = set(masked.masked_positions.tolist())
    pairs = np.array([word for word in words_of(tokenizer, big) if len(word) == 2 and word[0] in chosen])
    both = (masked.input_ids.numpy()[pairs] == tokenizer.mask_id).sum(1)
    assert len(pairs) > 1500
    assert stats.chisquare(np.bincount(both, minlength=3), len(pairs) * np.array([0.04, 0.32, 0.64])).pvalue > LEAST


# --- spans ----------------------------------------------------------------------------------------------------------


def spans_of(words, texts, rate):
    """Of as many texts of so many words: the word that leads each word's span, -1 for none. [texts, words]"""
    return draw_spans(np.full(texts, words), make_keys(3, Purpose.MASK, np.arange(texts * words)), rate).reshape(
        texts, words
    )


@pytest.mark.slow
def test_span_lengths_are_geometric_up_to_ten_words_and_3_8_on_average():
    leaders = spans_of(97, 9001, 0.15)
    first = np.arange(9001) * 97  # of 14.55 words to hide the first span is always taken whole
    lengths = (leaders == first[:, None]).sum(1)
    shares = 0.8 ** np.arange(10) / (0.8 ** np.arange(10)).sum()
    assert stats.chisquare(np.bincount(lengths, minlength=11)[1:], len(lengths) * shares).pvalue > LEAST
    assert shares @ np.arange(1, 11) == pytest.approx(3.8, abs=0.005)
    # Over a long text the last span matters little, and all are so.
    counts = np.unique(spans_of(20_011, 5, 0.15), return_counts=True)[1][1:]
    assert stats.chisquare(np.bincount(counts, minlength=11)[1:], len(counts) * shares).pvalue > LEAST


def test_a_span_is_one_run_of_words_of_its_text():
    leaders = spans_of(61, 500, 0.4)
    assert ((leaders == -1) | (leaders // 61 == np.arange(500)[:, None])).all()
    for row in leaders:
        runs = [leader for leader, _ in groupby(row.tolist()) if leader >= 0]
        assert len(runs) == len(set(runs))


def test_spans_lie_anywhere_with_equal_chance():
    leaders = spans_of(30, 40_001, 0.03)  # at most one span, of one word mostly
    row, first = np.nonzero((leaders >= 0) & (np.roll(leaders, 1, axis=1) != leaders))
    lengths = (leaders[row] >= 0).sum(1)
    for length in (1, 2, 3):
        starts = np.bincount(first[lengths == length], minlength=30)[: 31 - length]
        assert starts.sum() > 900 and stats.chisquare(starts).pvalue > LEAST


@pytest.mark.parametrize(("words", "rate"), [(1, 0.15), (3, 0.15), (7, 0.5), (97, 0.15), (211, 0.4)])
def test_spans_use_the_rates_share_of_each_text_on_average(words, rate):
    shares = (spans_of(words, 5_003, rate) >= 0).mean(1)
    if words == 1:
        assert stats.binomtest(int(shares.sum()), 5_003, rate).pvalue > LEAST
    assert stats.ttest_1samp(shares, rate).pvalue > LEAST
    assert (abs(shares - rate) * words < 10).all()  # never more than one span away


def test_spans_are_of_whole_words_between_special_tokens(tokenizer, big):
    masked = mask(big, MaskRule.from_tokenizer(tokenizer, 0.15, "spans"))
    chosen = np.zeros(big.num_tokens, bool)
    chosen[masked.masked_positions] = True
    words = words_of(tokenizer, big)
    assert all(len(set(chosen[word])) == 1 for word in words)
    share = np.mean([chosen[word[0]] for word in words])
    assert share == pytest.approx(0.15, abs=0.01)
    # Neighbours go together far more often than words chosen one by one.
    both = [chosen[one[0]] and chosen[two[0]] for one, two in pairwise(words)]
    assert np.mean(both) > 3 * 0.15**2


def test_a_span_becomes_masks_random_entries_or_itself_as_a_whole(tokenizer):
    # One run of 20 words a text, at a rate that leaves one span at most.
    rng = np.random.default_rng(4)
    words = np.setdiff1d(
        MaskRule.from_tokenizer(tokenizer).ordinary_ids,
        np.flatnonzero(MaskRule.from_tokenizer(tokenizer).continues_word),
    )
    texts = [[tokenizer.cls_id, *rng.choice(words, 20).tolist(), tokenizer.sep_id] for _ in range(20_000)]
    flat = np.array(texts).ravel()
    batch = Batch.from_arrays(flat, np.zeros_like(flat), np.full(20_000, 22))
    masked = mask(batch, MaskRule.from_tokenizer(tokenizer, 0.05, "spans"))
    became = masked.input_ids[masked.masked_positions].numpy()
    same = became == masked.masked_labels.numpy()
    text = masked.masked_positions.numpy() // 22
    starts = np.flatnonzero(np.diff(text, prepend=-1))
    by_length = np.diff([*starts, len(text)])
    is_mask, is_same = (np.add.reduceat(values.astype(int), starts) for values in (became == tokenizer.mask_id, same))
    assert ((is_mask == 0) | (is_mask == by_length)).all()
    counts = [(is_mask > 0).sum(), ((is_mask == 0) & (is_same < by_length)).sum(), (is_same == by_length).sum()]
    itself = np.mean((1 / 92) ** by_length)  # random entries that are the original by chance
    assert sum(counts) > 5000
    expected = sum(counts) * np.array([0.8, 0.1 * (1 - itself), 0.1 + 0.1 * itself])
    assert stats.chisquare(counts, expected).pvalue > LEAST


# --- places ---------------------------------------------------------------------------------------------------------


def masks_of_each(batch, masked):
    starts = (batch.lengths.cumsum(0) - batch.lengths).tolist()
    masks = []
    for start, length in zip(starts, batch.lengths.tolist(), strict=True):
        inside = (masked.masked_positions >= start) & (masked.masked_positions < start + length)
        places = (masked.masked_positions[inside] - start).tolist()
        masks.append((places, masked.masked_labels[inside].tolist(), masked.input_ids[start : start + length].tolist()))
    return masks


def test_the_masks_of_a_text_do_not_depend_on_the_other_texts_of_the_batch(tokenizer, rule):
    lengths = [13, 61, 29, 7, 47]
    together = batch_of(tokenizer, lengths)
    numbers = [4, 0, 9, 2, 7]
    expected = masks_of_each(together, mask(together, rule, examples=numbers))
    ids = together.input_ids.split(lengths)
    for order in ([3, 1, 0, 4, 2], [2], [4, 0]):
        flat = torch.cat([ids[row] for row in order]).numpy()
        other = Batch.from_arrays(flat, np.zeros_like(flat), np.array([lengths[row] for row in order]))
        masks = masks_of_each(other, mask(other, rule, examples=[numbers[row] for row in order]))
        assert masks == [expected[row] for row in order]
    assert sum(len(places) for places, *_ in expected) > 5


def test_masks_differ_between_epochs_sections_seeds_and_examples(tokenizer, rule):
    batch = batch_of(tokenizer, [401])
    options = [dict(seed=1, epoch=2, section=5, examples=[3])] * 2
    options += [options[0] | change for change in (dict(seed=2), dict(epoch=3), dict(section=6), dict(examples=[4]))]
    places = [tuple(mask(batch, rule, **one).masked_positions.tolist()) for one in options]
    assert places[0] == places[1] and len(set(places)) == 5


def test_without_masked_tokens_there_are_no_targets(tokenizer, rule):
    batch = batch_of(tokenizer, [2, 2])  # [CLS] [SEP]
    masked = mask(batch, rule, rate=1.0)
    assert len(masked.masked_positions) == len(masked.masked_labels) == 0
    assert torch.equal(masked.input_ids, batch.input_ids)
