"""Time per training step, to convert minutes into a number of steps."""

import time

from torch import nn

from bothways.training.distributed import SINGLE_PROCESS, Processes
from bothways.training.loop import Steps, train_step
from bothways.training.losses import Counts, Losses
from bothways.training.options import TrainingOptions
from bothways.training.run_checkpoints import TrainingState
from bothways.training.trainer import Trainer, clone_module

TIMED_SECONDS, TIMED_STEPS = 3.0, 8  # minimum


def seconds_per_step(
    module: nn.Module,
    losses: Losses,
    counts: Counts,
    steps: Steps,
    options: TrainingOptions,
    processes: Processes = SINGLE_PROCESS,
) -> float:
    """Seconds per step: the 25th percentile of a few steps on a copy of the module, robust against other load."""
    trainer = Trainer(clone_module(module), losses, counts, options, processes)
    times: list[float] = []
    batches = steps(0)
    while processes.broadcast(sum(times) < TIMED_SECONDS or len(times) < TIMED_STEPS):
        began = time.perf_counter()
        train_step(trainer, TrainingState(), next(batches))
        times.append(time.perf_counter() - began)
    return processes.broadcast(sorted(times)[len(times) // 4])
