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
Write = Callable[[dict[str, Any]], None]  # of a row of metrics


def fit(
    module: nn.Module,
    losses: Losses,
    counts: Counts,
    steps: Steps,
    options: TrainingOptions,
    *,
    evaluate: Callable[[], Mapping[str, float]],
    record: Write,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
    start: SavedCheckpoint | None = None,
    processes: Processes = SINGLE_PROCESS,
    fingerprint: Callable[[Batch], str] = lambda batch: f"of {batch.num_tokens} tokens",
) -> TrainingState:
    """Train a float32 module, computing in options.dtype; after training it is float32 on the CPU.

    module: trained in place.
    losses: losses(module, batch) gives (sum, count) by name.
    counts: counts(batch) gives the same counts from the labels alone.
    steps: steps(first) yields the micro-batches of this process for each step.
    options: length, learning rate, evaluations, and how the weights are selected.
    evaluate: metrics of held-out text; called in the main process only.
    record: called with a row of metrics per step ("train") and per evaluation ("heldout"), in the main process only.
    checkpoints: where the state of the training is saved.
    start: the checkpoint to resume from.
    processes: among which the micro-batches of a step are divided.
    fingerprint: names a batch in an error message.

    InputError if a loss is not finite; it names the batch by its fingerprint. With checkpoints, SIGTERM and Ctrl-C save
    after the current step and raise Stopped.
    """
    trainer = Trainer(module, losses, counts, options=options, processes=processes)
    progress = trainer.load(start)
    write = record if processes.is_main_process else _discard
    if options.evaluate_first and start is None:
        progress, _ = trainer.evaluate_and_record(progress, evaluate, write)

    batches = steps(progress.step)
    with catch_stop_signals(when=checkpoints.folder is not None) as stop_requested:
        while trainer.has_more(progress):
            began = time.perf_counter()
            micro_batches = next(batches)
            progress, row, stop = train_step(trainer, progress, micro_batches, stop_requested)
            _refuse_infinite(
                row,
                progress.step,
                micro_batches,
                fingerprint=fingerprint,
                processes=processes,
                checkpoints=checkpoints,
            )
            progress = replace(progress, seconds=progress.seconds + time.perf_counter() - began)
            write({**progress.row, "split": "train", **row})
            is_last = not trainer.has_more(progress)

            metrics: Mapping[str, float] = {}
            if is_last or options.evaluates_at(progress.step):
                progress, metrics = trainer.evaluate_and_record(progress, evaluate, write)
                progress = trainer.stop_early(progress)
                is_last = not trainer.has_more(progress)

            # After the last step no other step would notice a signal that came during the evaluation.
            stop = stop or (is_last and stop_requested())
            saves_end = is_last and checkpoints.at_end
            if saves_end or options.saves_at(progress.step) or stop:
                checkpoints.save(progress, trainer.optimizer.state(), metrics.get("loss"), options.dtype)
            if stop and not saves_end:
                raise Stopped(f"stopped at step {progress.step:,}; go on with {flag('resume', True)}")

    trainer.optimizer.write_masters(module)
    module.to("cpu").eval()
    return progress


def _discard(row: dict[str, Any]) -> None:
    """Metrics in processes other than the main process."""


def train_step(
    trainer: Trainer,
    progress: TrainingState,
    micro_batches: Sequence[Batch],
    stop_requested: Callable[[], bool] = lambda: False,
) -> tuple[TrainingState, dict[str, Any], bool]:
    """One optimizer step: the new state, a row of metrics, and whether any process was asked to stop.

    trainer: the module with its optimizer.
    progress: the state before the step.
    micro_batches: the part of the step that this process computes.
    stop_requested: whether this process was asked to stop.
    """
    options = trainer.options
    scale = progress.scale
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

    # After the optimizer, so that a GPU has its work while the losses are waited for.
    own_losses = read_losses(losses)
    own_tokens = sum(batch.num_tokens for batch in micro_batches)
    gathered = trainer.processes.gather((own_losses, own_tokens, stop_requested()))
    losses_by_name = sum_by_name(part for part, _, _ in gathered)
    loss = sum(losses_by_name.values())

    row = {
        "loss": loss,
        **losses_by_name,
        "norm": norm,
        "learning_rate": options.learning_rate * lr_factor,
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
            batch = micro_batches[index].to(device) if index < len(micro_batches) else None
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
        f"{flag('batch_tokens')}, or raise {flag('gradient_accumulation')}, which computes the same in smaller parts"
    )


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


def moving_average(average: float | None, value: float) -> float:
    """The next exponential moving average; before the first value it is None."""
    return value if average is None else average + (value - average) / AVERAGED_STEPS


def _refuse_infinite(
    row: Mapping[str, Any],
    step: int,
    micro_batches: Sequence[Batch],
    *,
    fingerprint: Callable[[Batch], str],
    processes: Processes,
    checkpoints: Checkpoints,
) -> None:
    """InputError if the loss of a step, or a gradient that was not skipped, is not finite."""
    is_good = math.isfinite(row["loss"]) and (math.isfinite(row["norm"]) or row.get("skipped"))
    if is_good:
        return
    gathered = processes.gather([fingerprint(batch) for batch in micro_batches])
    names = ", ".join(chain.from_iterable(gathered))
    raise InputError(
        f"step {step}: loss {row['loss']}, gradient norm {row['norm']}, batch {names}; last good "
        f"checkpoint: {checkpoints.last or 'none'}; restart with a lower {flag('learning_rate')} or "
        f"{flag('dtype', 'float32')}"
    )
