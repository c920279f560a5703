"""The loop: micro-batches, clipping, evaluation, a record. It knows a model only as something whose losses a callable
computes."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bothways.batch import Batch
from bothways.data.draws import Purpose, seed_of
from bothways.errors import InputError
from bothways.train import schedule
from bothways.train.losses import Loss
from bothways.train.optim import Optimizer

Losses = Callable[[Any, Batch], Mapping[str, Loss]]
Counts = Callable[[Batch], Mapping[str, int]]
Steps = Callable[[int], Iterator[Sequence[Batch]]]
CPU = torch.device("cpu")
TIMED_SECONDS, TIMED_STEPS = 3.0, 8  # at least, before minutes become a number of steps


@dataclass(frozen=True)
class Plan:
    """How long and how fast.

    rate: the peak learning rate. warmup: the fraction of the steps that rise to it. best_by: the held-out figure whose
    highest value marks the weights to be kept; without it the last ones are.
    """

    steps: int
    rate: float
    warmup: float = 0.1
    weight_decay: float = 0.01
    layer_decay: float = 1.0
    clip: float = 1.0
    evaluate_every: int = 100
    best_by: str | None = None
    seed: int = 0
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32


def fit(
    module: nn.Module,
    losses: Losses,
    counts: Counts,
    steps: Steps,
    plan: Plan,
    *,
    evaluate: Callable[[], Mapping[str, float]],
    record: Callable[[dict[str, Any]], None],
) -> None:
    """Train a float32 module for plan.steps, computing in plan.dtype; it ends in float32, on the processor.

    steps(first) yields each step's micro-batches; losses(module, batch) gives (sum, count) by name; counts tells a
    batch's targets from its labels alone. record gets a row a step ("train") and one at every evaluation ("heldout").
    InputError if the loss stops being finite.
    """
    optimizer = _prepare(module, plan)
    tokens, seconds, best = 0, 0.0, -math.inf
    batches = steps(0)
    for step in range(plan.steps):
        began = time.perf_counter()
        torch.manual_seed(seed_of(plan.seed, Purpose.DROPOUT, step))
        micro_batches = [batch.to(plan.device) for batch in next(batches)]
        values = backward(module, losses, counts, micro_batches)
        norm = optimizer.step(schedule.linear(step, steps=plan.steps, warmup=plan.warmup), plan.clip)
        tokens += sum(batch.num_tokens for batch in micro_batches)
        seconds += time.perf_counter() - began
        loss = sum(values.values())
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise InputError(f"step {step + 1}: loss {loss}, gradient norm {norm}; lower --rate or use --dtype float32")
        at = {"step": step + 1, "tokens": tokens, "seconds": seconds}
        record({**at, "split": "train", "loss": loss, **values, "norm": norm})
        if (step + 1) % plan.evaluate_every == 0 or step + 1 == plan.steps:
            module.eval()
            figures = evaluate()
            record({**at, "split": "heldout", **figures})
            if plan.best_by and figures[plan.best_by] > best:
                best = figures[plan.best_by]
                optimizer.mark_best()
    optimizer.write_masters(module)
    module.to("cpu").eval()


def _prepare(module: nn.Module, plan: Plan) -> Optimizer:
    module.to(plan.device)
    optimizer = Optimizer(module, rate=plan.rate, weight_decay=plan.weight_decay, layer_decay=plan.layer_decay)
    module.to(plan.dtype)  # the optimizer keeps the float32 weights
    return optimizer


def backward(module: nn.Module, losses: Losses, counts: Counts, micro_batches: Sequence[Batch]) -> dict[str, float]:
    """Gradients of the mean losses over all micro-batches together; each loss by name.

    Every sum is divided by its count over the whole step, so that how a step is cut into micro-batches changes nothing.
    """
    module.train()
    totals: dict[str, int] = {}
    for batch in micro_batches:
        for name, count in counts(batch).items():
            totals[name] = totals.get(name, 0) + count
    values: dict[str, float] = {}
    for batch in micro_batches:
        means = {name: value / max(1, totals[name]) for name, (value, _) in losses(module, batch).items()}
        torch.stack([mean.float() for mean in means.values()]).sum().backward()
        for name, mean in means.items():
            values[name] = values.get(name, 0.0) + mean.item()
    return values


def seconds_a_step(module: nn.Module, losses: Losses, counts: Counts, steps: Steps, plan: Plan) -> float:
    """How long a step takes on a quiet machine: the quickest quarter of some, on a copy of the module."""
    module = copy.deepcopy(module)
    optimizer = _prepare(module, plan)
    times: list[float] = []
    batches = steps(0)
    while sum(times) < TIMED_SECONDS or len(times) < TIMED_STEPS:
        began = time.perf_counter()
        backward(module, losses, counts, [batch.to(plan.device) for batch in next(batches)])
        optimizer.step(1.0)
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 4]
