"""The sizes and parameters of a model of BERT's layout, and why the core does not compute some of these models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ACTIVATIONS = {"gelu": 1, "gelu_tanh": 2, "relu": 3, "silu": 4}
MULTIPLE = 32  # of the sizes of layers
HEAD_MULTIPLE = 16
SIZES = (  # of `CoreLayout`, which C gets too
    "hidden",
    "embedding",
    "heads",
    "head_size",
    "inner",
    "positions",
    "position_offset",
    "segments",
    "depth",
)
# The linear layers and norms of a layer.
LINEARS = ("attention.qkv", "attention.output", "feed_forward.inner", "feed_forward.output")
NORMS = ("attention_norm", "feed_forward_norm")


@dataclass(frozen=True)
class CoreLayout:
    """Sizes of a model of BERT's layout.

    positions: rows of the table of positions.
    position_offset: the row of a text's first token.
    segments: rows of the table of segments; 0: none.
    depth: number of layers.
    layers: of these, with weights of their own, each used by several neighbours (Lan 2020).
    """

    hidden: int
    embedding: int
    heads: int
    head_size: int
    inner: int
    positions: int
    position_offset: int
    segments: int
    depth: int
    layers: int
    activation: str
    epsilon: float

    def refusal(self) -> str:
        """Why the core does not compute such a model; "" if it does."""
        if self.activation not in ACTIVATIONS:
            return f"it has no activation {self.activation}"
        sizes = {
            "hidden size": self.hidden,
            "size of embeddings": self.embedding,
            "inner size": self.inner,
            "size of all heads": self.heads * self.head_size,
        }
        for name, size in sizes.items():
            if size % MULTIPLE:
                return f"the {name} is {size}, not a multiple of {MULTIPLE}"
        if self.head_size % HEAD_MULTIPLE:
            return f"the size of a head is {self.head_size}, not a multiple of {HEAD_MULTIPLE}"
        return ""


def parameter_shapes(layout: CoreLayout) -> dict[str, tuple[int, ...]]:
    """The parameters of an encoder by our names, without the table of words; matrices are [out, in]."""
    hidden = layout.hidden
    attended = layout.heads * layout.head_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.positions.weight": (layout.positions, layout.embedding),
        "embeddings.norm.weight": (layout.embedding,),
        "embeddings.norm.bias": (layout.embedding,),
    }
    if layout.segments:
        shapes["embeddings.segments.weight"] = (layout.segments, layout.embedding)

    linears: dict[str, tuple[int, int]] = {}
    if layout.embedding != hidden:
        linears["embeddings.widen"] = (hidden, layout.embedding)
    for index in range(layout.layers):
        prefix = f"layers.{index}."
        linears[f"{prefix}attention.qkv"] = (3 * attended, hidden)
        linears[f"{prefix}attention.output"] = (hidden, attended)
        linears[f"{prefix}feed_forward.inner"] = (layout.inner, hidden)
        linears[f"{prefix}feed_forward.output"] = (hidden, layout.inner)
        for norm in NORMS:
            shapes[f"{prefix}{norm}.weight"] = (hidden,)
            shapes[f"{prefix}{norm}.bias"] = (hidden,)

    for name, (outputs, inputs) in linears.items():
        shapes[f"{name}.weight"] = (outputs, inputs)
        shapes[f"{name}.bias"] = (outputs,)
    return shapes


def is_linear(name: str, shape: Sequence[int]) -> bool:
    """Whether a parameter is the weight of a linear layer, not a table of embeddings."""
    return len(shape) == 2 and not name.endswith(("words.weight", "positions.weight", "segments.weight"))
