"""Statements behind texts, in torch: what numpy computes, without regard to other statements, and with gradients."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bothways.base.errors import InputError
from bothways.core.layout import is_linear
from bothways.inference.backends.forward import Bert
from bothways.inference.backends.statements import Adapter
from bothways.inference.backends.statements import read_statements as read_in_numpy
from bothways.model.checkpoint.contents import new_model
from bothways.model.config import EncoderConfig
from bothways.model.int8 import replace_linears
from bothways.model.int8_training import int8_linear, linears_of
from bothways.model.statement_head import StatementHead
from bothways.model.statements import StatementModel, StatementTensors, read_statements, states_of
from bothways.text.statements import StatementBatch

CONFIG = EncoderConfig(
    vocab_size=101,
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=160,
    max_position_embeddings=128,
)
LENGTHS = {40: [3, 5, 3, 1, 9], 1: [], 17: [2, 33, 2], 90: [7] * 12}  # of texts, and of the statements behind each


@pytest.fixture(scope="module")
def model():
    return new_model(CONFIG, {}, seed=0).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def adapted():
    """An adapter that changes what it reads."""
    statements = StatementModel(CONFIG, 8)
    generator = torch.Generator().manual_seed(1)
    for name, values in statements.named_parameters():
        if name.endswith("up"):
            torch.nn.init.normal_(values, std=0.3, generator=generator)
        if name == "gates":
            torch.nn.init.normal_(values, generator=generator)
    return statements.requires_grad_(False)


def make_batch():
    random = np.random.default_rng(0)
    texts = [random.integers(0, 101, length).tolist() for length in LENGTHS]
    statements = [[random.integers(0, 101, n).tolist() for n in lengths] for lengths in LENGTHS.values()]
    return texts, statements


def int8_copy(model):
    """The model with int8 layers for inputs between -4 and 4."""
    linears = {
        name: int8_linear(linear, *(torch.full((linear.in_features,), bound) for bound in (-4.0, 4.0)))
        for name, linear in linears_of(model).items()
    }
    return replace_linears(model, linears)


def in_numpy(model, batch, head):
    parameters = {
        name: values.numpy().T.copy() if is_linear(name, values.shape) else values.numpy()
        for name, values in model.state_dict().items()
    }
    words = parameters["encoder.embeddings.words.weight"]
    bert = Bert(CONFIG, parameters, SimpleNamespace(rows=lambda ids: words[ids].copy()))
    adapter = head and Adapter.of_head(head)
    return read_in_numpy(bert, batch, adapter)


@pytest.mark.parametrize("is_adapted", [False, True])
def test_states_are_those_of_numpy(model, adapted, is_adapted):
    batch = StatementBatch.of(*make_batch())
    states = states_of(model.encoder, batch, adapted if is_adapted else None)
    expected = in_numpy(model, batch, adapted.to_head() if is_adapted else None)
    np.testing.assert_allclose(states.numpy(), expected, rtol=0, atol=2e-5)


def states_of_statement(encoder, adapter, text, statements, place):
    batch = StatementBatch.of([text], [statements])
    return states_of(encoder, batch, adapter).split(batch.lengths_P.tolist())[1 + place]


@pytest.mark.parametrize("number_format", ["float32", "bfloat16", "int8"])
def test_a_statement_does_not_depend_on_others(adapted, number_format):
    model = new_model(CONFIG, {}, seed=0).eval().requires_grad_(False)
    if number_format == "bfloat16":
        model = model.bfloat16()
    texts, statements = make_batch()
    if number_format == "int8":
        model = int8_copy(model)

    text = texts[0]
    several = statements[0]
    whole = StatementBatch.of(texts, statements)
    parts = states_of(model.encoder, whole, adapted).split(whole.lengths_P.tolist())
    for place, statement in enumerate(several):
        alone = states_of_statement(model.encoder, adapted, text, [statement], 0)
        reverse = states_of_statement(model.encoder, adapted, text, several[::-1], len(several) - 1 - place)
        assert torch.equal(reverse, alone)
        assert torch.equal(parts[1 + place], alone)


def test_gradients_reach_the_adapter_and_the_head_alone(model):
    statements = StatementModel(CONFIG, 4)
    batch = StatementBatch.of(*make_batch())
    tensors = StatementTensors.of(batch, torch.device("cpu"))
    x_TH, x_UH = read_statements(model.encoder, tensors, statements)
    assert not x_TH.requires_grad

    vectors_PH = torch.stack([x_LH.mean(0) for x_LH in x_UH.split(tensors.statements.lengths.tolist())])
    texts_PH = x_TH[:1].expand(len(vectors_PH), -1)
    statements.scores(vectors_PH, texts_PH).sum().backward()
    # At the start `up` is zero, so that `down` has no gradient yet.
    reached = {name for name, values in statements.named_parameters() if values.grad is not None}
    assert reached == {name for name, _ in statements.named_parameters()}
    assert all(values.grad is None for values in model.parameters())
    assert any(values.grad.abs().max() > 0 for name, values in statements.named_parameters() if name.endswith("up"))


def test_a_head_is_read_as_it_was_written(adapted, tmp_path):
    head = adapted.to_head()
    head.write(tmp_path)
    read = StatementHead.read(tmp_path / "statements.safetensors", 64)
    assert read.products.keys() == head.products.keys()
    assert read.cosine_scale == head.cosine_scale
    np.testing.assert_array_equal(read.projection_HH, head.projection_HH.astype(np.float16))

    again = StatementModel.of_head(CONFIG, read).to_head()
    for name, products in read.products.items():
        for one, other in zip(again.products[name], products, strict=True):
            np.testing.assert_array_equal(one, other)

    file = tmp_path / "statements.safetensors"
    with pytest.raises(InputError, match="hidden size"):
        StatementHead.read(file, 128)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match="broken"):
        StatementHead.read(file, 64)


def test_the_head_computes_in_numpy_what_it_computes_in_torch(adapted):
    random = np.random.default_rng(3)
    texts, statements = random.standard_normal((2, 5, 64), np.float32)
    expected = adapted.scores(torch.from_numpy(texts[:1]).expand(5, -1), torch.from_numpy(statements))
    scores = adapted.to_head().scores(texts[0], statements)
    np.testing.assert_allclose(scores, expected.numpy(), rtol=1e-4, atol=1e-4)
    assert np.array_equal(adapted.to_head().scores(texts[0], statements[2:3]), scores[2:3])


def test_at_the_start_the_score_is_the_cosine_of_the_vectors():
    model = StatementModel(CONFIG, 4)
    random = np.random.default_rng(3)
    texts, statements = torch.from_numpy(random.standard_normal((2, 5, 64), np.float32))
    cosines = torch.nn.functional.cosine_similarity(texts, statements)
    torch.testing.assert_close(model.scores(texts, statements), 10 * cosines - 4)
