"""How far statements hold for a text: the head that is read at a statement, and the adapter that reads statements.

A model directory may hold both as one file beside the encoder's weights, which stay as they are: texts are read as
without it. No torch.

Letters: K statements of a text, H hidden size, R rank of the adapter, O outputs and I inputs of a linear layer, L
layers of A heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from bothways.base.errors import InputError

Array = NDArray[np.float32]

STATEMENTS = "statements.safetensors"  # file of a model's directory
QKV = "attention.qkv"
INNER = "feed_forward.inner"
ADAPTED = (QKV, INNER)  # the linear layers that read states
DOWN, UP = "down", "up"  # endings of the adapter's tensors
PROJECTION = "projection"
PARTS = (PROJECTION, "shift", "weight", "gates", "scalars")
STATEMENT_TOKENS = 256  # of a statement at most, special tokens included


@dataclass(frozen=True)
class StatementHead:
    """Log-odds that a statement holds: cosine_scale cos(P h + shift, v) + weight h + bias, where h is the mean of the
    statement's states and v the mean of the text's.

    products: by names of linear layers ("layers.0.attention.qkv"), down [R, I] and up [O, R] of the adapter.
    gates_LA: added to the scores of attention from a statement to its text, for each layer and head.
    projection_HH, shift_H, weight_H, bias, cosine_scale: of the head.
    choice_shift: added to the log-odds of the options of a choice, against none of them: a bare name as an option
    scores lower than a sentence that holds.
    """

    products: Mapping[str, tuple[Array, Array]]
    gates_LA: Array
    projection_HH: Array
    shift_H: Array
    weight_H: Array
    bias: float
    cosine_scale: float
    choice_shift: float = 0.0

    def scores(self, text_H: Array, statements_KH: Array) -> Array:
        """The log-odds of each statement of a text, float32 [K].

        Each statement is a product of its own, so that the others do not change a bit."""
        vectors_K1H = statements_KH[:, None].astype(np.float64)
        projected_K1H = vectors_K1H @ self.exact_projection.T + self.shift_H
        lengths_K = np.sqrt((projected_K1H**2).sum((1, 2)))
        text_H = text_H.astype(np.float64)
        text_H = text_H / np.sqrt((text_H**2).sum())

        cosines_K = (projected_K1H * text_H).sum((1, 2)) / np.maximum(lengths_K, 1e-12)
        linear_K = (vectors_K1H * self.weight_H).sum((1, 2))
        scores_K: Array = (self.cosine_scale * cosines_K + linear_K + self.bias).astype(np.float32)
        return scores_K

    @cached_property
    def exact_projection(self) -> NDArray[np.float64]:
        """The projection for sums in float64, [H, H]; made once, not for each text."""
        return self.projection_HH.astype(np.float64)

    # --- files --------------------------------------------------------------------------------------------------------

    def write(self, directory: Path) -> None:
        """Write the file of a model directory, in float16."""
        tensors = {
            PROJECTION: self.projection_HH,
            "shift": self.shift_H,
            "weight": self.weight_H,
            "gates": self.gates_LA,
        }
        for name, (down_RI, up_OR) in self.products.items():
            tensors[f"{name}.{DOWN}"] = down_RI
            tensors[f"{name}.{UP}"] = up_OR
        stored = {name: np.ascontiguousarray(values, np.float16) for name, values in tensors.items()}
        stored["scalars"] = np.array([self.bias, self.cosine_scale, self.choice_shift], np.float32)
        # As bytes: save_file would restrict the file to its owner.
        (directory / STATEMENTS).write_bytes(save(stored))

    @staticmethod
    def read(file: Path, hidden_size: int) -> StatementHead:
        """The head and adapter in a file. InputError if it is broken, or for an encoder of another size."""
        try:
            stored = {name: values.astype(np.float32) for name, values in load_file(file).items()}
        except (OSError, ValueError, SafetensorError) as error:
            raise InputError(f"{file}: broken ({error}); copy it again, or delete it") from None
        if missing := sorted({*PARTS} - {*stored}):
            raise InputError(f"{file}: {', '.join(missing)} missing; it is not the head of statements")
        if stored[PROJECTION].shape != (hidden_size, hidden_size):
            raise InputError(f"{file}: for a hidden size of {len(stored[PROJECTION])}, not {hidden_size}")

        layers = {name.removesuffix(f".{DOWN}") for name in stored if name.endswith(f".{DOWN}")}
        bias, cosine_scale, *choice_shift = stored["scalars"].tolist()
        return StatementHead(
            products={name: (stored[f"{name}.{DOWN}"], stored[f"{name}.{UP}"]) for name in sorted(layers)},
            gates_LA=stored["gates"],
            projection_HH=stored[PROJECTION],
            shift_H=stored["shift"],
            weight_H=stored["weight"],
            bias=bias,
            cosine_scale=cosine_scale,
            choice_shift=choice_shift[0] if choice_shift else 0.0,
        )
