"""What a checkpoint holds: a model with its tokenizer, labels and metadata."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bothways.checkpoint.description import Description
from bothways.config import NO_POOLER, EncoderConfig
from bothways.errors import InputError, format_count
from bothways.families import FAMILIES
from bothways.model.int8 import int8_error, is_int8
from bothways.model.model import Model
from bothways.model.parameters import no_init
from bothways.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, repr=False)
class Checkpoint(Description):
    """A model with its tokenizer and its description. extra: unknown config keys, kept when saving."""

    model: Model
    tokenizer: Tokenizer | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        config, heads = self.model.config, ", ".join(self.model.num_outputs) or "none"
        labels = f", {format_count(len(self.labels), 'label')}" if self.labels else ""
        return (
            f"Checkpoint({self.model_type}, {format_count(config.num_hidden_layers, 'layer')} of {config.hidden_size}, "
            f"heads: {heads}{labels}, tokenizer: {self.tokenizer})"
        )

    def need_tokenizer(self) -> Tokenizer:
        """The tokenizer. InputError if the checkpoint has none."""
        if self.tokenizer is None:
            raise InputError(
                "the checkpoint has no tokenizer files; put its tokenizer.json or vocab.txt next to the weights"
            )
        return self.tokenizer


def check_plain(model: Model) -> None:
    """InputError if a model has int8 layers, which cannot be trained or changed, an adapter that is not merged, or a
    cloze head."""
    check_not_int8(model)
    check_no_adapter(model)
    if model.config.pooling_position:
        raise InputError("a cloze classifier can be used, and teach, but not changed; use the model it was made from")


def check_not_int8(model: Model) -> None:
    """InputError if a model has int8 layers, which cannot be trained or changed."""
    if is_int8(model):
        raise int8_error()


def check_no_adapter(model: Model) -> None:
    """InputError if a model has an adapter that is not part of its weights."""
    if model.adapter is not None:
        raise InputError(
            f"the model has an adapter of kind {model.adapter.kind}, which is not part of its weights: it can be used "
            "but not changed; use the model that it was trained on"
        )


def encoder_only(checkpoint: Checkpoint) -> Checkpoint:
    """The same encoder without heads, labels, pooling and metadata."""
    with no_init():
        model = Model(pooling_config(checkpoint.model.config, checkpoint.model_type, None))
    model.encoder = checkpoint.model.encoder
    return replace(checkpoint, model=model, labels=(), multi_label=False, pooling=None, metadata={})


def pooling_config(config: EncoderConfig, model_type: str, pooling: str | None) -> EncoderConfig:
    """The config with a classification head that reads this pooling ("cls", "mean", "unit", "distance",
    "pair"); None: the family's own."""
    family = FAMILIES[model_type]
    if config.pooler_act in NO_POOLER:  # back to the family's own
        config = config.replace(pooling="first", pooler_act=family.defaults.get("pooler_act", "tanh"))
    if pooling is None:
        return config
    if pooling in ("distance", "pair") or (pooling != "cls" and not family.supports_mean_pooling):
        return config.replace(pooling="mean", pooler_act="none" if pooling == "mean" else pooling)
    return config.replace(pooling="first" if pooling == "cls" else "mean")


def fill_heads(checkpoint: Checkpoint) -> Checkpoint:
    """The same function in the Hugging Face layout: removed heads are there again, with weights of 0."""
    model, config = checkpoint.model, checkpoint.model.config
    if config.attention_head_size is None:
        return checkpoint
    full = Model(
        config.replace(attention_head_size=None, num_attention_heads=config.hidden_size // config.head_size),
        model.num_outputs,
        pooler=model.pooler is not None,
    )
    state = model.state_dict()
    for name, value in full.state_dict().items():
        stored = state[name]
        value.zero_()
        if name.endswith(("attention.qkv.weight", "attention.qkv.bias")):
            for rows, kept in zip(value.chunk(3), stored.chunk(3), strict=True):
                rows[: len(kept)] = kept
        elif name.endswith("attention.output.weight"):
            value[:, : stored.shape[1]] = stored
        else:
            value.copy_(stored)
    return replace(checkpoint, model=full.eval())
