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

BY_WORD = (  # parameters with a row for each word
    "encoder.embeddings.words.weight",
    "heads.masked_words.bias",
)
ALPHABET = string.ascii_letters + string.digits  # always kept, at the start and inside of words


def with_layers(source: Checkpoint, layers: Sequence[int]) -> Checkpoint:
    """A checkpoint with these layers only, counted from 0, and the same embeddings and heads.

    InputError for layers that it does not have, and for models whose layers depend on each other.
    """
    check_plain(source.model)
    config = source.model.config
    check_layers(layers, config.num_hidden_layers, "model")

    listed = " ".join(map(str, layers))
    if reason_against_cutting(config, "layers"):
        raise InputError(f"keep_layers ({listed}): the layers of this model differ in attention or share weights")
    logger.info(f"kept {len(layers)} of {config.num_hidden_layers} layers: {listed}")
    return cut(source, layers=layers)


def check_layers(layers: Sequence[int], depth: int, owner: str) -> None:
    """Check a choice of layers of a model.

    layers: counted from 0, in ascending order.
    depth: the number of layers of the model.
    owner: a name of the model for messages.

    InputError for a layer that the model does not have, and for another order.
    """
    for layer in layers:
        if not 0 <= layer < depth:
            raise InputError(f"keep_layers ({layer}): the {owner} has layers 0 to {depth - 1}")
    if list(layers) != sorted({*layers}):
        raise InputError(f"keep_layers ({' '.join(map(str, layers))}) must be in ascending order, each once")


def check_can_cut(config: EncoderConfig, model_type: str, part: str) -> None:
    """InputError if this part (layers, heads, feed-forward) of a model cannot be cut."""
    reason = reason_against_cutting(config, part)
    if reason:
        raise InputError(f"{part} of {model_type} cannot be pruned: {reason}")


def reason_against_cutting(config: EncoderConfig, part: str) -> str:
    """Why this part (layers, heads, feed-forward) of a model cannot be cut; "" if it can."""
    has_halves = config.direction == "halves"
    if part == "layers":
        layers_differ = bool(config.num_layer_groups) or config.full_attention_every > 1
        return "its layers share weights or differ in attention" if has_halves or layers_differ else ""
    if part == "heads":
        heads_differ = config.relative_positions is not None or config.sparse_attention is not None
        return "its heads have more than queries, keys and values" if has_halves or heads_differ else ""
    assert part == "feed-forward", part
    return "its halves have layers of their own" if has_halves else ""


def cut(
    source: Checkpoint,
    *,
    layers: Sequence[int],
    heads: Sequence[Sequence[int]] | None = None,
    neurons: Sequence[Sequence[int]] | None = None,
) -> Checkpoint:
    """A checkpoint with fewer parts.

    source: stays as it is.
    layers: the layers to keep, counted from 0.
    heads: indices of the attention heads to keep per layer, the same number in each; None keeps all.
    neurons: indices of the feed-forward neurons to keep per layer, the same number in each; None keeps all.
    """
    check_plain(source.model)
    config = source.model.config
    num_heads = config.num_attention_heads if heads is None else len(heads[0])
    width = config.intermediate_size if neurons is None else len(neurons[0])
    model = empty_model(source.model, cut_config(config, len(layers), num_heads, width))

    state: dict[str, Tensor] = {}
    is_gated = config.feed_forward == "gated"
    for name, layer, _, kept in _matched(source.model, model, layers):
        if layer is not None:
            part = name.split(".", 3)[3]  # without "encoder.layers.INDEX."
            if heads is not None:
                kept = _cut_heads(kept, part, heads[layer], config.head_size)
            if neurons is not None:
                kept = _cut_neurons(kept, part, neurons[layer], gated=is_gated)
        state[name] = kept

    model.load_state_dict(state)  # an error if a parameter is missing or has another shape
    return replace(source, model=model, scope=None, statements=None)


def cut_config(config: EncoderConfig, layers: int, heads: int, width: int) -> EncoderConfig:
    """The config with these numbers of layers, of heads of the same size, and of feed-forward neurons."""
    config = config.replace(num_hidden_layers=layers, intermediate_size=width)
    if heads >= config.num_attention_heads:
        return config
    # Heads keep their size, which is then no longer the hidden size by their number.
    return config.replace(num_attention_heads=heads, attention_head_size=config.head_size)


