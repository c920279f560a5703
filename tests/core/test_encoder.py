"""The encoder in C computes what numpy computes, for every instruction set and number format of this processor."""

import ctypes
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.core.core import CoreEncoder
from bothways.core.layout import ACTIVATIONS
from bothways.core.library import FOLDER, SUFFIX, Core, library_name
from bothways.inference.backends.forward import ACTIVATIONS as IN_NUMPY
from bothways.inference.backends.forward import Norm, softmax
from tests.core.encoders import (
    NUM_WORDS,
    SMALL,
    by_numpy,
    computing,
    make_batch,
    make_encoder,
    make_parameters,
    make_words,
    means,
)

LENGTHS = [1, 2, 15, 16, 17, 31, 32, 33, 100]
WIDE_HEADS = replace(SMALL, hidden=128, embedding=128, head_size=64, inner=96)
LAYOUTS = {
    "heads of 32": SMALL,
    "heads of 64": WIDE_HEADS,
    "heads of 16": replace(SMALL, hidden=96, embedding=96, heads=6, head_size=16),
    "heads of 48": replace(SMALL, hidden=96, embedding=96, head_size=48),
    "pruned heads": replace(SMALL, hidden=96, embedding=96),
    "shared layers, narrow words": replace(SMALL, embedding=32, depth=5, layers=2),
    "positions from 2, one segment": replace(SMALL, positions=514, position_offset=2, segments=1),
    "no segments": replace(SMALL, segments=0),
    "tanh": replace(SMALL, activation="gelu_tanh"),
    "relu": replace(SMALL, activation="relu"),
    "silu": replace(SMALL, activation="silu", epsilon=1e-5),
}
WORDS = make_words(SMALL)

each = pytest.mark.parametrize("core, dtype", computing())


def check_near(states, expected, lengths, dtype):
    """Within 1e-5 in float32, and 1e-6 for vectors; a cosine of .9999 in bfloat16."""
    vectors, others = means(states, lengths), means(expected, lengths)
    if dtype == "float32":
        np.testing.assert_allclose(states, expected, rtol=0, atol=1e-5)
        np.testing.assert_allclose(vectors, others, rtol=0, atol=1e-6)
    else:
        assert (vectors * others).sum(1).min() > 0.9999
        assert not np.array_equal(states, expected)


@each
@pytest.mark.parametrize("name", LAYOUTS)
def test_states_are_those_of_numpy(core, dtype, name):
    layout = LAYOUTS[name]
    words = make_words(layout)
    batch = make_batch(LENGTHS, layout)
    states = make_encoder(core, layout, dtype)(words, *batch)
    check_near(states, by_numpy(layout, words, *batch), batch[2], dtype)


@each
@pytest.mark.parametrize("layout", [SMALL, WIDE_HEADS], ids=["heads of 32", "heads of 64"])
def test_the_longest_text(core, dtype, layout):
    words = make_words(layout)
    batch = make_batch([512], layout)
    states = make_encoder(core, layout, dtype)(words, *batch)
    check_near(states, by_numpy(layout, words, *batch), batch[2], dtype)


@each
def test_a_text_has_the_same_bits_alone_and_among_others_by_any_number_of_threads(core, dtype):
    lengths = [*LENGTHS, 300, 5, 5, 200]
    ids, segments, _ = make_batch(lengths)
    encoder = make_encoder(core, SMALL, dtype)
    together = encoder(WORDS, ids, segments, lengths)
    for threads in (2, 3, 8):
        np.testing.assert_array_equal(encoder(WORDS, ids, segments, lengths, threads=threads), together)

    start = 0
    for length in lengths:
        part = slice(start, start + length)
        for threads in (1, 2, 8):
            alone = encoder(WORDS, ids[part], segments[part], [length], threads=threads)
            np.testing.assert_array_equal(alone, together[part])
        start += length


