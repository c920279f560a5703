"""Training options, and learning rate schedules with warmup: linear, cosine, one-cycle, WSD, constant.

Schedules are pure functions of (step, steps, warmup) that return a fraction of the peak learning rate. Steps are
counted from 0 to steps - 1. The learning rate rises during the first `warmup` fraction of the steps, and reaches its
peak in the step after them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from bothways.model.parameters import CPU

Schedule = Literal[
    "linear",
    "cosine",
    "one-cycle",
    "warm-up-stable-decay",
    "constant",
]
# Of one-cycle, in fractions of the peak (fast.ai).
ONE_CYCLE_START = 1 / 25
ONE_CYCLE_END = 1e-4 / 25
DECAY = 0.1  # of warm-up-stable-decay: fraction of the steps in which the learning rate falls


def learning_rate_factor(schedule: Schedule, step: int, *, steps: int, warmup: float) -> float:
    """Learning rate at a step as a fraction of its peak.

    schedule: how the learning rate rises and falls.
    step: from 0 to steps - 1.
    steps: of the whole schedule.
    warmup: fraction of the steps in which the learning rate rises.

    >>> [learning_rate_factor("linear", step, steps=5, warmup=0.2) for step in range(5)]
    [0.5, 1.0, 0.75, 0.5, 0.25]
    """
    return SCHEDULES[schedule](step, steps=steps, warmup=warmup)


def linear(step: int, *, steps: int, warmup: float) -> float:
    """Linear decay to zero (Devlin 2018, appendix A.2)."""
    # After the warmup its factor is larger than 1, so the smaller factor is always the right one.
    return min(_warmup_factor(step, steps, warmup), 1 - _elapsed(step, steps, warmup))


def cosine(step: int, *, steps: int, warmup: float) -> float:
    """Half-cosine decay to zero (Loshchilov 2016)."""
    left = (1 + math.cos(math.pi * _elapsed(step, steps, warmup))) / 2
    return min(_warmup_factor(step, steps, warmup), left)


def one_cycle(step: int, *, steps: int, warmup: float) -> float:
    """Rises from 1/25 and falls to 1/250,000 of the peak, both along half a cosine (Smith 2018; fast.ai's form).

    warmup: position of the peak, usually 0.3 to 0.5.
    """
    rising = _warmup_steps(steps, warmup)
    if step < rising:
        risen = (1 - ONE_CYCLE_START) * (1 - math.cos(math.pi * step / rising)) / 2
        return ONE_CYCLE_START + risen

    # The last step, steps - 1, is at the end of the half-cosine.
    falling = max(1, steps - 1 - rising)
    left = (1 + math.cos(math.pi * (step - rising) / falling)) / 2
    return ONE_CYCLE_END + (1 - ONE_CYCLE_END) * left


def warmup_stable_decay(step: int, *, steps: int, warmup: float) -> float:
    """Constant, then linear decay to zero in the last DECAY fraction of the run (Hu 2024; Hägele 2024)."""
    falling = max(1, round(DECAY * steps))
    return min(_warmup_factor(step, steps, warmup), 1.0, (steps - step) / falling)


def constant(step: int, *, steps: int, warmup: float) -> float:
    """The peak after warmup."""
    return min(_warmup_factor(step, steps, warmup), 1.0)


SCHEDULES: Mapping[Schedule, Callable[..., float]] = {
    "linear": linear,
    "cosine": cosine,
    "one-cycle": one_cycle,
    "warm-up-stable-decay": warmup_stable_decay,
    "constant": constant,
}


def _warmup_steps(steps: int, warmup: float) -> int:
    """The number of steps in which the learning rate rises, at least one."""
    return max(1, round(warmup * steps))


def _warmup_factor(step: int, steps: int, warmup: float) -> float:
    """Linear warmup: 1 at the first step after it, larger than 1 at later steps."""
    return (step + 1) / (_warmup_steps(steps, warmup) + 1)


def _elapsed(step: int, steps: int, warmup: float) -> float:
    """Elapsed fraction of the steps after warmup, 0 to just below 1."""
    rising = _warmup_steps(steps, warmup)
    return max(0, step - rising) / max(1, steps - rising)


@dataclass(frozen=True)
class TrainingOptions:
    """Options of the training loop.

    steps: number of optimizer steps.
    learning_rate: its peak.
    schedule: how the learning rate rises and falls.
    warmup: fraction of the steps in which it rises.
    weight_decay: of matrices.
    beta2: of AdamW.
    evaluate_every: steps between evaluations; 0: only at the end.
    evaluate_first: also evaluate before the first step, so that the initial weights can be the best; ties go to the
        lower loss.
    keeps_initial: whether the initial weights can be the best; if not, they are evaluated at most.
    checkpoint_every: steps between checkpoints; 0: only at the end.
    best_by: metric whose highest held-out value selects the weights; None keeps the last weights.
    best_rows: number of held-out rows; the last weights are kept, too, if the weights of an earlier step are better by
        at most a standard error (of that many rows).
    patience: stop after this many evaluations without a better metric or a lower loss.
    negligible_loss: stop, too, at an evaluation once the mean training loss is lower.
    cooldown: after the decision to stop, the learning rate falls to 0 in this fraction of the steps so far.
    end: the last step, if that is before the end of the schedule.
    seed: of dropout.
    device: where the training computes.
    dtype: number format of the computation.
    shard: use FSDP.
    """

    steps: int
    learning_rate: float
    schedule: Schedule = "linear"
    warmup: float = 0.1
    weight_decay: float = 0.01
    beta2: float = 0.999
    evaluate_every: int = 100
    evaluate_first: bool = False
    keeps_initial: bool = True
    checkpoint_every: int = 0
    best_by: str | None = None
    best_rows: int = 0
    patience: int | None = None
    negligible_loss: float = 0.0
    cooldown: float = 0.0
    end: int | None = None
    seed: int = 0
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32
    shard: bool = False

    def saves_at(self, step: int) -> bool:
        """Whether a checkpoint is due after this step."""
        return self.checkpoint_every > 0 and step % self.checkpoint_every == 0

    def evaluates_at(self, step: int) -> bool:
        """Whether an evaluation is due: also at every checkpoint, unless evaluations select the weights."""
        is_due = self.evaluate_every > 0 and step % self.evaluate_every == 0
        return is_due or (self.saves_at(step) and not self.best_by)
