"""One training of a run: linear start, trials, training in floating point and optionally in int8, and averaging of the
initial and the final weights.

Each phase has its options and checkpoints; the order of the examples continues from one to the next. The choices of the
trials are stored, so that a resumed run repeats them.
"""

import hashlib
import json
import time
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from safetensors.torch import load_file
from torch import Tensor

from bothways.base.device import STEPS_BEFORE_CAP, cap_retained_memory, retain_freed_memory
from bothways.base.errors import flag, format_count
from bothways.base.io import write_atomic
from bothways.base.log import logger
from bothways.model.checkpoint.weights import write_weights
from bothways.model.int8 import round_table
from bothways.model.int8_training import CALIBRATION_EXAMPLES, calibrate_fake_int8, read_examples
from bothways.model.model import Model
from bothways.tasks.novelty import MAX_TOKENS
from bothways.tasks.training_task import Epoch, Examples
from bothways.text.batching import batch_fingerprint, spread_evenly
from bothways.training.finetuning.budget import LABEL_CHECK
from bothways.training.finetuning.gain import FRACTIONS, select_fraction, select_gain
from bothways.training.finetuning.plan import EVALUATION_SHARE, Plan, evaluation_interval, num_steps
from bothways.training.finetuning.processes import Training
from bothways.training.progress import TrainingProgress
from bothways.training.run import Run
from bothways.training.run_checkpoints import Checkpoints, TrainingState
from bothways.training.schedule import TrainingOptions
from bothways.training.trainer import OUT_OF_TIME

STEPS, LINEAR_START, HEADS, INT8 = "steps.json", "linear_start.safetensors", "heads.", "int8"
COURSE = "course.json"  # in the directory of a seed
INT8_SHARE, MIN_INT8_STEPS = 1 / 3, 20  # of the steps before
INT8_RATE = 0.2  # of the peak learning rate before
TRIAL_SHARE, MIN_TRIAL_STEPS = 0.05, 8  # fraction of the steps in a trial
LOWER = 1 / 3  # of the default learning rate
HARMFUL = 1.5  # of the loss on dev after a trial, relative to that before
TIMED_STEPS = 3  # if there are no trials
SHOWN_MINUTES = 0.2  # a shorter training is not announced
FITS = 5  # of linear models, in the search for label errors: a fold each
LINEAR_STARTS = 12  # in whose time linear models of all rows are chosen and fitted (docs/LOG.md, "The first labels")
# In the seconds of the budget: evaluation of dev, linear start, and all texts by the frozen encoder (estimated).
EVALUATION, LINEAR, VECTORS = "evaluation", "linear start", "vectors"
SAMPLES = 256  # examples whose tokens and labels are hashed


@dataclass(frozen=True)
class Phase:
    """A part of a training. title: for the progress. directory: for checkpoints. steps_before: of the earlier parts."""

    title: str
    directory: Path
    options: TrainingOptions
    steps_before: int = 0


def train(plan: Plan, model: Model, seed: int, run: Run, directory: Path) -> "Course":
    """Train a model with one seed, in place: afterwards it has the weights that were selected on dev. directory: for
    the files of a resumed run."""
    if plan.options.device.type == "cpu":
        retain_freed_memory()
    course, options = train_float(plan, model, seed, run, directory)
    if plan.quantizes:
        train_int8(plan, model, options, run, directory / INT8)
    return course


