"""Packed layers against plain ones: no further from the float32 result, for every kind of layer; and only where they
are of use."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from bothways.model.prepacked import PrepackedLinear, can_prepack, prepack
from bothways.text.batch import Batch

needs_products = pytest.mark.skipif(not can_prepack(), reason="oneDNN has no bf16 products for this processor")
LENGTHS = np.array([3, 5, 5, 11, 29, 40])


def some_batch(seed=0):
    ids = np.random.default_rng(seed).integers(5, 97, LENGTHS.sum())
    return Batch.from_arrays(ids, np.zeros_like(ids), LENGTHS)


def distance(one, other):
    return float((one.float() - other).norm() / other.norm())


@needs_products
@pytest.mark.parametrize(
    "family",
    [
        "bert",
        "electra",
        "albert",
        "roberta",
        "distilbert",
        "modernbert",
        "longformer",
        "big_bird",
        "deberta",
        "deberta-v2",
    ],
)
def test_packed_layers_are_as_near_to_the_float32_result_as_plain_ones(family, make_model):
    exact = make_model(family).eval()
    half = deepcopy(exact).bfloat16()
    fast = prepack(half)
    assert fast is not half
    with torch.inference_mode():
        expected_TH, plain_TH, packed_TH = exact(some_batch()), half(some_batch()), fast(some_batch())
    assert packed_TH.dtype == torch.bfloat16 and packed_TH.shape == plain_TH.shape
    assert 0 < distance(packed_TH, expected_TH) < 1.2 * distance(plain_TH, expected_TH)


@needs_products
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "relu", "silu"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_product_with_what_follows_it_is_rounded_once(activation, bias, global_seed):
    generator = torch.Generator().manual_seed(0)
    linear = torch.nn.Linear(17, 35, bias=bias).bfloat16()
    x_TI, residual_TO = (torch.randn(23, size, generator=generator).bfloat16() for size in (17, 35))
    plain_TO = torch.nn.functional.linear(
        x_TI.double(), linear.weight.double(), linear.bias.double() if bias else None
    ).detach()
    forms = {
        None: lambda x: x, "gelu": torch.nn.functional.gelu, "relu": torch.relu, "silu": torch.nn.functional.silu,
        "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    }  # fmt: skip
    for actual, expected in (
        (PrepackedLinear(linear.weight, linear.bias, activation)(x_TI), forms[activation](plain_TO)),
        (PrepackedLinear(linear.weight, linear.bias)(x_TI, residual_TO), plain_TO + residual_TO),
    ):
        # Half a unit in the last of eight digits, and what float32 sums and oneDNN's GELU leave.
        assert float(((actual - expected).abs() - expected.abs() / 256).max()) < 1e-3


def test_other_numbers_and_machines_are_left_to_the_model_itself(make_model, monkeypatch):
    model = make_model("bert")
    assert prepack(model) is model
    half = deepcopy(model).bfloat16()
    for owner, name in ((torch.backends.mkldnn, "is_available"), (torch.ops.mkldnn, "_is_mkldnn_bf16_supported")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, lambda: False)
            assert prepack(half) is half
