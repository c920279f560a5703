"""Before training: a few steps at two learning rates, on copies of the model, which also time a step.

What follows from them is stored as the plan of the training, so that a resumed run goes on as it began.
"""

import json
import math
import time
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from torch import Tensor

from bothways.errors import format_count
from bothways.finetuning.recipe import Epoch, evaluation_interval
from bothways.finetuning.setup import FineTuneSetup
from bothways.io import write_atomic
from bothways.log import logger
from bothways.model.model import Model
from bothways.training.loop import Steps, fit
from bothways.training.objective import Objective, forward_losses

TRIAL_SHARE, MIN_TRIAL_STEPS = 0.05, 8  # fraction of the steps in a trial
LOWER = 1 / 3  # of the default learning rate
TIMED_STEPS = 3  # if there are no trials
SHOWN_MINUTES = 0.2  # a shorter training is not announced


@dataclass(frozen=True)
class Plan:
    """How one training goes: its steps, those of an epoch and between evaluations, and its peak learning rate."""

    steps: int
    steps_per_epoch: int
    evaluate_every: int
    learning_rate: float


@dataclass(frozen=True)
class Rehearsal:
    """Trains copies of a model for a few steps. batches: the micro-batches of the training, from a first step on."""

    setup: FineTuneSetup
    model: Model
    objective: Objective
    batches: Steps
    seed: int

    def run(self, steps: int, learning_rate: float) -> tuple[Model, float]:
        """A copy after this many steps, whose learning rate rises and falls as in a whole run, and seconds per step."""
        copy = deepcopy(self.model)
        options = replace(
            self.setup.options,
            seed=self.seed,
            steps=steps,
            learning_rate=learning_rate,
            best_by=None,
            evaluate_first=False,
            evaluate_every=0,
            checkpoint_every=0,
        )
        times = [time.perf_counter()]
        fit(
            self.objective.module(copy, self.seed),
            forward_losses(self.objective),
            self.objective.counts,
            self.batches,
            options,
            evaluate=lambda: {"loss": 0.0},
            record=lambda row: times.append(time.perf_counter()),
        )
        durations = sorted(after - before for before, after in pairwise(times))
        return copy, durations[len(durations) // 4]

    def row_losses(self, model: Model) -> Tensor:
        """The loss of each row of dev, [N]."""
        scoring = self.setup.task.scoring
        return scoring.row_losses("dev", scoring.outputs(self.setup.inference_copy(model), "dev"))

    def choose_learning_rate(self, steps: int) -> tuple[float, float]:
        """The default learning rate, or the lower one if its loss on dev is clearly lower; and seconds per step."""
        default = self.setup.options.learning_rate
        high, seconds = self.run(steps, default)
        low, _ = self.run(steps, default * LOWER)
        high_N, low_N = self.row_losses(high), self.row_losses(low)
        gain_N = high_N - low_N
        if gain_N.mean() <= gain_N.std(correction=0) / math.sqrt(len(gain_N)):
            return default, seconds
        logger.info(
            f"peak learning rate {default * LOWER:.1e} instead of {default:.1e}: in trials of "
            f"{format_count(steps, 'step')} the loss on dev was {low_N.mean():.3f} instead of {high_N.mean():.3f}"
        )
        return default * LOWER, seconds


def read_or_make_plan(file: Path, rehearsal: Rehearsal, epoch: Epoch) -> Plan:
    """The stored plan of a resumed run, or a new one, which is stored."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(asdict(make_plan(rehearsal, epoch))))
    return Plan(**json.loads(file.read_text(encoding="utf-8")))


def make_plan(rehearsal: Rehearsal, epoch: Epoch) -> Plan:
    setup = rehearsal.setup
    learning_rate = setup.options.learning_rate
    if setup.skips_training:
        return Plan(0, epoch.steps, 1, learning_rate)
    steps = setup.length.num_steps(epoch)
    trial_steps = max(MIN_TRIAL_STEPS, round(TRIAL_SHARE * steps))
    if setup.tries_rates and 3 * TRIAL_SHARE * steps >= 2 * MIN_TRIAL_STEPS:
        learning_rate, seconds = rehearsal.choose_learning_rate(trial_steps)
    else:
        _, seconds = rehearsal.run(TIMED_STEPS, learning_rate)
    minutes = steps * seconds / 60
    if setup.minutes is not None and minutes > setup.minutes:
        steps = max(1, int(setup.minutes * 60 / seconds))
        logger.info(f"{setup.minutes:g} minutes: {format_count(steps, 'step')} of {1000 * seconds:.0f} ms")
    elif minutes >= SHOWN_MINUTES:
        logger.info(
            f"training takes at most {minutes:.1f} minutes: {format_count(steps, 'step')} of {1000 * seconds:.0f} ms; "
            "it stops before if it no longer pays (--minutes)"
        )
    per_epoch, dev_tokens = setup.evaluations_per_epoch, sum(setup.task.data["dev"].sizes)
    interval = round(epoch.steps / per_epoch) if per_epoch else evaluation_interval(steps, epoch, dev_tokens)
    return Plan(steps, epoch.steps, max(1, interval), learning_rate)
