"""EncoderConfig: sizes and architecture options of an encoder and of special attention (Longformer, BigBird and DeBERTa
in families/), and the sizes by name; frozen dataclasses, without torch.

Field names follow google-research/bert. The defaults are BERT's (Devlin 2018, section 3); each family overrides those
that its paper changed.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from bothways.base.errors import InputError

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
Direction = Literal["both", "forward", "backward", "halves"]
Term = Literal["c2p", "p2c"]
MIN_VALUES = {
    "vocab_size": 1,
    "hidden_size": 1,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 1,
    "max_position_embeddings": 1,
    "embedding_size": 1,
    "type_vocab_size": 0,
    "position_offset": 0,
    "num_layer_groups": 0,
    "attention_window": 0,
    "full_attention_every": 0,
}
MAX_VALUES = {"num_hidden_layers": 10_000}
# Fields in which BERT's layout is free; in all others, it has the defaults.
FREE = frozenset(
    {
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "attention_head_size",
        "intermediate_size",
        "max_position_embeddings",
        "type_vocab_size",
        "hidden_act",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "classifier_dropout",
        "initializer_range",
        "layer_norm_eps",
        "pad_token_id",
        "embedding_size",
        "position_offset",
        "num_layer_groups",
        "pooling",
        "pooler_act",
        "pooler_dropout",
    }
)
POOLED_HEADS = ("next_sentence", "classes")
NO_POOLER = ("none", "unit", "distance", "pair")  # values of pooler_act for heads without a dense pooler
NUM_OUTPUTS = {  # of heads whose size does not depend on the data; 0: the vocabulary
    "masked_words": 0,
    "next_sentence": 2,
    "replaced_tokens": 1,
    "spans": 2,
}


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

    minimum = MIN_VALUES.get(name, -(2**31))
    maximum = MAX_VALUES.get(name, 2**31)
    if not minimum <= value <= maximum:
        limit = f"at least {minimum}" if value < minimum else f"at most {maximum:,}"
        raise InputError(f"{name} ({value!r:.60}) must be {limit}")


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Sizes and architecture of one encoder. Raises InputError for a value outside its range or choices."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12  # 0: static vectors, a table of tokens without positions and segments
    num_attention_heads: int = 12
    attention_head_size: int | None = None  # None: hidden_size / num_attention_heads; heads may have been pruned
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2  # segments; 0: none (DistilBERT, ModernBERT)
    hidden_act: Activation = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None  # None: hidden_dropout_prob
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0

    embedding_size: int | None = None  # if smaller than hidden_size, embeddings are projected up (ALBERT, ELECTRA)
    position_offset: int = 0  # row of the position table for a text's first token (RoBERTa: 2)
    num_layer_groups: int = 0  # layers with weights of their own, each applied several times (ALBERT); 0: all layers
    position_embedding: Literal["learned", "rotary", "none"] = "learned"
    relative_positions: RelativePositionsConfig | None = None  # bias on attention scores by distance (DeBERTa)
    # pre: before attention and feed-forward, and after the last layer (ModernBERT)
    norm: Literal["post", "pre"] = "post"
    feed_forward: Literal["plain", "gated"] = "plain"  # gated: act(a) * b (GeGLU, Shazeer 2020)
    linear_bias: bool = True
    norm_bias: bool = True
    direction: Direction = "both"  # tokens a token attends to; halves: one half of the width in each direction
    attention_window: int = 0  # neighbours on each side that a token attends to; 0: full attention
    full_attention_every: int = 1  # with a window: layers 0, n, 2n ... have full attention; 0: none
    sparse_attention: GlobalTokensConfig | RandomBlocksConfig | None = None  # beyond the window (Longformer, BigBird)
    rotary_theta: float = 160_000.0  # rotary base of layers with full attention
    rotary_theta_window: float = 10_000.0  # ... and of layers with a window
    pooling: Literal["first", "mean"] = "first"  # the text's vector for heads: the first token's ([CLS]), or the mean
    # The last three: model/heads.py.
    pooler_act: Literal["tanh", "gelu", "gelu_tanh", "relu", "silu", "none", "unit", "distance", "pair"] = "tanh"
    pooler_dropout: bool = False  # dropout before the pooler too, not only after it (RoBERTa, ELECTRA)
    pooler_norm: bool = False  # norm after the pooler, which token heads read through too (ModernBERT)
    deep_heads: bool = False  # the pooler uses hidden_act for classes; answers: one more feed-forward layer (BigBird)
    head_bias: bool = True  # bias in all layers of a head except the last

    def __post_init__(self) -> None:
        for field, kind in get_type_hints(type(self)).items():
            value = getattr(self, field)
            _check_type(field, value, kind)
            # An encoder has a layer at least, which static vectors do without.
            if field != "num_hidden_layers" or not self.is_static:
                check_range(field, value)

        for field in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            rate = getattr(self, field)
            if not 0 <= (rate or 0) < 1:
                raise InputError(f"{field} ({rate}) must be at least 0 and less than 1")

        if self.direction == "halves":
            self._check_halves()

        if self.attention_head_size is None and self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size ({self.hidden_size}) must be divisible by num_attention_heads "
                f"({self.num_attention_heads})"
            )

        if self.position_embedding == "rotary" and self.head_size % 2:
            raise InputError(f"position_embedding 'rotary' needs an even head size, not {self.head_size}")

    def _check_halves(self) -> None:
        """InputError unless the sizes can be divided between two one-way halves."""
        if (self.hidden_size | self.num_attention_heads | self.intermediate_size) % 2:
            raise InputError("direction 'halves' needs even hidden_size, num_attention_heads and intermediate_size")

        # Both halves read the same word vectors, without a projection.
        if self.embedding_size != self.hidden_size // 2:
            raise InputError(f"direction 'halves' needs embedding_size {self.hidden_size // 2}, the width of a half")

    @property
    def is_static(self) -> bool:
        """Whether a token has the same vector in every text: nothing tells its place, and no layer reads the others."""
        has_places = self.position_embedding != "none" or self.relative_positions is not None or self.type_vocab_size
        return self.num_hidden_layers == 0 and not has_places

    @property
    def has_bert_layout(self) -> bool:
        """Whether the encoder computes as BERT does; the encoders of DistilBERT, ELECTRA, RoBERTa and ALBERT do too."""
        plain = EncoderConfig()
        return all(getattr(self, name) == getattr(plain, name) for name in CONFIG_FIELDS - FREE)

    @property
    def head_dropout(self) -> float:
        """The dropout rate of heads."""
        if self.classifier_dropout is None:
            return self.hidden_dropout_prob
        return self.classifier_dropout

    @property
    def num_unique_layers(self) -> int:
        """Layers with weights of their own."""
        return self.num_layer_groups or self.num_hidden_layers

    @property
    def head_size(self) -> int:
        """Size of the queries, keys and values of an attention head."""
        return self.attention_head_size or self.hidden_size // self.num_attention_heads

    def layer_window(self, index: int) -> int:
        """Neighbours on each side that tokens attend to in this layer; 0: full attention."""
        if self.full_attention_every and index % self.full_attention_every == 0:
            return 0
        return self.attention_window

    def layer_sides(self, index: int) -> tuple[int, int]:
        """Tokens before and after it that a token attends to in this layer; -1: all."""
        window = self.layer_window(index) or -1
        before = 0 if self.direction == "backward" else window
        after = 0 if self.direction == "forward" else window
        return before, after

    def half(self, direction: Literal["forward", "backward"]) -> "EncoderConfig":
        """The config of one of the two one-way halves."""
        return self.replace(
            hidden_size=self.hidden_size // 2,
            num_attention_heads=self.num_attention_heads // 2,
            intermediate_size=self.intermediate_size // 2,
            direction=direction,
            embedding_size=None,
        )

    def replace(self, **changes: object) -> "EncoderConfig":
        """A copy with these fields changed, checked like a new one."""
        return replace(self, **changes)  # type: ignore[arg-type]


def _check_type(field: str, value: object, kind: Any) -> None:
    """InputError unless the value is one of the choices of its field, or has its type."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            choices = ", ".join(map(repr, get_args(kind)))
            raise InputError(f"{field} {value!r:.60} is not supported; choose one of {choices}")
        return

    if not _has_type(value, get_args(kind) or (kind,)):
        wanted = "an integer" if kind in (int, int | None) else "a number"
        raise InputError(f"{field} {value!r:.60} must be {wanted}")


def _has_type(value: object, types: tuple[type, ...]) -> bool:
    """Whether a value has one of these types; an int is also a float, a bool is neither."""
    return type(value) in types or (type(value) is int and float in types)


CONFIG_FIELDS = frozenset(field.name for field in fields(EncoderConfig))


def encodes_separately(config: EncoderConfig) -> bool:
    """Whether the classification head compares the texts of a pair, each encoded separately."""
    return config.pooler_act in ("distance", "pair")


def unit_scale(hidden_size: int) -> float:
    """The power of two nearest to sqrt(H) by exponent."""
    return float(2 ** round(math.log2(hidden_size) / 2))


def _size(*, layers: int, hidden: int, heads: int) -> EncoderConfig:
    return EncoderConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )


SIZES = {
    "tiny": _size(layers=2, hidden=128, heads=2),
    "mini": _size(layers=4, hidden=256, heads=4),
    "small": _size(layers=4, hidden=512, heads=8),
    "medium": _size(layers=8, hidden=512, heads=8),
    "base": _size(layers=12, hidden=768, heads=12),
    "large": _size(layers=24, hidden=1024, heads=16),
}
