"""A module in training, and all that surrounds it: number format, optimizer, the other processes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from torch import nn

from bothways.batch import Batch
from bothways.errors import InputError
from bothways.training.distributed import ALONE, Processes, Replica, exchanging, replicate, shard
from bothways.training.losses import Counts, Losses
from bothways.training.optimizer import Optimizer
from bothways.training.options import Plan
from bothways.training.precision import LossScale
from bothways.training.run_checkpoints import Progress, Saved


def copied(module: nn.Module) -> nn.Module:
    """A deep copy, compiled where the original is: torch's own copies are not."""
    copy = deepcopy(module)
    for part, own in zip(module.modules(), copy.modules(), strict=True):
        if part._compiled_call_impl is not None:
            own.compile(dynamic=True)
    return copy


class Trainer:
    """A module in training: where it stands, its optimizer, and the processes that share the work."""

    def __init__(
        self, module: nn.Module, losses: Losses, counts: Counts, plan: Plan, processes: Processes = ALONE
    ) -> None:
        self.module, self.counts, self.plan, self.processes = module, counts, plan, processes
        self.sharded = plan.shard and processes.world > 1
        # Shared-out parameters are no plain tensors any more; the module stays one that can be measured and saved.
        trained = (copied(module) if self.sharded else module).to(plan.device)
        processes.equalize(trained)
        replica = Replica(trained, losses, sharded=self.sharded)
        if self.sharded:
            if plan.muon_rate:
                raise InputError(
                    "Muon steps whole matrices, which processes do not have that share them out; leave one out"
                )
            shard(replica, plan.dtype)
        self.optimizer = Optimizer(
            trained, rate=plan.rate, weight_decay=plan.weight_decay, layer_decay=plan.layer_decay,
            beta2=plan.beta2, muon_rate=plan.muon_rate, shards=processes if self.sharded else ALONE,
        )  # fmt: skip
        # The optimizer keeps the float32 weights.
        self.replica = replica if self.sharded else replicate(replica.to(plan.dtype), processes)

    def load(self, start: Saved | None) -> Progress:
        """Take up what was saved; how far that was."""
        if start is None:
            return Progress(scale=LossScale.of(self.plan.dtype))
        self.optimizer.load(start.tensors())
        return start.progress

    def rehearse(self, steps: Callable[[int], Iterator[Sequence[Batch]]]) -> None:
        """One pass forward and back over the first step's first micro-batch that changes nothing, if so planned."""
        if not self.plan.rehearse:
            return
        first = next(steps(0))[:1]
        if not first and not self.sharded:
            return
        batch, totals = (first[0].to(self.plan.device), self.counts(first[0])) if first else (None, {})
        with exchanging(self.replica, self.sharded):  # gradients not exchanged yet would stay in FSDP's keeping
            self.replica(batch, totals)[0].backward()
        for parameter in self.replica.parameters():
            parameter.grad = None

    def evaluate(self, measure: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """What the first process measures, told to all."""
        if self.sharded:
            self.optimizer.write_masters(self.module, best=False)
        figures = None
        if self.processes.leads:
            self.module.to(self.plan.device, self.plan.dtype).eval()
            figures = dict(measure())
        return self.processes.share(figures)

    def measured(
        self, progress: Progress, measure: Callable[[], Mapping[str, float]], write: Callable[[dict[str, Any]], None]
    ) -> tuple[Progress, Mapping[str, float]]:
        """The weights measured, recorded, and remembered if they are the best so far; with the figures."""
        figures = self.evaluate(measure)
        progress = self.mark_best(progress, figures)
        write({**progress.row, "split": "heldout", **figures})
        return progress, figures

    def mark_best(self, progress: Progress, figures: Mapping[str, float]) -> Progress:
        """Keep the weights if they are the best so far."""
        if not self.plan.best_by:
            return progress
        best, loss = figures[self.plan.best_by], figures["loss"] if self.plan.evaluate_first else 0.0
        if progress.best is not None and not (best, -loss) > (progress.best, -progress.best_loss):
            return replace(progress, stale=progress.stale + 1)
        self.optimizer.mark_best()
        return replace(progress, best=best, best_loss=loss, best_step=progress.step, stale=0)

    def has_more(self, progress: Progress) -> bool:
        """Whether there is a further step: the plan's end is not reached, and patience has not run out."""
        patience = self.plan.patience
        return progress.step < self.plan.steps and (patience is None or progress.stale < patience)
