"""One optimizer step: gradient accumulation, gradient clipping, its losses as numbers.

A GPU waits for nothing: the numbers of a step are read when the next step has been queued.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from bothways.base.errors import InputError, flag
from bothways.base.rng import Purpose, derive_seed
from bothways.model.losses import Counts
from bothways.model.parameters import CPU
from bothways.text.batch import Batch
from bothways.training.distributed import SINGLE_PROCESS, Processes, gradient_sync, sum_by_name
from bothways.training.optimizer import LossScale
from bothways.training.run_checkpoints import TrainingState
from bothways.training.trainer import Trainer
from bothways.training.transfers import Readout, upload

MAX_GRADIENT_NORM = 1.0  # larger gradients are scaled down to it
AVERAGED_STEPS = 10  # of the moving average of the training loss


class StepQueue:
    """Steps that a device computes, or has computed, and whose numbers have not been read.

    trainer: the module with its optimizer.
    scale: of the losses at the first step.
    reads_late: whether a step is queued before the numbers of the step before are read, where that is possible; None:
        on a GPU, which then has work while the processor reads, records and prepares.
    """

    def __init__(self, trainer: Trainer, scale: LossScale, *, reads_late: bool | None = None) -> None:
        self.trainer = trainer
        self.steps: deque[QueuedStep] = deque()

        wanted = trainer.options.device.type == "cuda" if reads_late is None else reads_late
        # The scale of the next losses depends on the norm, and several processes exchange losses after each step.
        self.reads_late = wanted and not scale.dynamic and trainer.processes.world_size == 1

    @property
    def number(self) -> int:
        return len(self.steps)

    @property
    def is_full(self) -> bool:
        """Whether a step must be read before another is added."""
        return self.number > int(self.reads_late)

    @property
    def first(self) -> "QueuedStep":
        """The step that is read next."""
        return self.steps[0]

    def add(self, progress: TrainingState, micro_batches: Sequence[Batch]) -> None:
        """Queue the next step.

        progress: the state after the last step that was read.
        micro_batches: the part of the step that this process computes.
        """
        before = replace(progress, step=progress.step + self.number)
        unread_norm = self.steps[-1].norm if self.steps else None
        self.steps.append(queue_step(self.trainer, before, micro_batches, unread_norm))

    def read(
        self, progress: TrainingState, stop_requested: Callable[[], bool] = lambda: False
    ) -> tuple[TrainingState, dict[str, Any], bool]:
        """The numbers of the first step, as by `read_step`. It is no longer in the queue."""
        return read_step(self.trainer, progress, self.steps.popleft(), stop_requested)


@dataclass(frozen=True)
class QueuedStep:
    """A step that the device computes, or has computed; nothing of it has been read.

    micro_batches: the part of the step that this process computes.
    lr_factor: learning rate of the step, as a fraction of its peak.
    names: of the losses of each micro-batch.
    numbers: these losses, and the norm of the gradients.
    norm: of the gradients, on the device.
    """

    micro_batches: Sequence[Batch]
    lr_factor: float
    names: Sequence[Sequence[str]]
    numbers: Readout
    norm: Tensor


def queue_step(
    trainer: Trainer,
    progress: TrainingState,
    micro_batches: Sequence[Batch],
    unread_norm: Tensor | None = None,
) -> QueuedStep:
    """Begin an optimizer step. A GPU computes it later; the processor does not wait.

    trainer: the module with its optimizer.
    progress: the state before the step, of which its number counts and the scale of the losses.
    micro_batches: the part of the step that this process computes.
    unread_norm: norm of the step before, if that has not been read; if it is not finite, this step changes nothing.
    """
    options = trainer.options
    scale = progress.scale.value
    lr_factor = trainer.learning_rate_factor(progress)
    try:
        losses = backward(
            trainer.replica,
            trainer.counts,
            micro_batches,
            device=options.device,
            seed=options.seed,
            step=progress.step,
            scale=scale,
            processes=trainer.processes,
        )
    except torch.OutOfMemoryError:
        raise _memory_error(options.device, progress.step + 1, micro_batches) from None

    norm = trainer.optimizer.step(lr_factor, MAX_GRADIENT_NORM, scale, unread_norm)
    values = [mean for means in losses for mean in means.values()]
    return QueuedStep(
        micro_batches,
        lr_factor,
        names=[list(means) for means in losses],
        numbers=Readout([*values, norm]),
        norm=norm,
    )


def read_step(
    trainer: Trainer,
    progress: TrainingState,
    step: QueuedStep,
    stop_requested: Callable[[], bool] = lambda: False,
) -> tuple[TrainingState, dict[str, Any], bool]:
    """The numbers of a step, for which the processor waits: the new state, a row of metrics, and whether any process
    was asked to stop.

    trainer: the module with its optimizer.
    progress: the state before the step.
    step: by `queue_step`.
    stop_requested: whether this process was asked to stop.
    """
    scale = progress.scale
    *losses, norm = step.numbers.values()
    own_losses = losses_by_name(step.names, losses)
    own_tokens = sum(batch.num_tokens for batch in step.micro_batches)
    gathered = trainer.processes.gather((own_losses, own_tokens, stop_requested()))
    sums = sum_by_name(part for part, _, _ in gathered)
    loss = sum(sums.values())

    row = {
        "loss": loss,
        **sums,
        "norm": norm,
        "learning_rate": trainer.options.learning_rate * step.lr_factor,
        **scale.metrics(norm),
    }
    state = replace(
        progress,
        step=progress.step + 1,
        tokens=progress.tokens + sum(tokens for _, tokens, _ in gathered),
        scale=scale.update(norm),
        recent_loss=moving_average(progress.recent_loss, loss),
    )
    return state, row, any(requested for _, _, requested in gathered)


def backward(
    replica: nn.Module,
    counts: Counts,
    micro_batches: Sequence[Batch],
    *,
    device: torch.device = CPU,
    seed: int = 0,
    step: int = 0,
    scale: float = 1.0,
    processes: Processes = SINGLE_PROCESS,
) -> list[dict[str, Tensor]]:
    """Accumulate the gradients of the mean losses over the micro-batches of all processes.

    replica: the module with its losses (distributed.py).
    counts: number of targets of each loss in a batch.
    micro_batches: of this process.
    device: where it computes.
    seed, step: from which each micro-batch has a dropout seed of its own.
    scale: factor of the losses, against underflow in float16.
    processes: that share the step.

    Returns this process's part of each loss, by micro-batch. Each sum is divided by its count over the whole step, so
    the division into micro-batches does not matter. On a GPU nothing waits.
    """
    replica.train()
    own_counts = sum_by_name(counts(batch) for batch in micro_batches)
    gathered = processes.gather((own_counts, len(micro_batches)))
    totals = sum_by_name(part for part, _ in gathered)

    # All processes run as many backward passes as the one with most micro-batches, as these meet in the last pass.
    num_passes = max(number for _, number in gathered)
    parts: list[dict[str, Tensor]] = []
    for index in range(num_passes):
        is_last = index + 1 == num_passes
        dropout_seed = derive_seed(seed, Purpose.DROPOUT, step, processes.rank + index * processes.world_size)
        with seeded(dropout_seed, device), gradient_sync(replica, is_last):
            batch = upload(micro_batches[index], device) if index < len(micro_batches) else None
            total, means = replica(batch, totals)
            if is_last:
                processes.arrive()
            # DDP divides the gradients by the number of processes.
            (total * (scale * processes.world_size)).backward()
        parts.append(means)
    return parts


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Dropout draws from the global generators of torch: seeds them, and leaves them as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed_dropout(seed, device)
        yield


def seed_dropout(seed: int, device: torch.device) -> None:
    """As torch.manual_seed, but for one device only."""
    # torch.manual_seed notes a traceback for each kind of device that has not been used, to seed it later: milliseconds
    # a micro-batch. With other changes, five files of training tests took 76 s instead of 92 (docs/LOG.md).
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _memory_error(device: torch.device, step: int, micro_batches: Sequence[Batch]) -> InputError:
    most = max(batch.num_tokens for batch in micro_batches)
    return InputError(
        f"out of memory on {device} at step {step:,}, whose largest micro-batch has {most:,} tokens; lower "
        f"{flag('batch_tokens')}, or raise {flag('gradient_accumulation')}, which divides the step into smaller parts"
    )


def losses_by_name(names: Sequence[Sequence[str]], losses: Sequence[float]) -> dict[str, float]:
    """The sums of losses by name.

    names: of the losses of each micro-batch.
    losses: of all micro-batches, in the same order.
    """
    values = iter(losses)
    return sum_by_name({name: next(values) for name in names_of_batch} for names_of_batch in names)


def moving_average(average: float | None, value: float) -> float:
    """The next exponential moving average; before the first value it is None."""
    return value if average is None else average + (value - average) / AVERAGED_STEPS
