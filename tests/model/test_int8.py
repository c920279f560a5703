"""int8 layers equal integer arithmetic, keep their scales, and survive saving.

Sizes are odd and distinct: T=13, I=29, O=17.
"""

from copy import deepcopy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bothways.base.errors import InputError
from bothways.model import int8
from bothways.model import int8_training as calibrate
from bothways.model.int8 import (
    POST_OPERATIONS,
    ROWS,
    Int8Linear,
    Quantization,
    int8_state_dict,
    is_int8,
    load_int8_state_dict,
    quantize_symmetric,
    replace_linears,
)
from bothways.model.int8_training import candidates, int8_linear, observe
from bothways.text.batch import Batch
from tests.families import ENCODERS

TEXTS = ["the cat sat on the mat", "a dog ran", "cats and dogs and mats", "b", "the dogs sat and ran on and on"]


@pytest.fixture
def linear():
    torch.manual_seed(1)
    return nn.Linear(29, 17)


@pytest.fixture(name="x_TI")
def inputs():
    return torch.randn(13, 29, generator=torch.Generator().manual_seed(2)) * 3


def made_of(linear, x_TI, strength=0.0):
    return int8_linear(linear, x_TI.amin(0), x_TI.amax(0), strength)


def by_integers(made, integers_TI):
    """The definition, in numpy's 64-bit integers."""
    inputs_TI = integers_TI.numpy().astype(np.int64) - int(made.input_zero)
    sums_TO = inputs_TI @ made.weight_int8.numpy().astype(np.int64).T
    return sums_TO * (made.weight_scale.double() * made.input_scale.double()).numpy() + made.bias.double().numpy()


@pytest.mark.parametrize("strength", [0.0, 0.7])
def test_products_equal_integer_arithmetic(linear, x_TI, strength):
    made = made_of(linear, x_TI, strength)
    integers_TI = made.quantize(x_TI)
    found_TO = made.product(integers_TI, torch.float32)
    np.testing.assert_allclose(found_TO.numpy(), by_integers(made, integers_TI), rtol=1e-5, atol=1e-5)
    assert (found_TO - linear(x_TI)).abs().max() < 0.05 * linear(x_TI).abs().max()


def test_extremes_neither_overflow_nor_saturate_on_the_way():
    made = Int8Linear(3077, 5)
    made.weight_int8.copy_(torch.tensor([127, -127, 127, -127, 1])[:, None].expand(-1, 3077))
    integers_TI = torch.tensor([[255], [0], [255]], dtype=torch.uint8).expand(-1, 3077).contiguous()
    found_TO = made.product(integers_TI, torch.float32)
    # Saturation would lose half; sums above 2**24 are rounded where oneDNN adds in float32 (AVX2 alone).
    np.testing.assert_allclose(found_TO.numpy(), by_integers(made, integers_TI), rtol=1e-4)


