"""A transformer layer: attention and feed-forward with residual and layer norm (Vaswani 2017)."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.model.attention import Attention, Context, take_rows
from bothways.model.config import EncoderConfig
from bothways.model.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


class Layer(nn.Module):
    """One layer, with the norms after the residuals (BERT) or before the two parts (ModernBERT).

    attention: the first part. first: whether the layer is the encoder's first.
    """

    def __init__(self, config: EncoderConfig, attention: Attention, *, first: bool) -> None:
        super().__init__()
        self.norm_first = config.norm == "pre"
        self.attention = attention
        self.attention_norm = norm(config)
        if self.norm_first and first:  # the embeddings are normalized already (ModernBERT)
            self.attention_norm = nn.Identity()
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = norm(config)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x_TH: Tensor, context: Context, rows_R: Tensor | None = None) -> Tensor:
        """[T, H] -> [T, H]; with rows_R, the tokens that are read, [R, H]: of the others only keys and values are
        made."""
        if rows_R is not None and self.is_watched():
            every_TH: Tensor = self(x_TH, context)
            return every_TH[rows_R]

        if self.norm_first:
            attended_RH = self.attention(self.attention_norm(x_TH), context, rows_R)
            x_RH = take_rows(x_TH, rows_R) + self.dropout(attended_RH)
            return x_RH + self.dropout(self.feed_forward(self.feed_forward_norm(x_RH)))

        attended_RH = self.attention(x_TH, context, rows_R)
        x_RH = self.attention_norm(take_rows(x_TH, rows_R) + self.dropout(attended_RH))
        x_RH = self.feed_forward_norm(x_RH + self.dropout(self.feed_forward(x_RH)))
        return x_RH

    def is_watched(self) -> bool:
        """Whether hooks see the inputs of its parts (int8, importance of heads): these are to see all tokens."""
        parts = (part for part in self.modules() if part is not self)
        return any(part._forward_hooks or part._forward_pre_hooks for part in parts)


class FeedForward(nn.Module):
    """act(x A) B, or gated: (act(x A) * x C) B (Shazeer 2020)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.hidden_act]
        self.gated = config.feed_forward == "gated"

        # A and C of the gated form are one matrix.
        wide = config.intermediate_size * (2 if self.gated else 1)
        self.inner = nn.Linear(config.hidden_size, wide, bias=config.linear_bias)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.linear_bias)

    def forward(self, x_TH: Tensor) -> Tensor:
        """[T, H] -> [T, H]"""
        output_TH: Tensor = self.output(self.activate(x_TH))
        return output_TH

    def activate(self, x_TH: Tensor) -> Tensor:
        """The values of the neurons, [T, I]."""
        if not self.gated:
            return self.activation(self.inner(x_TH))

        value_TI, gate_TI = self.inner(x_TH).chunk(2, dim=-1)
        return self.activation(value_TI) * gate_TI


def norm(config: EncoderConfig) -> nn.Module:
    """The layer norm of hidden states."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.norm_bias)
