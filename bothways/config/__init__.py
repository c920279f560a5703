"""EncoderConfig: sizes and architecture options of an encoder; frozen, without torch.

Field names follow google-research/bert. The defaults are BERT's (Devlin 2018, section 3); each family overrides those
that its paper changed.
"""

from dataclasses import dataclass, fields, replace
from typing import Literal, get_args, get_origin, get_type_hints

from bothways.config.attention import GlobalTokensConfig, RandomBlocksConfig, RelativePositionsConfig, check_range
from bothways.errors import InputError

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
Direction = Literal["both", "forward", "backward", "halves"]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Sizes and architecture of one encoder. Raises InputError for a value outside its range or choices."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
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
    norm: Literal["post", "pre"] = (
        "post"  # pre: before attention and feed-forward, and after the last layer (ModernBERT)
    )
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
    pooling_position: int = 0  # of "first": that of the token behind the first one ([MASK] in cloze classification)
    # The last three: model/pooler.py.
    pooler_act: Literal["tanh", "gelu", "gelu_tanh", "relu", "silu", "none", "unit", "distance", "pair"] = "tanh"
    pooler_dropout: bool = False  # dropout before the pooler too, not only after it (RoBERTa, ELECTRA)
    pooler_norm: bool = False  # norm after the pooler, which token heads read through too (ModernBERT)
    deep_heads: bool = False  # the pooler uses hidden_act for classes; answers: one more feed-forward layer (BigBird)
    head_bias: bool = True  # bias in all layers of a head except the last

    def __post_init__(self) -> None:
        for field, kind in get_type_hints(type(self)).items():
            value = getattr(self, field)
            if get_origin(kind) is Literal and value not in get_args(kind):
                choices = ", ".join(map(repr, get_args(kind)))
                raise InputError(f"{field} {value!r:.60} is not supported; choose one of {choices}")
            if get_origin(kind) is not Literal and not _has_type(value, get_args(kind) or (kind,)):
                wanted = "an integer" if kind in (int, int | None) else "a number"
                raise InputError(f"{field} {value!r:.60} must be {wanted}")
            check_range(field, value)
        for field in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            if not 0 <= (getattr(self, field) or 0) < 1:
                raise InputError(f"{field} ({getattr(self, field)}) must be at least 0 and less than 1")
        if self.direction == "halves":
            if (self.hidden_size | self.num_attention_heads | self.intermediate_size) % 2:
                raise InputError("direction 'halves' needs even hidden_size, num_attention_heads and intermediate_size")
            if self.embedding_size != self.hidden_size // 2:
                raise InputError(
                    f"direction 'halves' needs embedding_size {self.hidden_size // 2}, the width of a half"
                )
        if self.attention_head_size is None and self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size ({self.hidden_size}) must be divisible by num_attention_heads "
                f"({self.num_attention_heads})"
            )
        if self.position_embedding == "rotary" and self.head_size % 2:
            raise InputError(f"position_embedding 'rotary' needs an even head size, not {self.head_size}")

    @property
    def head_dropout(self) -> float:
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @property
    def num_unique_layers(self) -> int:
        """Layers with weights of their own."""
        return self.num_layer_groups or self.num_hidden_layers

    @property
    def head_size(self) -> int:
        return self.attention_head_size or self.hidden_size // self.num_attention_heads

    def layer_window(self, index: int) -> int:
        """Neighbours on each side that tokens attend to in this layer; 0: full attention."""
        return 0 if self.full_attention_every and index % self.full_attention_every == 0 else self.attention_window

    def layer_sides(self, index: int) -> tuple[int, int]:
        """Tokens before and after it that a token attends to in this layer; -1: all."""
        window = self.layer_window(index) or -1
        return (0 if self.direction == "backward" else window), (0 if self.direction == "forward" else window)

    def half(self, direction: Literal["forward", "backward"]) -> "EncoderConfig":
        """The config of one of the two one-way halves."""
        sizes = {name: getattr(self, name) // 2 for name in ("hidden_size", "num_attention_heads", "intermediate_size")}
        return self.replace(**sizes, direction=direction, embedding_size=None)

    def replace(self, **changes: object) -> "EncoderConfig":
        """A copy with these fields changed, checked like a new one."""
        return replace(self, **changes)  # type: ignore[arg-type]


def _has_type(value: object, types: tuple[type, ...]) -> bool:
    """Whether a value has one of these types; an int is also a float, a bool is neither."""
    return type(value) in types or (type(value) is int and float in types)


CONFIG_FIELDS = frozenset(field.name for field in fields(EncoderConfig))
