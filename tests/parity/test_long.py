"""Encoders for long texts against `transformers`: attention patterns, global tokens, gradients, layouts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bothways.model.layout import Padded
from bothways.text.batch import Batch
from tests.parity.test_model import assert_close, gradient_distance, ragged

pytestmark = pytest.mark.usefixtures("global_seed")  # compares what torch draws

SEPARATOR = 2


def long_texts(lengths, *, seed=1, question=0):
    """(ids, segments); question: so many tokens stand before two separators, and one more stands at the end."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for length in lengths:
        ids = torch.randint(5, 97, (length,), generator=generator)
        if question:
            ids[[question, question + 1, -1]] = SEPARATOR
        rows.append((ids, torch.zeros_like(ids)))
    return rows


def chosen(rows, which):
    """A mask [T] of the tokens at these places of every text."""
    return torch.cat([torch.isin(torch.arange(len(ids)), torch.tensor(which)) for ids, _ in rows])


# --- Longformer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [4, 8, 16, 40])
@pytest.mark.parametrize("which", [[], [0], [0, 1, 2, 30], [7, 19, 20, 33, 40, 41, 42, 43, 44, 45]])
def test_tokens_that_see_all_equal_theirs(window, which, make_peer, ours_of):
    peer = make_peer("LongformerModel", attention_window=window)
    model = ours_of(peer).model
    rows = long_texts([61, 47, 64])
    batch = ragged(rows)
    named = Batch(batch.input_ids, batch.segment_ids, batch.position_ids, batch.lengths)
    if which:
        named = replace(named, global_tokens=chosen(rows, which))
    with torch.no_grad():
        ours = model(named)
        theirs = [
            peer(ids[None], global_attention_mask=chosen([(ids, None)], which)[None].long()).last_hidden_state[0]
            for ids, _ in rows
        ]
    assert_close(ours, torch.cat(theirs))


def test_a_question_is_seen_by_all(make_peer, ours_of):
    peer = make_peer("LongformerForQuestionAnswering")
    model = ours_of(peer).model
    rows = long_texts([61, 47, 24], question=6)
    batch = ragged(rows)
    with torch.no_grad():
        ours = model.token_scores("spans", model(batch))
        theirs = [peer(ids[None]) for ids, _ in rows]
    assert_close(ours, torch.cat([torch.stack([one.start_logits[0], one.end_logits[0]], -1) for one in theirs]))


@pytest.mark.parametrize("which", [[0], [3, 30]])
def test_gradients_of_the_far_maps_equal_theirs(which, make_peer, ours_of):
    peer = make_peer("LongformerModel", options={"add_pooling_layer": False}).train()
    model = ours_of(peer).model.train()
    rows = long_texts([61, 47, 64])
    batch = ragged(rows)
    batch = replace(batch, global_tokens=chosen(rows, which))
    weights_TH = torch.randn(batch.num_tokens, model.config.hidden_size)
    (model(batch) * weights_TH).sum().backward()
    parts = weights_TH.split(batch.lengths.tolist())
    for (ids, _), weights in zip(rows, parts, strict=True):
        mask = chosen([(ids, None)], which)[None].long()
        (peer(ids[None], global_attention_mask=mask).last_hidden_state[0] * weights).sum().backward()
    total, largest = gradient_distance(model, peer)
    assert total < 1e-5 and largest < 1e-5


# --- BigBird --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "number"), [(4, 1), (2, 2), (4, 2), (1, 3)])
def test_blocks_equal_theirs(size, number, make_peer, ours_of):
    peer = make_peer("BigBirdModel", block_size=size, num_random_blocks=number)
    model = ours_of(peer).model
    rows = long_texts([61, 47, 64, 37, 20, 5])
    with torch.no_grad():
        ours = model(ragged(rows))
        theirs = []
        for ids, _ in rows:
            peer.set_attention_type("block_sparse")
            theirs.append(peer(ids[None]).last_hidden_state[0])
    assert_close(ours, torch.cat(theirs))


def test_full_attention_can_be_requested(make_peer, ours_of):
    peer = make_peer("BigBirdModel", attention_type="original_full")
    model = ours_of(peer).model
    rows = long_texts([61, 20])
    with torch.no_grad():
        assert_close(model(ragged(rows)), torch.cat([peer(ids[None]).last_hidden_state[0] for ids, _ in rows]))