def _cut_heads(value: Tensor, name: str, heads: Sequence[int], size: int) -> Tensor:
    if name.startswith("attention.qkv."):
        by_head = value.unflatten(0, (3, -1, size))  # queries, keys and values
        return by_head[:, [*heads]].flatten(0, 2)
    if name == "attention.output.weight":
        by_head = value.unflatten(1, (-1, size))
        return by_head[:, [*heads]].flatten(1)
    return value


def _cut_neurons(value: Tensor, name: str, neurons: Sequence[int], *, gated: bool) -> Tensor:
    if name.startswith("feed_forward.inner."):
        by_neuron = value.unflatten(0, (2 if gated else 1, -1))  # a gated neuron has two rows
        return by_neuron[:, [*neurons]].flatten(0, 1)
    if name == "feed_forward.output.weight":
        return value[:, [*neurons]]
    return value


def copy_weights(source: Model, target: Model, layers: Sequence[int], ids_V: Tensor) -> None:
    """Copy embeddings, these layers, the pooler, and the heads that both have.

    source: stays as it is.
    target: is changed, in place.
    layers: of the source, one for each layer of the target.
    ids_V: the source's id of each word of the target.
    """
    for name, _, value, kept in _matched(source, target, layers):
        if name in BY_WORD:
            kept = kept[ids_V]
        if kept.shape == value.shape:
            value.copy_(kept)


def _matched(source: Model, target: Model, layers: Sequence[int]) -> Iterator[tuple[str, int | None, Tensor, Tensor]]:
    """The parameters that both have: name in the target, index of its layer, if any, value in target and source."""
    old = source.state_dict()
    for name, value in target.state_dict().items():
        parts = name.split(".")
        layer: int | None = None
        if parts[:2] == ["encoder", "layers"]:
            layer = int(parts[2])
            parts[2] = str(layers[layer])
        kept = old.get(".".join(parts))
        if kept is not None:
            yield name, layer, value, kept


def fill_heads(checkpoint: Checkpoint) -> Checkpoint:
    """The same function in the Hugging Face layout: removed heads are there again, with weights of 0."""
    model = checkpoint.model
    config = model.config
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

    InputError if the vocabulary is not WordPiece.
    """
    tokenizer = source.need_tokenizer()
    smaller = reduce_vocabulary(tokenizer, words)

    config = source.model.config
    model = empty_model(source.model, config.replace(vocab_size=len(smaller), pad_token_id=smaller.pad_id))
    ids_V = torch.tensor([tokenizer.vocab[token] for token in smaller.tokens])
    copy_weights(source.model, model, range(config.num_hidden_layers), ids_V)
    return replace(source, model=model, tokenizer=smaller)


def reduce_vocabulary(tokenizer: Tokenizer, words: Mapping[str, int], size: int | None = None) -> Tokenizer:
    """A tokenizer with the most frequent entries of a WordPiece vocabulary, in their order.

    tokenizer: stays as it is.
    words: count of each word of the text.
    size: the number of entries; None: all that occur.

    Special and added tokens, Latin letters and digits always stay, and without a size every single character, so that a
    word whose entry is gone is split into smaller pieces instead of becoming [UNK]. InputError if the vocabulary is not
    WordPiece, or if more entries than `size` must stay.
    """
    check_word_pieces(tokenizer, f"vocab_size ({size})")
    assert isinstance(tokenizer.backend, BertBackend)

    needed = {*tokenizer.special_ids}
    needed.update(tokenizer.vocab[token.content] for token in tokenizer.backend.added)
    for index, token in enumerate(tokenizer.tokens):
        char = token.removeprefix(CONTINUATION)
        if len(char) == 1 and (size is None or char in ALPHABET):
            needed.add(index)
    if size is None:
        size = len(tokenizer)
    if size < len(needed):
        raise InputError(f"vocab_size ({size}) must be at least {len(needed)}: special tokens, letters and digits")

    counts: Counter[int] = Counter()
    for word, count in words.items():
        for piece in tokenizer.ids(word):
            counts[piece] += count
    ranked = sorted(counts.keys() - needed, key=lambda index: (-counts[index], index))
    kept = sorted(needed.union(ranked[: size - len(needed)]))
    vocab = {tokenizer.tokens[index]: new for new, index in enumerate(kept)}
    return Tokenizer(vocab, **tokenizer.backend.rules)


def check_word_pieces(tokenizer: Tokenizer, setting: str) -> None:
    if not isinstance(tokenizer.backend, BertBackend):
        raise InputError(f"{setting}: only WordPiece vocabularies can be reduced; leave it out")
