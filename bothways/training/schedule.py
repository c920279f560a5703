"""Learning rate schedules with warmup: linear, cosine, one-cycle, WSD, constant.

Pure functions of (step, steps, warmup), with step in 0..steps-1, that return a fraction of the peak learning rate. It
rises during the first `warmup` fraction of the run, and reaches the peak in the following step.
"""

import math
from collections.abc import Callable, Mapping
from typing import Literal

Schedule = Literal["linear", "cosine", "one-cycle", "warm-up-stable-decay", "constant"]
ONE_CYCLE_START, ONE_CYCLE_END = 1 / 25, 1e-4 / 25  # fractions of the peak (fast.ai)


def learning_rate_factor(schedule: Schedule, step: int, *, steps: int, warmup: float, decay: float) -> float:
    """Learning rate at a step as a fraction of its peak. decay: fraction of the run, for warm-up-stable-decay only."""
    if schedule == "warm-up-stable-decay":
        return warmup_stable_decay(step, steps=steps, warmup=warmup, decay=decay)
    return SCHEDULES[schedule](step, steps=steps, warmup=warmup)


def linear(step: int, *, steps: int, warmup: float) -> float:
    """Linear decay to zero (Devlin 2018, appendix A.2)."""
    return min(_warmup_factor(step, steps, warmup), 1 - _elapsed(step, steps, warmup))


def cosine(step: int, *, steps: int, warmup: float) -> float:
    """Half-cosine decay to zero (Loshchilov 2016)."""
    return min(_warmup_factor(step, steps, warmup), (1 + math.cos(math.pi * _elapsed(step, steps, warmup))) / 2)


def one_cycle(step: int, *, steps: int, warmup: float) -> float:
    """Rises from 1/25 and falls to 1/250,000 of the peak, both along half a cosine (Smith 2018; fast.ai's form).

    warmup: position of the peak, usually 0.3 to 0.5.
    """
    rising = _warmup_steps(steps, warmup)
    if step < rising:
        return ONE_CYCLE_START + (1 - ONE_CYCLE_START) * (1 - math.cos(math.pi * step / rising)) / 2
    left = (1 + math.cos(math.pi * (step - rising) / max(1, steps - 1 - rising))) / 2
    return ONE_CYCLE_END + (1 - ONE_CYCLE_END) * left


def warmup_stable_decay(step: int, *, steps: int, warmup: float, decay: float = 0.1) -> float:
    """Constant, then linear decay to zero in the last `decay` fraction of the run (Hu 2024; Hägele 2024)."""
    falling = max(1, round(decay * steps))
    return min(_warmup_factor(step, steps, warmup), 1.0, (steps - step) / falling)


def constant(step: int, *, steps: int, warmup: float) -> float:
    """Constant after warmup."""
    return min(_warmup_factor(step, steps, warmup), 1.0)


SCHEDULES: Mapping[Schedule, Callable[..., float]] = {
    "linear": linear,
    "cosine": cosine,
    "one-cycle": one_cycle,
    "warm-up-stable-decay": warmup_stable_decay,
    "constant": constant,
}


def _warmup_steps(steps: int, warmup: float) -> int:
    """Number of warmup steps."""
    return max(1, round(warmup * steps))


def _warmup_factor(step: int, steps: int, warmup: float) -> float:
    """Linear warmup, 1 at the first step after it; larger later."""
    return (step + 1) / (_warmup_steps(steps, warmup) + 1)


def _elapsed(step: int, steps: int, warmup: float) -> float:
    """Elapsed fraction of the steps after warmup, 0 to just below 1."""
    rising = _warmup_steps(steps, warmup)
    return max(0, step - rising) / max(1, steps - rising)
