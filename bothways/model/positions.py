"""Position inside attention: nothing (BERT adds it to the embeddings), or queries and keys rotated by it (Su 2021).

A part is prepared once a batch and applied in each layer.
"""

from collections.abc import Set
from typing import Any

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.model.layout import Layout


class Positions(nn.Module):
    """Position is no business of attention. heads: those of the model, for parts that go by the task."""

    heads: Set[str] = frozenset()
    biases = False  # whether scores get a bias, which not every layout can add

    def prepare(self, batch: Batch, layout: Layout, dtype: torch.dtype) -> tuple[Any, ...]:
        """What layers need of this batch."""
        return ()

    def rotate(self, q_TND: Tensor, k_TND: Tensor, prepared: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        return q_TND, k_TND


class Rotary(Positions):
    """Pairs (d, d + D/2) of queries and keys turn by position * theta^(-2d/D) (Su 2021, section 3.4.2, as GPT-NeoX
    pairs them)."""

    def __init__(self, head_size: int, theta: float) -> None:
        super().__init__()
        self.head_size, self.theta = head_size, theta

    def prepare(self, batch: Batch, layout: Layout, dtype: torch.dtype) -> tuple[Any, ...]:
        steps = torch.arange(0, self.head_size, 2, dtype=torch.float, device=batch.position_ids.device)
        speeds = 1.0 / self.theta ** (steps / self.head_size)  # not divided by: at position 8,000 the rounding shows
        angles_TD = (batch.position_ids[:, None].float() * speeds).repeat(1, 2)
        return angles_TD.cos()[:, None].to(dtype), angles_TD.sin()[:, None].to(dtype)

    def rotate(self, q_TND: Tensor, k_TND: Tensor, prepared: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        cos_T1D, sin_T1D = prepared

        def turned(x_TND: Tensor) -> Tensor:
            left, right = x_TND.chunk(2, dim=-1)
            return x_TND * cos_T1D + torch.cat((-right, left), dim=-1) * sin_T1D

        return turned(q_TND), turned(k_TND)
