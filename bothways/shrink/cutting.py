"""Importance of the parts of a model that can be cut: attention heads and feed-forward neurons.

The importance of heads and neurons is of first order: the change of the loss when an activation x becomes 0 is
about -g x, with its gradient g (Molchanov 2017, eq. 7). For a head it is summed over its outputs (Michel 2019, section
3.2). Sums are over the tokens of a text, magnitudes are averaged over texts. Letters: T tokens, W windows, H hidden
size, N heads, D head size, I neurons (feed-forward size).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bothways.base.errors import InputError
from bothways.model.config import EncoderConfig
from bothways.model.layer import Layer
from bothways.model.model import Model
from bothways.tasks.batch_plan import Examples
from bothways.tasks.text_examples import MAX_TOKENS
from bothways.tasks.training_task import LabelObjective
from bothways.text.batch import Batch
from bothways.text.batching import token_batches


def encoder_weights(config: EncoderConfig) -> int:
    """The number of weights in the matrices of all layers."""
    attention = 4 * config.hidden_size * config.num_attention_heads * config.head_size
    num_matrices = 3 if config.feed_forward == "gated" else 2
    feed_forward = num_matrices * config.hidden_size * config.intermediate_size
    return config.num_unique_layers * (attention + feed_forward)


@dataclass
class Importance:
    """Of each layer in turn: the importance of its heads [N] and of its neurons [I]."""

    heads: list[Tensor] = field(default_factory=list)
    neurons: list[Tensor] = field(default_factory=list)

    def best_heads(self, count: int, layers: Sequence[int]) -> list[list[int]]:
        return [best_parts(self.heads[layer], count) for layer in layers]

    def best_neurons(self, count: int, layers: Sequence[int]) -> list[list[int]]:
        return [best_parts(self.neurons[layer], count) for layer in layers]


def best_parts(importance_X: Tensor, count: int) -> list[int]:
    """The indices of the most important parts, in the order of the model."""
    return sorted(importance_X.topk(count).indices.tolist())


def measure_importance(
    model: Model, objective: LabelObjective, examples: Examples, rows: Sequence[int], device: torch.device
) -> Importance:
    """The importance of all parts of a model for the loss of labelled examples.

    model: in float32.
    objective: whose loss counts.
    examples: labelled.
    rows: of the examples. Texts of more than MAX_TOKENS tokens, which are computed in parts, are left out.
    device: to compute on.

    InputError if every text is that long.
    """
    short_rows = [row for row in rows if examples.sizes[row] <= MAX_TOKENS]
    if not short_rows:
        raise InputError(f"every text has more than {MAX_TOKENS:,} tokens; give shorter ones, to measure importance")

    model = model.to(device).float().eval()
    layers = [part for part in model.encoder.layers if isinstance(part, Layer)]
    sums: dict[tuple[str, int], Tensor] = {}
    lengths_N = torch.empty(0)

    def add(kind: str, index: int, x: Tensor, g: Tensor) -> None:
        by_text = sum_by_text((x.detach() * g).float(), lengths_N)
        if kind == "heads":
            by_text = by_text.unflatten(-1, (-1, model.config.head_size)).sum(-1)
        sums[kind, index] = sums.get((kind, index), 0) + by_text.abs().sum(0)

    hooks = watch_gradients(layers, add)
    try:
        for part in token_batches(short_rows, examples.sizes, MAX_TOKENS):
            batch: Batch = examples.batch(part).to(device)
            lengths_N = batch.lengths
            loss, _ = objective.label_loss(objective.forward(model, batch), batch)
            model.zero_grad(set_to_none=True)
            loss.backward()
    finally:
        for hook in hooks:
            hook.remove()
    model.zero_grad(set_to_none=True)

    return Importance(
        heads=[sums["heads", index].cpu() for index in range(len(layers))],
        neurons=[sums["neurons", index].cpu() for index in range(len(layers))],
    )


def watch_gradients(layers: Sequence[Layer], note: Callable[[str, int, Tensor, Tensor], None]) -> list[RemovableHandle]:
    """Hooks that call note(kind, index of the layer, x, g) in backward passes, of activations x with gradients g."""

    def before(kind: str, index: int, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        inputs[0].register_hook(partial(note, kind, index, inputs[0]))

    hooks = []
    for index, layer in enumerate(layers):
        # The inputs of these products are the outputs of heads and the activations of neurons.
        hooks.append(layer.attention.output.register_forward_pre_hook(partial(before, "heads", index)))
        hooks.append(layer.feed_forward.output.register_forward_pre_hook(partial(before, "neurons", index)))
    return hooks


def sum_by_text(values_TX: Tensor, lengths_N: Tensor) -> Tensor:
    """The sums over the tokens of each text, [N, X], without a dummy text at the end."""
    text_T = torch.arange(len(lengths_N)).repeat_interleave(lengths_N).to(values_TX.device)
    sums_NX = values_TX.new_zeros(len(lengths_N), *values_TX.shape[1:])
    return sums_NX.index_add(0, text_T, values_TX[: len(text_T)])
