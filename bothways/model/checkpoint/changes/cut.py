"""Cut layers, attention heads, feed-forward neurons and entries of the vocabulary of a model.

What remains has the same weights, so a cut model equals the whole one in which the removed parts give 0.
"""

import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bothways.base.errors import InputError
from bothways.base.log import logger
from bothways.model.checkpoint.contents import Checkpoint, check_plain, empty_model
from bothways.model.config import EncoderConfig
from bothways.model.model import Model
from bothways.text.tokenizer.fast import BertBackend
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.text.tokenizer.wordpiece import CONTINUATION

BY_WORD = "encoder.embeddings.words.weight", "heads.masked_words.bias"  # parameters with a row for each word
ALPHABET = string.ascii_letters + string.digits  # always kept, at the start and inside of words


def with_layers(source: Checkpoint, layers: Sequence[int]) -> Checkpoint:
    """A checkpoint with these layers only, counted from 0, and the same embeddings and heads.

    InputError for layers that it does not have, and for models whose layers depend on each other."""
    check_plain(source.model)
    config, listed = source.model.config, " ".join(map(str, layers))
    check_layers(layers, config.num_hidden_layers, "model")
    if reason_against_cutting(config, "layers"):
        raise InputError(f"keep_layers ({listed}): the layers of this model differ in attention or share weights")
    logger.info(f"kept {len(layers)} of {config.num_hidden_layers} layers: {listed}")
    return cut(source, layers=layers)


def check_layers(layers: Sequence[int], depth: int, owner: str) -> None:
    """InputError unless these are layers of a model of `depth` in their order. owner: what messages call the model."""
    if wrong := [layer for layer in layers if not 0 <= layer < depth]:
        raise InputError(f"keep_layers ({wrong[0]}): the {owner} has layers 0 to {depth - 1}")
    if list(layers) != sorted({*layers}):
        raise InputError(f"keep_layers ({' '.join(map(str, layers))}) must be in ascending order, each once")


def check_can_cut(config: EncoderConfig, model_type: str, part: str) -> None:
    """InputError if this part (layers, heads, feed-forward) of a model cannot be cut."""
    if reason := reason_against_cutting(config, part):
        raise InputError(f"{part} of {model_type} cannot be pruned: {reason}")


def reason_against_cutting(config: EncoderConfig, part: str) -> str:
    """Why this part (layers, heads, feed-forward) of a model cannot be cut; "" if it can."""
    halves = config.direction == "halves"
    layers_differ = halves or bool(config.num_layer_groups) or config.full_attention_every > 1
    heads_differ = halves or config.relative_positions is not None or config.sparse_attention is not None
    reasons = {
        "layers": "its layers share weights or differ in attention" if layers_differ else "",
        "heads": "its heads have more than queries, keys and values" if heads_differ else "",
        "feed-forward": "its halves have layers of their own" if halves else "",
    }
    return reasons[part]


def cut(
    source: Checkpoint,
    *,
    layers: Sequence[int],
    heads: Sequence[Sequence[int]] | None = None,
    neurons: Sequence[Sequence[int]] | None = None,
) -> Checkpoint:
    """A checkpoint with these layers, counted from 0. heads, neurons: indices to keep per layer, the same number in
    each; None keeps all."""
    check_plain(source.model)
    config = source.model.config
    num_heads = config.num_attention_heads if heads is None else len(heads[0])
    width = config.intermediate_size if neurons is None else len(neurons[0])
    model, state = empty_model(source.model, cut_config(config, len(layers), num_heads, width)), dict[str, Tensor]()
    for name, layer, _, kept in _matched(source.model, model, layers):
        if layer is not None:
            _, _, _, *module, kind = name.split(".")
            if heads is not None:
                kept = _cut_heads(kept, ".".join(module), kind, heads[layer], config.head_size)
            if neurons is not None:
                gated = config.feed_forward == "gated"
                kept = _cut_neurons(kept, ".".join(module), kind, neurons[layer], gated=gated)
        state[name] = kept
    model.load_state_dict(state)  # an error if a parameter is missing or has another shape
    return replace(source, model=model, scope=None)


def cut_config(config: EncoderConfig, layers: int, heads: int, width: int) -> EncoderConfig:
    """The config with these numbers of layers, of heads of the same size, and of feed-forward neurons."""
    changes = {"num_hidden_layers": layers, "intermediate_size": width}
    if heads < config.num_attention_heads:
        changes |= {"num_attention_heads": heads, "attention_head_size": config.head_size}
    return config.replace(**changes)