@each
@pytest.mark.parametrize("name", ["heads of 32", "heads of 48", "shared layers, narrow words"])
def test_rows_that_are_read_have_the_bits_of_all_rows(core, dtype, name):
    layout = LAYOUTS[name]
    words = make_words(layout)
    lengths = [3, 1, 0, 40, 300, 17]
    batch = make_batch(lengths, layout)
    encoder = make_encoder(core, layout, dtype)
    states = encoder(words, *batch)
    first_rows = np.array([0, 3, 4, 44, 344])
    some_rows = np.array([2, 4, 5, 6, 43, 44, 100, 343])
    for rows in (first_rows, some_rows, np.arange(sum(lengths)), np.array([350])):
        for threads in (1, 3):
            np.testing.assert_array_equal(encoder(words, *batch, rows, threads), states[rows])
    assert encoder(words, *batch, np.array([], np.int64)).shape == (0, layout.hidden)


@each
def test_parameters_can_be_read_back(core, dtype):
    for layout in (SMALL, WIDE_HEADS):
        parameters = make_parameters(layout)
        encoder = make_encoder(core, layout, dtype, parameters)
        for name, values in parameters.items():
            np.testing.assert_allclose(encoder.get(name), values, rtol=0 if dtype == "float32" else 2**-8)
    name = "layers.1.feed_forward.inner.weight"
    before = encoder.get(name)
    encoder.put(name, 50, values := np.ones((7, 128), np.float32))
    np.testing.assert_array_equal(encoder.get(name)[50:57], values)
    np.testing.assert_array_equal(encoder.get(name)[:50], before[:50])
    np.testing.assert_array_equal(encoder.get(name)[57:], before[57:])


# --- single functions -------------------------------------------------------------------------------------------------


def address(values):
    return values.ctypes.data


@each
@pytest.mark.parametrize("head_size", [16, 32, 48, 64])
def test_attention_is_that_of_the_paper(core, dtype, head_size):
    """softmax(Q K^T / sqrt(D)) V, Vaswani 2017, equation 1; with large scores too."""
    kind = 0 if dtype == "float32" else 1
    lengths = [1, 16, 33, 70]
    total = sum(lengths)
    qkv = np.random.default_rng(3).standard_normal((total, 3, 2, head_size), np.float32)
    is_narrow = core.kind_of_attention(kind, head_size) == 1
    if is_narrow:
        qkv = (qkv.view(np.uint32) >> 16 << 16).view(np.float32)
    given = (qkv.view(np.uint32) >> 16).astype(np.uint16) if is_narrow else qkv
    given = np.concatenate([given.ravel(), np.zeros(32 * qkv[0].size, given.dtype)])  # rows that tiles may read

    starts = np.cumsum([0, *lengths])
    memory = np.empty(core.attention_bytes(max(lengths), head_size), np.uint8)
    out = np.zeros((total, 2, head_size), np.float32 if kind == 0 else np.uint16)
    core.attend_ragged(kind, address(given), address(starts), len(lengths), 2, head_size, address(out), address(memory))
    if kind:
        out = (out.astype(np.uint32) << 16).view(np.float32)

    for start, end in pairwise(starts):
        q, k, v = qkv[start:end].swapaxes(0, 1).swapaxes(1, 2)
        expected = (softmax(q @ k.swapaxes(1, 2) / head_size**0.5) @ v).swapaxes(0, 1)
        np.testing.assert_allclose(out[start:end], expected, rtol=0, atol=5e-6 if kind == 0 else 2e-2)


@each
def test_a_sum_is_normalized_as_in_numpy(core, dtype):
    random = np.random.default_rng(4)
    x, y = random.standard_normal((2, 5, 96), np.float32) * 3 + 1
    scale, shift = random.standard_normal((2, 96), np.float32)
    expected = Norm(scale, shift, 1e-12)(x + y)
    core.add_norm(address(x), address(y), 5, 96, address(scale), address(shift), 1e-12)
    np.testing.assert_allclose(x, expected, rtol=0, atol=3e-6)


