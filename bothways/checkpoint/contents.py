"""What a checkpoint holds: a model with its tokenizer, labels and metadata."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bothways.config import EncoderConfig
from bothways.errors import InputError, format_count
from bothways.families import FAMILIES
from bothways.model.int8 import int8_error, is_int8
from bothways.model.model import Model
from bothways.model.parameters import no_init
from bothways.model.pooler import NO_POOLER
from bothways.tokenizer.tokenizer import Tokenizer

CONFIG, METADATA_FILE, ADAPTER_CONFIG = "config.json", "bothways.json", "adapter_config.json"
MULTI_LABEL = "multi_label_classification"


@dataclass(frozen=True, kw_only=True)
class Description:
    """What is known about a model, of whatever kind it is.

    labels: names of the classes, in the order of the head's outputs; empty for regression. multi_label: a text may have
    any number of labels. pooling: how sentence vectors are pooled (mean, cls, max); None if the directory does not
    specify it. normalized: whether they are scaled to length 1. metadata: content of bothways.json, which records how
    the model was trained.
    """

    model_type: str = "bert"
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    pooling: str | None = None
    normalized: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings the model was trained with; empty if unknown."""
        settings: Mapping[str, Any] = self.metadata.get("settings") or {}
        return settings


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


def problem_type(described: Description, num_outputs: int) -> str:
    """Hugging Face's name of the task of a classification head with this number of outputs."""
    if described.multi_label:
        return MULTI_LABEL
    return "single_label_classification" if described.labels or num_outputs > 1 else "regression"


def is_adapter(directory: Path) -> bool:
    """Whether a directory holds an adapter (adapter.py) and no whole model."""
    return (directory / ADAPTER_CONFIG).is_file() and not (directory / CONFIG).exists()


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
