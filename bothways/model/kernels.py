"""Fast forms of what the core says plainly: the same result, and tests hold them to the plain form."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# In bf16 on a processor, attention as batched products is faster than the fused kernel up to about this length;
# where gradients are needed, at every length BERT reads (docs/LOG.md).
LONGEST_BATCHED = 256


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """softmax(q k^T / sqrt(D)) v for [n, N, S, D]; mask [S, S] or [n, 1, 1, S] says who may be looked at."""
    on_processor = q.device.type == "cpu"
    gradients = torch.is_grad_enabled() and q.requires_grad
    short = q.dtype is torch.bfloat16 and (gradients or q.shape[-2] <= LONGEST_BATCHED)
    if on_processor and mask is None and (short or dropout > 0):
        n, heads, size, _ = q.shape
        flat = (part.reshape(n * heads, size, -1) for part in (q, k, v))
        return _BatchedAttention.apply(*flat, dropout).view(q.shape)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)


class _BatchedAttention(torch.autograd.Function):
    """Attention for [B, S, D] as three batched products, keeping the weights for the way back."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        scale = q.shape[-1] ** -0.5
        weights = torch.baddbmm(q.new_empty(1), q, k.transpose(1, 2), beta=0, alpha=scale).softmax(-1)
        keep = dropout_mask(weights, dropout) if dropout else None
        dropped = weights if keep is None else weights * keep
        ctx.save_for_backward(q, k, v, weights, keep)
        ctx.scale = scale
        return torch.bmm(dropped, v)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        q, k, v, weights, keep = ctx.saved_tensors
        g_weights = torch.bmm(g, v.transpose(1, 2))
        dropped = weights
        if keep is not None:
            dropped, g_weights = weights * keep, g_weights * keep
        g_scores = torch._softmax_backward_data(g_weights, weights, -1, weights.dtype).mul_(ctx.scale)
        return (
            torch.bmm(g_scores, k),
            torch.bmm(g_scores.transpose(1, 2), q),
            torch.bmm(dropped.transpose(1, 2), g),
            None,
        )


def dropout_mask(like: Tensor, rate: float) -> Tensor:
    """1 / (1 - rate) where a value stays and 0 where it is dropped, from counter-based random bits (Philox, Salmon
    2011).

    The key is one draw from torch's own generator, so seeding torch fixes every mask; four to five times as fast as
    F.dropout on a processor.
    """
    key = int(torch.randint(1 << 62, ()))
    raw = np.random.Philox(key=key).random_raw(-(-like.numel() // 4)).view(np.int16)[: like.numel()]
    kept = torch.from_numpy(raw >= round(rate * 65536) - 32768).view(like.shape)
    return kept.to(like.dtype).mul_(1 / (1 - rate))


class Dropout(nn.Module):
    """Dropout (Srivastava 2014) by `dropout_mask` on a processor and by torch elsewhere."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        return x * dropout_mask(x, self.rate) if x.device.type == "cpu" else F.dropout(x, self.rate)


def linear_cross_entropy(x_MH: Tensor, weight_VH: Tensor, bias_V: Tensor, labels_M: Tensor) -> Tensor:
    """Sum of cross-entropies of x W^T + b, without keeping [M, V] scores where torch can (2.13 and newer)."""
    if hasattr(F, "linear_cross_entropy"):
        return F.linear_cross_entropy(x_MH, weight_VH, labels_M, linear_bias=bias_V, reduction="sum")
    return F.cross_entropy(F.linear(x_MH, weight_VH, bias_V).float(), labels_M, reduction="sum")