@pytest.mark.parametrize(
    "architecture",
    ["BigBirdModel", "BigBirdForMaskedLM", "BigBirdForSequenceClassification", "BigBirdForQuestionAnswering"],
)
def test_gradients_of_blocks_equal_theirs(architecture, make_peer, ours_of):
    """Of a model at work, in which the blocks at random are the same ones on both sides."""
    options = {"add_pooling_layer": False} if architecture == "BigBirdModel" else {}
    peer = make_peer(architecture, options=options)
    model = ours_of(peer).model
    rows = long_texts([61, 61, 61])
    batch, ids = ragged(rows), torch.stack([ids for ids, _ in rows])
    answers = architecture == "BigBirdForQuestionAnswering"
    nowhere = {"question_lengths": torch.zeros(3, 1, dtype=torch.long)} if answers else {}
    hidden_TH, output = model(batch), peer(ids, token_type_ids=torch.zeros_like(ids), **nowhere)
    if architecture == "BigBirdModel":
        ours, theirs = hidden_TH, output.last_hidden_state.flatten(0, 1)
    elif answers:
        ours = model.token_scores("spans", hidden_TH)
        theirs = torch.stack([output.start_logits, output.end_logits], -1).flatten(0, 1)
    elif architecture == "BigBirdForMaskedLM":
        ours, theirs = model.word_scores(hidden_TH), output.logits.flatten(0, 1)
    else:
        ours, theirs = model.text_scores("classes", model.text_states(hidden_TH, batch)), output.logits
    weights = torch.randn(ours.shape)
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    assert gradient_distance(model, peer)[0] < 1e-5


def test_blocks_at_random_are_others_in_each_layer_and_for_each_text(make_model):
    model = make_model("big_bird")
    (part,) = {layer.attention.positions for layer in model.encoder.layers}

    def seen(rows):
        """The blocks each layer's rows look at."""
        patterns = model.encoder.build_context(ragged(rows)).positions[part].patterns
        for pattern in patterns:
            for row in pattern.blocks.rows:  # no block outside the text, and no random block twice
                assert max(map(max, row.keys.tolist())) < 16
                assert not model.training or all(len(set(keys)) == len(keys) for keys in row.keys.tolist())
        return [str([row.keys.tolist() for row in pattern.blocks.rows]) for pattern in patterns]

    one, other = long_texts([64], seed=1), long_texts([64], seed=2)
    at_rest = seen(one)
    assert len(at_rest) == 1 and at_rest == seen(other)
    model.train()
    assert len({*at_rest, *seen(one), *seen(other)}) == 1 + 2 * model.config.num_hidden_layers
    assert seen(one) == seen(one)


def test_in_training_neither_company_nor_parts_of_a_step_change_a_text(make_model):
    model = make_model("big_bird").train()
    rows = long_texts([61, 47, 64, 20])
    with torch.no_grad():
        together = model(ragged(rows))
        alone = torch.cat([model(ragged([row])) for row in rows])
    assert_close(together, alone)


# --- DeBERTa --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [["c2p"], ["p2c"], ["c2p", "p2c"]])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"share_att_key": False},
        {"position_buckets": -1, "max_relative_positions": 9},
        {"position_buckets": 6, "max_relative_positions": 30, "norm_rel_ebd": "none"},
        {"conv_kernel_size": 5, "conv_act": "gelu", "position_biased_input": True, "type_vocab_size": 2},
        {"conv_kernel_size": 0},
    ],
)
def test_every_kind_of_distance_equals_theirs(changes, terms, make_peer, ours_of):
    peer = make_peer("DebertaV2Model", pos_att_type=terms, **changes)
    model = ours_of(peer).model
    rows = long_texts([41, 1, 7, 64])
    with torch.no_grad():
        assert_close(model(ragged(rows)), torch.cat([peer(ids[None]).last_hidden_state[0] for ids, _ in rows]))


@pytest.mark.parametrize("terms", [["c2p"], ["p2c"], ["c2p", "p2c"]])
@pytest.mark.parametrize("longest", [-1, 7, 100])
def test_distances_of_the_first_version_equal_theirs(longest, terms, make_peer, ours_of):
    peer = make_peer("DebertaModel", pos_att_type=terms, max_relative_positions=longest, position_biased_input=True)
    model = ours_of(peer).model
    rows = long_texts([41, 1, 7, 64])
    with torch.no_grad():
        assert_close(model(ragged(rows)), torch.cat([peer(ids[None]).last_hidden_state[0] for ids, _ in rows]))


