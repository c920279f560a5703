"""Weight initialization, heads and poolers, positions, and config options (parity is tested elsewhere)."""

import numpy as np
import pytest
import torch

from bothways.base.errors import InputError
from bothways.model.attention import Positions, Rotary
from bothways.model.config import EncoderConfig
from bothways.model.encoder import build_positions
from bothways.model.model import Model, initialize
from bothways.model.states import compute_states
from bothways.text.batch import Batch

pytestmark = pytest.mark.usefixtures("global_seed")  # builds models, whose layers draw

CONFIG = EncoderConfig(
    vocab_size=97, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=64,
)  # fmt: skip


def initialized(config=CONFIG, heads=None, seed=0):
    model = Model(config, heads)
    initialize(model, config.initializer_range, torch.Generator().manual_seed(seed))
    return model


def batch_of(lengths, seed=0):
    ids = np.random.default_rng(seed).integers(5, 97, sum(lengths))
    return Batch.from_arrays(ids, np.zeros_like(ids), np.array(lengths))


# --- how weights begin ----------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_weights_whatever_was_drawn_before():
    first = initialized(heads={"masked_words": 0, "next_sentence": 2}).state_dict()
    torch.rand(17)
    second = initialized(heads={"masked_words": 0, "next_sentence": 2}).state_dict()
    other = initialized(heads={"masked_words": 0, "next_sentence": 2}, seed=1).state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert not torch.equal(first["encoder.embeddings.words.weight"], other["encoder.embeddings.words.weight"])


def test_weights_begin_normal_within_two_deviations_biases_at_0_norms_at_1():
    model = initialized(CONFIG.replace(hidden_size=120, initializer_range=0.05), {"masked_words": 0, "tokens": 9})
    for name, value in model.named_parameters():
        if "norm" in name:
            assert set(value.unique().tolist()) == {1.0 if name.endswith("weight") else 0.0}, name
        elif name.endswith("bias"):
            assert not value.any(), name
        else:
            assert value.abs().max() <= 0.1, name
            assert value.std().item() == pytest.approx(0.044, rel=0.1), name  # 0.88 of 0.05, since it is cut
    words = model.encoder.embeddings.words.weight
    assert not torch.equal(words[:64], model.encoder.embeddings.positions.weight)


# --- heads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "pooled"),
    [
        ({}, False),
        ({"masked_words": 0}, False),
        ({"tokens": 9}, False),
        ({"spans": 2}, False),
        ({"next_sentence": 2}, True),
        ({"classes": 5, "tokens": 9}, True),
    ],
)
def test_a_pooler_is_built_if_a_head_reads_it(heads, pooled):
    model = Model(CONFIG, heads)
    assert (model.pooler is not None) == pooled
    assert set(model.heads) == set(heads)
    assert Model(CONFIG, heads, pooler=True).pooler is not None


def test_heads_have_the_requested_number_of_outputs():
    model = initialized(heads={"masked_words": 0, "next_sentence": 2, "classes": 5, "tokens": 9, "spans": 2})
    x_MH = torch.randn(7, 24)
    assert model.word_scores(x_MH).shape == (7, 97)
    assert model.text_scores("next_sentence", x_MH).shape == (7, 2)
    assert model.text_scores("classes", x_MH).shape == (7, 5)
    assert model.token_scores("tokens", x_MH).shape == (7, 9)
    assert model.token_scores("spans", x_MH).shape == (7, 2)


def test_vocabulary_scores_share_the_token_table():
    model = initialized(heads={"masked_words": 0})
    assert not any(value.shape == (97, 24) for value in model.heads.parameters())
    x_MH = torch.randn(3, 24)
    before = model.word_scores(x_MH).detach()
    with torch.no_grad():
        model.encoder.embeddings.words.weight[41] += 1.0
    changed = (model.word_scores(x_MH).detach() != before).any(0).nonzero().flatten().tolist()
    assert changed == [41]


def test_dropout_before_a_head_is_the_classifiers_own_and_none_for_spans():
    config = CONFIG.replace(classifier_dropout=0.3, hidden_dropout_prob=0.2)
    model = Model(config, {"classes": 5, "tokens": 9, "spans": 2, "next_sentence": 2})
    rates = {name: head.dropout.rate for name, head in model.heads.items()}
    assert rates == {"classes": 0.3, "tokens": 0.3, "spans": 0.0, "next_sentence": 0.0}
    assert Model(config.replace(classifier_dropout=None), {"classes": 5}).heads["classes"].dropout.rate == 0.2


# --- dropout in the whole -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_is_drawn_anew_in_training_fixed_by_the_seed_and_absent_outside(place):
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = initialized(CONFIG.replace(**{**none, place: 0.4}, initializer_range=0.3)).train()
    batch = batch_of([13, 13, 7])

    def run(seed):
        torch.manual_seed(seed)
        return model(batch).detach()

    assert torch.equal(run(1), run(1))
    assert float((run(1) - run(2)).abs().max()) > 0.01
    model.eval()
    assert torch.equal(run(1), run(2))


