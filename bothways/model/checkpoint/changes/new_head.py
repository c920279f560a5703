"""Other heads on the encoder of a checkpoint."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from bothways.base.errors import format_count
from bothways.base.log import logger
from bothways.model.checkpoint.changes.cut import copy_weights
from bothways.model.checkpoint.contents import Checkpoint, check_plain, new_model, with_dropout
from bothways.model.config import NO_POOLER, EncoderConfig
from bothways.model.families import FAMILIES
from bothways.model.heads import initialize_near_identity
from bothways.model.model import Model, initialize
from bothways.model.parameters import no_init, same_random_numbers


def with_head(
    checkpoint: Checkpoint,
    head: str,
    labels: tuple[str, ...],
    *,
    seed: int,
    num_outputs: int | None = None,
    multi_label: bool = False,
    dropout: float | None = None,
    pooling: str | None = None,
    near_identity: bool = False,
    is_fitted: bool = False,
    layers: int | None = None,
) -> Checkpoint:
    """A checkpoint with the same encoder and one new head, for fine-tuning, initialized from the seed. New modules are
    logged.

    pooling: input of a classification head: "cls" (the first token's state, through a pooler), "mean" (of all tokens,
    without a pooler unless the family's layout has one), "unit" (the mean scaled to unit length), "distance" or
    "pair" (the distance, or more features, of the means of a pair's two texts); None: the family's. near_identity:
    initialize a missing pooler so that it is nearly the identity for the layer on top. is_fitted: whether the head is
    then fitted to the frozen encoder, so that its first values do not matter. layers: keep only this many,
    from below. InputError for int8 models.
    """
    check_plain(checkpoint.model)
    config = pooling_config(checkpoint.model.config, checkpoint.model_type, pooling if head == "classes" else None)
    if dropout is not None:
        config = with_dropout(config, dropout).replace(classifier_dropout=dropout)
    if layers is not None:
        config = config.replace(num_hidden_layers=layers)
    size = num_outputs or len(labels)
    generator = torch.Generator().manual_seed(seed)
    with same_random_numbers():
        model = Model(config, {head: size})  # a pooler only if the head reads it
    start = "fitted to the frozen encoder" if is_fitted else "newly initialized"
    lines = [f"{start}: head {head!r} ({format_count(size, 'output')})"]
    initialize(model.heads, config.initializer_range, generator)
    state = {name: value for name, value in checkpoint.model.state_dict().items() if name.startswith("encoder.")}
    if model.pooler is not None and not copy_pooler(checkpoint, model):
        lines.append("newly initialized: pooler")
        initialize(model.pooler, config.initializer_range, generator)
        if near_identity:
            initialize_near_identity(model.pooler)
    model.load_state_dict(state, strict=False)
    logger.info("; ".join(lines))
    return replace(checkpoint, model=model, labels=labels, multi_label=multi_label, metadata={}, words=None, scope=None)


def copy_pooler(checkpoint: Checkpoint, model: Model) -> bool:
    """Copy the parameters of a model's pooler if the checkpoint has all of them, and return whether it has. They are
    found by Hugging Face's names: RoBERTa's classification pooler is not its encoder's, and ModernBERT's is the masked
    LM head's."""
    old, hf_names = checkpoint.model, FAMILIES[checkpoint.model_type].hf_names
    stored = {hf_names(name, old.num_outputs): value for name, value in old.state_dict().items()}
    wanted = {name: hf_names(name, model.num_outputs) for name in model.state_dict() if name.startswith("pooler.")}
    if has_all := stored.keys() >= {*wanted.values()}:
        model.load_state_dict({name: stored[names] for name, names in wanted.items()}, strict=False)
    return has_all


def with_heads(source: Checkpoint, heads: Mapping[str, int], *, dropout: float, seed: int) -> Checkpoint:
    """A checkpoint with the same encoder and these heads, for pre-training. Those that it lacks are initialized from
    the seed. heads: their numbers of outputs."""
    config = with_dropout(source.model.config, dropout)
    model = new_model(config, heads, seed, pooler=not heads and source.model.pooler is not None)
    copy_weights(source.model, model, range(config.num_hidden_layers), torch.arange(config.vocab_size))
    return replace(source, model=model, labels=(), multi_label=False, metadata={}, words=None, scope=None)


def encoder_only(checkpoint: Checkpoint) -> Checkpoint:
    """The same encoder without heads, labels, pooling and metadata."""
    with no_init():
        model = Model(pooling_config(checkpoint.model.config, checkpoint.model_type, None))
    model.encoder = checkpoint.model.encoder
    return replace(
        checkpoint, model=model, labels=(), multi_label=False, pooling=None, metadata={}, words=None, scope=None
    )


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
