"""Statements behind texts: the core computes what numpy computes, and no statement knows of another one."""

from dataclasses import replace

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.core.core import TextParts
from bothways.core.statements import CoreAdapter
from bothways.inference.backends.statements import Adapter, ThinProducts, read_statements
from bothways.text.statements import StatementBatch
from tests.core.encoders import (
    NUM_WORDS,
    SMALL,
    bert_of,
    computing,
    linear_names,
    make_encoder,
    make_int8_encoder,
    make_parameters,
    make_words,
)

each = pytest.mark.parametrize("core, dtype", computing())
LAYOUTS = {
    "plain": SMALL,
    "heads of 16": replace(SMALL, hidden=96, embedding=96, heads=6, head_size=16),
    "shared layers": replace(SMALL, depth=3, layers=2),
    "positions from 2, one segment": replace(SMALL, positions=514, position_offset=2, segments=1),
}
TEXTS = [40, 1, 17, 300]  # tokens of texts, and of the statements behind each
STATEMENTS = [[3, 5, 3, 1, 9], [], [2, 33, 2], [7] * 20]


def make_products(layout, rank=8, seed=4):
    random = np.random.default_rng(seed)
    products = {}
    for name in linear_names(layout):
        if name.endswith(("attention.qkv", "feed_forward.inner")):
            shape = (layout.inner if "inner" in name else 3 * layout.heads * layout.head_size, layout.hidden)
            down_RI = random.standard_normal((rank, shape[1]), np.float32) / shape[1] ** 0.5
            up_OR = random.standard_normal((shape[0], rank), np.float32) / 4
            products[name] = down_RI, up_OR
    return products


def make_gates(layout):
    return np.random.default_rng(5).standard_normal((layout.layers, layout.heads), np.float32)


def draw_ids(lengths, seed):
    random = np.random.default_rng(seed)
    return [random.integers(0, NUM_WORDS, length).tolist() for length in lengths]


def make_statements():
    texts = draw_ids(TEXTS, 0)
    statements = [draw_ids(lengths, seed) for seed, lengths in enumerate(STATEMENTS, 1)]
    return texts, statements


def parts(batch):
    return TextParts(batch.starts, batch.first_parts)


def by_core(core, layout, dtype, batch, *, adapted=True, threads=1):
    encoder = make_encoder(core, layout, dtype)
    adapter = CoreAdapter(core, layout, make_products(layout), make_gates(layout)) if adapted else None
    return encoder.read_statements(make_words(layout), batch.ids_T, parts(batch), adapter, threads)


def by_numpy(layout, batch, *, adapted=True):
    products = {name: ThinProducts(*products) for name, products in make_products(layout).items()}
    adapter = Adapter(products, make_gates(layout))
    return read_statements(bert_of(layout, make_words(layout)), batch, adapter if adapted else None)


def parts_of(batch, states):
    return np.split(states, batch.starts[1:-1])


