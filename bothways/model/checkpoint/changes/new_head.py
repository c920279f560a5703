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
from bothways.model.parameters import no_init


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
    """A checkpoint with the same encoder and one new head, for fine-tuning. New modules are logged.

    checkpoint: stays as it is.
    head: the name of the head.
    labels: names of the classes.
    seed: new parameters are drawn from it.
    num_outputs: of the head; None: one for each label.
    multi_label: whether a text may have any number of labels.
    dropout: everywhere; None: as the checkpoint has it.
    pooling: input of a classification head: "cls" (the first token's state, through a pooler), "mean" (of all tokens,
    without a pooler unless the family's layout has one), "unit" (the mean scaled to unit length), "distance" or
    "pair" (the distance, or more features, of the means of a pair's two texts); None: as in the family.
    near_identity: initialize a missing pooler so that it is nearly the identity for the layer on top.
    is_fitted: whether the head is then fitted to the frozen encoder, so that its first values do not matter.
    layers: keep only this many, from below.

    InputError for int8 models.
    """
    check_plain(checkpoint.model)
    config = pooling_config(checkpoint.model.config, checkpoint.model_type, pooling if head == "classes" else None)
    if dropout is not None:
        config = with_dropout(config, dropout).replace(classifier_dropout=dropout)
    if layers is not None:
        config = config.replace(num_hidden_layers=layers)

    size = num_outputs or len(labels)
    with no_init():
        model = Model(config, {head: size})  # a pooler only if the head reads it

    # The head is drawn before the pooler, so that its first values do not depend on whether the pooler is known.
    generator = torch.Generator().manual_seed(seed)
    initialize(model.heads, config.initializer_range, generator)
    start = "fitted to the frozen encoder" if is_fitted else "newly initialized"
    lines = [f"{start}: head {head!r} ({format_count(size, 'output')})"]
    if model.pooler is not None and not copy_pooler(checkpoint, model):
        lines.append("newly initialized: pooler")
        initialize(model.pooler, config.initializer_range, generator)
        if near_identity:
            initialize_near_identity(model.pooler)

    state = {name: value for name, value in checkpoint.model.state_dict().items() if name.startswith("encoder.")}
    missing, _ = model.load_state_dict(state, strict=False)
    assert not any(name.startswith("encoder.") for name in missing), missing  # these would hold anything
    logger.info("; ".join(lines))
    return replace(
        checkpoint,
        model=model,
        labels=labels,
        multi_label=multi_label,
        metadata={},
        words=None,
        scope=None,
        statements=None,
    )


def copy_pooler(checkpoint: Checkpoint, model: Model) -> bool:
    """Copy the parameters of a model's pooler if the checkpoint has all of them, and return whether it has."""
    # Found by Hugging Face's names: RoBERTa's classification pooler is not the pooler of its encoder, and ModernBERT's
    # is a part of the masked LM head.
    old = checkpoint.model
    hf_names = FAMILIES[checkpoint.model_type].hf_names
    stored = {hf_names(name, old.num_outputs): value for name, value in old.state_dict().items()}
    wanted = {name: hf_names(name, model.num_outputs) for name in model.state_dict() if name.startswith("pooler.")}
    if not stored.keys() >= {*wanted.values()}:
        return False

    model.load_state_dict({name: stored[names] for name, names in wanted.items()}, strict=False)
    return True


def with_heads(source: Checkpoint, heads: Mapping[str, int], *, dropout: float, seed: int) -> Checkpoint:
    """A checkpoint with the same encoder and these heads, for pre-training.

    source: stays as it is.
    heads: the number of outputs of each head, by name.
    dropout: of the layers.
    seed: the heads that `source` lacks are drawn from it.
    """
    config = with_dropout(source.model.config, dropout)
    has_pooler = source.model.pooler is not None
    model = new_model(config, heads, seed, pooler=not heads and has_pooler)
    copy_weights(
        source.model,
        model,
        layers=range(config.num_hidden_layers),
        ids_V=torch.arange(config.vocab_size),
    )
    return replace(
        source,
        model=model,
        labels=(),
        multi_label=False,
        metadata={},
        words=None,
        scope=None,
        statements=None,
    )


def encoder_only(checkpoint: Checkpoint) -> Checkpoint:
    """The same encoder without heads, labels, pooling and metadata."""
    with no_init():
        model = Model(pooling_config(checkpoint.model.config, checkpoint.model_type, None))
    model.encoder = checkpoint.model.encoder
    return replace(
        checkpoint,
        model=model,
        labels=(),
        multi_label=False,
        pooling=None,
        metadata={},
        words=None,
        scope=None,
        statements=None,
    )


def pooling_config(config: EncoderConfig, model_type: str, pooling: str | None) -> EncoderConfig:
    """The config with a classification head that reads this pooling.

    config: of the encoder.
    model_type: its family, by Hugging Face's name.
    pooling: "cls", "mean", "unit", "distance" or "pair"; None: as in the family.
    """
    family = FAMILIES[model_type]
    if config.pooler_act in NO_POOLER:
        family_act = family.defaults.get("pooler_act", "tanh")
        family_pooling = family.defaults.get("pooling", "first")
        config = config.replace(pooling=family_pooling, pooler_act=family_act)

    if pooling is None:
        return config
    if pooling == "cls":
        return config.replace(pooling="first")
    if family.supports_mean_pooling and pooling not in ("distance", "pair"):
        return config.replace(pooling="mean")
    return config.replace(pooling="mean", pooler_act="none" if pooling == "mean" else pooling)
