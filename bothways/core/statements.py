"""The adapter of statements, packed for the core: two thin products beside a layer (Hu 2022), and the gates of
attention to the text.

Letters: O outputs and I inputs of a linear layer, R rank, L layers of A heads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bothways.core.layout import CoreLayout
from bothways.core.library import Core
from bothways.core.structures import Array, CAdapter, CFormat, CLinear, address

RANK = 32  # of the packed products: smaller ones have zeros
FLOAT32 = 0  # the number of a format, as vectors.h has it
ADAPTED = {"qkv": "attention.qkv", "inner": "feed_forward.inner"}  # the layers that read states


class CoreAdapter:
    """What is added to two linear layers of each layer, (x down^T) up^T, and to scores of attention, in float32."""

    def __init__(
        self, core: Core, layout: CoreLayout, products: Mapping[str, tuple[Array, Array]], gates_LA: Array
    ) -> None:
        """products: by the names of layers ("layers.0.attention.qkv"), down [R, I] and up [O, R]; R is at most RANK.

        gates_LA: added to the scores of attention from a statement to its text.
        """
        self.core = core
        self.gates_LA = np.ascontiguousarray(gates_LA, np.float32)
        self.panels: list[NDArray[np.uint8]] = []
        self.biases: list[Array] = []

        adapters = []
        for place in range(layout.depth):
            index = place * layout.layers // layout.depth
            fields: dict[str, CLinear | int | None] = {"gates": address(self.gates_LA[index])}
            for part, name in ADAPTED.items():
                down_RI, up_OR = products[f"layers.{index}.{name}"]
                fields[f"{part}_down"] = self._packed(padded(down_RI, RANK, down_RI.shape[1]))
                fields[f"{part}_up"] = self._packed(padded(up_OR, len(up_OR), RANK))
            adapters.append(CAdapter(**fields))
        self.structures = (CAdapter * layout.depth)(*adapters)

    @property
    def address(self) -> int:
        """Of the structures, one for each layer."""
        return ctypes.addressof(self.structures)

    def _packed(self, weight_OI: Array) -> CLinear:
        """A linear layer without a bias."""
        outputs, inputs = weight_OI.shape
        panels = np.zeros(self.core.packed_size(FLOAT32, outputs, inputs), np.uint8)
        bias_O = np.zeros(outputs, np.float32)
        self.core.pack(FLOAT32, address(weight_OI), 0, outputs, inputs, address(panels))
        self.panels.append(panels)
        self.biases.append(bias_O)
        return CLinear(
            panels=address(panels),
            bias=address(bias_O),
            inputs=inputs,
            outputs=outputs,
            format=CFormat(kind=FLOAT32),
        )


def padded(values: Array, rows: int, columns: int) -> Array:
    """A matrix with zeros behind its rows and columns."""
    larger = np.zeros((rows, columns), np.float32)
    larger[: values.shape[0], : values.shape[1]] = values
    return larger
