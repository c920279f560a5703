"""Dynamic loss scaling (Micikevicius 2017, section 3.2): a factor lifts gradients that float16 is too coarse for.

The factor is a power of two, so it changes no digit. A gradient that overflows costs a step and halves it; after
`GROWS_AFTER` good steps it doubles.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

FIRST, LEAST = 2.0**16, 2.0**-10
GROWS_AFTER = 2000


@dataclass(frozen=True)
class LossScale:
    """What losses are multiplied by, and how many steps have been good since it last changed."""

    value: float = 1.0
    good: int = 0
    dynamic: bool = False

    @staticmethod
    def of(dtype: torch.dtype) -> "LossScale":
        """float16 needs one; other formats reach as far down as float32."""
        return LossScale(FIRST, dynamic=True) if dtype is torch.float16 else LossScale()

    def skips(self, norm: float) -> bool:
        """Whether a gradient of this norm is an overflow that a smaller scale can mend."""
        return self.dynamic and not math.isfinite(norm) and self.value > LEAST

    def after(self, norm: float) -> "LossScale":
        """The scale for the next step, given this one's gradient norm."""
        if not self.dynamic:
            return self
        if not math.isfinite(norm):
            return replace(self, value=self.value / 2, good=0)
        if self.good + 1 == GROWS_AFTER:
            return replace(self, value=self.value * 2, good=0)
        return replace(self, good=self.good + 1)

    def row(self, norm: float) -> dict[str, Any]:
        """What the metrics of a step say of it."""
        return {"scale": self.value, "skipped": self.skips(norm)} if self.dynamic else {}
