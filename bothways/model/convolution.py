"""A first layer with a convolution beside it, which adds what stands next to each token (DeBERTa v2, He 2021b, section
3.2). It runs over each text by itself. Letters: T tokens, H hidden size."""

import torch
from torch import Tensor, nn

from bothways.config import EncoderConfig
from bothways.model.attention import Attention, Context
from bothways.model.kernels import Dropout
from bothways.model.layer import ACTIVATIONS, Layer, norm


class ConvolvedLayer(Layer):
    def __init__(self, config: EncoderConfig, attention: Attention, *, first: bool) -> None:
        super().__init__(config, attention, first=first)
        assert config.relative is not None
        kernel = config.relative.kernel
        self.convolution = nn.Conv1d(config.hidden_size, config.hidden_size, kernel, padding=kernel // 2)
        self.activation = {"tanh": torch.tanh, **ACTIVATIONS}[config.relative.kernel_act]
        self.convolution_norm, self.convolution_dropout = norm(config), Dropout(config.hidden_dropout_prob)

    def forward(self, x_TH: Tensor, context: Context) -> Tensor:
        """norm(layer(x) + act(conv(x)))"""
        _, position_ids = context.positions[self.attention.positions]
        beside_TH = self.activation(self.convolution_dropout(self.neighbours(x_TH, position_ids)))
        found: Tensor = self.convolution_norm(super().forward(x_TH, context) + beside_TH)
        return found

    def neighbours(self, x_TH: Tensor, position_ids: Tensor) -> Tensor:
        """The convolution, [T, H]. A neighbour is of the same text where its position says so."""
        reach, total = self.convolution.kernel_size[0] // 2, self.convolution.bias
        assert total is not None
        for tap, weight_HH in zip(range(-reach, reach + 1), self.convolution.weight.unbind(-1), strict=True):
            same_T1 = (position_ids.roll(-tap) == position_ids + tap)[:, None]
            total = total + torch.where(same_T1, x_TH.roll(-tap, 0), 0.0) @ weight_HH.T
        return total
