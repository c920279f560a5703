"""The learning rate over a run, as a share of its peak: pure functions of (step, steps, warmup).

A step is one of 0..steps-1. The first `warmup` (a fraction of the run) rises, the step after it stands at the peak.
"""

import math
from collections.abc import Callable, Mapping
from typing import Literal

Schedule = Literal["linear", "cosine", "one-cycle", "warm-up-stable-decay", "constant"]
ONE_CYCLE_START, ONE_CYCLE_END = 1 / 25, 1e-4 / 25  # fast.ai's: where it begins, and far below that at the end


def share_of_peak(schedule: Schedule, step: int, *, steps: int, warmup: float, decay: float) -> float:
    """The share of the peak rate at a step. decay: the fraction that falls in warm-up-stable-decay; others fall
    throughout."""
    if schedule == "warm-up-stable-decay":
        return warm_up_stable_decay(step, steps=steps, warmup=warmup, decay=decay)
    return SCHEDULES[schedule](step, steps=steps, warmup=warmup)


def linear(step: int, *, steps: int, warmup: float) -> float:
    """Falls in a line to zero (Devlin 2018, appendix A.2)."""
    return min(_rise(step, steps, warmup), 1 - _fallen(step, steps, warmup))


def cosine(step: int, *, steps: int, warmup: float) -> float:
    """Falls along half a cosine to zero (Loshchilov 2016)."""
    return min(_rise(step, steps, warmup), (1 + math.cos(math.pi * _fallen(step, steps, warmup))) / 2)


def one_cycle(step: int, *, steps: int, warmup: float) -> float:
    """Rises from 1/25 and falls to 1/250,000 of the peak, both along half a cosine (Smith 2018; fast.ai's form).

    warmup is where the peak stands: 0.3 to 0.5 is usual.
    """
    rising = _rising(steps, warmup)
    if step < rising:
        return ONE_CYCLE_START + (1 - ONE_CYCLE_START) * (1 - math.cos(math.pi * step / rising)) / 2
    left = (1 + math.cos(math.pi * (step - rising) / max(1, steps - 1 - rising))) / 2
    return ONE_CYCLE_END + (1 - ONE_CYCLE_END) * left


def warm_up_stable_decay(step: int, *, steps: int, warmup: float, decay: float = 0.1) -> float:
    """Stays at the peak, and falls in a line to zero in the last `decay` of the run (Hu 2024; the line: Hägele
    2024)."""
    falling = max(1, round(decay * steps))
    return min(_rise(step, steps, warmup), 1.0, (steps - step) / falling)


def constant(step: int, *, steps: int, warmup: float) -> float:
    """Stays at the peak."""
    return min(_rise(step, steps, warmup), 1.0)


SCHEDULES: Mapping[Schedule, Callable[..., float]] = {
    "linear": linear,
    "cosine": cosine,
    "one-cycle": one_cycle,
    "warm-up-stable-decay": warm_up_stable_decay,
    "constant": constant,
}


def _rising(steps: int, warmup: float) -> int:
    """How many steps rise."""
    return max(1, round(warmup * steps))


def _rise(step: int, steps: int, warmup: float) -> float:
    """The line that rises to 1 just after the warm-up, and on."""
    return (step + 1) / (_rising(steps, warmup) + 1)


def _fallen(step: int, steps: int, warmup: float) -> float:
    """How much of what follows the warm-up is over, 0 to just below 1."""
    rising = _rising(steps, warmup)
    return max(0, step - rising) / max(1, steps - rising)
