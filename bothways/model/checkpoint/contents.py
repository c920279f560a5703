"""Checkpoint: a model with its tokenizer, labels and metadata."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from bothways.base.errors import InputError, format_count
from bothways.model.checkpoint.description import Description
from bothways.model.config import EncoderConfig
from bothways.model.families import FAMILIES
from bothways.model.int8 import int8_error, is_int8
from bothways.model.model import Model, initialize
from bothways.model.parameters import no_init
from bothways.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, repr=False)
class Checkpoint(Description):
    """A model with its tokenizer and its description.

    extra: unknown config keys, kept when saving.
    """

    model: Model
    tokenizer: Tokenizer | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        config = self.model.config
        parts = [
            self.model_type,
            f"{format_count(config.num_hidden_layers, 'layer')} of {config.hidden_size}",
            f"heads: {', '.join(self.model.num_outputs) or 'none'}",
        ]
        if self.labels:
            parts.append(format_count(len(self.labels), "label"))
        parts.append(f"tokenizer: {self.tokenizer}")
        return f"Checkpoint({', '.join(parts)})"

    def need_tokenizer(self) -> Tokenizer:
        """The tokenizer. InputError if the checkpoint has none."""
        if self.tokenizer is None:
            raise InputError(
                "the checkpoint has no tokenizer files; put its tokenizer.json or vocab.txt next to the weights"
            )
        return self.tokenizer


def with_dropout(config: EncoderConfig, dropout: float) -> EncoderConfig:
    return config.replace(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)


def new_model(config: EncoderConfig, heads: Mapping[str, int], seed: int, *, pooler: bool = False) -> Model:
    """A model whose weights are drawn from the seed.

    config: the encoder's.
    heads: the number of outputs of each head, by name.
    seed: of the weights; torch's own random numbers are neither used nor changed.
    pooler: whether the model has one even if no head reads it.
    """
    with no_init():
        model = Model(config, heads, pooler=pooler)
    generator = torch.Generator().manual_seed(seed)
    initialize(model, config.initializer_range, generator)
    return model


def empty_model(old: Model, config: EncoderConfig) -> Model:
    """A model that is not initialized, with the heads and the number format of another."""
    dtype = old.encoder.embeddings.words.weight.dtype
    with no_init(dtype):
        model = Model(config, old.num_outputs, pooler=old.pooler is not None)
    return model.eval()


def check_plain(model: Model) -> None:
    """InputError if a model has int8 layers, which cannot be trained or changed."""
    if is_int8(model):
        raise int8_error()


def check_head_supported(checkpoint: Checkpoint, head: str, source: object) -> None:
    """InputError if the family cannot be saved with this head."""
    supported = sorted(name for name, family in FAMILIES.items() if frozenset({head}) in family.architectures)
    if checkpoint.model_type not in supported:
        raise InputError(
            f"{source}: head {head} is not supported for {checkpoint.model_type} (supported: {', '.join(supported)})"
        )