@pytest.mark.parametrize("activation", ["", *POST_OPERATIONS])
def test_devices_without_instructions_for_int8_get_the_same(linear, x_TI, activation, monkeypatch):
    made = made_of(linear, x_TI)
    integers_TI, to = made.quantize(x_TI), Quantization(0.02, 11)
    wide = made.product(integers_TI, torch.float32, activation)
    narrow = made.product(integers_TI, torch.uint8, activation, to)
    monkeypatch.setattr(int8, "fast_int8", lambda device: False)
    torch.testing.assert_close(made.product(integers_TI, torch.float32, activation), wide, rtol=1e-4, atol=1e-4)
    slow = made.product(integers_TI, torch.uint8, activation, to)
    assert slow.dtype is narrow.dtype is torch.uint8
    assert (slow.int() - narrow.int()).abs().max() <= 1 and 0 < narrow.float().mean() < 255


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_are_rounded_to_the_nearest_and_kept_within_a_byte(linear, x_TI, dtype):
    made = made_of(linear, x_TI, strength=0.5)
    x_TI = (x_TI.repeat(ROWS // 13 + 2, 1) * 1.7).to(dtype)  # beyond what was calibrated, and more than one block
    wanted_TI = x_TI.double().numpy() * made.input_factor.double().numpy() + int(made.input_zero)
    assert (wanted_TI.min() < 0) and (wanted_TI.max() > 255)
    found_TI = made.quantize(x_TI)
    assert np.abs(found_TI.numpy() - wanted_TI.clip(0, 255)).max() < 0.5 + 1e-4
    assert made(x_TI).dtype is dtype


def test_rounding_a_weight_costs_half_a_step_and_rounding_it_again_nothing():
    weight_OI = torch.randn(1009, 29, generator=torch.Generator().manual_seed(3))
    weight_OI[4] = 0
    integers_OI, scale_O = quantize_symmetric(weight_OI)
    back_OI = integers_OI * scale_O[:, None]
    assert ((back_OI - weight_OI).abs() <= 0.5001 * scale_O[:, None]).all() and integers_OI.abs().max() == 127
    again_OI, scale_again_O = quantize_symmetric(back_OI)
    assert torch.equal(again_OI, integers_OI) and torch.equal(scale_again_O, scale_O)


def test_a_scale_follows_from_what_it_scaled_for_every_number_of_float32():
    every_O1 = torch.arange(2**23, 2**24, dtype=torch.int32).float()[:, None]  # all there are but for powers of two
    integers_O1, scale_O = quantize_symmetric(every_O1)
    assert (integers_O1 == 127).all()
    assert torch.equal(quantize_symmetric(integers_O1 * scale_O[:, None])[1], scale_O)


def test_scales_stay_float32_in_a_model_of_another_format_and_a_used_layer_can_be_copied(linear, x_TI):
    made = made_of(linear, x_TI, strength=0.7)
    before = {name: value.clone() for name, value in made.named_buffers()}
    wanted_TO = made(x_TI)
    copy = deepcopy(made).to(torch.bfloat16)
    assert all(torch.equal(value, before[name]) for name, value in copy.named_buffers())
    assert torch.equal(copy(x_TI), wanted_TO)


def test_a_column_of_outliers_costs_less_when_columns_are_evened_out(linear, x_TI):
    x_TI[:, 5] *= 40
    seen = calibrate.Inputs(x_TI.amin(0), x_TI.amax(0), [x_TI])
    errors = {strength: calibrate.candidate(linear, seen, strength).error for strength in calibrate.STRENGTHS}
    assert min(errors.values()) < errors[0.0] / 4


@pytest.fixture
def quantized(make_model, tokenizer):
    """A model, its int8 form, and a batch."""
    model = make_model("bert", {"classes": 3})
    batch = Batch.from_encodings(tokenizer.encode_many(TEXTS))
    with torch.no_grad():
        forms = candidates(model, observe(model, lambda: model(batch)))
        return model, replace_linears(model, {name: one.linear for name, one in forms.items()}), batch


def test_the_rows_kept_are_bounded_and_spread_over_all_batches(monkeypatch):
    monkeypatch.setattr(calibrate, "MAX_ROWS", 12)
    monkeypatch.setattr(calibrate, "ROWS_PER_BATCH", 4)
    seen = calibrate.Inputs(torch.zeros(1), torch.zeros(1))
    for batch in range(10):
        seen.update(torch.arange(4.0)[:, None] + 4 * batch)
        assert sum(map(len, seen.rows)) <= 12
    rows = torch.cat(seen.rows)[:, 0].tolist()
    assert rows == sorted(set(rows)) and rows[-1] >= 36 and max(np.diff(rows)) <= 8
    assert (float(seen.low_I), float(seen.high_I)) == (0, 39)


def test_an_int8_model_is_near_the_float_one(quantized):
    model, small, batch = quantized
    with torch.no_grad():
        cosines_T = F.cosine_similarity(model(batch), small(batch), dim=-1)
    assert is_int8(small) and not is_int8(model)
    assert 0.99 < cosines_T.mean() < 0.99999999


@pytest.mark.slow
@pytest.mark.parametrize("family", ENCODERS)
@pytest.mark.parametrize("left_out", [(), ("feed_forward.output",), ("feed_forward.inner",), ("attention",)])
def test_any_layers_of_any_family_may_stay_as_they_are(family, left_out, make_model, tokenizer):
    model = make_model(family)
    batch = Batch.from_encodings(tokenizer.encode_many(TEXTS))
    with torch.no_grad():
        forms = candidates(model, observe(model, lambda: model(batch)))
        taken = {name: one.linear for name, one in forms.items() if not any(part in name for part in left_out)}
        small = replace_linears(model, taken)
        assert F.cosine_similarity(model(batch), small(batch), dim=-1).mean() > 0.98
        again = load_int8_state_dict(model.config, int8_state_dict(small))
        assert torch.equal(again(batch), small(batch))
    assert sum(isinstance(part, Int8Linear) for part in again.modules()) == len(taken)


def test_a_text_has_the_same_result_alone_and_in_a_batch(quantized, tokenizer):
    _, small, batch = quantized
    with torch.no_grad():
        together = small(batch).split(batch.lengths.tolist())
        for text, expected in zip(TEXTS, together, strict=True):
            torch.testing.assert_close(
                small(Batch.from_encodings(tokenizer.encode_many([text]))), expected, rtol=1e-5, atol=1e-5
            )


def test_storing_twice_changes_nothing(quantized):
    model, small, _ = quantized
    first = int8_state_dict(small)
    second = int8_state_dict(load_int8_state_dict(model.config, first))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    assert sum(value.nbytes for value in first.values()) < 0.6 * sum(v.nbytes for v in model.state_dict().values())


def test_tensors_that_do_not_belong_to_the_config_are_named(quantized):
    model, small, _ = quantized
    state = int8_state_dict(small)
    lacking = {name: value for name, value in state.items() if name != "encoder.layers.1.attention.qkv.weight_scale"}
    with pytest.raises(InputError, match=r"encoder\.layers\.1\.attention\.qkv\.weight_scale"):
        load_int8_state_dict(model.config, lacking)
    with pytest.raises(InputError, match=r"words\.table_int8"):
        load_int8_state_dict(model.config, {})
    with pytest.raises(InputError, match=r"layers\.2.*no such layer"):
        load_int8_state_dict(model.config.replace(num_hidden_layers=2), state)


def test_an_int8_model_refuses_to_be_trained(quantized):
    with pytest.raises(InputError, match="int8"):
        quantized[1].train()


def test_a_model_whose_numbers_overflow_is_refused(make_model, tokenizer):
    model = make_model("bert")
    with torch.no_grad():
        model.encoder.layers[1].feed_forward.inner.weight.mul_(3e38)
    batch = Batch.from_encodings([tokenizer.encode(text) for text in TEXTS])
    seen = observe(model, lambda: model(batch))
    with pytest.raises(InputError, match="feed_forward.output .*float32"):
        candidates(model, seen)
