"""Mixed precision: dynamic loss scaling for float16, as torch's GradScaler.

Source: Micikevicius 2017, section 3.2. The scale is a power of two, so it changes no mantissa. An overflow skips the
step and halves the scale; after `GROWTH_INTERVAL` good steps it doubles.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

INITIAL_SCALE, MIN_SCALE = 2.0**16, 2.0**-10
GROWTH_INTERVAL = 2000


@dataclass(frozen=True)
class LossScale:
    """Factor of the losses, and the number of good steps since it last changed."""

    value: float = 1.0
    good_steps: int = 0
    dynamic: bool = False

    @staticmethod
    def for_dtype(dtype: torch.dtype) -> "LossScale":
        """Dynamic scaling for float16; bfloat16 has the range of float32 and needs no scaling."""
        return LossScale(INITIAL_SCALE, dynamic=True) if dtype is torch.float16 else LossScale()

    def skips(self, norm: float) -> bool:
        """Whether this gradient norm is an overflow that a smaller scale can avoid."""
        return self.dynamic and not math.isfinite(norm) and self.value > MIN_SCALE

    def update(self, norm: float) -> "LossScale":
        """The scale for the next step, given the gradient norm of this one."""
        if not self.dynamic:
            return self
        if not math.isfinite(norm):
            return replace(self, value=self.value / 2, good_steps=0)
        if self.good_steps + 1 == GROWTH_INTERVAL:
            return replace(self, value=self.value * 2, good_steps=0)
        return replace(self, good_steps=self.good_steps + 1)

    def metrics(self, norm: float) -> dict[str, Any]:
        """Entries for the metrics of a step."""
        return {"scale": self.value, "skipped": self.skips(norm)} if self.dynamic else {}
