"""What an encoder is: its sizes, then the few axes on which published encoders differ. Frozen; knows no torch.

Names are google-research/bert's. The axes' defaults are BERT (Devlin 2018, section 3); a variant sets what its paper
changed.
"""

from dataclasses import dataclass, fields, replace
from typing import Literal, get_args, get_origin, get_type_hints

from bothways.attention_config import GlobalTokensConfig, RandomBlocksConfig, RelativePositionsConfig, refuse_extremes
from bothways.errors import InputError

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
Direction = Literal["both", "forward", "backward", "halves"]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Sizes and axes of one encoder. Values outside their range or list are refused with InputError."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
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

    embedding_size: int | None = None  # narrower than hidden_size: looked up narrow, then widened (ALBERT, ELECTRA)
    position_offset: int = 0  # entries of the position table before that of a text's first token (RoBERTa: 2)
    num_layer_groups: int = (
        0  # so many layers have weights of their own, each used several times in turn (ALBERT); 0: all
    )
    position_embedding: Literal["learned", "rotary", "none"] = "learned"
    relative_positions: RelativePositionsConfig | None = None  # a bias on scores by distance (DeBERTa)
    norm: Literal["post", "pre"] = "post"  # pre: norm first, and once more at the end (ModernBERT)
    feed_forward: Literal["plain", "gated"] = "plain"  # gated: act(a) * b (GeGLU, Shazeer 2020)
    linear_bias: bool = True
    norm_bias: bool = True
    direction: Direction = "both"  # where a token looks; halves: one half each way
    attention_window: int = 0  # a token sees this many neighbours on each side; 0: the whole text
    full_attention_every: int = 1  # every n-th layer from the first sees the whole text in spite of the window; 0: none
    sparse_attention: GlobalTokensConfig | RandomBlocksConfig | None = None  # who else sees whom (Longformer, BigBird)
    rotary_theta: float = 160_000.0  # wavelengths of layers that see the whole text
    rotary_theta_window: float = 10_000.0  # ... and of those that see a window
    pooling: Literal["first", "mean"] = "first"  # which of a text's vectors stands for it: [CLS]'s, or their mean
    # The last three: model/pooler.py.
    pooler_act: Literal["tanh", "gelu", "gelu_tanh", "relu", "silu", "none", "unit", "distance"] = "tanh"
    pooler_dropout: bool = False  # before the pooler's map too, not only after it (RoBERTa, ELECTRA)
    pooler_norm: bool = False  # behind the pooler, which scores of tokens go through too (ModernBERT)
    deep_heads: bool = False  # classes: the pooler has hidden_act; answers: one more feed-forward (BigBird)
    head_bias: bool = True  # of the maps before a head's last one

    def __post_init__(self) -> None:
        for field, kind in get_type_hints(type(self)).items():
            value = getattr(self, field)
            if get_origin(kind) is Literal and value not in get_args(kind):
                known = ", ".join(map(repr, get_args(kind)))
                raise InputError(f"{field} {value!r:.60} is not supported; one of {known} is")
            if get_origin(kind) is not Literal and not _is_a(value, get_args(kind) or (kind,)):
                whole = "whole " if kind in (int, int | None) else ""
                raise InputError(f"{field} {value!r:.60} must be a {whole}number")
            refuse_extremes(field, value)
        for field in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            if not 0 <= (getattr(self, field) or 0) < 1:
                raise InputError(f"{field} ({getattr(self, field)}) must be at least 0 and less than 1")
        if self.direction == "halves":
            if (self.hidden_size | self.num_attention_heads | self.intermediate_size) % 2:
                raise InputError("direction 'halves' needs even hidden_size, num_attention_heads and intermediate_size")
            if self.embedding_size != self.hidden_size // 2:
                raise InputError(f"direction 'halves' needs embedding_size {self.hidden_size // 2}, as wide as a half")
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size ({self.hidden_size}) must be divisible by num_attention_heads "
                f"({self.num_attention_heads})"
            )
        if self.position_embedding == "rotary" and self.head_size % 2:
            raise InputError(f"position_embedding 'rotary' needs heads of an even size, not {self.head_size}")

    @property
    def head_dropout(self) -> float:
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @property
    def num_unique_layers(self) -> int:
        """How many layers have weights of their own."""
        return self.num_layer_groups or self.num_hidden_layers

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def layer_window(self, index: int) -> int:
        """How far the tokens of a layer see to each side; 0: the whole text."""
        return 0 if self.full_attention_every and index % self.full_attention_every == 0 else self.attention_window

    def layer_sides(self, index: int) -> tuple[int, int]:
        """How many tokens before it and behind it a layer's token sees; -1: all."""
        window = self.layer_window(index) or -1
        return (0 if self.direction == "backward" else window), (0 if self.direction == "forward" else window)

    def half(self, direction: Literal["forward", "backward"]) -> "EncoderConfig":
        """One of two one-way halves."""
        wide = {name: getattr(self, name) // 2 for name in ("hidden_size", "num_attention_heads", "intermediate_size")}
        return self.replace(**wide, direction=direction, embedding_size=None)

    def replace(self, **changes: object) -> "EncoderConfig":
        return replace(self, **changes)  # type: ignore[arg-type]


def _is_a(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether a value is of one of these kinds; a whole number is also a number, a truth value is not."""
    return type(value) in kinds or (type(value) is int and float in kinds)


CONFIG_FIELDS = frozenset(field.name for field in fields(EncoderConfig))