# --- ModernBERT -----------------------------------------------------------------------------------------------------


def test_the_mean_may_represent_a_text(make_peer, ours_of):
    peer = make_peer("ModernBertForSequenceClassification", classifier_pooling="mean", num_labels=5)
    model = ours_of(peer).model
    rows = long_texts([41, 1, 7])
    batch = ragged(rows)
    with torch.no_grad():
        ours = model.text_scores("classes", model.text_states(model(batch), batch))
        assert_close(ours, torch.cat([peer(ids[None]).logits for ids, _ in rows]))


# --- layouts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", ["longformer", "big_bird", "deberta", "deberta-v2", "modernbert"])
@pytest.mark.parametrize("head", ["classes", "spans"])
def test_padded_texts_see_the_same(family, side, head, make_model):
    """The form that is exported, of models with each kind of head: they choose who sees all."""
    if (family, head) == ("big_bird", "spans"):
        head = "tokens"
    model = make_model(family, {head: 3 if head == "tokens" else 2})
    rows = long_texts([61, 47, 30, 9], question=4)
    batch, size = ragged(rows), 64
    ids, mask = torch.zeros(4, size, dtype=torch.long), torch.zeros(4, size, dtype=torch.long)
    for row, (own, _) in enumerate(rows):
        real = slice(0, len(own)) if side == "right" else slice(size - len(own), size)
        ids[row, real], mask[row, real] = own, 1
    layout = Padded(mask)
    padded = Batch(ids.flatten(), torch.zeros_like(ids).flatten(), layout.position_ids, mask.sum(1))
    with torch.no_grad():
        ours = model(padded, model.encoder.build_context(padded, layout))[mask.bool().flatten()]
        assert_close(ours, model(batch))


def test_windows_by_blocks_equal_a_mask_and_its_gradients(make_model, monkeypatch):
    """ModernBERT's windows over a text long enough for blocks, and the same with a mask over the whole text."""
    from bothways.model import block_sparse

    model = make_model("modernbert", num_hidden_layers=2, max_position_embeddings=500).train()
    ids = np.random.default_rng(0).integers(5, 97, 430)
    batch = Batch.from_arrays(ids, np.zeros_like(ids), np.array([300, 30, 100]))
    assert block_sparse.is_faster(torch.zeros(1), (4, 4), 300, 0.0)
    weights_TH = torch.randn(430, 24)
    results = []
    for faster in (True, False):
        monkeypatch.setattr(block_sparse, "is_faster", lambda q, sides, *rest, faster=faster: faster and sides[0] > 0)
        model.zero_grad()
        hidden_TH = model(batch)
        (hidden_TH * weights_TH).sum().backward()
        results.append((hidden_TH.detach(), torch.cat([value.grad.flatten() for value in model.encoder.parameters()])))
    (ours, g_ours), (plain, g_plain) = results
    assert_close(ours, plain)
    assert float((g_ours - g_plain).norm() / g_plain.norm()) < 1e-5
    assert not torch.equal(ours, plain)  # they went two ways


@pytest.mark.parametrize("family", ["deberta", "deberta-v2", "modernbert", "longformer", "big_bird"])
def test_a_model_that_was_at_work_still_learns(family, make_model):
    """What is remembered from one batch to the next was first made where no gradient may pass."""
    model, batch = make_model(family), ragged(long_texts([53, 53, 31], seed=8))
    with torch.inference_mode():
        model(batch)
    model.train()
    model(batch).square().sum().backward()
    assert all(bool(layer.attention.qkv.weight.grad.any()) for layer in model.encoder.layers)


def test_a_bias_goes_with_rectangles_only(make_model):
    from bothways.model import layout

    model = make_model("deberta")
    batch = ragged(long_texts([7, 7]))
    assert isinstance(model.encoder.build_context(batch).layout, layout.Bucketed)
    cpu = torch.device("cpu")
    varlen = layout.Varlen(batch.lengths, cpu)
    x = torch.zeros(14, 3, 8)
    with pytest.raises(ValueError, match="bias"):
        varlen.attend(x, x, x, sides=(-1, -1), dropout=0.0, bias=lambda q, k: F.relu(q @ k.mT))
