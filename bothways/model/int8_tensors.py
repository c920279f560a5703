"""The tensors of a stored int8 model (int8.py): names, shapes and number formats. No torch."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

WEIGHT = ".weight_int8"  # ends the name of the integers of a layer
TABLE = "encoder.embeddings.words.weight"  # which a file has as integers, and a scale for each row
TABLE_INT8 = "encoder.embeddings.words.table_int8"
TABLE_SCALE = "encoder.embeddings.words.table_scale"
# Number formats of safetensors.
FLOATS = ("F16", "BF16", "F32")
INT8 = ("I8",)
INTEGERS = ("I8", "I16", "I32", "I64")


class Stored(NamedTuple):
    """A tensor in a file: its shape, and the number formats that it may have."""

    shape: tuple[int, ...]
    formats: tuple[str, ...]


def int8_layers(names: Iterable[str]) -> list[str]:
    """The layers that are int8, by the names of all tensors of a model."""
    return [name.removesuffix(WEIGHT) for name in names if name.endswith(WEIGHT)]


def layer_tensors(outputs: int, inputs: int) -> dict[str, Stored]:
    """The tensors of an int8 layer, by the ends of their names."""
    return {
        "weight_int8": Stored((outputs, inputs), INT8),
        "weight_scale": Stored((outputs,), FLOATS),
        "bias": Stored((outputs,), FLOATS),
        "input_factor": Stored((inputs,), FLOATS),
        "input_scale": Stored((), FLOATS),
        "input_zero": Stored((), INTEGERS),
    }


def stored_tensors(shapes: Mapping[str, tuple[int, ...]], layers: Iterable[str]) -> dict[str, Stored]:
    """The tensors that a file must have.

    shapes: of the parameters of the float model, matrices [out, in].
    layers: the layers that are int8, which are layers of that model.
    """
    tensors = {name: Stored(shape, FLOATS) for name, shape in shapes.items()}
    for layer in layers:
        outputs, inputs = tensors.pop(f"{layer}.weight").shape
        for end, stored in layer_tensors(outputs, inputs).items():
            tensors[f"{layer}.{end}"] = stored

    num_words, size = tensors.pop(TABLE).shape
    tensors[TABLE_INT8] = Stored((num_words, size), INT8)
    tensors[TABLE_SCALE] = Stored((num_words,), FLOATS)
    return tensors
