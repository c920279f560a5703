"""Position inside attention: nothing (BERT adds it to the embeddings), or queries and keys rotated by it (Su 2021).

A part is prepared once a batch and applied in each layer.
"""

import torch
from torch import Tensor, nn


class Positions(nn.Module):
    """Position is no business of attention."""

    def prepare(self, position_ids: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """What layers need of this batch's positions [T]."""
        return ()

    def rotate(self, q_TND: Tensor, k_TND: Tensor, prepared: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return q_TND, k_TND


class Rotary(Positions):
    """Pairs (d, d + D/2) of queries and keys turn by position * theta^(-2d/D) (Su 2021, section 3.4.2, as GPT-NeoX
    pairs them)."""

    def __init__(self, head_size: int, theta: float) -> None:
        super().__init__()
        self.head_size, self.theta = head_size, theta

    def prepare(self, position_ids: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        steps = torch.arange(0, self.head_size, 2, dtype=torch.float, device=position_ids.device)
        angles_TD = (position_ids[:, None].float() / self.theta ** (steps / self.head_size)).repeat(1, 2)
        return angles_TD.cos()[:, None].to(dtype), angles_TD.sin()[:, None].to(dtype)

    def rotate(self, q_TND: Tensor, k_TND: Tensor, prepared: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        cos_T1D, sin_T1D = prepared

        def turned(x_TND: Tensor) -> Tensor:
            left, right = x_TND.chunk(2, dim=-1)
            return x_TND * cos_T1D + torch.cat((-right, left), dim=-1) * sin_T1D

        return turned(q_TND), turned(k_TND)
