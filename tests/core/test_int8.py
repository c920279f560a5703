"""Int8 layers in C: exact sums of integers, inputs that are rounded as model/int8.py says, and encoders that mix them
with layers in other formats."""

import ctypes
import pickle
from dataclasses import replace

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.core.core import CoreEncoder
from bothways.core.tables import Int8Table
from tests.core.encoders import (
    NUM_WORDS,
    SMALL,
    by_numpy,
    computing,
    cores,
    linear_names,
    make_batch,
    make_int8,
    make_int8_encoder,
    make_parameters,
    make_words,
    means,
)

LENGTHS = [1, 2, 15, 16, 17, 31, 32, 33, 100]
ODD = replace(SMALL, hidden=96, embedding=96, heads=3, inner=160)  # neither is a multiple of 64
LAYOUTS = {
    "heads of 32": SMALL,
    "heads of 64": replace(SMALL, hidden=128, embedding=128, head_size=64, inner=96),
    "not multiples of 64": ODD,
    "pruned heads of 16": replace(ODD, heads=2, head_size=16),
    "relu": replace(SMALL, activation="relu"),
}
WORDS = make_words(SMALL)
INNER = "layers.0.feed_forward.inner"
OUTPUT = "layers.0.feed_forward.output"
SPARE_ROWS = 32  # that tiles may read after the last row

each_core = pytest.mark.parametrize("core", cores(), ids=lambda core: core.instruction_set)
each = pytest.mark.parametrize("core, dtype", computing())


# --- single steps -----------------------------------------------------------------------------------------------------


def encoder_with(core, layer, layout=ODD, reads=None, **changes):
    """An encoder with one int8 layer, of which some tensors are changed. reads: a layer that is int8 too."""
    layers = [layer] if reads is None else [layer, reads]
    encoder = CoreEncoder(core, layout, "float32", layers)
    parameters = make_parameters(layout)
    for name in layers:
        encoder.put_int8(name, **{**make_int8(parameters, name), **(changes if name == layer else {})})
    return encoder


def multiplied(encoder, layer, q_TI, reads=None, activation=0):
    """What the core computes from integers, float32 [T, O]; as inputs of the layer that reads them, uint8."""
    linear = encoder._linear(layer)
    given = np.concatenate([q_TI, np.full((SPARE_ROWS, q_TI.shape[1]), 201, np.uint8)])
    out = np.zeros((len(q_TI), linear.outputs), np.float32 if reads is None else np.uint8)
    reader = None if reads is None else encoder._linear(reads)
    encoder.core.multiply_rows(
        ctypes.addressof(linear),
        given.ctypes.data,
        len(q_TI),
        activation,
        None if reader is None else ctypes.addressof(reader),
        out.ctypes.data,
    )
    return out


def stored(encoder, layer, x_TI):
    """Numbers as inputs of an int8 layer."""
    linear = encoder._linear(layer)
    out = np.zeros(x_TI.shape, np.uint8)
    encoder.core.store_inputs(ctypes.addressof(linear), x_TI.ctypes.data, len(x_TI), out.ctypes.data)
    return out


def sums(q_TI, zero, weight_OI):
    return (q_TI.astype(np.int64) - zero) @ weight_OI.T.astype(np.int64)


@each_core
@pytest.mark.parametrize("zero", [0, 3, 255])
@pytest.mark.parametrize("layer", [INNER, OUTPUT])
def test_sums_of_products_are_those_of_integers(core, layer, zero):
    random = np.random.default_rng(6)
    outputs, inputs = CoreEncoder(core, ODD, "float32").shapes[f"{layer}.weight"]
    weight_OI = random.integers(-128, 128, (outputs, inputs), np.int8)
    ones = {"weight_scale": np.ones(outputs, np.float32), "input_scale": 1, "bias": np.zeros(outputs, np.float32)}
    encoder = encoder_with(core, layer, weight_int8=weight_OI, input_zero=zero, **ones)
    for num_rows in (1, 2, 7, 8, 9, 16, 17, 32, 33, 70):
        q_TI = random.integers(0, 256, (num_rows, inputs), np.uint8)
        np.testing.assert_array_equal(multiplied(encoder, layer, q_TI), sums(q_TI, zero, weight_OI))


