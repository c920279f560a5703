"""LoRA (Hu 2022): frozen weights plus products of two narrow matrices.

Letters: T tokens, I inputs, O outputs, R rank, P adapted parts of the outputs (such as queries and values).
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.model.parameters import retype


class LoraLinear(nn.Linear):
    """x W^T + b + scale * x A^T B^T (Hu 2022, eq. 3), with A and B for each adapted part of the outputs.

    The parameters of the linear layer are those of the frozen layer, under the same names.
    """

    lora_down: nn.Parameter  # [P * R, I], the A of all parts
    lora_up: nn.Parameter  # [P, O / num_parts, R], their B
    num_parts: int
    adapted: tuple[int, ...]
    scale: float

    @staticmethod
    def of(
        linear: nn.Linear,
        *,
        num_parts: int,
        adapted: Sequence[int],
        rank: int,
        scale: float,
        generator: torch.Generator | None = None,
    ) -> "LoraLinear":
        """The layer with zero B, so that it computes the same. num_parts: equal parts of the outputs; adapted: which
        of them change."""
        module = retype(linear, LoraLinear)
        module.num_parts, module.adapted, module.scale = num_parts, tuple(adapted), scale
        weight = linear.weight
        down = torch.empty(len(adapted) * rank, linear.in_features)
        for part in down.view(len(adapted), rank, linear.in_features):
            nn.init.kaiming_uniform_(part, a=math.sqrt(5), generator=generator)  # as microsoft/LoRA
        module.lora_down = nn.Parameter(down.to(weight))
        module.lora_up = nn.Parameter(weight.new_zeros(len(adapted), linear.out_features // num_parts, rank))
        return module

    def forward(self, x_TI: Tensor) -> Tensor:
        return torch.addmm(super().forward(x_TI), F.linear(x_TI, self.lora_down), self.up().t(), alpha=self.scale)

    def up(self) -> Tensor:
        """The B of all parts as one matrix [O, P * R]."""
        if self.num_parts == 1:
            return self.lora_up[0]
        rank = self.lora_up.shape[-1]
        rows = []
        for part in range(self.num_parts):
            before = self.adapted.index(part) * rank if part in self.adapted else 0
            after = len(self.lora_down) - before - rank
            rows.append(
                F.pad(self.lora_up[self.adapted.index(part)], (before, after))
                if part in self.adapted
                else self.lora_up.new_zeros(self.out_features // self.num_parts, len(self.lora_down))
            )
        return torch.cat(rows)

    def merged(self) -> nn.Linear:
        """A plain layer with the weight W + scale * B A, computed in float64 and rounded once."""
        plain = retype(self, nn.Linear)
        for name in ("lora_down", "lora_up"):
            del plain._parameters[name]
        with torch.no_grad():
            change = self.scale * (self.up().double() @ self.lora_down.double())
            plain.weight = nn.Parameter((self.weight.double() + change).to(self.weight), requires_grad=False)
        return plain
