"""The layout of exported models: texts padded to one rectangle, and a mask of what is real."""

import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.model.layout import Bias, Layout, Sides, near


class Padded(Layout):
    """One [B, S] rectangle and a mask of its real tokens, for export: T = B * S. Padding may stand on either side."""

    HIDDEN = -1e30  # not minus infinity: a row that may look at nothing stays finite, and nobody reads it

    def __init__(self, real_BS: Tensor) -> None:
        self.real = real_BS.bool()
        rows = torch.arange(real_BS.shape[0], device=real_BS.device) * real_BS.shape[1]
        self.first_tokens = rows + self.real.int().argmax(1)
        self.bias = torch.where(self.real, 0.0, self.HIDDEN)[:, None, None]  # [B, 1, 1, S], added to scores

    @property
    def position_ids(self) -> Tensor:
        """Positions counted from the first real token, [T]."""
        return (self.real.long().cumsum(1) - 1).clamp(min=0).flatten()

    def attend(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float, bias: Bias | None = None
    ) -> Tensor:
        q, k, v = (part.unflatten(0, self.real.shape).transpose(1, 2) for part in (q_TND, k_TND, v_TND))
        mask = self.bias
        if max(sides) >= 0:  # the size may be a symbol, which `near` could not remember
            mask = mask.masked_fill(~near.__wrapped__(self.real.shape[1], sides, q.device), self.HIDDEN)
        if bias is not None:
            mask = mask + bias(q.transpose(0, 1), k.transpose(0, 1)).transpose(0, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return mixed.transpose(1, 2).flatten(0, 1)
