"""Random encoders of small sizes, for the core and for numpy, which is its specification."""

from types import SimpleNamespace

import numpy as np
import pytest

from bothways.core.core import CoreEncoder
from bothways.core.layout import CoreLayout, is_linear, parameter_shapes
from bothways.core.library import Absence, Core, available_sets, find_core
from bothways.inference.backends.forward import Bert

SMALL = CoreLayout(
    hidden=64,
    embedding=64,
    heads=2,
    head_size=32,
    inner=160,
    positions=512,
    position_offset=0,
    segments=2,
    depth=2,
    layers=2,
    activation="gelu",
    epsilon=1e-12,
)
NUM_WORDS = 101


def cores():
    """The core for each instruction set of this processor; none where it was not compiled."""
    core = find_core()
    return [] if isinstance(core, Absence) else [Core(core.library, name) for name in available_sets(core.library)]


def computing():
    """Each instruction set with each of its number formats, for parametrize("core, dtype", computing())."""
    params = [
        pytest.param(core, dtype, id=f"{core.instruction_set}-{dtype}") for core in cores() for dtype in core.formats
    ]
    return params or [pytest.param(None, "", marks=pytest.mark.skip(reason="the core is not compiled here"))]


def make_parameters(layout, seed=0):
    """Random parameters, which keep states near length 1."""
    random = np.random.default_rng(seed)
    parameters = {}
    for name, shape in parameter_shapes(layout).items():
        values = random.standard_normal(shape, np.float32)
        if name.endswith("norm.weight"):
            values = 1 + values / 10
        elif is_linear(name, shape):
            values *= 1.2 / shape[1] ** 0.5
        else:
            values /= 20
        parameters[name] = values
    return parameters


def linear_names(layout):
    """The names of the linear layers."""
    return [name.removesuffix(".weight") for name, shape in parameter_shapes(layout).items() if is_linear(name, shape)]


def make_int8(parameters, layer, seed=5):
    """The tensors of an int8 layer with about these weights, for inputs between -4 and 4 before a factor of each."""
    weight_OI = parameters[f"{layer}.weight"]
    random = np.random.default_rng(seed)
    sizes_I = random.uniform(0.8, 1.25, weight_OI.shape[1]).astype(np.float32)
    scale_O = np.abs(weight_OI * sizes_I).max(1) / 127
    input_scale = np.float32(8 / 255)
    return {
        "weight_int8": np.rint(weight_OI * sizes_I / scale_O[:, None]).astype(np.int8),
        "weight_scale": scale_O,
        "bias": parameters[f"{layer}.bias"],
        "input_factor": 1 / (input_scale * sizes_I),
        "input_scale": input_scale,
        "input_zero": np.int64(127),
    }


def make_int8_encoder(core, layout=SMALL, dtype="float32", layers=None):
    """An encoder some of whose layers are int8. layers: their names; None: all."""
    parameters = make_parameters(layout)
    layers = linear_names(layout) if layers is None else layers
    encoder = CoreEncoder(core, layout, dtype, layers)
    for layer in layers:
        encoder.put_int8(layer, **make_int8(parameters, layer))
    for name, values in parameters.items():
        if name.rsplit(".", 1)[0] not in layers:
            encoder.put(name, 0, values)
    return encoder


def make_words(layout, seed=1):
    return np.random.default_rng(seed).standard_normal((NUM_WORDS, layout.embedding), np.float32) / 10


def make_encoder(core, layout=SMALL, dtype="float32", parameters=None):
    encoder = CoreEncoder(core, layout, dtype)
    for name, values in (parameters or make_parameters(layout)).items():
        encoder.put(name, 0, values)
    return encoder


def make_batch(lengths, layout=SMALL, seed=2):
    """Ids, segments and lengths of random texts."""
    random = np.random.default_rng(seed)
    num_tokens = sum(lengths)
    ids = random.integers(0, NUM_WORDS, num_tokens, np.int32)
    segments = random.integers(0, max(1, layout.segments), num_tokens, np.int32)
    return ids, segments, np.array(lengths)


class Int8Linear:
    """An int8 layer in numpy, as model/int8.py has it."""

    def __init__(self, tensors):
        self.tensors = tensors
        self.scale_O = tensors["weight_scale"] * tensors["input_scale"]
        self.weight_HO = tensors["weight_int8"].T  # whose size is read

    def __call__(self, x_TI):
        zero = self.tensors["input_zero"]
        q_TI = np.clip(np.rint(x_TI * self.tensors["input_factor"] + zero), 0, 255).astype(np.int64)
        sums_TO = (q_TI - zero) @ self.tensors["weight_int8"].T.astype(np.int64)
        return sums_TO.astype(np.float32) * self.scale_O + self.tensors["bias"]


def bert_of(layout, words, parameters=None):
    """An encoder in numpy."""
    parameters = parameters or make_parameters(layout)
    config = SimpleNamespace(
        hidden_act=layout.activation,
        num_hidden_layers=layout.depth,
        num_unique_layers=layout.layers,
        num_attention_heads=layout.heads,
        layer_norm_eps=layout.epsilon,
        type_vocab_size=layout.segments,
        position_offset=layout.position_offset,
        pooling="mean",
    )
    named = {
        f"encoder.{name}": values.T if is_linear(name, values.shape) else values for name, values in parameters.items()
    }
    table = SimpleNamespace(rows=lambda ids: words[ids].copy())
    return Bert(config, named, table)


def by_numpy(layout, words, ids, segments, lengths, rows=None, parameters=None, int8=()):
    """What forward.py computes. int8: names of layers that are int8."""
    parameters = parameters or make_parameters(layout)
    bert = bert_of(layout, words, parameters)
    fields = {
        "attention.qkv": "qkv",
        "attention.output": "attention_output",
        "feed_forward.inner": "inner",
        "feed_forward.output": "output",
    }
    for layer in int8:
        _, index, name = layer.split(".", 2)
        changed = {fields[name]: Int8Linear(make_int8(parameters, layer))}
        bert.layers[int(index)] = bert.layers[int(index)]._replace(**changed)
    return bert(ids, segments, [*lengths], rows)


def means(states, lengths):
    """The mean of each text's states, of length 1."""
    starts = np.cumsum(lengths) - lengths
    sums = np.add.reduceat(states, starts)
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)
