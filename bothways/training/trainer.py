"""A module with its optimizer, mixed precision and distributed replicas (DDP, FSDP)."""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from torch import nn

from bothways.model.losses import Counts, Losses
from bothways.training.distributed import SINGLE_PROCESS, Processes, Replica, replicate, shard
from bothways.training.optimizer import LossScale, Optimizer
from bothways.training.run_checkpoints import SavedCheckpoint, TrainingState
from bothways.training.schedule import TrainingOptions, learning_rate_factor

OUT_OF_TIME = "out_of_time"  # among the metrics of an evaluation: whether the training must come to its end


def standard_error(value: float, rows: int) -> float:
    """Approximate standard error of a metric of `rows` rows, as of a proportion (Agresti 1998); without rows, 0."""
    proportion = (rows * min(max(value, 0.0), 1.0) + 2) / (rows + 4)
    return math.sqrt(proportion * (1 - proportion) / (rows + 4)) if rows else 0.0


class Trainer:
    """The trained module, its optimizer, and its replica for gradients."""

    def __init__(
        self,
        module: nn.Module,
        losses: Losses,
        counts: Counts,
        options: TrainingOptions,
        processes: Processes = SINGLE_PROCESS,
    ) -> None:
        self.module, self.counts, self.options, self.processes = module, counts, options, processes
        self.sharded = options.shard and processes.world_size > 1
        # Sharded parameters are DTensors; the original module stays usable for evaluation and saving.
        trained = (deepcopy(module) if self.sharded else module).to(options.device)
        processes.sync_parameters(trained)
        replica = Replica(trained, losses, sharded=self.sharded)
        if self.sharded:
            shard(replica, options.dtype)
        self.optimizer = Optimizer(
            trained,
            learning_rate=options.learning_rate,
            weight_decay=options.weight_decay,
            beta2=options.beta2,
            shards=processes if self.sharded else SINGLE_PROCESS,
        )
        # The optimizer keeps the float32 weights.
        self.replica = replica if self.sharded else replicate(replica.to(options.dtype), processes)

    def load(self, start: SavedCheckpoint | None) -> TrainingState:
        """Restore a checkpoint; returns the state to continue from."""
        if start is None:
            return TrainingState(scale=LossScale.for_dtype(self.options.dtype))
        tensors = start.tensors() if self.processes.is_main_process else {}  # the file may be on its machine only
        self.optimizer.load(self.processes.broadcast_tensors(tensors))
        return start.progress

    def evaluate(self, measure: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """Evaluate in the main process and broadcast the metrics."""
        if self.sharded:
            self.optimizer.write_masters(self.module, best=False)
        metrics = None
        if self.processes.is_main_process:
            self.module.to(self.options.device, self.options.dtype).eval()
            metrics = dict(measure())
        return self.processes.broadcast(metrics)

    def evaluate_and_record(
        self,
        progress: TrainingState,
        measure: Callable[[], Mapping[str, float]],
        write: Callable[[dict[str, Any]], None],
    ) -> tuple[TrainingState, Mapping[str, float]]:
        """Evaluate, record the metrics, and keep the weights if they are the best so far. With OUT_OF_TIME among the
        metrics, the training stops."""
        metrics = dict(self.evaluate(measure))
        is_late = metrics.pop(OUT_OF_TIME, False)
        if is_late and not progress.stopped_at:
            progress = replace(progress, stopped_at=progress.step)
        progress = self.mark_best(progress, metrics)
        write({**progress.row, "split": "heldout", **metrics})
        return progress, metrics

    def mark_best(self, progress: TrainingState, metrics: Mapping[str, float]) -> TrainingState:
        """Keep the weights if they are the best so far, or those of the last step if the best are hardly better."""
        options = self.options
        if not options.best_by:
            return progress
        value, current = metrics[options.best_by], metrics.get("loss", 0.0)
        loss = current if options.evaluate_first else 0.0
        is_better = progress.best is None or (value, -loss) > (progress.best, -progress.best_loss)
        is_better = is_better and (progress.step > 0 or options.keeps_initial)
        lowest_loss = current if progress.lowest_loss is None else min(current, progress.lowest_loss)
        is_progress = is_better or lowest_loss != progress.lowest_loss
        progress = replace(progress, lowest_loss=lowest_loss, stale=0 if is_progress else progress.stale + 1)
        if progress.best is None and not is_better:
            return progress
        if not is_better:
            assert progress.best is not None
            is_last = progress.step == self.last_step(progress) and progress.best_step > 0
            if not is_last or value < progress.best - standard_error(progress.best, options.best_rows):
                return progress
        self.optimizer.mark_best()
        return replace(progress, best=value, best_loss=loss, best_step=progress.step)

    def stop_early(self, progress: TrainingState) -> TrainingState:
        """After an evaluation: the same state, perhaps with the decision to stop (patience, negligible_loss)."""
        options = self.options
        if progress.stopped_at or progress.recent_loss is None:
            return progress
        is_stale = options.patience is not None and progress.stale >= options.patience
        stops = is_stale or 0 <= progress.recent_loss < options.negligible_loss
        return replace(progress, stopped_at=progress.step) if stops else progress

    def last_step(self, progress: TrainingState) -> int:
        """The last step of the run: that of the options, or after the decision to stop the end of the cooldown."""
        options = self.options
        return self.last_scheduled(progress) if options.end is None else min(options.end, self.last_scheduled(progress))

    def last_scheduled(self, progress: TrainingState) -> int:
        """The step at which the learning rate is 0."""
        options, stopped_at = self.options, progress.stopped_at
        if not stopped_at:
            return options.steps
        return min(options.steps, stopped_at + math.ceil(options.cooldown * stopped_at))

    def learning_rate_factor(self, progress: TrainingState) -> float:
        """The learning rate of the next step as a fraction of its peak: by the schedule, or in the cooldown from there
        to 0."""
        options, start = self.options, progress.stopped_at or progress.step
        factor = learning_rate_factor(options.schedule, start, steps=options.steps, warmup=options.warmup)
        if not progress.stopped_at:
            return factor
        return factor * (1 - (progress.step - start) / (self.last_scheduled(progress) - start))

    def has_more(self, progress: TrainingState) -> bool:
        return progress.step < self.last_step(progress)
