"""The steps and the learning rate of a training, chosen by short trials of it and by the time that is left.

The choices are stored, so that a resumed run repeats them.
"""

import json
import time
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median

from torch import Tensor

from bothways.base.errors import flag, format_count
from bothways.base.io import write_atomic
from bothways.base.log import logger
from bothways.model.model import Model
from bothways.tasks.batch_plan import Epoch
from bothways.training.finetuning.ground.epochs import EVALUATION_SHARE, evaluation_interval, num_steps
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.processes import Training
from bothways.training.finetuning.time_left import EVALUATION, seconds_after, seconds_for_training

TRIAL_SHARE = 0.05  # fraction of the steps in a trial
MIN_TRIAL_STEPS = 8
LOWER = 1 / 3  # of the default learning rate
HARMFUL = 1.5  # of the loss on dev after a trial, relative to the loss before
TIMED_STEPS = 3  # if there are no trials
SHOWN_MINUTES = 0.2  # a shorter training is not announced


@dataclass(frozen=True)
class ChosenSteps:
    """The steps of one training, of an epoch and between evaluations, and the peak learning rate."""

    steps: int
    steps_per_epoch: int
    evaluate_every: int
    learning_rate: float


def read_or_choose_steps(file: Path, trial: "Trial") -> ChosenSteps:
    """The stored steps of a resumed run, or new ones, which are stored."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(asdict(choose_steps(trial))))
    return ChosenSteps(**json.loads(file.read_text(encoding="utf-8")))


def choose_steps(trial: "Trial") -> ChosenSteps:
    """The steps and the learning rate of a training, by trials and by the time that is left for it."""
    plan = trial.plan
    epoch = trial.epoch
    learning_rate = plan.options.learning_rate
    if plan.skips_training:
        return ChosenSteps(
            steps=0,
            steps_per_epoch=epoch.steps,
            evaluate_every=1,
            learning_rate=learning_rate,
        )

    # In a short training, trials of at least MIN_TRIAL_STEPS would take too much of its time.
    steps = num_steps(plan.epochs, plan.task.min_steps, epoch)
    trial_steps = max(MIN_TRIAL_STEPS, round(TRIAL_SHARE * steps))
    if plan.tries_rates and 3 * TRIAL_SHARE * steps >= 2 * MIN_TRIAL_STEPS:
        learning_rate, seconds = trial.choose_learning_rate(trial_steps)
    else:
        _, seconds = trial.run(TIMED_STEPS, learning_rate)

    steps = fit_to_time(plan, steps, seconds)
    per_epoch = plan.evaluations_per_epoch
    if per_epoch:
        interval = round(epoch.steps / per_epoch)
    else:
        interval = evaluation_interval(steps, epoch, sum(plan.task.data["dev"].sizes))
    return ChosenSteps(
        steps=steps,
        steps_per_epoch=epoch.steps,
        evaluate_every=max(1, interval),
        learning_rate=learning_rate,
    )


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
        copy = deepcopy(self.model)
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
        Training.of(self.plan, copy, options).run(
            self.plan,
            evaluate=lambda: {"loss": 0.0},
            record=lambda row: steps_done.append((time.perf_counter(), row["tokens"])),
        )
        tokens_per_step = self.epoch.tokens / self.epoch.steps
        return copy, tokens_per_step * seconds_per_token(steps_done)

    def row_losses(self, model: Model) -> Tensor:
        """The loss of each row of dev, [N]."""
        scoring = self.plan.task.scoring
        self.plan.budget.seconds.pop(EVALUATION, None)
        with self.plan.budget.timed(EVALUATION):
            return scoring.row_losses("dev", scoring.outputs(self.plan.inference_copy(model), "dev"))

    def choose_learning_rate(self, steps: int) -> tuple[float, float]:
        """The default learning rate, unless it destroys the model and a lower one does not; and seconds per step.

        Destroys: the loss on dev after a trial is more than HARMFUL times the loss before. A lower loss is no reason,
        since short trials favour low rates that end worse: ACL-ARC ends at 63.6 with the default rate, and at 57.9 and
        49.2 with a third and a ninth of it (docs/LOG.md).
        """
        default = self.plan.options.learning_rate
        trained, seconds = self.run(steps, default)
        start = float(self.row_losses(self.model).mean())
        high = float(self.row_losses(trained).mean())
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
    values = []
    for (seconds_before, tokens_before), (seconds, tokens) in pairwise(steps):
        if tokens > tokens_before:
            values.append((seconds - seconds_before) / (tokens - tokens_before))
    return median(values)


def fit_to_time(plan: Plan, steps: int, seconds: float) -> int:
    """The steps, or as many as the time that is left allows.

    plan: whose budget has the time.
    steps: as many as are wanted.
    seconds: of a step.
    """
    minutes = steps * seconds / 60
    left = seconds_for_training(plan)
    if minutes * 60 > left / (1 + EVALUATION_SHARE):
        steps = max(1, int(left / (1 + EVALUATION_SHARE) / seconds))
        log_plan(plan, steps, seconds, left)
    elif minutes >= SHOWN_MINUTES:
        duration = f"{minutes:.1f} minutes" if minutes >= 1 else f"{60 * minutes:.0f} s"
        logger.info(
            f"training takes about {duration}: {format_count(steps, 'step')} of {1000 * seconds:.0f} ms; it stops "
            f"before if it no longer pays ({flag('minutes')})"
        )
    return steps


def log_plan(plan: Plan, steps: int, seconds: float, left: float) -> None:
    """Log what training gets of the minutes, by the times that were measured meanwhile."""
    count = plan.budget.trainings
    number = f"{count} trainings of {left:.0f} s" if count > 1 else f"training {left:.0f} s"
    logger.info(
        f"after {plan.budget.spent:.0f} s, measured: {number} ({format_count(steps, 'step')} of {1000 * seconds:.0f} "
        f"ms), then {seconds_after(plan):.0f} s"
    )
