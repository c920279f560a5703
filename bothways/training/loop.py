"""The loop: micro-batches, clipping, evaluation, checkpoints, a record. It knows a model only as something whose losses
a callable computes, and other processes only by what they add."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.errors import InputError
from bothways.rng import Purpose, derive_seed
from bothways.training.distributed import ALONE, Processes, added, exchanging
from bothways.training.losses import Counts, Losses
from bothways.training.options import Plan
from bothways.training.run_checkpoints import NOWHERE, Checkpoints, Progress, Saved
from bothways.training.schedule import share_of_peak
from bothways.training.signals import Stopped, requests_to_stop
from bothways.training.trainer import Trainer

Steps = Callable[[int], Iterator[Sequence[Batch]]]


def fit(
    module: nn.Module, losses: Losses, counts: Counts, steps: Steps, plan: Plan, *,
    evaluate: Callable[[], Mapping[str, float]], record: Callable[[dict[str, Any]], None],
    checkpoints: Checkpoints = NOWHERE, start: Saved | None = None, processes: Processes = ALONE,
    fingerprint: Callable[[Batch], str] = lambda batch: f"of {batch.num_tokens} tokens",
) -> Progress:  # fmt: skip
    """Train a float32 module for plan.steps, computing in plan.dtype; it ends in float32, on the processor. Returns how
    far it came.

    steps(first) yields this process's micro-batches of each step; losses(module, batch) gives (sum, count) by name;
    counts tells a batch's targets from its labels alone. record gets a row a step ("train") and one at every
    evaluation ("heldout"); it and evaluate are called in the first process only. start: where to go on from.

    InputError if the loss stops being finite; it names the batch by its fingerprint. With checkpoints, SIGTERM and
    Ctrl-C end the run as Stopped, after the step, saved.
    """
    trainer = Trainer(module, losses, counts, plan, processes)
    progress = trainer.load(start)
    trainer.rehearse(steps)
    write = record if processes.leads else lambda row: None
    if plan.evaluate_first and start is None:
        progress, _ = trainer.measured(progress, evaluate, write)
    batches = steps(progress.step)
    with requests_to_stop(when=checkpoints.folder is not None) as asked_to_stop:
        while trainer.has_more(progress):
            began = time.perf_counter()
            micro_batches = next(batches)
            progress, row, stop = one_step(trainer, progress, micro_batches, asked_to_stop)
            if not (math.isfinite(row["loss"]) and (math.isfinite(row["norm"]) or row.get("skipped"))):
                names = ", ".join(chain(*processes.gather([fingerprint(batch) for batch in micro_batches])))
                raise InputError(
                    f"step {progress.step}: loss {row['loss']}, gradient norm {row['norm']}, batch {names}; last good "
                    f"checkpoint: {checkpoints.last or 'none'}; restart with a lower --learning-rate or --dtype float32"
                )
            progress = replace(progress, seconds=progress.seconds + time.perf_counter() - began)
            write({**progress.row, "split": "train", **row})
            last, save_due = progress.step == plan.steps, _due(progress.step, plan.checkpoint_every)
            figures: Mapping[str, float] = {}
            if last or (save_due and not plan.best_by) or _due(progress.step, plan.evaluate_every):
                progress, figures = trainer.measured(progress, evaluate, write)
            stop = stop or (not trainer.has_more(progress) and asked_to_stop())
            if (last and checkpoints.at_end) or save_due or stop:
                checkpoints.save(progress, trainer.optimizer.state(), figures.get("loss"), plan.dtype)
            if stop and not (last and checkpoints.at_end):
                raise Stopped(f"stopped at step {progress.step:,}; go on with --resume")
    trainer.optimizer.write_masters(module)
    module.to("cpu").eval()
    return progress


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def one_step(
    trainer: Trainer, progress: Progress, micro_batches: Sequence[Batch],
    asked_to_stop: Callable[[], bool] = lambda: False,
) -> tuple[Progress, dict[str, Any], bool]:  # fmt: skip
    """How far the run has come after one more step, what there is to record, and whether any process is asked to
    stop."""
    plan, scale = trainer.plan, progress.scale
    share = share_of_peak(plan.schedule, progress.step, steps=plan.steps, warmup=plan.warmup, decay=plan.decay)
    values = backward(
        trainer.replica, trainer.counts, [batch.to(plan.device) for batch in micro_batches],
        seed=plan.seed, step=progress.step, scale=scale.value, processes=trainer.processes,
    )  # fmt: skip
    norm = trainer.optimizer.step(share, plan.clip, scale.value)
    tokens = sum(batch.num_tokens for batch in micro_batches)
    parts = trainer.processes.gather((values, tokens, asked_to_stop()))
    values, tokens = added(part for part, _, _ in parts), sum(number for _, number, _ in parts)
    row = {"loss": sum(values.values()), **values, "norm": norm, "learning_rate": plan.rate * share, **scale.row(norm)}
    further = replace(progress, step=progress.step + 1, tokens=progress.tokens + tokens, scale=scale.after(norm))
    return further, row, any(asked for _, _, asked in parts)


def backward(
    replica: nn.Module, counts: Counts, micro_batches: Sequence[Batch], *, seed: int = 0, step: int = 0,
    scale: float = 1.0, processes: Processes = ALONE,
) -> dict[str, float]:  # fmt: skip
    """Gradients, times scale, of the mean losses over all micro-batches of all processes; this process's part of each
    loss by name.

    Every sum is divided by its count over the whole step, so how a step is cut changes nothing. The micro-batches of
    all processes are numbered in turns, and each number has its own dropout.
    """
    replica.train()
    parts = processes.gather((added(counts(batch) for batch in micro_batches), len(micro_batches)))
    totals, most = added(part for part, _ in parts), max(number for _, number in parts)
    found: list[dict[str, Tensor]] = []
    for index in range(most):
        torch.manual_seed(derive_seed(seed, Purpose.DROPOUT, step, processes.rank + index * processes.world))
        with exchanging(replica, index + 1 == most):
            batch = micro_batches[index] if index < len(micro_batches) else None
            total, means = replica(batch, totals)
            (total * (scale * processes.world)).backward()  # exchanged gradients are averaged
        found.append(means)
    return added({name: mean.item() for name, mean in means.items()} for means in found)