@pytest.mark.parametrize("adapted", [False, True])
def test_numpy_computes_attention_with_a_mask(adapted):
    """The definition: full attention over all tokens, of which a statement sees its text and itself."""
    layout = SMALL
    text, statements = [*range(12)], [[20, 21, 22], [30], [40, 41]]
    batch = StatementBatch.of([text], [statements])
    states = by_numpy(layout, batch, adapted=adapted)

    part_T = np.repeat(np.arange(4), batch.lengths_P)
    sees_TT = (part_T[:, None] == part_T) | (part_T == 0)
    is_statement_T1 = part_T[:, None] > 0
    products = make_products(layout)
    parameters = {name: values.astype(float) for name, values in make_parameters(layout).items()}
    bert = bert_of(layout, make_words(layout))
    x_TH = bert.embed_at(batch.ids_T, 0 * batch.ids_T, batch.positions).astype(float)

    def linear(name, x):
        y = x @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]
        if adapted and name in products:
            down, up = products[name]
            y += is_statement_T1 * (x @ down.T @ up.T)
        return y

    def norm(name, x):
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + layout.epsilon)
        return x * parameters[f"{name}.weight"] + parameters[f"{name}.bias"]

    for index in range(layout.depth):
        prefix = f"layers.{index}."
        qkv = linear(f"{prefix}attention.qkv", x_TH).reshape(len(x_TH), 3, layout.heads, layout.head_size)
        q, k, v = qkv.transpose(1, 2, 0, 3)
        scores = q @ k.swapaxes(1, 2) / layout.head_size**0.5
        if adapted:
            scores += make_gates(layout)[index][:, None, None] * (is_statement_T1 & (part_T == 0))
        scores = np.where(sees_TT, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        attended = (weights @ v).swapaxes(0, 1).reshape(len(x_TH), -1)
        x_TH = norm(f"{prefix}attention_norm", x_TH + linear(f"{prefix}attention.output", attended))
        inner = bert.act(linear(f"{prefix}feed_forward.inner", x_TH).astype(np.float32).copy()).astype(float)
        x_TH = norm(f"{prefix}feed_forward_norm", x_TH + linear(f"{prefix}feed_forward.output", inner))
    np.testing.assert_allclose(states, x_TH, rtol=0, atol=2e-5)


@each
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("adapted", [False, True])
def test_the_core_computes_what_numpy_computes(core, dtype, name, adapted):
    layout = LAYOUTS[name]
    batch = StatementBatch.of(*make_statements())
    states = by_core(core, layout, dtype, batch, adapted=adapted, threads=3)
    expected = by_numpy(layout, batch, adapted=adapted)
    if dtype == "float32":
        np.testing.assert_allclose(states, expected, rtol=0, atol=2e-5)
    else:
        cosines = (states * expected).sum(1) / np.linalg.norm(states, axis=1) / np.linalg.norm(expected, axis=1)
        assert cosines.min() > 0.999


@each
def test_a_text_is_read_as_if_nothing_stood_behind_it(core, dtype):
    texts, statements = make_statements()
    batch = StatementBatch.of(texts, statements)
    states = by_core(core, SMALL, dtype, batch)
    lengths = [*map(len, texts)]
    ids = np.concatenate(texts).astype(np.int32)
    alone = make_encoder(core, SMALL, dtype)(make_words(SMALL), ids, None, lengths)

    parts = parts_of(batch, states)
    of_texts = np.concatenate([parts[first] for first in batch.first_parts[:-1]])
    assert np.array_equal(of_texts, alone)


def states_of_one(compute, text, statements, statement):
    """The states of one statement among others behind a text."""
    batch = StatementBatch.of([text], [statements])
    return parts_of(batch, compute(batch))[1 + statements.index(statement)]


def check_independent(compute):
    """A statement has the same bits alone, among others in any order, and in a batch with other texts."""
    texts, statements = make_statements()
    text = texts[0]
    several = statements[0]
    for statement in several:
        alone = states_of_one(compute, text, [statement], statement)
        assert np.array_equal(states_of_one(compute, text, several, statement), alone)
        assert np.array_equal(states_of_one(compute, text, several[::-1], statement), alone)
        assert np.array_equal(states_of_one(compute, text, [*several, *statements[3]], statement), alone)

        batch = StatementBatch.of(texts, statements)
        assert np.array_equal(parts_of(batch, compute(batch))[1 + several.index(statement)], alone)


@each
def test_a_statement_does_not_depend_on_others_in_the_core(core, dtype):
    check_independent(lambda batch: by_core(core, SMALL, dtype, batch))


@each
def test_nor_where_layers_are_int8(core, dtype):
    encoder = make_int8_encoder(core, SMALL, dtype)
    adapter = CoreAdapter(core, SMALL, make_products(SMALL), make_gates(SMALL))
    check_independent(lambda batch: encoder.read_statements(make_words(SMALL), batch.ids_T, parts(batch), adapter, 2))


def test_nor_in_numpy():
    check_independent(lambda batch: by_numpy(SMALL, batch))


@each
def test_an_adapter_changes_statements_alone(core, dtype):
    batch = StatementBatch.of(*make_statements())
    plain = parts_of(batch, by_core(core, SMALL, dtype, batch, adapted=False))
    adapted = parts_of(batch, by_core(core, SMALL, dtype, batch))
    texts = {*batch.first_parts[:-1]}
    for number, (before, after) in enumerate(zip(plain, adapted, strict=True)):
        assert np.array_equal(before, after) == (number in texts)


@each
def test_what_does_not_fit_is_an_error(core, dtype):
    batch = StatementBatch.of([[1] * 10], [[[2], [3] * 513]])
    with pytest.raises(InputError, match="512"):
        by_core(core, SMALL, dtype, batch)

    batch = StatementBatch.of([[1] * 4], [[[2], [3, 4, 5]]])
    with pytest.raises(InputError, match="text 0"):
        by_core(core, SMALL, dtype, replace(batch, lengths_P=np.array([4, 1, -3])))
