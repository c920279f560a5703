"""Layout of exported models: padding and attention mask, all texts padded to one length."""

import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.model.layout import Bias, Layout, Sides, window_mask


class Padded(Layout):
    """Texts as one [B, S] tensor with an attention mask, for export: T = B * S. Padding may be on either side."""

    HIDDEN = -1e30  # not -inf: a row that attends to nothing stays finite, and its result is not used

    def __init__(self, real_BS: Tensor) -> None:
        self.real = real_BS.bool()
        rows = torch.arange(real_BS.shape[0], device=real_BS.device) * real_BS.shape[1]
        self.first_tokens = rows + self.real.int().argmax(1)
        self.bias = torch.where(self.real, 0.0, self.HIDDEN)[:, None, None]  # [B, 1, 1, S], added to scores

    @property
    def position_ids(self) -> Tensor:
        """Positions counted from the first token that is not padding, [T]."""
        return (self.real.long().cumsum(1) - 1).clamp(min=0).flatten()

    def attend(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float, bias: Bias | None = None
    ) -> Tensor:
        q, k, v = (x_TND.unflatten(0, self.real.shape).transpose(1, 2) for x_TND in (q_TND, k_TND, v_TND))
        mask = self.bias
        if max(sides) >= 0:  # the size may be symbolic, which the cache of `window_mask` cannot hold
            mask = mask.masked_fill(~window_mask.__wrapped__(self.real.shape[1], sides, q.device), self.HIDDEN)
        if bias is not None:
            mask = mask + bias(q.transpose(0, 1), k.transpose(0, 1)).transpose(0, 1)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return attended.transpose(1, 2).flatten(0, 1)
