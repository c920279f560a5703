"""Hidden states and attention weights of every layer, and queries, keys and values of a layer.

Letters: L layers, T tokens, S tokens of one text, N heads, D head size, H hidden size.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from bothways.base.errors import InputError
from bothways.model.disentangled import DisentangledAttention
from bothways.model.encoder import Encoder, TwoStackEncoder
from bothways.model.kernels import append_dummy_text
from bothways.model.layer import Layer
from bothways.model.layout import Bias, Bucketed, Sides, window_mask
from bothways.model.model import Model
from bothways.text.batch import Batch


class States(NamedTuple):
    """layers: output of the embeddings and of each layer, [T, H] each, so layers[i] is the input of layer i, counted
    from 0. last_TH: the model's output."""

    layers: list[Tensor]
    last_TH: Tensor


def compute_states(model: Model, batch: Batch) -> States:
    """The forward pass of a model, with the output of every layer."""
    encoder = plain_encoder(model)
    padded = append_dummy_text(batch, encoder.embeddings.words.weight)
    context = encoder.build_context(padded)

    layers = [encoder.embeddings(padded)]
    for layer in encoder.layer_sequence:
        layers.append(layer(layers[-1], context))
    last_TH = encoder.final_norm(layers[-1])

    # Without the dummy text.
    return States(
        layers=[x_TH[: batch.num_tokens] for x_TH in layers],
        last_TH=last_TH[: batch.num_tokens],
    )


def queries_keys_values(model: Model, layer: int, input_TH: Tensor) -> Tensor:
    """Queries, keys and values of a layer (before rotary positions) from its input, [T, 3, H].

    model: a plain model.
    layer: counted from 0.
    input_TH: the input of the layer, one of `States.layers`.
    """
    module = plain_encoder(model).layer_sequence[layer]
    assert isinstance(module, Layer)
    normed_TH = module.attention_norm(input_TH) if module.norm_first else input_TH
    qkv_TX = module.attention.qkv(normed_TH)

    if isinstance(module.attention, DisentangledAttention):
        heads = module.attention.split_heads(qkv_TX)
        return torch.stack([x_TND.flatten(1) for x_TND in heads], 1)
    split_T3H: Tensor = qkv_TX.unflatten(-1, (3, -1))
    return split_T3H


def plain_encoder(model: Model) -> Encoder:
    """The encoder. InputError for models of two one-way stacks, whose layers are not in one sequence."""
    if isinstance(model.encoder, TwoStackEncoder):
        raise InputError("a model of two one-way halves cannot be distilled; use one with direction both")
    return model.encoder


def attention_weights(model: Model, batch: Batch) -> Tensor:
    """softmax(q k^T / sqrt(D) + bias) of each layer and head for a single text, float32 [L, N, S, S].

    The heads of two one-way halves are side by side, the heads of the forward half first. Attention of sparse models
    does not go through the layout, so they have no weights here.
    """
    layout = RecordingLayout(batch.lengths, batch.input_ids.device)
    context = model.encoder.build_context(batch, layout)
    model.encoder(batch, context)

    # One call a layer, or with two halves two.
    weights_LNSS = torch.stack(layout.weights_NSS)
    return weights_LNSS.view(model.config.num_hidden_layers, -1, *weights_LNSS.shape[-2:])


class RecordingLayout(Bucketed):
    """Bucketed, for one text; keeps the weights [N, S, S] of each call of `attend`."""

    def __init__(self, lengths: Tensor, device: torch.device) -> None:
        super().__init__(lengths, device)
        self.weights_NSS: list[Tensor] = []

    def attend(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float, bias: Bias | None = None
    ) -> Tensor:
        q_NSD = q_TND.transpose(0, 1)
        k_NSD = k_TND.transpose(0, 1)
        scores_NSS = (q_NSD @ k_NSD.mT).float() / q_NSD.shape[-1] ** 0.5
        if bias is not None:
            scores_NSS = scores_NSS + bias(q_NSD[:, None], k_NSD[:, None])[:, 0]

        mask_SS = window_mask(len(q_TND), sides, q_TND.device)
        weights_NSS = scores_NSS.masked_fill(~mask_SS, -torch.inf).softmax(-1)
        self.weights_NSS.append(weights_NSS)
        return super().attend(q_TND, k_TND, v_TND, sides=sides, dropout=dropout, bias=bias)
