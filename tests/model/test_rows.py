"""The last layer computed for the tokens that are read: states, losses and gradients as if it were computed for
all, for every kind of layer, objective and head; in numpy too. Sizes odd and distinct: H=24, V=97."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bothways.inference.backends.forward import Bert
from bothways.model.kernels import append_dummy_rows
from bothways.model.prepacked import can_prepack, prepack
from bothways.model.rows import HiddenRows, pooled_rows, read_states, text_rows
from bothways.tasks import forward
from bothways.tasks.pooling import pool_rows
from bothways.text.batch import Batch
from bothways.training.pretraining.modules import ReplacedTokenModel
from bothways.training.pretraining.objectives import OBJECTIVES, build_objective

FAMILIES = [
    "bert",
    "electra",
    "distilbert",
    "albert",
    "roberta",
    "modernbert",
    "longformer",
    "big_bird",
    "deberta",
    "deberta-v2",
]
LENGTHS = np.array([3, 5, 5, 11, 29, 40])
MASKED = [1, 4, 9, 15, 16, 30, 60, 61, 62, 80]
needs_products = pytest.mark.skipif(not can_prepack(), reason="oneDNN has no bf16 products for this processor")


def batch_of(lengths=LENGTHS, masked=MASKED):
    generator = np.random.default_rng(0)
    ids = generator.integers(5, 97, lengths.sum())
    batch = Batch.from_arrays(ids, np.zeros_like(ids), lengths)
    masked_M = torch.tensor(masked, dtype=torch.long)
    return replace(
        batch,
        masked_positions=masked_M,
        masked_labels=batch.input_ids[masked_M],
        masked_draws=torch.linspace(0.05, 0.95, len(masked)),
        labels=torch.arange(len(lengths)) % 2,
    )


def compute_gradients(module, losses):
    module.zero_grad()
    sum(value for value, _ in losses.values()).backward()
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def assert_equal(ours, theirs):
    """Numbers and gradients within 1e-6 of the largest of each tensor."""
    assert ours.keys() == theirs.keys() and ours
    for name, value in ours.items():
        largest = max(1.0, float(theirs[name].abs().max()))
        assert (value - theirs[name]).abs().max() <= 1e-6 * largest, name


@pytest.mark.parametrize("family", FAMILIES)
def test_the_states_of_the_rows_are_the_states_of_all_tokens(family, make_model):
    model = make_model(family).eval()
    batch = batch_of()
    rows_R = torch.tensor([62, 1, 1, 0, 92])
    with torch.no_grad():
        assert torch.allclose(model(batch, rows_R=rows_R), model(batch)[rows_R], atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert", "deberta"])
def test_losses_and_gradients_of_masked_words_are_the_same(family, make_model):
    model = make_model(family, {"masked_words": 0, "next_sentence": 2}).train()
    check_objective(build_objective("masked", "next"), model)


@pytest.mark.parametrize("name", list(OBJECTIVES.entries))
def test_losses_and_gradients_of_every_objective_are_the_same(name, make_model, global_seed):
    family = "deberta" if name == "enhanced" else "bert"
    objective = build_objective(name)
    model = make_model(family, objective.heads)
    if name in ("forward", "halves"):
        assert objective.rows(batch_of()) is None
        return
    check_objective(objective, model)


def check_objective(objective, model):
    batch = batch_of()
    module = objective.module(model, seed=0).train()
    losses = objective.losses(module, batch, objective.forward(module, batch))
    gradients = compute_gradients(module, losses)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(objective), "rows", lambda self, batch: None)
        if isinstance(module, ReplacedTokenModel):
            plain = module.generator.forward
            patch.setattr(module.generator, "forward", lambda batch, rows_R: plain(batch)[rows_R])
        outputs = objective.forward(module, batch)
        assert not isinstance(outputs, HiddenRows)
        expected = objective.losses(module, batch, outputs)
        expected_gradients = compute_gradients(module, expected)

    assert_equal(
        {name: value.detach() for name, (value, _) in losses.items()},
        {name: value.detach() for name, (value, _) in expected.items()},
    )
    assert_equal(gradients, expected_gradients)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_text_vectors_and_their_gradients_are_the_same(pooling, make_model):
    model = make_model("bert").train()
    batch = batch_of()
    results = []
    for rows in (pooled_rows(pooling, batch), None):
        states = read_states(model, batch, rows)
        bounds = [(0, length) for length in LENGTHS.tolist()]
        vectors_NH = pool_rows(pooling)(states, batch, bounds)
        gradients = compute_gradients(model, {"vectors": (vectors_NH.square().sum(), 1)})
        results.append({"vectors": vectors_NH.detach(), **gradients})
    assert_equal(*results)


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_scores_of_a_classifier_and_their_gradients_are_the_same(pooling, make_model, monkeypatch):
    model = make_model("bert", {"classes": 3}).train()
    model.config = model.config.replace(pooling=pooling)
    batch = replace(batch_of(), text_of_window=torch.tensor([0, 1, 1, 2, 3, 4]), labels=torch.arange(5))
    results = []
    for is_plain in (False, True):
        if is_plain:
            monkeypatch.setattr(forward, "text_rows", lambda config, batch: None)
        scores_NC = forward.text_scores(model, batch)
        gradients = compute_gradients(model, {"scores": (scores_NC.square().sum(), 1)})
        results.append({"scores": scores_NC.detach(), **gradients})
    assert_equal(*results)


def test_a_product_that_is_no_plain_one_stays_whole(make_model):
    class Watched(torch.nn.Linear):
        """Stands for adapters and int8, which have a `forward` of their own."""

        def forward(self, x_TI):
            counts.append(len(x_TI))
            return super().forward(x_TI)

    counts = []
    model = make_model("bert").eval()
    model.encoder.layers[-1].attention.qkv.__class__ = Watched
    rows_R = torch.tensor([3, 7])
    with torch.no_grad():
        assert torch.allclose(model(batch_of(), rows_R=rows_R), model(batch_of())[rows_R], atol=1e-6, rtol=0)
    assert counts == [LENGTHS.sum()] * 2


def test_hooks_see_all_tokens(make_model):
    model = make_model("bert").eval()
    seen = []
    part = model.encoder.layers[-1].feed_forward.output
    handle = part.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    rows_R = torch.tensor([2])
    assert len(model(batch_of(), rows_R=rows_R)) == 1
    handle.remove()
    assert seen == [LENGTHS.sum()]


def test_feed_forward_is_computed_for_the_rows_alone(make_model, monkeypatch):
    model = make_model("bert").eval()
    seen = []
    last = model.encoder.layers[-1].feed_forward
    plain = last.forward
    monkeypatch.setattr(last, "forward", lambda x_TH: seen.append(len(x_TH)) or plain(x_TH))
    model(batch_of(), rows_R=torch.tensor([2, 5, 6]))
    assert seen == [3]


def test_no_row_has_no_state_and_a_gradient_of_zero(make_model):
    model = make_model("bert").train()
    states_0H = model(batch_of(), rows_R=torch.tensor([], dtype=torch.long))
    assert states_0H.shape == (0, 24)
    states_0H.sum().backward()
    assert not model.encoder.layers[0].feed_forward.inner.weight.grad.any()


def test_a_token_that_nobody_was_said_to_read_is_refused():
    states = HiddenRows(torch.ones(2, 3), torch.tensor([4, 2]), num_tokens=5)
    with pytest.raises(IndexError):
        states[torch.tensor([4, 3])]


@needs_products
@pytest.mark.parametrize("family", ["bert", "albert", "modernbert", "deberta"])
def test_packed_rows_have_the_same_bits_in_any_company(family, make_model):
    fast = prepack(make_model(family).eval().bfloat16())
    batch = batch_of()
    rows_N = batch.first_tokens
    alone = batch_of(LENGTHS[:1], [])
    with torch.inference_mode():
        all_NH = fast(batch)[rows_N]
        rows_NH = fast(batch, rows_R=rows_N)
        alone = replace(alone, input_ids=batch.input_ids[:3])
        alone_NH = fast(alone, rows_R=alone.first_tokens)
    # Other products than those of all tokens, so rounded differently here and there.
    assert (rows_NH - all_NH).float().norm() < 0.01 * all_NH.float().norm()
    assert torch.equal(alone_NH[0], rows_NH[0])


def test_rows_are_filled_up_as_tokens_are():
    half = torch.zeros(1, dtype=torch.bfloat16)
    counts = [len(append_dummy_rows(torch.arange(n), half)) for n in (1, 16, 17, 256, 257)]
    assert counts == [16, 16, 32, 256, 320]
    assert len(append_dummy_rows(torch.arange(17), half.float())) == 17


def test_one_way_models_read_the_last_token(make_model):
    config = make_model("bert").config.replace(num_attention_heads=2, embedding_size=12)
    batch = batch_of()
    assert torch.equal(text_rows(config.replace(direction="forward"), batch), batch.last_tokens)
    assert text_rows(config.replace(direction="halves"), batch) is None
    assert text_rows(config.replace(pooling="mean"), batch) is None


@pytest.mark.parametrize("masked", [[0, 3, 8, 13, 24, 53], [4, 15, 16, 92], [91, 92], []])
def test_numpy_has_the_states_of_the_same_rows(masked, make_model):
    model = make_model("bert").eval()
    batch = batch_of(masked=masked)
    parameters = {}
    for name, value in model.state_dict().items():
        is_linear = value.dim() == 2 and "embeddings" not in name
        parameters[name] = np.ascontiguousarray(value.numpy().T if is_linear else value.numpy())
    table = parameters["encoder.embeddings.words.weight"]
    bert = Bert(model.config, parameters, SimpleNamespace(rows=lambda ids_T: table[ids_T]))

    tokens = batch.input_ids.numpy(), batch.segment_ids.numpy(), LENGTHS.tolist()
    ours_RH = bert(*tokens, np.array(masked, np.int64))
    assert np.allclose(ours_RH, bert(*tokens)[masked], atol=1e-6, rtol=0)
    with torch.no_grad():
        assert np.allclose(ours_RH, model(batch, rows_R=batch.masked_positions).numpy(), atol=1e-5, rtol=0)


def test_a_training_forward_pass_without_gradients_has_dropout(make_model, global_seed):
    model = make_model("bert").train()
    for layer in model.encoder.layers[:-1]:
        layer.eval()
    model.encoder.layers[-1].attention.dropout = 0.5
    batch = batch_of()
    with torch.no_grad():
        vectors = [model(batch, rows_R=batch.first_tokens) for _ in range(2)]
    assert not torch.equal(*vectors)
