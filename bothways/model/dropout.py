"""Dropout (Srivastava 2014) on a CPU: random bits from a counter, and one stored bit per value.

Five times as fast as F.dropout, and one seed fixes every mask.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Dropout: `apply_dropout` on a CPU, torch's elsewhere."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if x.device.type == "cpu":
            return apply_dropout(x, self.rate)
        return F.dropout(x, self.rate)


def apply_dropout(x: Tensor, rate: float) -> Tensor:
    """Dropout on a CPU, saving one bit per value for the backward pass."""
    result: Tensor = _Dropout.apply(x, rate)
    return result


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        kept = draw_keep_mask(x.numel(), rate)
        ctx.keep_bits = np.packbits(kept)
        ctx.rate = rate
        return x * dropout_factors(kept, x, rate)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        kept = unpack_keep_mask(ctx.keep_bits, g)
        return g * dropout_factors(kept, g, ctx.rate), None


def draw_keep_mask(count: int, rate: float, key: int | None = None) -> np.ndarray:
    """A dropout mask from counter-based random bits (Philox, Salmon 2011), 16 per value.

    count: number of values.
    rate: the fraction that is dropped, exact to 1/65536.
    key: of the random bits. None: one draw from torch's generator, so seeding torch fixes every mask.
    """
    bits = np.random.Philox(key=new_key() if key is None else key)
    # A raw number has 64 bits, for four values.
    raw = bits.random_raw(-(-count // 4)).view(np.int16)[:count]
    kept: np.ndarray = raw >= round(rate * 65536) - 32768
    return kept


def new_key() -> int:
    """A key of a dropout mask, drawn from torch's generator."""
    return int(torch.randint(1 << 62, ()))


def dropout_factors(kept: np.ndarray, like: Tensor, rate: float) -> Tensor:
    """1 / (1 - rate) for values that are kept, 0 for dropped ones.

    kept: a mask of all values.
    like: a tensor of the shape and dtype of the result.
    rate: the fraction that is dropped.
    """
    # The bits of the factor, times True or False: 1.05 ns a value with the random bits, 2.1 if the mask is converted
    # and scaled (docs/LOG.md).
    integer = torch.int16 if like.itemsize == 2 else torch.int32
    bits = torch.tensor(1 / (1 - rate), dtype=like.dtype).view(integer)
    factors = np.multiply(kept, bits.numpy())
    return torch.from_numpy(factors).view(like.dtype).view(like.shape)


def unpack_keep_mask(bits: np.ndarray, like: Tensor) -> np.ndarray:
    """The mask of a tensor's values from its packed bits."""
    return np.unpackbits(bits, count=like.numel())
