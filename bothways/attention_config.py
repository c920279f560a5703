"""Axes that one kind of encoder has alone: tokens that see all, blocks that see others at random, relative positions.
Frozen; know no torch."""

from dataclasses import dataclass
from typing import Literal

from bothways.errors import InputError

Term = Literal["c2p", "p2c"]
LEAST = {  # of an encoder's sizes
    **dict.fromkeys(("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"), 1),
    **dict.fromkeys(("max_position_embeddings", "embedding_size"), 1),
    **dict.fromkeys(
        ("type_vocab_size", "position_offset", "num_layer_groups", "attention_window", "full_attention_every"), 0
    ),
}
MOST = {"num_hidden_layers": 10_000}


@dataclass(frozen=True, kw_only=True)
class GlobalTokensConfig:
    """Where most tokens see a window, chosen ones see all and are seen by all, by maps of their own (Longformer,
    Beltagy 2020, section 3.1)."""

    separator: int  # the id behind a question, whose tokens are chosen

    def __post_init__(self) -> None:
        _whole(self, separator=0)


@dataclass(frozen=True, kw_only=True)
class RandomBlocksConfig:
    """Blocks of tokens see their neighbours, the first, the last, and some at random (BigBird, Zaheer 2020, section 2).
    A text too short for that is seen whole."""

    size: int = 64  # tokens of a block
    number: int = 3  # blocks at random

    def __post_init__(self) -> None:
        _whole(self, size=1, number=0)

    @property
    def shortest(self) -> int:
        """Tokens of the longest text that is seen whole."""
        return (5 + 2 * self.number) * self.size


@dataclass(frozen=True, kw_only=True)
class RelativePositionsConfig:
    """How far apart two tokens are, as a bias on their score (DeBERTa, He 2021, section 3.1)."""

    longest: int  # distances beyond it count as it
    buckets: int = 0  # so many near distances have an entry each way, farther ones share in logarithmic steps; 0: each
    terms: tuple[Term, ...] = ("c2p", "p2c")  # content to position, position to content
    shared: bool = False  # positions go through the maps of queries and keys (v2, v3)
    joint: bool = False  # queries, keys and values head by head in one map without a bias of its own (v1)
    norm: bool = False  # of the table of distances
    kernel: int = 0  # tokens under the convolution beside the first layer, an odd number; 0: there is none
    kernel_act: Literal["tanh", "gelu", "relu"] = "tanh"

    def __post_init__(self) -> None:
        _whole(self, longest=2, buckets=0, kernel=0)
        if 0 < self.buckets < 4:
            raise InputError(f"position_buckets ({self.buckets}) must be 0 or at least 4")
        if self.kernel and self.kernel % 2 == 0:
            raise InputError(f"conv_kernel_size ({self.kernel}) must be 0 or odd")

    @property
    def span(self) -> int:
        """Entries of the table each way."""
        return self.buckets or self.longest


def _whole(axes: object, **least: int) -> None:
    """InputError unless these are whole numbers of at least so many."""
    for name, smallest in least.items():
        value = getattr(axes, name)
        if type(value) is not int or not smallest <= value < 2**31:
            raise InputError(
                f"{type(axes).__name__} {name} ({value!r:.60}) must be a whole number, at least {smallest}"
            )


def refuse_extremes(name: str, value: object) -> None:
    """InputError for a number of an encoder's config that no encoder has."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    least, most = LEAST.get(name, -(2**31)), MOST.get(name, 2**31)
    if not least <= value <= most:
        way = f"at least {least}" if value < least else f"at most {most:,}"
        raise InputError(f"{name} ({value!r:.60}) must be {way}")