def train_float(plan: Plan, model: Model, seed: int, run: Run, directory: Path) -> "tuple[Course, TrainingOptions]":
    """The training in floating point: linear start, trials, training, and the selection of a point on the way."""
    name = f"seed {seed}" if plan.fold is None else f"fold {plan.fold + 1}"
    if plan.options.evaluate_first:
        with run.timed("linear_start"), plan.budget.timed(LINEAR):
            fit_or_read_head(plan, model, directory / LINEAR_START)
    initial = trained_state(model) if plan.averages else {}
    with run.timed("trial"):
        steps = read_or_choose_steps(directory / STEPS, Trial(plan, model, seed))
    run.update_metadata(steps=steps.steps, steps_per_epoch=steps.steps_per_epoch, learning_rate=steps.learning_rate)
    options = replace(plan.options, seed=seed, steps=steps.steps, learning_rate=steps.learning_rate)
    options = replace(options, evaluate_every=steps.evaluate_every)
    progress, _ = train_phase(plan, model, Phase(f"fine-tuning, {name}", directory, options), run)
    if progress.stopped_at:
        logger.info(f"stopped at step {progress.step:,} of {options.steps:,} ({name}), as training no longer paid")
    fraction = 1.0
    if initial and options.steps and plan.task.needs_gain:
        fraction = select_gain(plan, model, initial, directory)
    elif initial and options.steps:
        fraction = select_fraction(plan, model, initial, directory)
    return Course.of(options, progress, fraction), options


