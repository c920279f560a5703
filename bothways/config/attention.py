"""Config of special attention: global tokens, random blocks, relative positions.

See Longformer, BigBird and DeBERTa in families/.

Frozen dataclasses, without torch; also the allowed ranges of config values.
"""

from dataclasses import dataclass
from typing import Literal

from bothways.errors import InputError

Term = Literal["c2p", "p2c"]
MIN_VALUES = {
    **dict.fromkeys(("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"), 1),
    **dict.fromkeys(("max_position_embeddings", "embedding_size"), 1),
    **dict.fromkeys(("type_vocab_size", "position_offset", "num_layer_groups"), 0),
    **dict.fromkeys(("attention_window", "full_attention_every"), 0),
}
MAX_VALUES = {"num_hidden_layers": 10_000}


@dataclass(frozen=True, kw_only=True)
class GlobalTokensConfig:
    """Most tokens attend within a window; global tokens attend to all tokens and all tokens attend to them, with
    projections of their own (Longformer, Beltagy 2020, section 3.1)."""

    separator: int  # id of the token that ends a question; the question's tokens are global

    def __post_init__(self) -> None:
        _check_integers(self, separator=0)


@dataclass(frozen=True, kw_only=True)
class RandomBlocksConfig:
    """Blocks of tokens attend to their neighbours, the first and the last block, and some at random (BigBird, Zaheer
    2020, section 2). Texts too short for that have full attention."""

    size: int = 64  # tokens per block
    num_random: int = 3  # random blocks per block

    def __post_init__(self) -> None:
        _check_integers(self, size=1, num_random=0)

    @property
    def max_full_length(self) -> int:
        """Texts of up to this many tokens have full attention."""
        return (5 + 2 * self.num_random) * self.size


@dataclass(frozen=True, kw_only=True)
class RelativePositionsConfig:
    """A bias on attention scores by the distance between two tokens (DeBERTa, He 2021, section 3.1)."""

    max_distance: int  # longer distances count as this one
    buckets: int = 0  # near distances have an entry each, far ones share logarithmic buckets; 0: one entry per distance
    terms: tuple[Term, ...] = ("c2p", "p2c")  # content to position, position to content
    shared: bool = False  # positions use the query and key projections of the content (v2, v3)
    joint: bool = False  # queries, keys and values interleaved by head in one projection without bias (v1)
    norm: bool = False  # layer norm of the distance table
    kernel: int = 0  # kernel size of the convolution next to the first layer, odd; 0: no convolution
    kernel_act: Literal["tanh", "gelu", "relu"] = "tanh"

    def __post_init__(self) -> None:
        _check_integers(self, max_distance=2, buckets=0, kernel=0)
        if 0 < self.buckets < 4:
            raise InputError(f"position_buckets ({self.buckets}) must be 0 or at least 4")
        if self.kernel and self.kernel % 2 == 0:
            raise InputError(f"conv_kernel_size ({self.kernel}) must be 0 or odd")

    @property
    def span(self) -> int:
        """Entries of the distance table in each direction."""
        return self.buckets or self.max_distance


def _check_integers(config: object, **minima: int) -> None:
    """InputError unless these fields are integers, each at least its minimum."""
    for name, minimum in minima.items():
        value = getattr(config, name)
        if type(value) is not int or not minimum <= value < 2**31:
            raise InputError(f"{type(config).__name__} {name} ({value!r:.60}) must be an integer, at least {minimum}")


def check_range(name: str, value: object) -> None:
    """InputError if a number in an encoder's config is outside its range."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    minimum, maximum = MIN_VALUES.get(name, -(2**31)), MAX_VALUES.get(name, 2**31)
    if not minimum <= value <= maximum:
        limit = f"at least {minimum}" if value < minimum else f"at most {maximum:,}"
        raise InputError(f"{name} ({value!r:.60}) must be {limit}")