@each_core
@pytest.mark.parametrize("weight", [-128, 127])
@pytest.mark.parametrize("zero", [0, 255])
def test_the_largest_sums_neither_saturate_nor_overflow(core, weight, zero):
    """Instructions that add two products in 16 bits would saturate."""
    layout = replace(SMALL, inner=1 << 16)
    weight_OI = np.full((64, 1 << 16), weight, np.int8)
    ones = {"weight_scale": np.ones(64, np.float32), "input_scale": 1, "bias": np.zeros(64, np.float32)}
    encoder = encoder_with(core, OUTPUT, layout, weight_int8=weight_OI, input_zero=zero, **ones)
    q_TI = np.full((2, 1 << 16), 255 - zero, np.uint8)
    expected = (255 - 2 * zero) * weight * (1 << 16)
    np.testing.assert_array_equal(multiplied(encoder, OUTPUT, q_TI), np.full((2, 64), expected, np.float32))


@each_core
def test_outputs_are_scaled_and_have_a_bias(core):
    parameters = make_parameters(ODD)
    tensors = make_int8(parameters, INNER)
    q_TI = np.random.default_rng(7).integers(0, 256, (37, 96), np.uint8)
    scale_O = tensors["weight_scale"] * tensors["input_scale"]
    expected = sums(q_TI, 127, tensors["weight_int8"]) * scale_O + tensors["bias"]
    found = multiplied(encoder_with(core, INNER), INNER, q_TI)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@each_core
@pytest.mark.parametrize("activation", [0, 1, 3])
def test_outputs_are_rounded_at_once_for_an_int8_layer_that_reads_them(core, activation):
    encoder = encoder_with(core, INNER, reads=OUTPUT)
    q_TI = np.random.default_rng(8).integers(0, 256, (37, 96), np.uint8)
    x_TI = multiplied(encoder, INNER, q_TI, activation=activation)
    found = multiplied(encoder, INNER, q_TI, OUTPUT, activation).astype(int)
    expected = stored(encoder, OUTPUT, x_TI).astype(int)
    # The activation in front of a rounding is less exact, so a number in the middle may be the other integer.
    assert abs(found - expected).max() <= 1 and (found != expected).mean() < 0.01
    assert len(np.unique(found)) > 50


@each_core
@pytest.mark.parametrize("zero", [0, 127, 255])
def test_inputs_are_rounded_to_the_nearest_and_kept_within_a_byte(core, zero):
    encoder = encoder_with(core, OUTPUT, input_zero=zero)
    factor_I = encoder.scales[OUTPUT].input_factor
    x_TI = np.random.default_rng(9).standard_normal((50, 160), np.float32) * 8
    x_TI[0] = np.linspace(-1e-42, 1e-42, 160)
    exact_TI = np.clip(x_TI.astype(np.float64) * factor_I + zero, 0, 255)
    found_TI = stored(encoder, OUTPUT, x_TI)
    assert abs(found_TI - exact_TI).max() <= 0.5 + 1e-4
    assert found_TI.min() == 0 and found_TI.max() == 255

    halves_I = np.arange(160, dtype=np.float32) + np.float32(0.5)
    encoder = encoder_with(core, OUTPUT, input_zero=0, input_factor=np.ones(160, np.float32))
    np.testing.assert_array_equal(stored(encoder, OUTPUT, halves_I[None])[0], np.rint(halves_I))


