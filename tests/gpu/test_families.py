"""Every family on a GPU: hidden states and gradients beside float64 on a CPU; texts do not depend on their batch."""

import pytest
import torch

import bothways
from bothways.model import kernels
from bothways.model.layout import choose_layout
from tests.families import ENCODERS
from tests.gpu.oracle import (
    HALVES,
    LENGTHS,
    batch_of,
    copy_to,
    cosines,
    exact,
    flat,
    gradients,
    hidden_states,
)

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, *HALVES]
# Least cosine of a token. Real models reach 0.9999 (the packaged one below). In these, of 24 dimensions and with large
# random weights, rounding to the 8 bits of bfloat16 moves single tokens further: to 0.99986 on a CPU.
LEAST = {torch.float32: 1 - 1e-9, torch.float16: 0.9999, torch.bfloat16: 0.999}
TEXTS = [
    "The capital of France is Paris.",
    "Why?",
    "An otter slid down the muddy bank into the water, and its young followed one after the other.",
    " ".join(["The committee met on Tuesday to discuss the budget of the coming year."] * 12),
]


@pytest.mark.parametrize("family", ENCODERS)
def test_hidden_states_in_float32_equal_those_of_a_cpu(family, gpu, make_model):
    model, batch = make_model(family), batch_of()
    actual = hidden_states(copy_to(model, gpu), batch)
    assert float((actual - hidden_states(exact(model), batch)).abs().max()) < 1e-4


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("family", ENCODERS)
def test_hidden_states_in_half_precision_are_close(family, dtype, gpu, make_model):
    model, batch = make_model(family), batch_of()
    actual = hidden_states(copy_to(model, gpu, dtype), batch)
    assert float(cosines(actual, hidden_states(exact(model), batch)).min()) > LEAST[dtype]


@pytest.mark.parametrize("family", ENCODERS)
def test_gradients_in_float32_equal_those_of_a_cpu(family, gpu, make_model):
    """Of each parameter; a gradient that is nearly 0 (that of biases of keys) is compared with the whole one."""
    model, batch = make_model(family, {"masked_words": 0}).train(), batch_of()
    actual, expected = gradients(copy_to(model, gpu), batch), gradients(exact(model), batch)
    least = 1e-4 * float(flat(expected).norm())
    distances = {
        name: float((actual[name] - value).norm()) / max(float(value.norm()), least) for name, value in expected.items()
    }
    assert actual.keys() == expected.keys() and max(distances.values()) < 1e-4, distances


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("family", ENCODERS)
def test_gradients_in_half_precision_point_in_the_same_direction(family, dtype, gpu, make_model):
    model, batch = make_model(family, {"masked_words": 0}).train(), batch_of()
    actual, expected = gradients(copy_to(model, gpu, dtype), batch), gradients(exact(model), batch)
    assert float(cosines(flat(actual), flat(expected))) > 0.999


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ENCODERS)
def test_a_text_has_the_hidden_states_that_it_has_alone(family, dtype, gpu, make_model):
    """Texts of very different lengths, and tokens of other texts that a wrong offset would mix in."""
    model = copy_to(make_model(family), gpu, dtype)
    together = hidden_states(model, batch_of()).split(list(LENGTHS))
    for index, (length, states) in enumerate(zip(LENGTHS, together, strict=True)):
        alone = hidden_states(model, batch_of([(index, length)]))
        assert float(cosines(states, alone).min()) > LEAST[dtype], (index, length)
        if dtype is torch.float32:
            assert float((states - alone).abs().max()) < 1e-4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", [(60, 40, 30), (60, 60, 55, 60, 60)], ids=["130 tokens", "295 tokens"])
@pytest.mark.parametrize("family", ["bert", "modernbert", "longformer", "big_bird", "deberta-v2"])
def test_token_counts_that_are_rounded_up_do_not_change_results(family, lengths, dtype, gpu, make_model):
    """Where a dummy text fills up the batch (`append_dummy_text`), it adds no token to the result."""
    heads = {"classes": 3} if family == "longformer" else {}  # with [CLS] as a global token
    model, batch = copy_to(make_model(family, heads), gpu, dtype), batch_of(lengths)
    padded = kernels.append_dummy_text(batch, model.encoder.embeddings.words.weight)
    assert padded is batch or (padded.num_tokens % 16 == 0 and padded.lengths[:-1].tolist() == list(lengths))
    states = hidden_states(model, batch)
    assert len(states) == sum(lengths)
    alone = torch.cat([hidden_states(model, batch_of([pair])) for pair in enumerate(lengths)])
    assert float(cosines(states, alone).min()) > LEAST[dtype]


@pytest.mark.parametrize("dtype", HALVES)
def test_the_texts_of_a_batch_move_a_vector_by_no_more_than_rounding(dtype, gpu, make_model):
    """Products of another number of rows may be summed in another order, so vectors are not equal to the last bit."""
    model = copy_to(make_model("bert"), gpu, dtype)
    one, other = (hidden_states(model, batch_of([(0, 29), *rest]))[:29] for rest in ([(1, 60)], [(2, 7), (3, 50)]))
    scale = float(one.abs().max())
    difference = float((one - other).abs().max()) / scale
    print(f"greatest difference of a text in two batches, {dtype}: {difference:.1e} of the largest value")
    assert difference < 1e-2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_text_vectors_of_the_packaged_model_in_half_precision_are_those_of_float32(dtype, gpu):
    expected = torch.from_numpy(bothways.load("bothways-en", dtype="float32", device="cpu").embed(TEXTS))
    actual = torch.from_numpy(bothways.load("bothways-en", dtype=dtype, device=str(gpu)).embed(TEXTS))
    assert float(cosines(actual, expected).min()) > 0.9999


def test_half_precision_on_a_gpu_takes_the_ragged_kernel(gpu, needs_cuda, make_model):
    needs_cuda("the kernel for texts of different lengths is CUDA's")
    kinds = {dtype: type(choose_layout(batch_of().lengths, gpu, dtype)).__name__ for dtype in DTYPES}
    assert [dtype for dtype, kind in kinds.items() if kind == "Varlen"] == HALVES
