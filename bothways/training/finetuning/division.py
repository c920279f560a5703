"""How `minutes` are divided among the parts of a run, logged before the first of them: estimated by a few steps and by
one pass over a sample of the texts."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from bothways.base.errors import flag, format_count
from bothways.base.log import logger, muted
from bothways.base.progress import working
from bothways.model.int8_training import read_examples
from bothways.tasks.linear_baselines import MAX_OUTPUTS
from bothways.tasks.texts import TextTask
from bothways.text.batching import spread_evenly
from bothways.training.finetuning.ground.baselines import seconds_of_words
from bothways.training.finetuning.ground.budget import LABEL_CHECK, MARGIN, WORDS, Budget
from bothways.training.finetuning.ground.epochs import EVALUATION_SHARE, num_steps
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.time_left import EVALUATION, FITS, LINEAR_STARTS, VECTORS, num_scored_tokens, phases
from bothways.training.finetuning.trials import MIN_TRIAL_STEPS, TIMED_STEPS, TRIAL_SHARE, Trial
from bothways.training.run import Run

LEFT_OUT = "left_out"  # key in bothways.json: parts for which there is no time, with their seconds
SAMPLE = 64  # examples that are read for their time
MAX_TIMED_ROWS = 2000  # of a linear head
OBJECTIVES = 500  # of a linear head that are computed until it is fitted: measured on BANKING77, 2,300 and 10,003 rows
EVALUATIONS_OF_A_TRIAL = 2  # of dev


@dataclass(frozen=True)
class Estimates:
    """Seconds. token: of a forward pass. step: of training. fit: of a linear head on the vectors of train. words: of
    TF-IDF; None: so short that it is always done."""

    token: float
    step: float
    fit: float
    words: float | None


@dataclass(frozen=True)
class Division:
    """How the minutes of a run are divided. spent: seconds so far. before, after: seconds of the parts before and after
    the trainings, by name. trainings: their number. training: seconds of each. steps: of each, of `all_steps`. step:
    seconds of one. left_out: parts for which there is no time, with their seconds."""

    limit: float
    spent: float
    before: Mapping[str, float]
    trainings: int
    training: float
    steps: int
    all_steps: int
    step: float
    after: Mapping[str, float]
    left_out: Mapping[str, float]

    def describe(self) -> str:
        """One line, without the parts of less than half a second."""
        parts = [f"{self.spent:.0f} s so far", *described(self.before)]
        if self.all_steps:
            number = f"{self.trainings} trainings of" if self.trainings > 1 else "training"
            steps = format_count(self.steps, "step")
            parts.append(f"{number} {self.training:.0f} s ({steps} of {1000 * self.step:.0f} ms)")
        parts += described(self.after)
        line = f"plan for {self.limit / 60:g} minutes, estimated: {', '.join(parts)}"
        if self.left_out:
            names = ", ".join(f"{name} (about {seconds:.0f} s)" for name, seconds in self.left_out.items())
            line += f"; left out to keep to it: {names}"
        if self.steps < self.all_steps:
            line += f"; {flag('minutes', self.minutes_of_all_steps)} has time for all {self.all_steps:,} steps"
        return line

    @property
    def minutes_of_all_steps(self) -> int:
        """In which no training has to be cut short."""
        trainings = self.trainings * self.all_steps * self.step * (1 + EVALUATION_SHARE)
        others = sum(self.before.values()) + sum(self.after.values())
        return math.ceil((self.spent + others + trainings) / 60 / (1 - MARGIN))


def described(seconds_by_part: Mapping[str, float]) -> list[str]:
    return [f"{name} {seconds:.0f} s" for name, seconds in seconds_by_part.items() if seconds >= 0.5]


def plan_minutes(plan: Plan, run: Run) -> None:
    """Divide the minutes of a run, if they are limited, and log it. Parts that are left out are noted in the budget,
    and in bothways.json, so that a resumed run leaves out the same."""
    if plan.budget.limit is None or plan.follows_few:
        return
    if LEFT_OUT in run.metadata:
        plan.budget.left_out |= run.metadata[LEFT_OUT]
        return
    with working("plan"), muted():
        estimates = measure(plan)
        division = divide(plan, estimates)
    part = plan.of_fold(next(plan.trainings)[1])
    plan.budget.seconds[EVALUATION] = estimates.token * sum(part.task.data["dev"].sizes)  # until one is measured
    plan.budget.seconds[VECTORS] = estimates.token * num_tokens(part)
    run.update_metadata(**{LEFT_OUT: dict(division.left_out)})
    logger.info(division.describe())


def measure(plan: Plan) -> Estimates:
    """The estimates, by a few steps of the first training."""
    seed, fold = next(plan.trainings)
    part = plan.of_fold(fold)
    model = part.prepare_model(seed).model
    step = 0.0
    if not plan.skips_training:
        _, step = Trial(part, model, seed).run(TIMED_STEPS, part.options.learning_rate)

    examples = part.examples
    rows = spread_evenly(range(len(examples.sizes)), SAMPLE)
    frozen = part.inference_copy(model).eval()
    read_examples(frozen, part.task.objective.forward, examples, rows)  # the first pass is slower
    start = time.perf_counter()
    read_examples(frozen, part.task.objective.forward, examples, rows)
    token = (time.perf_counter() - start) / max(1, sum(examples.sizes[row] for row in rows))

    words = seconds_of_words(part.task, plan.budget) if compares(plan) else None
    return Estimates(token=token, step=step, fit=fit_seconds(part), words=words)


def fit_seconds(plan: Plan) -> float:
    """About how long a fit of a linear head on the vectors of train takes, by the time of its products."""
    if not isinstance(plan.task, TextTask):
        return 0.0
    num_rows = len(plan.examples.sizes)
    timed = min(num_rows, MAX_TIMED_ROWS)
    x_NH = torch.ones(timed, plan.task.pretrained.model.config.hidden_size)
    weight_CH = torch.ones(plan.task.num_outputs, x_NH.shape[1])
    start = time.perf_counter()
    scores_NC = F.linear(x_NH, weight_CH).log_softmax(-1)
    scores_NC.T @ x_NH
    return OBJECTIVES * (time.perf_counter() - start) * num_rows / timed


def compares(plan: Plan) -> bool:
    """Whether baselines are fitted, and labels checked by them."""
    return plan.compares and not plan.few


def divide(plan: Plan, estimates: Estimates) -> Division:
    """Divide the minutes by these estimates. A part without time is left out, and noted in the budget."""
    budget = plan.budget
    task = plan.task
    assert budget.limit is not None
    seed, fold = next(plan.trainings)
    part = plan.of_fold(fold)
    trainings = plan.num_trainings

    before = dict[str, float]()
    if isinstance(task, TextTask):
        of_trainings = trainings if plan.options.evaluate_first else 0
        vectors = num_tokens(part) * estimates.token
        before["frozen vectors and linear start"] = vectors * max(1, plan.num_folds) + of_trainings * estimates.fit
    if compares(plan):
        before["baselines"] = baseline_seconds(plan, estimates)

    all_steps = 0 if plan.skips_training else num_steps(plan.epochs, task.min_steps, part.epoch(seed))
    before["trials"] = trainings * trial_seconds(part, all_steps, estimates)

    after = {"scores": trainings * num_scored_tokens(part) * estimates.token}
    after["label errors"] = label_seconds(plan, estimates, budget)
    if plan.build_linear:
        linear_start = num_tokens(part) * estimates.token + estimates.fit
        after["linear models if training is no gain"] = LINEAR_STARTS * linear_start

    left = budget.left - sum(before.values()) - sum(after.values())
    each = max(0.0, left) / trainings
    full = phases(plan) * all_steps * estimates.step * (1 + EVALUATION_SHARE)
    steps = all_steps
    if full > each:
        steps = max(1, int(each / phases(plan) / (1 + EVALUATION_SHARE) / estimates.step))
    return Division(
        limit=budget.limit,
        spent=budget.spent,
        before=before,
        trainings=trainings,
        training=min(full, each),
        steps=steps,
        all_steps=all_steps,
        step=estimates.step,
        after=after,
        left_out=dict(budget.left_out),
    )


def baseline_seconds(plan: Plan, estimates: Estimates) -> float:
    """Of the baselines for which there is time, of all folds."""
    seconds = estimates.fit
    if estimates.words is not None and plan.budget.has_time(WORDS, estimates.words):
        seconds += estimates.words
    return seconds * max(1, plan.num_folds)


def num_tokens(plan: Plan) -> int:
    """Of all splits."""
    return sum(sum(examples.sizes) for examples in plan.task.data.values())


def trial_seconds(plan: Plan, all_steps: int, estimates: Estimates) -> float:
    """Of the trial of a learning rate before a training, or of the steps that are only timed."""
    if not all_steps:
        return 0.0
    if plan.tries_rates and 3 * TRIAL_SHARE * all_steps >= 2 * MIN_TRIAL_STEPS:
        steps = max(MIN_TRIAL_STEPS, round(TRIAL_SHARE * all_steps))
        dev_tokens = sum(plan.task.data["dev"].sizes)
        return steps * estimates.step + EVALUATIONS_OF_A_TRIAL * dev_tokens * estimates.token
    return TIMED_STEPS * estimates.step


def label_seconds(plan: Plan, estimates: Estimates, budget: Budget) -> float:
    """Of the search for label errors in the training rows, if there is time for it."""
    is_searched = isinstance(plan.task, TextTask) and plan.task.num_outputs <= MAX_OUTPUTS
    if not compares(plan) or not is_searched:
        return 0.0
    seconds = FITS * estimates.fit
    return seconds if budget.has_time(LABEL_CHECK, seconds) else 0.0
