"""Masked tokens: how many, what they become, and that a text's masks are its own."""

import numpy as np
import pytest
import torch

from bothways.batch import Batch
from bothways.data.masking import MaskRule, mask_tokens


def batch_of(tokenizer, lengths, seed=0):
    """Texts of ordinary and special entries: [CLS], anything, [SEP]."""
    rng = np.random.default_rng(seed)
    lengths = np.array(lengths)
    ids = rng.integers(0, len(tokenizer), lengths.sum())
    ends = lengths.cumsum()
    ids[ends - lengths], ids[ends - 1] = tokenizer.cls_id, tokenizer.sep_id
    return Batch.of_arrays(ids, np.zeros_like(ids), lengths)


def mask(batch, rule, *, seed=1, epoch=2, examples=None):
    examples = np.arange(len(batch)) if examples is None else np.array(examples)
    return mask_tokens(batch, rule, seed=seed, epoch=epoch, examples=examples)


@pytest.fixture(scope="module")
def rule(tokenizer):
    return MaskRule.of(tokenizer, 0.15)


@pytest.fixture(scope="module")
def big(tokenizer):
    return batch_of(tokenizer, [997] * 150)


def test_the_rule_knows_every_ordinary_entry_and_no_special_one(tokenizer, rule):
    assert set(rule.ordinary_ids.tolist()) == set(range(97)) - tokenizer.special_ids
    assert len(rule.ordinary_ids) == 92 and rule.mask_id == tokenizer.vocab["[MASK]"]


@pytest.mark.parametrize("rate", [0.15, 0.3])
def test_ordinary_tokens_are_chosen_at_the_rate(rate, tokenizer, big):
    masked = mask(big, MaskRule.of(tokenizer, rate))
    ordinary = int(np.isin(big.input_ids, MaskRule.of(tokenizer).ordinary_ids).sum())
    deviation = (rate * (1 - rate) / ordinary) ** 0.5
    assert len(masked.masked_places) / ordinary == pytest.approx(rate, abs=4 * deviation)


def test_tokens_are_chosen_one_by_one(tokenizer, rule, big):
    """As often beside a chosen one as anywhere, and in each text about as often as in any (binomial)."""
    chosen = np.zeros(big.num_tokens, bool)
    chosen[mask(big, rule).masked_places] = True
    both = (chosen[1:] & chosen[:-1]).sum() / chosen[:-1].sum()
    assert both == pytest.approx(chosen.mean(), abs=0.01)
    by_text = chosen.reshape(150, 997).sum(1)
    assert by_text.var() / by_text.mean() == pytest.approx(1 - chosen.mean(), abs=0.3)


def test_special_tokens_are_never_chosen_and_unchosen_ones_never_change(tokenizer, rule, big):
    masked = mask(big, rule)
    assert not np.isin(big.input_ids[masked.masked_places], list(tokenizer.special_ids)).any()
    others = np.setdiff1d(np.arange(big.num_tokens), masked.masked_places)
    assert torch.equal(masked.input_ids[others], big.input_ids[others])


def test_of_the_chosen_eight_tenths_are_masks_one_tenth_random_and_one_tenth_kept(tokenizer, rule, big):
    masked = mask(big, rule)
    became, was = masked.input_ids[masked.masked_places].numpy(), masked.masked_labels.numpy()
    number = len(was)
    assert number > 20_000
    kept, masks = (became == was).mean(), (became == tokenizer.mask_id).mean()
    assert masks == pytest.approx(0.8, abs=4 * (0.16 / number) ** 0.5)
    # A random entry is the original itself once in 92.
    assert kept == pytest.approx(0.1 + 0.1 / 92, abs=4 * (0.09 / number) ** 0.5)


def test_random_entries_are_ordinary_and_uniform(tokenizer, rule):
    big = batch_of(tokenizer, [997] * 500)
    masked = mask(big, MaskRule(0.9, rule.mask_id, rule.ordinary_ids))
    became, was = masked.input_ids[masked.masked_places].numpy(), masked.masked_labels.numpy()
    random = became[(became != was) & (became != tokenizer.mask_id)]
    assert np.isin(random, rule.ordinary_ids).all()
    counts = np.bincount(random, minlength=97)[rule.ordinary_ids]
    expected = counts.sum() / 92
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert counts.sum() > 30_000 and 50 < chi_square < 150  # 91 degrees of freedom


def test_labels_are_the_originals_and_places_say_where(rule, big):
    masked = mask(big, rule)
    assert torch.equal(masked.masked_labels, big.input_ids[masked.masked_places])
    assert (masked.masked_places.diff() > 0).all()
    assert big.masked_places is None and masked.lengths is big.lengths  # the batch given stays as it was


def masks_of_each(batch, masked):
    starts = (batch.lengths.cumsum(0) - batch.lengths).tolist()
    found = []
    for start, length in zip(starts, batch.lengths.tolist(), strict=True):
        inside = (masked.masked_places >= start) & (masked.masked_places < start + length)
        places = (masked.masked_places[inside] - start).tolist()
        found.append((places, masked.masked_labels[inside].tolist(), masked.input_ids[start : start + length].tolist()))
    return found


def test_the_masks_of_a_text_do_not_depend_on_its_company(tokenizer, rule):
    lengths = [13, 61, 29, 7, 47]
    together = batch_of(tokenizer, lengths)
    numbers = [4, 0, 9, 2, 7]
    expected = masks_of_each(together, mask(together, rule, examples=numbers))
    ids = together.input_ids.split(lengths)
    for order in ([3, 1, 0, 4, 2], [2], [4, 0]):
        flat = torch.cat([ids[row] for row in order]).numpy()
        other = Batch.of_arrays(flat, np.zeros_like(flat), np.array([lengths[row] for row in order]))
        found = masks_of_each(other, mask(other, rule, examples=[numbers[row] for row in order]))
        assert found == [expected[row] for row in order]
    assert sum(len(places) for places, *_ in expected) > 5


def test_masks_differ_between_epochs_seeds_and_examples(tokenizer, rule):
    batch = batch_of(tokenizer, [401])
    told = [dict(seed=1, epoch=2, examples=[3])] * 2
    told += [
        dict(seed=1, epoch=3, examples=[3]),
        dict(seed=2, epoch=2, examples=[3]),
        dict(seed=1, epoch=2, examples=[4]),
    ]
    places = [tuple(mask(batch, rule, **at).masked_places.tolist()) for at in told]
    assert places[0] == places[1] and len(set(places)) == 4


def test_where_nothing_is_chosen_there_is_nothing_to_guess(tokenizer):
    batch = batch_of(tokenizer, [2, 2])  # [CLS] [SEP]
    masked = mask(batch, MaskRule.of(tokenizer, 1.0))
    assert len(masked.masked_places) == len(masked.masked_labels) == 0
    assert torch.equal(masked.input_ids, batch.input_ids)
