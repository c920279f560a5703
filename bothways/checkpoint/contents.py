"""What a checkpoint holds: a model with its tokenizer, labels and metadata."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bothways.checkpoint.description import Description
from bothways.errors import InputError, format_count
from bothways.model.int8 import int8_error, is_int8
from bothways.model.model import Model
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
