"""Hidden states of every layer, and queries, keys and values of a layer.

Letters: T tokens, H hidden size.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from bothways.errors import InputError
from bothways.model.disentangled import DisentangledAttention
from bothways.model.encoder import Encoder
from bothways.model.kernels import append_dummy_text
from bothways.model.layer import Layer
from bothways.model.model import Model
from bothways.text.batch import Batch


class States(NamedTuple):
    """layers: output of the embeddings and of each layer, [T, H] each. last_TH: the model's output."""

    layers: list[Tensor]
    last_TH: Tensor


def compute_states(model: Model, batch: Batch) -> States:
    """The forward pass of a model, with the output of every layer."""
    encoder = plain_encoder(model)
    padded = append_dummy_text(batch, encoder.embeddings.words.weight)
    context, x_TH = encoder.build_context(padded), encoder.embeddings(padded)
    layers = [x_TH]
    for layer in encoder.layer_sequence:
        layers.append(layer(layers[-1], context))
    last_TH = encoder.final_norm(layers[-1])
    return States([x_TH[: batch.num_tokens] for x_TH in layers], last_TH[: batch.num_tokens])


def queries_keys_values(model: Model, layer: int, input_TH: Tensor) -> Tensor:
    """Queries, keys and values of a layer (before rotary positions) from its input, [T, 3, H]."""
    module = plain_encoder(model).layer_sequence[layer]
    assert isinstance(module, Layer)
    normed_TH = module.attention_norm(input_TH) if module.norm_first else input_TH
    qkv_TX = module.attention.qkv(normed_TH)
    if isinstance(module.attention, DisentangledAttention):
        return torch.stack([x_TND.flatten(1) for x_TND in module.attention.split_heads(qkv_TX)], 1)
    split_T3H: Tensor = qkv_TX.unflatten(-1, (3, -1))
    return split_T3H


def plain_encoder(model: Model) -> Encoder:
    """The encoder. InputError for models of two one-way stacks, whose layers are not in one sequence."""
    if not isinstance(model.encoder, Encoder):
        raise InputError("a model of two one-way halves cannot be distilled; use one with direction both")
    return model.encoder
