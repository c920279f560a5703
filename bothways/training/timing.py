"""How long a step takes, to make a number of steps of minutes."""

import time

from torch import nn

from bothways.training.distributed import ALONE, Processes
from bothways.training.loop import Steps, one_step
from bothways.training.losses import Counts, Losses
from bothways.training.options import Plan
from bothways.training.run_checkpoints import Progress
from bothways.training.trainer import Trainer, copied

TIMED_SECONDS, TIMED_STEPS = 3.0, 8  # at least


def seconds_a_step(
    module: nn.Module, losses: Losses, counts: Counts, steps: Steps, plan: Plan, processes: Processes = ALONE
) -> float:
    """How long a step takes on a quiet machine: the quickest quarter of some, on a copy of the module."""
    trainer = Trainer(copied(module), losses, counts, plan, processes)
    times: list[float] = []
    batches = steps(0)
    while processes.share(sum(times) < TIMED_SECONDS or len(times) < TIMED_STEPS):
        began = time.perf_counter()
        one_step(trainer, Progress(), next(batches))
        times.append(time.perf_counter() - began)
    return processes.share(sorted(times)[len(times) // 4])
