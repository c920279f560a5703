"""Bottleneck adapters (Houlsby 2019; Pfeiffer 2021, behind the feed-forward part only).

Letters: T tokens, I inputs, H hidden size, W width of the bottleneck.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.model.parameters import retype


class BottleneckLinear(nn.Linear):
    """y = x W^T + b, then y + gelu(y A^T) B^T (Houlsby 2019, section 2.1), before the residual sum.

    The parameters of the linear layer are those of the frozen layer, under the same names.
    """

    bottleneck_down: nn.Parameter  # [W, H]
    bottleneck_down_bias: nn.Parameter
    bottleneck_up: nn.Parameter  # [H, W]
    bottleneck_up_bias: nn.Parameter

    @staticmethod
    def of(
        linear: nn.Linear, *, width: int, std: float, generator: torch.Generator | None = None
    ) -> "BottleneckLinear":
        """The layer with zero B, so that it computes the same."""
        module, size, weight = retype(linear, BottleneckLinear), linear.out_features, linear.weight
        down = torch.empty(width, size)
        nn.init.normal_(down, std=std, generator=generator)
        module.bottleneck_down = nn.Parameter(down.to(weight))
        module.bottleneck_down_bias = nn.Parameter(weight.new_zeros(width))
        module.bottleneck_up = nn.Parameter(weight.new_zeros(size, width))
        module.bottleneck_up_bias = nn.Parameter(weight.new_zeros(size))
        return module

    def forward(self, x_TI: Tensor) -> Tensor:
        y_TH = super().forward(x_TI)
        narrow_TW = F.gelu(F.linear(y_TH, self.bottleneck_down, self.bottleneck_down_bias))
        return y_TH + F.linear(narrow_TW, self.bottleneck_up, self.bottleneck_up_bias)