@each
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_of_numpy(core, dtype, name):
    x = np.linspace(-12, 12, 4000, dtype=np.float32)
    with np.errstate(over="ignore"):
        expected = IN_NUMPY[name](x.copy())
    core.activate(ACTIVATIONS[name], 0 if dtype == "float32" else 1, address(x), len(x))
    near = 2e-6 if dtype == "float32" else 5e-4
    np.testing.assert_allclose(x, expected, rtol=near, atol=near)


@each
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_large_numbers(core, dtype, name):
    x = np.float32(4 * [-1e30, -200, 200, 1e30])
    expected = np.maximum(x, 0)
    core.activate(ACTIVATIONS[name], 0 if dtype == "float32" else 1, address(x), len(x))
    np.testing.assert_allclose(x / np.float32(1e30), expected / np.float32(1e30), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(x[2::4], 200, rtol=1e-4)


# --- input that does not fit, and processes ---------------------------------------------------------------------------


@each
def test_what_is_out_of_range_is_an_error(core, dtype):
    encoder = make_encoder(core, SMALL, dtype)
    ids, segments, _ = make_batch([3, 4])

    def changed(values, place, value):
        values = values.copy()
        values[place] = value
        return values

    for value in (-1, NUM_WORDS, 2**31 - 1, -(2**31)):
        with pytest.raises(InputError, match=f"token 5 has the id {value}; ids are from 0 to {NUM_WORDS - 1}"):
            encoder(WORDS, changed(ids, 5, value), segments, [3, 4])
    for value in (-1, 2):
        with pytest.raises(InputError, match="token 6: segments are from 0 to 1"):
            encoder(WORDS, ids, changed(segments, 6, value), [3, 4])
    for lengths in ([3], [3, 5], [3, 4, 1], [8, -1], [], [2**62, 2**62]):
        with pytest.raises(InputError, match="lengths must be 0 or more, and sum up to the 7 tokens"):
            encoder(WORDS, ids, segments, lengths)
    with pytest.raises(InputError, match="text 1 has more than 512 tokens"):
        encoder(WORDS, *make_batch([3, 513, 2]))
    for rows in ([-1], [7], [3, 3], [4, 2], [2**62]):
        with pytest.raises(InputError, match="rows must ascend, from 0 to 6"):
            encoder(WORDS, ids, segments, [3, 4], np.array(rows))
    for arrays in ((WORDS[:, :32], ids, segments), (WORDS, ids[None], None), (WORDS, ids, segments[:3])):
        with pytest.raises(ValueError, match="expected"):
            encoder(*arrays, [3, 4])
    with pytest.raises(ValueError, match="do not fit"):
        encoder.put("layers.0.attention.output.weight", 60, np.zeros((5, 64), np.float32))
    with pytest.raises(ValueError, match="do not fit"):
        encoder.put("layers.0.attention.output.weight", 0, np.zeros((5, 32), np.float32))


@each
def test_empty_texts_and_many_tiny_ones(core, dtype):
    encoder = make_encoder(core, SMALL, dtype)
    ids, segments, _ = make_batch([7])
    assert encoder(WORDS, ids[:0], segments[:0], []).shape == (0, 64)
    assert encoder(WORDS, ids[:0], segments[:0], [0, 0, 0]).shape == (0, 64)
    states = encoder(WORDS, ids, segments, [3, 4])
    np.testing.assert_array_equal(encoder(WORDS, ids, segments, [0, 3, 0, 0, 4, 0]), states)
    np.testing.assert_array_equal(encoder(WORDS, ids, segments, [3] + 1000 * [0] + [4], threads=2), states)

    many = np.zeros(20_000, np.int32)
    states = encoder(WORDS, many, None, np.ones(len(many), np.int64), threads=2)
    assert (states == encoder(WORDS, many[:1], None, [1])).all()


@each
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_weights_that_are_not_finite_do_no_harm(core, dtype, value):
    """The states are not numbers, but those of texts without the word are, if the word alone is broken."""
    words = WORDS.copy()
    words[7] = value
    ids, segments, lengths = make_batch([20, 30])
    ids[ids == 7] = 8
    expected = make_encoder(core, SMALL, dtype)(WORDS, ids, segments, lengths)
    ids[3] = 7
    encoder = make_encoder(core, SMALL, dtype)
    states = encoder(words, ids, segments, lengths)
    np.testing.assert_array_equal(states[20:], expected[20:])
    for name in ("layers.0.attention.qkv.weight", "layers.1.feed_forward.inner.bias", "embeddings.norm.weight"):
        encoder.put(name, 1, np.full((1, *encoder.shapes[name][1:]), value, np.float32))
    assert encoder(WORDS, ids, segments, lengths).shape == states.shape


@each
def test_numbers_that_are_flushed_to_zero_change_nothing(core, dtype):
    """Some libraries set the processor so; denormal numbers are then 0."""
    torch = pytest.importorskip("torch")
    encoder = make_encoder(core, SMALL, dtype)
    batch = make_batch(LENGTHS)
    expected = encoder(WORDS, *batch)
    if not torch.set_flush_denormal(True):
        pytest.skip("the processor cannot be set so")
    try:
        np.testing.assert_allclose(encoder(WORDS, *batch), expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(encoder(WORDS, *batch, threads=3), expected, rtol=0, atol=1e-6)
    finally:
        torch.set_flush_denormal(False)


@each
def test_many_threads_call_at_once(core, dtype):
    encoder = make_encoder(core, SMALL, dtype)
    batches = [make_batch([length, 3, 2 * length], seed=length) for length in range(1, 33)]
    expected = [encoder(WORDS, *batch) for batch in batches]
    with ThreadPoolExecutor(32) as pool:
        found = [*pool.map(lambda batch: encoder(WORDS, *batch, threads=3), batches)]
    for states, others in zip(found, expected, strict=True):
        np.testing.assert_array_equal(states, others)


@each
def test_a_library_that_is_loaded_twice_computes_the_same(core, dtype, tmp_path):
    copy = shutil.copy(FOLDER / library_name(FOLDER, SUFFIX), tmp_path / "copy.so")
    other = Core(ctypes.CDLL(str(copy)), core.instruction_set)
    batch = make_batch([9, 40])
    states = [make_encoder(one, SMALL, dtype)(WORDS, *batch) for one in (core, other)]
    np.testing.assert_array_equal(*states)


@each
def test_too_little_memory_is_an_error(core, dtype, monkeypatch):
    encoder = make_encoder(core, SMALL, dtype)
    monkeypatch.setattr(core, "memory_size", lambda *sizes: 1 << 60)
    with pytest.raises(MemoryError):
        encoder(WORDS, *make_batch([3]))


@each
def test_a_pickle_has_the_weights(core, dtype, monkeypatch):
    monkeypatch.setattr("bothways.core.library.find_core", lambda: core)
    encoder = make_encoder(core, SMALL, dtype)
    batch = make_batch([9, 40])
    expected = encoder(WORDS, *batch)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(encoder))(WORDS, *batch), expected)


def test_a_model_that_does_not_fit_is_refused():
    assert SMALL.refusal() == ""
    assert "hidden size is 48, not a multiple of 32" in replace(SMALL, hidden=48).refusal()
    assert "size of embeddings is 24" in replace(SMALL, embedding=24).refusal()
    assert "inner size is 40" in replace(SMALL, inner=40).refusal()
    assert "size of all heads is 72" in replace(SMALL, heads=3, head_size=24).refusal()
    assert "a head is 24, not a multiple of 16" in replace(SMALL, heads=4, head_size=24).refusal()
    assert "no activation tanh" in replace(SMALL, activation="tanh").refusal()


@each
def test_an_encoder_says_what_it_cannot_compute(core, dtype):
    with pytest.raises(InputError, match="hidden size is 48"):
        CoreEncoder(core, replace(SMALL, hidden=48), dtype)
    with pytest.raises(InputError, match="dtype 'float16': the core has .*float32.* on this processor"):
        CoreEncoder(core, SMALL, "float16")
