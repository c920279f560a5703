"""Convert a BERT or RoBERTa to a Longformer, which reads longer texts (Beltagy 2020, section 5).

Position embeddings are repeated, and full attention becomes a window. Continued pre-training must then adapt the model
to far positions."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from bothways.errors import InputError
from bothways.log import logger
from bothways.model.checkpoint.contents import Checkpoint, check_plain
from bothways.model.config import EncoderConfig, GlobalTokensConfig
from bothways.model.families import FAMILIES
from bothways.model.model import Model

LONG = "longformer"


def lengthen(checkpoint: Checkpoint, length: int, window: int) -> Checkpoint:
    """A Longformer with the weights of a BERT or RoBERTa, for texts of up to `length` tokens.

    window: size of the attention window, both sides together. The old positions repeat; global projections start as
    copies of the ordinary ones. InputError for other models.
    """
    old = checkpoint.model
    check_plain(old)
    config = longer_config(checkpoint, length, window)
    heads = {head: count for head, count in old.num_outputs.items() if head in FAMILIES[LONG].head_names}
    if dropped := sorted(old.num_outputs.keys() - heads):
        logger.warning(f"removed, since a {LONG} has no such head: {', '.join(dropped)}")
    model = Model(config, heads, pooler=old.pooler is not None)
    state = {name: value for name, value in old.state_dict().items() if not name.startswith("heads.")}
    state |= {f"heads.{name}": value for name, value in old.heads.state_dict().items() if name.split(".")[0] in heads}
    table, first = state.pop("encoder.embeddings.positions.weight"), old.config.position_offset
    head_rows = torch.zeros(config.position_offset, table.shape[1])
    head_rows[:first] = table[:first]
    times = -(-length // (len(table) - first))
    state["encoder.embeddings.positions.weight"] = torch.cat([head_rows, table[first:].repeat(times, 1)[:length]])
    model.load_state_dict(state | global_projections(state))
    return replace(checkpoint, model=model.eval(), model_type=LONG, metadata={})


def global_projections(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the ordinary projections under the names of those for global tokens."""
    copies = {}
    for name, value in state.items():
        if ".attention.qkv." in name:
            size = len(value) // 3
            copies[name.replace(".qkv.", ".global_query.")] = value[:size]
            copies[name.replace(".qkv.", ".global_key_value.")] = value[size:]
    return copies


def copy_to_global_projections(model: Model) -> None:
    """Copy a Longformer's ordinary projections to its global ones. Pre-training has no global tokens, so without this
    they would keep their initial values."""
    model.load_state_dict(global_projections(model.state_dict()), strict=False)


def global_projections_are_copies(model: Model) -> bool:
    """Whether a Longformer's global projections equal the ordinary ones, that is, are untrained."""
    state = model.state_dict()
    return all(torch.equal(state[name], value) for name, value in global_projections(state).items())


def longer_config(checkpoint: Checkpoint, length: int, window: int) -> EncoderConfig:
    """The Longformer's config. InputError unless the model is a BERT or RoBERTa for shorter texts."""
    config = checkpoint.model.config
    if checkpoint.tokenizer is None:
        raise InputError("a model without a tokenizer cannot be lengthened; add its tokenizer files")
    max_length = FAMILIES[LONG].max_length
    if not config.max_position_embeddings < length <= max_length:
        raise InputError(
            f"length ({length}) must be more than the model's {config.max_position_embeddings} tokens, and at most "
            f"{max_length}"
        )
    if not 2 <= window <= length or window % 2:
        raise InputError(f"lengthen ({window}) must be an even number of tokens, from 2 to length ({length})")
    # RoBERTa's and Longformer's positions start after pad_token_id; in BERT it can have any value.
    padding = config.pad_token_id if config.position_offset else checkpoint.tokenizer.pad_id
    changed = config.replace(
        max_position_embeddings=length,
        pad_token_id=padding,
        position_offset=padding + 1,
        attention_window=window // 2,
        full_attention_every=0,
        pooler_dropout=True,
        sparse_attention=GlobalTokensConfig(separator=checkpoint.tokenizer.sep_id),
    )
    plain = EncoderConfig(
        **{name: getattr(changed, name) for name in FREE}, full_attention_every=0, pooler_dropout=True
    )
    if plain != changed or config.sparse_attention or config.attention_window:
        raise InputError("only a BERT or RoBERTa can be lengthened; this model has another architecture")
    return changed


FREE = (  # fields in which Longformers differ from each other
    "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings"
    " type_vocab_size hidden_dropout_prob attention_probs_dropout_prob classifier_dropout initializer_range"
    " layer_norm_eps pad_token_id position_offset attention_window sparse_attention"
).split()
