"""Held-out scores: only held-out documents, always the same masks, names by the pair task."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bothways.base.errors import InputError
from bothways.text.corpus import sampler
from bothways.text.corpus.token_store import TokenStore
from bothways.training.pretraining.heldout import HeldOut, next_sentence_verdict

HELD_OUT = np.arange(3, 211, 7)


@pytest.fixture(scope="module")
def store(tokenizer):
    """Documents of ordinary entries; the last bit of an entry is 1 if its document is held out."""
    rng = np.random.default_rng(1)
    document_sizes, ordinary = rng.integers(2, 20, 211), np.arange(5, 96)
    sentence_sizes = rng.integers(2, 15, document_sizes.sum())
    starts = [np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64) for sizes in (sentence_sizes, document_sizes)]
    bounds = starts[0][starts[1]]
    ids = rng.choice(ordinary[ordinary % 2 == 0], starts[0][-1])
    for document in HELD_OUT:
        ids[bounds[document] : bounds[document + 1]] += 1
    return TokenStore(ids.astype(np.uint16), *starts)


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("bert", {"masked_words": 0, "next_sentence": 2}, pooler=True)


def evaluate_and_record(store, tokenizer, model, pairs, **options):
    held = HeldOut(store, HELD_OUT, tokenizer, 31, pairs=pairs, **options)
    return held, held.measure(model)


@pytest.mark.parametrize(("pairs", "name"), [("next", "next_sentence"), ("order", "sentence_order")])
def test_accuracy_on_pairs_is_named_by_their_objective(store, tokenizer, model, pairs, name):
    held, figures = evaluate_and_record(store, tokenizer, model, pairs)
    assert [key for key in figures if key.endswith("_accuracy")] == [f"{name}_accuracy"]
    low, high = figures[f"{name}_accuracy_interval"]
    assert low < figures[f"{name}_accuracy"] < high and 100 < figures["pairs"] == sum(map(len, held.batches))
    assert next_sentence_verdict(figures).startswith(f"{figures[f'{name}_accuracy']:.1%} (95 % interval")
    sums = {"masked_lm": [0.0, 0], "next_sentence": [0.0, 0]}
    with torch.no_grad():
        for batch in held.batches:
            for loss, (value, count) in held.objective.losses(model, batch, model(batch)).items():
                sums[loss] = [sums[loss][0] + float(value), sums[loss][1] + int(count)]
    for loss, (value, count) in sums.items():
        assert figures[loss] == pytest.approx(value / count, rel=1e-6)
    assert figures["loss"] == pytest.approx(figures["masked_lm"] + figures["next_sentence"])
    assert figures["perplexity"] == pytest.approx(math.exp(figures["masked_lm"]))


def test_without_pairs_only_words_are_measured(store, tokenizer, model):
    _, figures = evaluate_and_record(store, tokenizer, model, "none")
    assert set(figures) == {"loss", "masked_lm", "perplexity"}
    assert next_sentence_verdict(figures) == "not measured (no pairs)"


@pytest.mark.parametrize("pairs", ["next", "order", "none"])
def test_only_the_documents_held_out_are_read_and_masks_stay_as_they_are(store, tokenizer, pairs):
    one, two = (HeldOut(store, documents, tokenizer, 31, pairs=pairs) for documents in (HELD_OUT, HELD_OUT[::-1]))
    labels = torch.cat([batch.masked_labels for batch in one.batches])
    assert (labels % 2 == 1).all()
    for batch, other in zip(one.batches, two.batches, strict=True):
        assert torch.equal(batch.input_ids, other.input_ids) and torch.equal(
            batch.masked_positions, other.masked_positions
        )
    ordinary = sum(batch.num_tokens - (2 if pairs == "none" else 3) * len(batch) for batch in one.batches)
    assert stats.binomtest(len(labels), ordinary, 0.15).pvalue > 1e-6


def test_guessing_by_frequency_is_measured_on_the_same_masks(store, tokenizer):
    frequencies = np.arange(97)
    held = HeldOut(store, HELD_OUT, tokenizer, 31, pairs="next", frequencies=frequencies)
    labels = torch.cat([batch.masked_labels for batch in held.batches]).numpy()
    shares = (frequencies + 1) / (frequencies + 1).sum()
    assert held.unigram_perplexity == pytest.approx(math.exp(-np.log(shares[labels]).mean()))
    assert math.isnan(HeldOut(store, HELD_OUT, tokenizer, 31, pairs="next").unigram_perplexity)


def test_one_document_has_an_order_but_no_others(store, tokenizer, model):
    figures = {
        pairs: HeldOut(store, HELD_OUT[:1], tokenizer, 31, pairs=pairs).measure(model) for pairs in ("next", "order")
    }
    assert "sentence_order_accuracy" in figures["order"] and set(figures["next"]) == {"loss", "masked_lm", "perplexity"}


def test_of_large_held_out_text_random_documents_are_measured(store, tokenizer, monkeypatch):
    monkeypatch.setattr(sampler, "SECTION_TOKENS", 700)
    documents = sampler.sample_documents(store, HELD_OUT)
    tokens = np.diff(store.sentences[store.documents])[documents]
    assert np.isin(documents, HELD_OUT).all() and (np.diff(documents) > 0).all()
    assert tokens.sum() - tokens.max() < 700 <= tokens.sum() and not np.array_equal(
        documents, HELD_OUT[: len(documents)]
    )


def test_text_too_short_for_a_mask_is_refused(tokenizer):
    words = TokenStore(np.array([7, 8], np.uint16), np.arange(3), np.arange(3))
    with pytest.raises(InputError, match="2 tokens .* masked"):
        HeldOut(words, np.arange(2), tokenizer, 31, pairs="order")