def _cut_heads(value: Tensor, module: str, kind: str, heads: Sequence[int], size: int) -> Tensor:
    if module == "attention.qkv":
        return value.unflatten(0, (3, -1, size))[:, [*heads]].flatten(0, 2)
    if module == "attention.output" and kind == "weight":
        return value.unflatten(1, (-1, size))[:, [*heads]].flatten(1)
    return value


def _cut_neurons(value: Tensor, module: str, kind: str, neurons: Sequence[int], *, gated: bool) -> Tensor:
    if module == "feed_forward.inner":
        return value.unflatten(0, (2 if gated else 1, -1))[:, [*neurons]].flatten(0, 1)
    if module == "feed_forward.output" and kind == "weight":
        return value[:, [*neurons]]
    return value


def copy_weights(source: Model, target: Model, layers: Sequence[int], ids_V: Tensor) -> None:
    """Copy embeddings, these layers, the pooler, and the heads that both have.

    layers: of the source, one for each layer of the target. ids_V: the source's id of each word of the target."""
    for name, _, value, kept in _matched(source, target, layers):
        kept = kept[ids_V] if name in BY_WORD else kept
        if kept.shape == value.shape:
            value.copy_(kept)


def _matched(source: Model, target: Model, layers: Sequence[int]) -> Iterator[tuple[str, int | None, Tensor, Tensor]]:
    """The parameters that both have: name in the target, index of its layer, if any, value in target and source."""
    old = source.state_dict()
    for name, value in target.state_dict().items():
        parts, layer = name.split("."), None
        if parts[:2] == ["encoder", "layers"]:
            layer = int(parts[2])
            parts[2] = str(layers[layer])
        if (kept := old.get(".".join(parts))) is not None:
            yield name, layer, value, kept


def fill_heads(checkpoint: Checkpoint) -> Checkpoint:
    """The same function in the Hugging Face layout: removed heads are there again, with weights of 0."""
    model, config = checkpoint.model, checkpoint.model.config
    if config.attention_head_size is None:
        return checkpoint
    num_heads = config.hidden_size // config.head_size
    full = empty_model(model, config.replace(attention_head_size=None, num_attention_heads=num_heads))
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
    return replace(checkpoint, model=full)


def cut_vocabulary(source: Checkpoint, words: Mapping[str, int]) -> Checkpoint:
    """A checkpoint with only the entries that these words need, and all single characters; texts of these words have
    the same pieces and the same hidden states.

    InputError if the vocabulary is not WordPiece."""
    tokenizer, config = source.need_tokenizer(), source.model.config
    smaller = reduce_vocabulary(tokenizer, words)
    ids_V = torch.tensor([tokenizer.vocab[token] for token in smaller.tokens])
    model = empty_model(source.model, config.replace(vocab_size=len(smaller), pad_token_id=smaller.pad_id))
    copy_weights(source.model, model, range(config.num_hidden_layers), ids_V)
    return replace(source, model=model, tokenizer=smaller)


def reduce_vocabulary(tokenizer: Tokenizer, words: Mapping[str, int], size: int | None = None) -> Tokenizer:
    """A tokenizer with the `size` most frequent entries of a WordPiece vocabulary, in their order; None: all that
    occur.

    words: count of each word of the text. Special and added tokens, Latin letters and digits always stay, and without a
    size every single character, so that a word whose entry is gone is split into smaller pieces instead of becoming
    [UNK].
    """
    check_word_pieces(tokenizer, f"vocab_size ({size})")
    counts: Counter[int] = Counter()
    for word, count in words.items():
        for piece in tokenizer.ids(word):
            counts[piece] += count
    assert isinstance(tokenizer.backend, BertBackend)
    needed = {*tokenizer.special_ids, *(tokenizer.vocab[token.content] for token in tokenizer.backend.added)}
    needed |= {
        index
        for index, char in enumerate(token.removeprefix(CONTINUATION) for token in tokenizer.tokens)
        if len(char) == 1 and (size is None or char in ALPHABET)
    }
    size = len(tokenizer) if size is None else size
    if size < len(needed):
        raise InputError(f"vocab_size ({size}) must be at least {len(needed)}: special tokens, letters and digits")
    ranked = sorted(counts.keys() - needed, key=lambda index: (-counts[index], index))
    kept = sorted(needed.union(ranked[: size - len(needed)]))
    return Tokenizer({tokenizer.tokens[index]: new for new, index in enumerate(kept)}, **tokenizer.backend.rules)


def check_word_pieces(tokenizer: Tokenizer, setting: str) -> None:
    if not isinstance(tokenizer.backend, BertBackend):
        raise InputError(f"{setting}: only WordPiece vocabularies can be reduced; leave it out")
