"""LoRA (Hu 2022): frozen weights plus products of two narrow matrices.

Letters: T tokens, I inputs, O outputs, R rank, P equal parts of the outputs (such as queries, keys and values).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.model.parameters import retype


class LoraLinear(nn.Linear):
    """x W^T + b + scale * x A^T B^T (Hu 2022, eq. 3), with A and B for each part of the outputs.

    The parameters of the linear layer are those of the frozen layer, under the same names.
    """

    lora_down: nn.Parameter  # [P * R, I], the A of all parts
    lora_up: nn.Parameter  # [P, O / P, R], their B
    scale: float

    @staticmethod
    def of(
        linear: nn.Linear, num_parts: int, rank: int, scale: float, generator: torch.Generator | None = None
    ) -> "LoraLinear":
        """The layer with zero B, so that it computes the same."""
        module, weight = retype(linear, LoraLinear), linear.weight
        module.scale = scale
        down = torch.empty(num_parts * rank, linear.in_features)
        for part in down.chunk(num_parts):
            nn.init.kaiming_uniform_(part, a=math.sqrt(5), generator=generator)  # as microsoft/LoRA
        module.lora_down = nn.Parameter(down.to(weight))
        module.lora_up = nn.Parameter(weight.new_zeros(num_parts, linear.out_features // num_parts, rank))
        return module

    def forward(self, x_TI: Tensor) -> Tensor:
        return torch.addmm(super().forward(x_TI), F.linear(x_TI, self.lora_down), self.up().t(), alpha=self.scale)

    def up(self) -> Tensor:
        """The B of all parts as one matrix [O, P * R]."""
        return self.lora_up[0] if len(self.lora_up) == 1 else torch.block_diag(*self.lora_up)

    def merged(self) -> nn.Linear:
        """A plain layer with the weight W + scale * B A, computed in float64 and rounded once."""
        plain = retype(self, nn.Linear)
        for name in ("lora_down", "lora_up"):
            del plain._parameters[name]
        with torch.no_grad():
            change = self.scale * (self.up().double() @ self.lora_down.double())
            plain.weight = nn.Parameter((self.weight.double() + change).to(self.weight), requires_grad=False)
        return plain
