"""A training that several processes share (torchrun): the main process sends the others the model and the options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from bothways.model.losses import forward_losses
from bothways.model.model import Model
from bothways.text.batching import batch_fingerprint
from bothways.training.finetuning.plan import Plan
from bothways.training.loop import fit
from bothways.training.run_checkpoints import NO_CHECKPOINTS, Checkpoints, SavedCheckpoint, TrainingState
from bothways.training.schedule import TrainingOptions


@dataclass(frozen=True)
class Training:
    """One call of `fit`. fold: of the plan. steps_before: steps of earlier phases, after which the examples continue.
    resumes: whether there are checkpoints to resume from."""

    fold: int | None
    module: nn.Module
    options: TrainingOptions
    steps_before: int
    checkpoints: Checkpoints
    resumes: bool

    @staticmethod
    def of(
        plan: Plan,
        model: Model,
        options: TrainingOptions,
        steps_before: int = 0,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> "Training":
        """The training of a model of the main process, which is sent to all others."""
        module = plan.objective.module(model, options.seed)
        resumes = checkpoints.exist
        return plan.processes.broadcast(
            Training(
                fold=plan.fold,
                module=module,
                options=options,
                steps_before=steps_before,
                checkpoints=checkpoints,
                resumes=resumes,
            )
        )

    def load(self, plan: Plan) -> SavedCheckpoint | None:
        """The checkpoint to resume from, if any. All processes call this before `run`."""
        self.checkpoints.processes = plan.processes
        return self.checkpoints.load_latest(self.options.dtype) if self.resumes else None

    def run(
        self,
        plan: Plan,
        start: SavedCheckpoint | None = None,
        evaluate: Callable[[], Mapping[str, float]] = dict,
        record: Callable[[dict[str, Any]], None] = lambda row: None,
    ) -> TrainingState:
        """Train the module, in all processes together. The arguments are as of `fit`."""
        objective = plan.objective
        return fit(
            self.module,
            forward_losses(objective),
            objective.counts,
            lambda first: plan.steps(self.options.seed, self.steps_before + first),
            self.options,
            evaluate=evaluate,
            record=record,
            checkpoints=self.checkpoints,
            start=start,
            processes=plan.processes,
            fingerprint=batch_fingerprint,
        )
