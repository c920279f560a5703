"""Training loop: gradient accumulation, gradient clipping, evaluation, checkpoints, metrics.

The model is any module whose losses a callable computes.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from bothways.base.errors import InputError, flag
from bothways.base.rng import Purpose, derive_seed
from bothways.model.losses import Counts, Losses
from bothways.model.parameters import CPU
from bothways.text.batch import Batch
from bothways.training.distributed import SINGLE_PROCESS, Processes, gradient_sync, sum_by_name
from bothways.training.run_checkpoints import NO_CHECKPOINTS, Checkpoints, SavedCheckpoint, TrainingState
from bothways.training.schedule import TrainingOptions
from bothways.training.signals import Stopped, catch_stop_signals
from bothways.training.trainer import Trainer

MAX_GRADIENT_NORM = 1.0  # larger gradients are scaled down to it
AVERAGED_STEPS = 10  # of the moving average of the training loss
Steps = Callable[[int], Iterator[Sequence[Batch]]]


def fit(
    module: nn.Module,
    losses: Losses,
    counts: Counts,
    steps: Steps,
    options: TrainingOptions,
    *,
    evaluate: Callable[[], Mapping[str, float]],
    record: Callable[[dict[str, Any]], None],
    checkpoints: Checkpoints = NO_CHECKPOINTS,
    start: SavedCheckpoint | None = None,
    processes: Processes = SINGLE_PROCESS,
    fingerprint: Callable[[Batch], str] = lambda batch: f"of {batch.num_tokens} tokens",
) -> TrainingState:
    """Train a float32 module, computing in options.dtype; after training it is float32 on the CPU.

    steps(first) yields the micro-batches of this process for each step. losses(module, batch) gives (sum, count) by
    name, counts(batch) the same counts from the labels alone. record is called with a row of metrics per step ("train")
    and per evaluation ("heldout"); record and evaluate are called in the main process only. start: the checkpoint to
    resume from.

    InputError if a loss is not finite; it names the batch by its fingerprint. With checkpoints, SIGTERM and Ctrl-C save
    after the current step and raise Stopped.
    """
    trainer = Trainer(module, losses, counts, options, processes)
    progress = trainer.load(start)
    write = record if processes.is_main_process else lambda row: None
    if options.evaluate_first and start is None:
        progress, _ = trainer.evaluate_and_record(progress, evaluate, write)
    batches = steps(progress.step)
    with catch_stop_signals(when=checkpoints.folder is not None) as stop_requested:
        while trainer.has_more(progress):
            began = time.perf_counter()
            micro_batches = next(batches)
            progress, row, stop = train_step(trainer, progress, micro_batches, stop_requested)
            if not math.isfinite(row["loss"]) or not (math.isfinite(row["norm"]) or row.get("skipped")):
                names = ", ".join(chain(*processes.gather([fingerprint(batch) for batch in micro_batches])))
                raise InputError(
                    f"step {progress.step}: loss {row['loss']}, gradient norm {row['norm']}, batch {names}; last good "
                    f"checkpoint: {checkpoints.last or 'none'}; restart with a lower {flag('learning_rate')} or "
                    f"{flag('dtype', 'float32')}"
                )
            progress = replace(progress, seconds=progress.seconds + time.perf_counter() - began)
            write({**progress.row, "split": "train", **row})
            last, save_due = not trainer.has_more(progress), options.saves_at(progress.step)
            metrics: Mapping[str, float] = {}
            if last or options.evaluates_at(progress.step):
                progress, metrics = trainer.evaluate_and_record(progress, evaluate, write)
                progress = trainer.stop_early(progress)
                last = not trainer.has_more(progress)
            stop = stop or (not trainer.has_more(progress) and stop_requested())
            if (last and checkpoints.at_end) or save_due or stop:
                checkpoints.save(progress, trainer.optimizer.state(), metrics.get("loss"), options.dtype)
            if stop and not (last and checkpoints.at_end):
                raise Stopped(f"stopped at step {progress.step:,}; go on with {flag('resume', True)}")
    trainer.optimizer.write_masters(module)
    module.to("cpu").eval()
    return progress


def _memory_error(device: torch.device, step: int, micro_batches: Sequence[Batch]) -> InputError:
    most = max(batch.num_tokens for batch in micro_batches)
    return InputError(
        f"out of memory on {device} at step {step:,}, whose largest micro-batch has {most:,} tokens; lower "
        f"{flag('batch_tokens')}, or raise {flag('gradient_accumulation')}, which computes the same in smaller parts"
    )


def train_step(
    trainer: Trainer,
    progress: TrainingState,
    micro_batches: Sequence[Batch],
    stop_requested: Callable[[], bool] = lambda: False,
) -> tuple[TrainingState, dict[str, Any], bool]:
    """One optimizer step: the new state, a row of metrics, and whether any process was asked to stop."""
    options, scale = trainer.options, progress.scale
    lr_factor = trainer.learning_rate_factor(progress)
    try:
        losses = backward(
            trainer.replica,
            trainer.counts,
            micro_batches,
            device=options.device,
            seed=options.seed,
            step=progress.step,
            scale=scale.value,
            processes=trainer.processes,
        )
    except torch.OutOfMemoryError:
        raise _memory_error(options.device, progress.step + 1, micro_batches) from None
    norm = trainer.optimizer.step(lr_factor, MAX_GRADIENT_NORM, scale.value)
    values = read_losses(losses)  # after the optimizer, so that a GPU has its work while they are waited for
    tokens = sum(batch.num_tokens for batch in micro_batches)
    gathered = trainer.processes.gather((values, tokens, stop_requested()))
    values, tokens = sum_by_name(part for part, _, _ in gathered), sum(count for _, count, _ in gathered)
    learning_rate = options.learning_rate * lr_factor
    row = {"loss": sum(values.values()), **values, "norm": norm, "learning_rate": learning_rate, **scale.metrics(norm)}
    state = replace(
        progress,
        step=progress.step + 1,
        tokens=progress.tokens + tokens,
        scale=scale.update(norm),
        recent_loss=moving_average(progress.recent_loss, row["loss"]),
    )
    return state, row, any(requested for _, _, requested in gathered)


def moving_average(average: float | None, value: float) -> float:
    """The next exponential moving average; before the first value it is None."""
    return value if average is None else average + (value - average) / AVERAGED_STEPS


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
    """Accumulate the gradients of the mean losses, times `scale`, over the micro-batches of all processes.

    Returns this process's part of each loss, by micro-batch. Each sum is divided by its count over the whole step, so
    the division into micro-batches does not matter. Every micro-batch has its own dropout seed. On a GPU nothing waits.
    """
    replica.train()
    gathered = processes.gather((sum_by_name(counts(batch) for batch in micro_batches), len(micro_batches)))
    totals, most = sum_by_name(part for part, _ in gathered), max(count for _, count in gathered)
    parts: list[dict[str, Tensor]] = []
    for index in range(most):
        dropout_seed = derive_seed(seed, Purpose.DROPOUT, step, processes.rank + index * processes.world_size)
        with seeded(dropout_seed, device), gradient_sync(replica, last := index + 1 == most):
            batch = micro_batches[index].to(device) if index < len(micro_batches) else None
            total, means = replica(batch, totals)
            if last:
                processes.arrive()
            (total * (scale * processes.world_size)).backward()  # DDP averages gradients
        parts.append(means)
    return parts


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Dropout draws from the global generators of torch: seeds them, and leaves them as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed_dropout(seed, device)
        yield


def seed_dropout(seed: int, device: torch.device) -> None:
    """As torch.manual_seed, which takes milliseconds on a machine without a GPU: it notes a traceback for each kind of
    device that has not been used, to seed it later."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def read_losses(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """The sums of losses by name."""
    values = iter(read_numbers([mean for means in parts for mean in means.values()]))
    return sum_by_name({name: next(values) for name in means} for means in parts)


def read_numbers(numbers: Sequence[Tensor]) -> list[float]:
    """The values of tensors of one number each, from a GPU in one copy."""
    if not numbers or numbers[0].device.type == "cpu":
        return [number.item() for number in numbers]
    values: list[float] = torch.stack([number.float() for number in numbers]).tolist()
    return values
