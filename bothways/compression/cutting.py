"""Cutting a model: fewer layers, attention heads, feed-forward neurons and vocabulary entries.

What remains has the same weights, so a cut model equals the whole one in which the removed parts give 0.

The importance of heads, neurons and layers is of first order: the change of the loss when an activation x becomes 0 is
about -g x, with its gradient g (Molchanov 2017, eq. 7). For a head it is summed over its outputs (Michel 2019, section
3.2), for a layer over what it adds to its input. Sums are over the tokens of a text, magnitudes are averaged over
texts. Letters: T tokens, W windows, H hidden size, N heads, D head size, I neurons
(feed-forward size).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.batching import token_batches
from bothways.checkpoint.changes.vocabulary import reduce_vocabulary
from bothways.checkpoint.contents import Checkpoint, check_plain
from bothways.config import EncoderConfig
from bothways.errors import InputError
from bothways.model.layer import Layer
from bothways.model.model import Model
from bothways.model.parameters import no_init
from bothways.tasks.text_examples import MAX_TOKENS
from bothways.tasks.training_task import Examples, LabelObjective

WORDS, WORD_BIAS = "encoder.embeddings.words.weight", "heads.masked_words.bias"


def check_can_cut(config: EncoderConfig, model_type: str, part: str) -> None:
    """InputError if this part (layers, heads, feed-forward) of a model cannot be cut."""
    reasons = {
        "layers": (
            bool(config.num_layer_groups) or config.full_attention_every > 1 or config.direction == "halves",
            "its layers share weights or differ in attention",
        ),
        "heads": (
            config.relative_positions is not None
            or config.sparse_attention is not None
            or config.direction == "halves",
            "its heads have more than queries, keys and values",
        ),
        "feed-forward": (config.direction == "halves", "its halves have layers of their own"),
    }
    is_refused, reason = reasons[part]
    if is_refused:
        raise InputError(f"{part} of {model_type} cannot be pruned: {reason}")


def cut(
    source: Checkpoint,
    *,
    layers: Sequence[int],
    heads: Sequence[Sequence[int]] | None = None,
    neurons: Sequence[Sequence[int]] | None = None,
) -> Checkpoint:
    """A checkpoint with these layers, counted from 0; heads, neurons: which of them stay in each of these layers, as
    many in all; None: all."""
    check_plain(source.model)
    old, config = source.model, source.model.config
    changes: dict[str, int] = {"num_hidden_layers": len(layers)} if len(layers) < config.num_hidden_layers else {}
    if heads is not None and len(heads[0]) < config.num_attention_heads:
        changes |= {"num_attention_heads": len(heads[0]), "attention_head_size": config.head_size}
    if neurons is not None:
        changes["intermediate_size"] = len(neurons[0])
    with no_init(old.encoder.embeddings.words.weight.dtype):
        model = Model(config.replace(**changes), old.num_outputs, pooler=old.pooler is not None)
    state = old.state_dict()
    kept = {}
    for name in model.state_dict():
        parts = name.split(".")
        if parts[:2] != ["encoder", "layers"]:
            kept[name] = state[name]
            continue
        index = int(parts[2])
        value = state[".".join([*parts[:2], str(layers[index]), *parts[3:]])]
        module = ".".join(parts[3:5])
        if heads is not None:
            value = _cut_heads(value, module, parts[-1], heads[index], config.head_size)
        if neurons is not None:
            value = _cut_neurons(value, module, parts[-1], neurons[index], gated=config.feed_forward == "gated")
        kept[name] = value
    model.load_state_dict(kept)
    return replace(source, model=model.eval())


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


def cut_vocabulary(source: Checkpoint, words: Mapping[str, int]) -> Checkpoint:
    """A checkpoint with only the entries that these words need, and all single characters; texts of these words have
    the same pieces and the same hidden states.

    InputError if the vocabulary is not WordPiece."""
    tokenizer, old = source.need_tokenizer(), source.model
    smaller = reduce_vocabulary(tokenizer, words)
    ids_V = torch.tensor([tokenizer.vocab[token] for token in smaller.tokens])
    config = old.config.replace(vocab_size=len(smaller), pad_token_id=smaller.pad_id)
    with no_init(old.encoder.embeddings.words.weight.dtype):
        model = Model(config, old.num_outputs, pooler=old.pooler is not None)
    state = old.state_dict()
    model.load_state_dict(
        {name: value[ids_V] if name in (WORDS, WORD_BIAS) else value for name, value in state.items()}
    )
    return replace(source, model=model.eval(), tokenizer=smaller)


def encoder_weights(config: EncoderConfig) -> int:
    """The number of weights in the matrices of all layers."""
    attention = 4 * config.hidden_size * config.num_attention_heads * config.head_size
    width = config.intermediate_size * (3 if config.feed_forward == "gated" else 2)
    return config.num_unique_layers * (attention + config.hidden_size * width)


@dataclass
class Importance:
    """Of each layer in turn: the importance of the layer, of its heads [N] and of its neurons [I]."""

    layers: list[float] = field(default_factory=list)
    heads: list[Tensor] = field(default_factory=list)
    neurons: list[Tensor] = field(default_factory=list)

    def best_heads(self, count: int, layers: Sequence[int]) -> list[list[int]]:
        return [sorted(self.heads[layer].topk(count).indices.tolist()) for layer in layers]

    def best_neurons(self, count: int, layers: Sequence[int]) -> list[list[int]]:
        return [sorted(self.neurons[layer].topk(count).indices.tolist()) for layer in layers]


def measure_importance(
    model: Model, objective: LabelObjective, examples: Examples, rows: Sequence[int], device: torch.device
) -> Importance:
    """The importance of all parts of a float32 model for the loss of these labelled examples; those of more than
    MAX_TOKENS tokens, which are computed in parts, are left out."""
    model = model.to(device).float().eval()
    layers = [part for part in model.encoder.layers if isinstance(part, Layer)]
    sums: dict[str, list[Tensor]] = {"layers": [], "heads": [], "neurons": []}
    per_batch: dict[tuple[str, int], Tensor] = {}
    lengths: list[Tensor] = []

    def note(kind: str, index: int, x: Tensor, g: Tensor) -> None:
        products = (x.detach() * g).float()
        text_T = torch.arange(len(lengths[-1])).repeat_interleave(lengths[-1]).to(device)
        products = products[: len(text_T)]  # without a dummy text
        by_text = products.new_zeros(len(lengths[-1]), *products.shape[1:]).index_add(0, text_T, products)
        if kind == "heads":
            by_text = by_text.unflatten(-1, (-1, model.config.head_size)).sum(-1)
        if kind == "layers":
            by_text = by_text.sum(-1, keepdim=True)
        per_batch[kind, index] = per_batch.get((kind, index), 0) + by_text.abs().sum(0)

    def before(kind: str, index: int, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        x.register_hook(partial(note, kind, index, x))

    def after(index: int, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        output.register_hook(partial(note, "layers", index, output.detach() - inputs[0].detach()))

    hooks = []
    for index, layer in enumerate(layers):
        hooks.append(layer.attention.output.register_forward_pre_hook(partial(before, "heads", index)))
        hooks.append(layer.feed_forward.output.register_forward_pre_hook(partial(before, "neurons", index)))
        hooks.append(layer.register_forward_hook(partial(after, index)))
    try:
        short = [row for row in rows if examples.sizes[row] <= MAX_TOKENS]
        if not short:
            raise InputError(
                f"every text has more than {MAX_TOKENS:,} tokens; give shorter ones, to measure importance"
            )
        for part in token_batches(short, examples.sizes, MAX_TOKENS):
            batch: Batch = examples.batch(part).to(device)
            lengths.append(batch.lengths)
            loss, _ = objective.label_loss(objective.forward(model, batch), batch)
            model.zero_grad(set_to_none=True)
            loss.backward()
    finally:
        for hook in hooks:
            hook.remove()
    model.zero_grad(set_to_none=True)
    for (kind, _), value in sorted(per_batch.items(), key=lambda item: item[0]):
        sums[kind].append(value.cpu())
    return Importance([float(value) for value in sums["layers"]], sums["heads"], sums["neurons"])