@each_core
def test_inputs_that_are_too_large_are_the_largest_integer_and_what_is_no_number_is_some_integer(core):
    encoder = encoder_with(core, OUTPUT)
    for value, expected in ((1e30, 255), (np.inf, 255), (3e9, 255), (-1e30, 0), (-np.inf, 0), (-3e9, 0)):
        assert (stored(encoder, OUTPUT, np.full((3, 160), value, np.float32)) == expected).all()
    stored(encoder, OUTPUT, np.full((3, 160), np.nan, np.float32))


# --- encoders ---------------------------------------------------------------------------------------------------------


def mixtures(layout):
    """Layers that are int8, in several mixtures with others."""
    names = linear_names(layout)
    yield names
    yield names[::2]
    yield names[1::2]
    yield [name for name in names if name.startswith("layers.1")]
    yield [name for name in names if name.endswith("qkv")]


@each
@pytest.mark.parametrize("name", LAYOUTS)
def test_states_are_those_of_numpy_with_all_or_some_layers_in_int8(core, dtype, name):
    layout = LAYOUTS[name]
    words = make_words(layout)
    batch = make_batch(LENGTHS, layout)
    for layers in mixtures(layout):
        states = make_int8_encoder(core, layout, dtype, layers)(words, *batch)
        expected = by_numpy(layout, words, *batch, int8=layers)
        vectors, others = means(states, batch[2]), means(expected, batch[2])
        # A number in the middle of two integers may become the other one, which a text of one token shows most.
        cosines = (vectors * others).sum(1)
        assert cosines.min() > 0.9995 and cosines.mean() > 0.9998
    exact = means(by_numpy(layout, words, *batch), batch[2])
    assert 0.99 < (vectors * exact).sum(1).min() < 0.999999


@each
def test_narrow_words_are_widened_in_int8(core, dtype):
    layout = replace(SMALL, embedding=32, depth=5)
    words = make_words(layout)
    batch = make_batch(LENGTHS, layout)
    exact = means(by_numpy(layout, words, *batch), batch[2])
    layers = linear_names(layout)
    for some in (layers, ["embeddings.widen"], layers[1:]):
        vectors = means(make_int8_encoder(core, layout, dtype, some)(words, *batch), batch[2])
        assert (vectors * exact).sum(1).min() > 0.97


@each
@pytest.mark.parametrize("layout", [SMALL, ODD], ids=["multiples of 64", "not multiples of 64"])
def test_a_text_has_the_same_bits_alone_and_among_others_by_any_number_of_threads(core, dtype, layout):
    lengths = [*LENGTHS, 300, 5, 5, 200]
    words = make_words(layout)
    ids, segments, _ = make_batch(lengths, layout)
    encoder = make_int8_encoder(core, layout, dtype)
    together = encoder(words, ids, segments, lengths)
    for threads in (2, 3, 8):
        np.testing.assert_array_equal(encoder(words, ids, segments, lengths, threads=threads), together)

    start = 0
    for length in lengths:
        part = slice(start, start + length)
        for threads in (1, 2):
            alone = encoder(words, ids[part], segments[part], [length], threads=threads)
            np.testing.assert_array_equal(alone, together[part])
        start += length


@each
def test_rows_that_are_read_have_the_bits_of_all_rows(core, dtype):
    lengths = [3, 1, 0, 40, 300, 17]
    batch = make_batch(lengths)
    for layers in mixtures(SMALL):
        encoder = make_int8_encoder(core, SMALL, dtype, layers)
        states = encoder(WORDS, *batch)
        for rows in (np.array([0, 3, 4, 44, 344]), np.array([2, 4, 5, 6, 43, 44, 100, 343]), np.array([350])):
            np.testing.assert_array_equal(encoder(WORDS, *batch, rows, 2), states[rows])


@each
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_words_that_are_not_finite_change_no_other_text(core, dtype, value):
    words = WORDS.copy()
    words[7] = value
    ids, segments, lengths = make_batch([20, 30])
    ids[ids == 7] = 8
    encoder = make_int8_encoder(core, SMALL, dtype)
    expected = encoder(WORDS, ids, segments, lengths)
    ids[3] = 7
    np.testing.assert_array_equal(encoder(words, ids, segments, lengths)[20:], expected[20:])


