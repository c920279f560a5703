"""Before training: a few steps on a copy of the model, which show whether the learning rate is too high, and time them.

What follows from them is stored, so that a resumed run goes on as it began.
"""

import json
import time
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from statistics import median

from torch import Tensor

from bothways.errors import format_count
from bothways.finetuning.plan import Plan
from bothways.finetuning.recipe import evaluation_interval, num_steps
from bothways.io import write_atomic
from bothways.log import logger
from bothways.model.model import Model
from bothways.tasks.training_task import Epoch
from bothways.training.loop import fit
from bothways.training.losses import forward_losses

TRIAL_SHARE, MIN_TRIAL_STEPS = 0.05, 8  # fraction of the steps in a trial
LOWER = 1 / 3  # of the default learning rate
HARMFUL = 1.5  # of the loss on dev after a trial, relative to that before
TIMED_STEPS = 3  # if there are no trials
SHOWN_MINUTES = 0.2  # a shorter training is not announced


@dataclass(frozen=True)
class ChosenSteps:
    """The steps of one training, those of an epoch and between evaluations, and the peak learning rate."""

    steps: int
    steps_per_epoch: int
    evaluate_every: int
    learning_rate: float


@dataclass(frozen=True)
class Trial:
    """Trains copies of a model for a few steps."""

    plan: Plan
    model: Model
    seed: int

    @cached_property
    def epoch(self) -> Epoch:
        return self.plan.epoch(self.seed)

    def run(self, steps: int, learning_rate: float) -> tuple[Model, float]:
        """A copy after this many steps, whose learning rate rises and falls as in a whole run, and seconds per step."""
        copy, objective = deepcopy(self.model), self.plan.objective
        options = replace(
            self.plan.options,
            seed=self.seed,
            steps=steps,
            learning_rate=learning_rate,
            best_by=None,
            evaluate_first=False,
            evaluate_every=0,
            checkpoint_every=0,
        )
        steps_done = [(time.perf_counter(), 0)]
        fit(
            objective.module(copy, self.seed),
            forward_losses(objective),
            objective.counts,
            partial(self.plan.steps, self.seed),
            options,
            evaluate=lambda: {"loss": 0.0},
            record=lambda row: steps_done.append((time.perf_counter(), row["tokens"])),
        )
        return copy, self.epoch.tokens / self.epoch.steps * seconds_per_token(steps_done)

    def row_losses(self, model: Model) -> Tensor:
        """The loss of each row of dev, [N]."""
        scoring = self.plan.task.scoring
        return scoring.row_losses("dev", scoring.outputs(self.plan.inference_copy(model), "dev"))

    def choose_learning_rate(self, steps: int) -> tuple[float, float]:
        """The default learning rate, unless it destroys the model and a lower one does not; and seconds per step.

        Destroys: the loss on dev after a trial is more than HARMFUL times that before. A lower loss is no reason, since
        short trials favour low rates that end worse (docs/LOG.md).
        """
        default = self.plan.options.learning_rate
        trained, seconds = self.run(steps, default)
        start, high = (float(self.row_losses(model).mean()) for model in (self.model, trained))
        if high <= HARMFUL * start:
            return default, seconds
        trained, _ = self.run(steps, default * LOWER)
        low = float(self.row_losses(trained).mean())
        if low >= high:
            return default, seconds
        logger.info(
            f"peak learning rate {default * LOWER:.1e} instead of {default:.1e}: in {format_count(steps, 'step')} the "
            f"loss on dev rises from {start:.3f} to {low:.3f} instead of {high:.3f}"
        )
        return default * LOWER, seconds


def seconds_per_token(steps: Iterable[tuple[float, int]]) -> float:
    """The median over steps, which may be of very different sizes. steps: (seconds, tokens) since the start, at the
    start and after each step; further evaluations have no tokens."""
    return median(
        (after - before) / (tokens - tokens_before)
        for (before, tokens_before), (after, tokens) in pairwise(steps)
        if tokens > tokens_before
    )


def read_or_choose_steps(file: Path, trial: Trial) -> ChosenSteps:
    """The stored steps of a resumed run, or new ones, which are stored."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(asdict(choose_steps(trial))))
    return ChosenSteps(**json.loads(file.read_text(encoding="utf-8")))


def choose_steps(trial: Trial) -> ChosenSteps:
    plan, epoch, learning_rate = trial.plan, trial.epoch, trial.plan.options.learning_rate
    if plan.skips_training:
        return ChosenSteps(0, epoch.steps, 1, learning_rate)
    steps = num_steps(plan.epochs, plan.task.min_steps, epoch)
    trial_steps = max(MIN_TRIAL_STEPS, round(TRIAL_SHARE * steps))
    if plan.tries_rates and 3 * TRIAL_SHARE * steps >= 2 * MIN_TRIAL_STEPS:
        learning_rate, seconds = trial.choose_learning_rate(trial_steps)
    else:
        _, seconds = trial.run(TIMED_STEPS, learning_rate)
    minutes = steps * seconds / 60
    if plan.minutes is not None and minutes > plan.minutes:
        steps = max(1, int(plan.minutes * 60 / seconds))
        logger.info(f"{plan.minutes:g} minutes: {format_count(steps, 'step')} of {1000 * seconds:.0f} ms")
    elif minutes >= SHOWN_MINUTES:
        duration = f"{minutes:.1f} minutes" if minutes >= 1 else f"{60 * minutes:.0f} s"
        logger.info(
            f"training takes about {duration}: {format_count(steps, 'step')} of {1000 * seconds:.0f} ms; "
            "it stops before if it no longer pays (--minutes)"
        )
    per_epoch, dev_tokens = plan.evaluations_per_epoch, sum(plan.task.data["dev"].sizes)
    interval = round(epoch.steps / per_epoch) if per_epoch else evaluation_interval(steps, epoch, dev_tokens)
    return ChosenSteps(steps, epoch.steps, max(1, interval), learning_rate)
