"""Prepacked layers for fast inference in bf16 on a CPU, through oneDNN.

Each weight is reordered once for the matrix product, and activations and residual sums are fused into the product,
before rounding to bf16. This saves a fifth of the time (docs/LOG.md), and the result is closer to float32 than the
result of the plain form.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bothways.model.attention import Context, split_queries, take_rows
from bothways.model.encoder import Encoder
from bothways.model.int8 import is_int8
from bothways.model.kernels import append_dummy_rows, append_dummy_text
from bothways.model.layer import Layer
from bothways.model.model import Model
from bothways.text.batch import Batch

# Activations that oneDNN fuses into a product: name, algorithm.
FUSED = {
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "silu": ("swish", ""),
}


def prepack(model: Model) -> Callable[..., Tensor]:
    """A function that computes the last hidden states [T, H] of a batch as `model` does, faster if possible.

    It has a copy of the current weights, for inference only. Models of other classes are returned unchanged, and layers
    with adapters stay as they are.
    """
    if type(model) is not Model or type(model.encoder) is not Encoder:
        return model

    encoder = model.encoder
    weight = encoder.embeddings.words.weight
    is_bf16_on_cpu = weight.device.type == "cpu" and weight.dtype is torch.bfloat16
    if not is_bf16_on_cpu or is_int8(model) or not can_prepack():
        return model

    prepacked: dict[nn.Module, Callable[[Tensor, Context, Tensor | None], Tensor]] = {}
    for layer in encoder.layers:
        # Layers that do more than `Layer` stay as they are (DeBERTa's convolution).
        prepacked[layer] = layer
        if isinstance(layer, Layer) and is_plain(layer):
            prepacked[layer] = PrepackedLayer(
                layer,
                model.config.hidden_act,
                picks_rows=layer is encoder.layer_sequence[-1],
            )
    *layers, last = [prepacked[layer] for layer in encoder.layer_sequence]

    def forward(batch: Batch, rows_R: Tensor | None = None) -> Tensor:
        padded = append_dummy_text(batch, weight)
        context = encoder.build_context(padded)
        x_TH = encoder.embeddings(padded)
        for layer in layers:
            x_TH = layer(x_TH, context, None)

        padded_rows = None if rows_R is None else append_dummy_rows(rows_R, weight)
        last_RH: Tensor = encoder.final_norm(last(x_TH, context, padded_rows))
        return last_RH[: batch.num_tokens if rows_R is None else len(rows_R)]

    return forward


def can_prepack() -> bool:
    """Whether oneDNN has bf16 products for this processor; it has none for those with AVX2 alone."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def is_plain(layer: Layer) -> bool:
    """Whether a layer computes what `PrepackedLayer` does: without an adapter, and not in training for int8."""
    linears = [part for part in layer.modules() if isinstance(part, nn.Linear)]
    return type(layer) is Layer and all(type(part) is nn.Linear for part in linears)


class PrepackedLinear:
    """x W^T + b, followed by an activation or the sum with a residual."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None, activation: str | None = None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI.detach().contiguous())
        self.bias = None if bias_O is None else bias_O.detach()
        self.kind, self.algorithm = FUSED[activation] if activation else ("none", "")

    def __call__(self, x_TI: Tensor, residual_TO: Tensor | None = None) -> Tensor:
        """[T, I] -> [T, O]"""
        # By the overload: otherwise torch tries the wrong one first, which takes 24 ms a call instead of 4
        # (docs/LOG.md).
        y_TO: Tensor
        if residual_TO is None:
            y_TO = torch.ops.mkldnn._linear_pointwise.default(
                x_TI,
                self.weight,
                self.bias,
                attr=self.kind,
                scalars=[],
                algorithm=self.algorithm,
            )
        else:
            y_TO = torch.ops.mkldnn._linear_pointwise.binary(x_TI, residual_TO, self.weight, self.bias, attr="add")
        return y_TO


class PrepackedLayer:
    """The forward pass of `Layer`, without dropout."""

    def __init__(self, layer: Layer, activation: str, *, picks_rows: bool = False) -> None:
        """picks_rows: pack queries apart from keys and values too, for the layer whose rows are read."""
        self.layer = layer
        self.norm_first = layer.norm_first
        self.qkv = PrepackedLinear(layer.attention.qkv.weight, layer.attention.qkv.bias)
        self.apart: tuple[PrepackedLinear, PrepackedLinear] | None = None
        if picks_rows and layer.attention.has_query_block:
            query, key_value = split_queries(layer.attention.qkv)
            self.apart = PrepackedLinear(*query), PrepackedLinear(*key_value)
        self.attention_output = PrepackedLinear(layer.attention.output.weight, layer.attention.output.bias)

        # A gate multiplies the activation of half of the product, so it cannot be fused.
        inner = layer.feed_forward.inner
        fused = None if layer.feed_forward.gated else activation
        self.inner = PrepackedLinear(inner.weight, inner.bias, fused)
        self.output = PrepackedLinear(layer.feed_forward.output.weight, layer.feed_forward.output.bias)

    def __call__(self, x_TH: Tensor, context: Context, rows_R: Tensor | None = None) -> Tensor:
        """[T, H] -> [T, H]; with rows_R, [R, H]"""
        layer = self.layer
        if self.norm_first:
            attended_RH = self.attend(layer.attention_norm(x_TH), context, rows_R)
            x_RH = self.attention_output(attended_RH, take_rows(x_TH, rows_R))
            return self.output(self.feed_forward(layer.feed_forward_norm(x_RH)), x_RH)

        attended_RH = self.attend(x_TH, context, rows_R)
        x_RH = layer.attention_norm(self.attention_output(attended_RH, take_rows(x_TH, rows_R)))
        last_RH: Tensor = layer.feed_forward_norm(self.output(self.feed_forward(x_RH), x_RH))
        return last_RH

    def attend(self, x_TH: Tensor, context: Context, rows_R: Tensor | None) -> Tensor:
        """Attention before the output projection, [R, H]."""
        attention = self.layer.attention
        if rows_R is None or self.apart is None:
            return take_rows(attention.attend(x_TH, self.qkv(x_TH), context), rows_R)

        query, key_value = self.apart
        return attention.attend_rows(
            x_TH,
            q_RX=query(x_TH[rows_R]),
            kv_TX=key_value(x_TH),
            context=context,
            rows_R=rows_R,
        )

    def feed_forward(self, x_TH: Tensor) -> Tensor:
        """The values of the neurons, [T, I]."""
        inner_TI = self.inner(x_TH)
        if not self.layer.feed_forward.gated:
            return inner_TI

        value_TI, gate_TI = inner_TI.chunk(2, dim=-1)
        return self.layer.feed_forward.activation(value_TI) * gate_TI