# --- parameters -------------------------------------------------------------------------------------------------------


@each_core
@pytest.mark.parametrize("layout", [SMALL, ODD], ids=["multiples of 64", "not multiples of 64"])
def test_tensors_can_be_read_back(core, layout):
    parameters = make_parameters(layout)
    encoder = make_int8_encoder(core, layout)
    for layer in linear_names(layout):
        tensors = make_int8(parameters, layer)
        for end in tensors.keys() - {"bias"}:
            np.testing.assert_array_equal(
                encoder.get_int8(layer, end), np.float32(tensors[end]).reshape(-1, *tensors[end].shape[1:])
            )
        weight_OI = encoder.get(f"{layer}.weight")
        scale_O = tensors["weight_scale"] * tensors["input_scale"]
        expected = tensors["weight_int8"].astype(np.float32) * scale_O[:, None] * tensors["input_factor"]
        np.testing.assert_array_equal(weight_OI, expected)
        assert abs(weight_OI - parameters[f"{layer}.weight"]).max() < 0.01
        np.testing.assert_array_equal(encoder.get(f"{layer}.bias"), tensors["bias"])


@each
def test_a_pickle_has_the_weights(core, dtype, monkeypatch):
    monkeypatch.setattr("bothways.core.library.find_core", lambda: core)
    encoder = make_int8_encoder(core, SMALL, dtype, linear_names(SMALL)[1:])
    batch = make_batch([9, 40])
    copy = pickle.loads(pickle.dumps(encoder))
    expected = encoder(WORDS, *batch)
    del encoder
    np.testing.assert_array_equal(copy(WORDS, *batch), expected)


@each_core
def test_tensors_that_do_not_fit_are_an_error(core):
    encoder = CoreEncoder(core, SMALL, "float32", [INNER])
    tensors = make_int8(make_parameters(SMALL), INNER)
    for changes in (
        {"weight_int8": tensors["weight_int8"][:32]},
        {"weight_int8": tensors["weight_int8"].astype(np.int16)},
        {"weight_scale": tensors["weight_scale"][:32]},
        {"bias": tensors["bias"][:32]},
        {"input_factor": tensors["input_factor"][:32]},
    ):
        with pytest.raises(ValueError, match="do not fit int8"):
            encoder.put_int8(INNER, **{**tensors, **changes})
    for zero in (-1, 256):
        with pytest.raises(ValueError, match="must be from 0 to 255"):
            encoder.put_int8(INNER, **{**tensors, "input_zero": zero})
    with pytest.raises(ValueError, match="the layer is int8"):
        encoder.put(f"{INNER}.weight", 0, np.zeros((1, 64), np.float32))
    for layer in ("layers.2.feed_forward.inner", "embeddings.positions", "layers.0.attention_norm"):
        with pytest.raises(InputError, match="the model has no such linear layer"):
            CoreEncoder(core, SMALL, "float32", [layer])
    with pytest.raises(InputError, match="65568 inputs; int8 layers have at most 65536"):
        CoreEncoder(core, replace(SMALL, inner=65568), "float32", [OUTPUT])


@each_core
def test_rows_of_a_table_of_integers_are_scaled(core):
    random = np.random.default_rng(10)
    integers = random.integers(-128, 128, (NUM_WORDS, 96), np.int8)
    scales = random.uniform(0.001, 1, NUM_WORDS).astype(np.float32)
    table = Int8Table(core, integers, scales)
    ids = np.array([0, 5, 5, 100])
    np.testing.assert_array_equal(table.rows(ids), integers[ids].astype(np.float32) * scales[ids, None])
    for ids in ([0, 101], [0, -1]):
        with pytest.raises(InputError, match=f"token 1 has the id {ids[1]}; ids are from 0 to 100"):
            table.rows(np.array(ids))
