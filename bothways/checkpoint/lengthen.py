"""A model made to read longer texts: its positions repeated, and a window in place of attention to all (Beltagy 2020,
section 5). What it then knows of far positions it has to learn by pre-training on."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from bothways.attention_config import GlobalTokensConfig
from bothways.checkpoint.checkpoint import Checkpoint, check_not_int8
from bothways.config import EncoderConfig
from bothways.errors import InputError
from bothways.families import FAMILIES
from bothways.log import logger
from bothways.model.model import Model

LONG = "longformer"


def lengthen(found: Checkpoint, length: int, window: int) -> Checkpoint:
    """A Longformer with the weights of a BERT or RoBERTa: reads texts of `length` tokens, of which each sees `window`.

    Positions are the old ones over and over; the maps of tokens that see all begin as those of the others. InputError
    of models that are built otherwise.
    """
    old = found.model
    check_not_int8(old)
    config = longer_config(found, length, window)
    kept = {head: number for head, number in old.num_outputs.items() if head in FAMILIES[LONG].head_names}
    if dropped := sorted(old.num_outputs.keys() - kept):
        logger.warning(f"left out, since a {LONG} has no place for it: {', '.join(dropped)}")
    model = Model(config, kept, pooler=old.pooler is not None)
    state = {name: value for name, value in old.state_dict().items() if not name.startswith("heads.")}
    state |= {f"heads.{name}": value for name, value in old.heads.state_dict().items() if name.split(".")[0] in kept}
    table, first = state.pop("encoder.embeddings.positions.weight"), old.config.position_offset
    head_rows = torch.zeros(config.position_offset, table.shape[1])
    head_rows[:first] = table[:first]
    times = -(-length // (len(table) - first))
    state["encoder.embeddings.positions.weight"] = torch.cat([head_rows, table[first:].repeat(times, 1)[:length]])
    model.load_state_dict(state | maps_of_all_seeing(state))
    return replace(found, model=model.eval(), model_type=LONG, metadata={})


def maps_of_all_seeing(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For the tokens that see all, the maps of the others, by name."""
    found = {}
    for name, value in state.items():
        if ".attention.qkv." in name:
            size = len(value) // 3
            found[name.replace(".qkv.", ".global_query.")] = value[:size]
            found[name.replace(".qkv.", ".global_key_value.")] = value[size:]
    return found


def see_all_as_others(model: Model) -> None:
    """Give a Longformer's tokens that see all the maps of the others. No token sees all in pre-training, so without
    this their maps would stay what they began as, while the others' move away."""
    model.load_state_dict(maps_of_all_seeing(model.state_dict()), strict=False)


def sees_all_as_others(model: Model) -> bool:
    """Whether nothing has trained a Longformer's maps of tokens that see all."""
    state = model.state_dict()
    return all(torch.equal(state[name], value) for name, value in maps_of_all_seeing(state).items())


def lengthened_model_type(found: Checkpoint, length: int, window: int) -> str:
    """The family of what `lengthen` would make. InputError as there."""
    longer_config(found, length, window)
    return LONG


def longer_config(found: Checkpoint, length: int, window: int) -> EncoderConfig:
    """InputError where the config is not a BERT's or RoBERTa's with nothing changed, or reads as many already."""
    config = found.model.config
    if found.tokenizer is None:
        raise InputError("a model without a tokenizer cannot be made to read longer texts; put one beside it")
    longest = FAMILIES[LONG].max_length
    if not config.max_position_embeddings < length <= longest:
        raise InputError(
            f"length ({length}) must be more than the {config.max_position_embeddings} tokens the model reads "
            f"already, and at most {longest}"
        )
    if not 2 <= window <= length or window % 2:
        raise InputError(f"lengthen ({window}) must be an even number of tokens, from 2 to length ({length})")
    # A RoBERTa's and a Longformer's positions begin behind pad_token_id; a BERT's may say anything there.
    padding = config.pad_token_id if config.position_offset else found.tokenizer.pad_id
    changed = config.replace(
        max_position_embeddings=length, pad_token_id=padding, position_offset=padding + 1, attention_window=window // 2,
        full_attention_every=0, pooler_dropout=True,
        sparse_attention=GlobalTokensConfig(separator=found.tokenizer.sep_id),
    )  # fmt: skip
    plain = EncoderConfig(
        **{name: getattr(changed, name) for name in FREE}, full_attention_every=0, pooler_dropout=True
    )  # fmt: skip
    if plain != changed or config.sparse_attention or config.attention_window:
        raise InputError("only a BERT or RoBERTa can be made to read longer texts; this model is built otherwise")
    return changed


FREE = (  # in what Longformers differ from each other
    "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings"
    " type_vocab_size hidden_dropout_prob attention_probs_dropout_prob classifier_dropout initializer_range"
    " layer_norm_eps pad_token_id position_offset attention_window sparse_attention"
).split()