def at(place):
    """A batch of one token that stands there."""
    return Batch(torch.tensor([7]), torch.tensor([0]), torch.tensor([place]), torch.tensor([1]))


# --- positions ------------------------------------------------------------------------------------------------------


def test_rotary_scores_depend_on_the_distance_alone():
    rotary = Rotary(8, 100.0)
    q, k = (torch.randn(1, 1, 8, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))

    def score(place, other):
        turned_q, _ = rotary.rotate(q, q, rotary.prepare(at(place), None, torch.float32))
        _, turned_k = rotary.rotate(k, k, rotary.prepare(at(other), None, torch.float32))
        return float((turned_q * turned_k).sum())

    assert score(0, 0) == pytest.approx(float((q * k).sum()), abs=1e-6)
    assert score(3, 8) == pytest.approx(score(20, 25), abs=1e-5)
    assert abs(score(3, 8) - score(8, 3)) > 1e-3


def test_rotary_turns_pairs_by_the_formula():
    rotary, place = Rotary(4, 10.0), 3.0
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    turned, _ = rotary.rotate(x, x, rotary.prepare(at(3), None, torch.float32))
    angles = place * np.array([1.0, 10.0**-0.5])
    left, right = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    expected = [*(left * np.cos(angles) - right * np.sin(angles)), *(right * np.cos(angles) + left * np.sin(angles))]
    assert turned.flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_each_kind_of_layer_has_its_own_wavelengths():
    config = CONFIG.replace(
        position_embedding="rotary",
        attention_window=4,
        full_attention_every=2,
        rotary_theta=700.0,
        rotary_theta_window=30.0,
    )
    model = Model(config)
    assert [layer.attention.sides for layer in model.encoder.layers] == [(-1, -1), (4, 4), (-1, -1)]
    assert [layer.attention.positions.theta for layer in model.encoder.layers] == [700.0, 30.0, 700.0]
    assert type(build_positions(CONFIG, 0, {})) is Positions


def test_without_positions_order_would_not_matter():
    """A check of the checks: only learned positions distinguish 'a b' from 'b a'."""
    model = initialized(CONFIG.replace(initializer_range=0.3)).eval()
    batch = Batch.from_arrays(np.array([7, 8, 9]), np.zeros(3, int), np.array([3]))
    swapped = Batch.from_arrays(np.array([7, 9, 8]), np.zeros(3, int), np.array([3]))
    with torch.no_grad():
        assert (model(batch)[0] - model(swapped)[0]).abs().max() > 1e-3
        model.encoder.embeddings.positions.weight.zero_()
        assert (model(batch)[0] - model(swapped)[0]).abs().max() < 1e-5


# --- the batch ------------------------------------------------------------------------------------------------------


def test_a_batch_counts_positions_and_segments_in_each_text(tokenizer):
    encodings = [tokenizer.encode("cat"), tokenizer.encode("the cat", "dog ran on"), tokenizer.encode("", "")]
    batch = Batch.from_encodings(encodings)
    assert batch.lengths.tolist() == [3, 8, 3] and len(batch) == 3 and batch.num_tokens == 14
    assert batch.input_ids.tolist() == [id for encoding in encodings for id in encoding.ids]
    assert batch.segment_ids.tolist() == [kind for encoding in encodings for kind in encoding.segment_ids]
    assert batch.position_ids.tolist() == [0, 1, 2, *range(8), 0, 1, 2]


def test_a_window_of_a_pair_has_its_segments(tokenizer):
    windows = tokenizer.encode_windows("the cat", "dog " * 100, size=80, overlap=10)
    assert Batch.from_encodings(windows).segment_ids.tolist() == [
        kind for window in windows for kind in window.segment_ids
    ]


@pytest.mark.parametrize("head", ["classes", "tokens"])
def test_heads_score_in_float32_if_the_encoder_computes_in_half_precision(make_model, head):
    model = make_model("bert", {head: 3}).bfloat16().eval()
    x_TH = torch.randn(50, model.config.hidden_size, generator=torch.Generator().manual_seed(0)).bfloat16()
    scores = model.heads[head](x_TH)
    output = model.heads[head].output
    assert scores.dtype == torch.float32
    assert torch.equal(scores, torch.nn.functional.linear(x_TH.float(), output.weight.float(), output.bias.float()))
    assert not torch.equal(scores, scores.bfloat16().float())


def test_states_of_layers_are_refused_for_two_one_way_halves(make_model):
    model = make_model("bert", direction="halves", num_attention_heads=4, embedding_size=12).eval()
    with pytest.raises(InputError, match="two one-way halves"):
        compute_states(model, batch_of([5]))


def test_the_state_of_a_number_is_the_input_of_that_layer(make_model):
    model, batch = make_model("bert").eval(), batch_of([5, 3])
    with torch.inference_mode():
        states, context = compute_states(model, batch), model.encoder.build_context(batch)
        for number, layer in enumerate(model.encoder.layers):
            assert torch.allclose(layer(states.layers[number], context), states.layers[number + 1], atol=1e-6)
        assert torch.equal(states.layers[0], model.encoder.embeddings(batch)) and len(states.layers) == 4