def train_int8(plan: Plan, model: Model, before: TrainingOptions, run: Run, directory: Path) -> None:
    """Turn on the rounding of a trained model and train it on. The best weights on dev are kept, those before this
    training included. before: options of the training before."""
    seed, metric, steps = before.seed, plan.task.metric, max(MIN_INT8_STEPS, round(INT8_SHARE * before.steps))
    score = plan.task.scoring.evaluate(plan.inference_copy(model), "dev")[metric]
    with run.timed("calibration"):
        calibrate(plan, model)
    options = replace(plan.options, seed=seed, steps=steps, learning_rate=INT8_RATE * before.learning_rate, warmup=0.0)
    options = replace(options, evaluate_every=max(1, steps // 4), evaluate_first=True, keeps_initial=True)
    words = model.encoder.embeddings.words.weight
    words.requires_grad_(False)  # it has the values that are stored
    progress, scores = train_phase(plan, model, Phase(f"int8, seed {seed}", directory, options, before.steps), run)
    words.requires_grad_(True)
    logger.info(
        f"seed {seed}: dev {metric} {score:.4f} in floating point, {scores[0]:.4f} in int8 without training, "
        f"{progress.best or scores[-1]:.4f} with"
        if scores
        else f"seed {seed}: int8 was trained before"
    )


def train_phase(plan: Plan, model: Model, phase: Phase, run: Run) -> tuple[TrainingState, list[float]]:
    """Train a model in one phase, or resume it. Returns the state at its end, and the scores on dev since it was
    started or resumed."""
    options, before, scores = phase.options, phase.steps_before, list[float]()
    fingerprint = fingerprint_examples(plan.examples)
    checkpoints = Checkpoints(phase.directory, keep=1, order={"examples": fingerprint}, at_end=False)
    training = Training.of(plan, model, options, before, checkpoints)
    resumed = training.load(plan)
    first_step = resumed.progress.step if resumed else 0
    run.truncate_metrics(before + first_step if resumed else before or -1, options.seed)
    keys = {"seed": options.seed} if plan.fold is None else {"seed": options.seed, "fold": plan.fold}
    with TrainingProgress(phase.title, options.steps) as bar:

        def record(row: dict[str, Any]) -> None:
            pace.step = row["step"]
            if row["split"] == "heldout":
                scores.append(row[plan.task.metric])
            run.log_metrics(**{**row, "step": before + row["step"]}, **keys)
            if row["step"] == first_step + STEPS_BEFORE_CAP and options.device.type == "cpu":
                cap_retained_memory()
            bar.show(row)

        def evaluate() -> dict[str, Any]:
            scores = plan.task.scoring.evaluate(model, "dev")
            return scores | {OUT_OF_TIME: pace.is_late()}

        pace = Pace(plan, options, first_step)
        progress = training.run(plan, resumed, evaluate, record)
    return progress, scores


@dataclass
class Pace:
    """How fast a training is, so that it ends in its time. step: the last one."""

    plan: Plan
    options: TrainingOptions
    step: int
    first_step: int = field(init=False)
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.first_step = self.step

    def is_late(self) -> bool:
        """Whether the time is over before the next evaluation and the cooldown after it."""
        done = self.step - self.first_step
        if self.plan.budget.limit is None or not done:
            return False
        per_step = (time.monotonic() - self.started) / done
        ahead = self.options.evaluate_every + self.options.cooldown * (self.step + self.options.evaluate_every)
        left = self.plan.budget.left - seconds_after(self.plan)
        return min(ahead, self.options.steps - self.step) * per_step > left


def fit_or_read_head(plan: Plan, model: Model, file: Path) -> None:
    """Fit the head of a model, in place, or read it if it was fitted before."""
    if file.exists():
        model.load_state_dict(load_file(file), strict=False)
        return
    plan.task.fit_head(model)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_weights({name: value for name, value in model.state_dict().items() if name.startswith(HEADS)}, file)


def calibrate(plan: Plan, model: Model) -> None:
    """Measure the inputs of the layers on training examples, and round from then on."""
    rows = spread_evenly(range(len(plan.examples.sizes)), CALIBRATION_EXAMPLES)
    model.to(plan.options.device).eval()
    calibrate_fake_int8(model, partial(read_examples, model, plan.task.objective.forward, plan.examples, rows))
    round_table(model)
    model.to("cpu")


@dataclass(frozen=True)
class ChosenSteps:
    """The steps of one training, those of an epoch and between evaluations, and the peak learning rate."""

    steps: int
    steps_per_epoch: int
    evaluate_every: int
    learning_rate: float


@dataclass(frozen=True)
class Course:
    """What a training found on dev, which a training of more rows repeats.

    steps: of the schedule; learning_rate: its peak. best_step: of the weights; last_step: when it ended. stopped_at:
    when it was decided to end, from which the learning rate fell to 0; 0: never. fraction: of the way from the initial
    to the trained weights. seconds: of its steps.
    """

    steps: int
    learning_rate: float
    best_step: int
    last_step: int
    stopped_at: int
    fraction: float
    seconds: float

    @staticmethod
    def of(options: TrainingOptions, progress: TrainingState, fraction: float) -> "Course":
        return Course(
            steps=options.steps,
            learning_rate=options.learning_rate,
            best_step=progress.best_step,
            last_step=progress.step,
            stopped_at=progress.stopped_at,
            fraction=fraction,
            seconds=progress.seconds,
        )

    @property
    def selected_step(self) -> int:
        """The step of the weights that were selected; 0: those before the training."""
        return 0 if self.fraction == 0 else self.best_step

    @property
    def share(self) -> float:
        """Of its steps that are repeated."""
        return self.best_step / max(1, self.last_step)

    def write(self, directory: Path) -> None:
        write_atomic(directory / COURSE, json.dumps(asdict(self)))

    @staticmethod
    def read(directory: Path) -> "Course | None":
        """That of a seed; None for one of an older version of the package."""
        file = directory / COURSE
        return Course(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


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
        options = replace(self.plan.options, seed=self.seed, steps=steps, learning_rate=learning_rate, best_by=None)
        options = replace(options, evaluate_first=False, evaluate_every=0, checkpoint_every=0)
        steps_done = [(time.perf_counter(), 0)]
        Training.of(self.plan, copy, options).run(
            self.plan,
            evaluate=lambda: {"loss": 0.0},
            record=lambda row: steps_done.append((time.perf_counter(), row["tokens"])),
        )
        return copy, self.epoch.tokens / self.epoch.steps * seconds_per_token(steps_done)

    def row_losses(self, model: Model) -> Tensor:
        """The loss of each row of dev, [N]."""
        scoring = self.plan.task.scoring
        self.plan.budget.seconds.pop(EVALUATION, None)
        with self.plan.budget.timed(EVALUATION):
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
    per_epoch, dev_tokens = plan.evaluations_per_epoch, sum(plan.task.data["dev"].sizes)
    interval = round(epoch.steps / per_epoch) if per_epoch else evaluation_interval(steps, epoch, dev_tokens)
    return ChosenSteps(steps, epoch.steps, max(1, interval), learning_rate)


def phases(plan: Plan) -> float:
    """The time of all phases of a training, relative to that of the first one."""
    return 1 + INT8_SHARE if plan.quantizes else 1.0


def seconds_for_training(plan: Plan) -> float:
    """Of each training that is still to come: what the run has left, less what comes after them."""
    return plan.budget.share(seconds_after(plan), plan.budget.trainings) / phases(plan)


def seconds_after(plan: Plan) -> float:
    """About how long the run takes after its trainings: scores of dev and test, label errors, linear models if training
    is no clear gain, and the report."""
    per_token = plan.budget.estimate(EVALUATION) / max(1, sum(plan.task.data["dev"].sizes))
    return per_token * num_scored_tokens(plan) + label_seconds(plan) + linear_seconds(plan)


def num_scored_tokens(plan: Plan) -> int:
    """Tokens that are read after a training: in evaluations of points between start and end, and of the model, and to
    see how far the texts of a classifier lie apart."""
    sizes = {split: sum(examples.sizes) for split, examples in plan.task.data.items()}
    times = {"dev": len(FRACTIONS) + 2, "test": 2}
    scored = sum(number * sizes[split] for split, number in times.items() if split in sizes)
    return scored + min(sizes["train"], MAX_TOKENS)


def linear_seconds(plan: Plan) -> float:
    """About how long linear models of all rows take, which are fitted if training is no clear gain."""
    if plan.build_linear is None:
        return 0.0
    return LINEAR_STARTS * max(plan.budget.estimate(LINEAR), seconds_of_frozen(plan))


def seconds_of_frozen(plan: Plan) -> float:
    """Of the baseline on frozen vectors; 0 if there is none."""
    seconds = plan.budget.seconds
    return max((seconds[name] for name in seconds if name.startswith("frozen")), default=0.0)


def label_seconds(plan: Plan) -> float:
    """About how long the search for label errors in the training rows takes, if there is time for it: some fits of
    linear models on frozen vectors, of which the baseline is one."""
    if not plan.compares or plan.few:
        return 0.0
    seconds = FITS * seconds_of_fit(plan, seconds_of_frozen(plan))
    return seconds if plan.budget.allows(LABEL_CHECK, seconds) else 0.0


def curve_seconds(plan: Plan) -> float:
    """About how long a learning curve of linear models takes: two fits for each fold."""
    return 2 * FITS * seconds_of_fit(plan, max(plan.budget.estimate(LINEAR), seconds_of_frozen(plan)))


def seconds_of_fit(plan: Plan, measured: float) -> float:
    """Of a linear model whose time was measured with that of the vectors, which is estimated; at least a tenth."""
    return max(measured - plan.budget.estimate(VECTORS), measured / 10)


def log_plan(plan: Plan, steps: int, seconds: float, left: float) -> None:
    """Log what training gets of the minutes, by the times that were measured meanwhile."""
    several = plan.budget.trainings
    number = f"{several} trainings of {left:.0f} s" if several > 1 else f"training {left:.0f} s"
    logger.info(
        f"after {plan.budget.spent:.0f} s, measured: {number} ({format_count(steps, 'step')} of {1000 * seconds:.0f} "
        f"ms), then {seconds_after(plan):.0f} s"
    )


def trained_state(model: Model) -> dict[str, Tensor]:
    """A copy of the values that training changes: all but frozen parameters."""
    frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
    return {name: value.clone() for name, value in model.state_dict().items() if name not in frozen}


def fingerprint_examples(examples: Examples) -> str:
    """Hash of all sizes, and of tokens and labels of a sample spread over the examples."""
    sizes = hashlib.sha256(np.array(examples.sizes).tobytes()).hexdigest()[:16]
    num_examples = len(examples.sizes)
    return f"{sizes} {batch_fingerprint(examples.batch(range(0, num_examples, -(-num_examples // SAMPLES))))}"
