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
from bothways.tasks.batch_plan import Epoch, Examples
from bothways.tasks.novelty import MAX_TOKENS
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

# In the directory of a seed.
STEPS = "steps.json"
LINEAR_START = "linear_start.safetensors"
COURSE = "course.json"
INT8 = "int8"
HEADS = "heads."  # with which the names of a head's weights begin
INT8_SHARE = 1 / 3  # of the steps before
MIN_INT8_STEPS = 20
INT8_RATE = 0.2  # of the peak learning rate before
TRIAL_SHARE = 0.05  # fraction of the steps in a trial
MIN_TRIAL_STEPS = 8
LOWER = 1 / 3  # of the default learning rate
HARMFUL = 1.5  # of the loss on dev after a trial, relative to the loss before
TIMED_STEPS = 3  # if there are no trials
SHOWN_MINUTES = 0.2  # a shorter training is not announced
FITS = 5  # of linear models, in the search for label errors: a fold each
LINEAR_STARTS = 12  # in whose time linear models of all rows are chosen and fitted (docs/LOG.md, "The first labels")
# In the seconds of the budget: evaluation of dev, linear start, and all texts by the frozen encoder (estimated).
EVALUATION = "evaluation"
LINEAR = "linear start"
VECTORS = "vectors"
SAMPLES = 256  # examples whose tokens and labels are hashed


@dataclass(frozen=True)
class Phase:
    """A part of a training.

    title: for the progress.
    directory: for checkpoints.
    options: of the part.
    steps_before: of the earlier parts.
    """

    title: str
    directory: Path
    options: TrainingOptions
    steps_before: int = 0


def train(plan: Plan, model: Model, seed: int, run: Run, directory: Path) -> "Course":
    """Train a model with one seed, in place: afterwards it has the weights that were selected on dev.

    plan: of the run or of a fold.
    model: the initial model of the seed.
    seed: of the order of the examples and of dropout.
    run: whose metrics are recorded.
    directory: for the files of a resumed run.
    """
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
        chosen = read_or_choose_steps(directory / STEPS, Trial(plan, model, seed))
    run.update_metadata(
        steps=chosen.steps,
        steps_per_epoch=chosen.steps_per_epoch,
        learning_rate=chosen.learning_rate,
    )

    options = replace(
        plan.options,
        seed=seed,
        steps=chosen.steps,
        learning_rate=chosen.learning_rate,
        evaluate_every=chosen.evaluate_every,
    )
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
    """Turn on the rounding of a trained model and train it on. The best weights on dev are kept, also if these are the
    weights before this training.

    plan: of the run.
    model: trained in floating point.
    before: options of the training before.
    run: whose metrics are recorded.
    directory: for the files of a resumed run.
    """
    seed = before.seed
    metric = plan.task.metric
    score = plan.task.scoring.evaluate(plan.inference_copy(model), "dev")[metric]
    with run.timed("calibration"):
        calibrate(plan, model)

    steps = max(MIN_INT8_STEPS, round(INT8_SHARE * before.steps))
    options = replace(
        plan.options,
        seed=seed,
        steps=steps,
        learning_rate=INT8_RATE * before.learning_rate,
        warmup=0.0,
        evaluate_every=max(1, steps // 4),
        evaluate_first=True,
        keeps_initial=True,
    )
    phase = Phase(
        title=f"int8, seed {seed}",
        directory=directory,
        options=options,
        steps_before=before.steps,
    )

    # The table of words has the rounded values already, as they are stored.
    words = model.encoder.embeddings.words.weight
    words.requires_grad_(False)
    progress, scores = train_phase(plan, model, phase, run)
    words.requires_grad_(True)

    if not scores:
        logger.info(f"seed {seed}: int8 was trained before")
        return
    logger.info(
        f"seed {seed}: dev {metric} {score:.4f} in floating point, {scores[0]:.4f} in int8 without training, "
        f"{progress.best or scores[-1]:.4f} with"
    )


def train_phase(plan: Plan, model: Model, phase: Phase, run: Run) -> tuple[TrainingState, list[float]]:
    """Train a model in one phase, or resume it. Returns the state at its end, and the scores on dev since it was
    started or resumed.

    plan: of the run or of a fold.
    model: trained in place.
    phase: the part of the training.
    run: whose metrics are recorded.
    """
    options = phase.options
    before = phase.steps_before
    fingerprint = fingerprint_examples(plan.examples)
    checkpoints = Checkpoints(phase.directory, keep=1, order={"examples": fingerprint}, at_end=False)
    training = Training.of(plan, model, options, before, checkpoints)

    resumed = training.load(plan)
    first_step = resumed.progress.step if resumed else 0
    # -1: of a first part that starts anew, not even an evaluation at step 0 is kept.
    last_logged = before + first_step if resumed else before or -1
    run.truncate_metrics(last_logged, options.seed)

    scores: list[float] = []
    keys = {"seed": options.seed}
    if plan.fold is not None:
        keys["fold"] = plan.fold
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
            metrics = plan.task.scoring.evaluate(model, "dev")
            return metrics | {OUT_OF_TIME: pace.is_late()}

        pace = Pace(plan, options, first_step)
        progress = training.run(plan, resumed, evaluate, record)
    return progress, scores


@dataclass
class Pace:
    """How fast a training is, so that it ends in its time. step: the last one that was trained."""

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
        next_evaluation = self.step + self.options.evaluate_every
        ahead = self.options.evaluate_every + self.options.cooldown * next_evaluation
        left = self.plan.budget.left - seconds_after(self.plan)
        return min(ahead, self.options.steps - self.step) * per_step > left


def fit_or_read_head(plan: Plan, model: Model, file: Path) -> None:
    """Fit the head of a model, in place, or read it if it was fitted before."""
    if file.exists():
        model.load_state_dict(load_file(file), strict=False)
        return
    plan.task.fit_head(model)
    heads = {name: value for name, value in model.state_dict().items() if name.startswith(HEADS)}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_weights(heads, file)


def calibrate(plan: Plan, model: Model) -> None:
    """Measure the inputs of the layers on training examples, and round from then on."""
    rows = spread_evenly(range(len(plan.examples.sizes)), CALIBRATION_EXAMPLES)
    model.to(plan.options.device).eval()
    read = partial(read_examples, model, plan.task.objective.forward, plan.examples, rows)
    calibrate_fake_int8(model, read)
    round_table(model)
    model.to("cpu")


@dataclass(frozen=True)
class ChosenSteps:
    """The steps of one training, of an epoch and between evaluations, and the peak learning rate."""

    steps: int
    steps_per_epoch: int
    evaluate_every: int
    learning_rate: float


@dataclass(frozen=True)
class Course:
    """The course of a training that dev has decided, which a training of more rows repeats.

    steps: of the schedule.
    learning_rate: its peak.
    best_step: of the weights.
    last_step: when the training ended.
    stopped_at: when it was decided to end, from which the learning rate fell to 0; 0: never.
    fraction: of the way from the initial to the trained weights.
    seconds: of its steps.
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
        """The step of the weights that were selected; 0: the weights before the training."""
        return 0 if self.fraction == 0 else self.best_step

    @property
    def share(self) -> float:
        """Of its steps that are repeated."""
        return self.best_step / max(1, self.last_step)

    def write(self, directory: Path) -> None:
        write_atomic(directory / COURSE, json.dumps(asdict(self)))

    @staticmethod
    def read(directory: Path) -> "Course | None":
        """The course of a seed; None for a seed of an older version of the package."""
        file = directory / COURSE
        if not file.exists():
            return None
        return Course(**json.loads(file.read_text(encoding="utf-8")))


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


def read_or_choose_steps(file: Path, trial: Trial) -> ChosenSteps:
    """The stored steps of a resumed run, or new ones, which are stored."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(asdict(choose_steps(trial))))
    return ChosenSteps(**json.loads(file.read_text(encoding="utf-8")))


def choose_steps(trial: Trial) -> ChosenSteps:
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


def phases(plan: Plan) -> float:
    """The time of all phases of a training, relative to the time of the first one."""
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
    scored = (len(FRACTIONS) + 2) * sizes.get("dev", 0) + 2 * sizes.get("test", 0)
    return scored + min(sizes["train"], MAX_TOKENS)


def linear_seconds(plan: Plan) -> float:
    """About how long linear models of all rows take, which are fitted if training is no clear gain."""
    if plan.build_linear is None:
        return 0.0
    return LINEAR_STARTS * max(plan.budget.estimate(LINEAR), seconds_of_frozen(plan))


def seconds_of_frozen(plan: Plan) -> float:
    """Of the baseline on frozen vectors; 0 if there is none."""
    frozen = [seconds for name, seconds in plan.budget.seconds.items() if name.startswith("frozen")]
    return max(frozen, default=0.0)


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
    """Of a linear model whose time was measured together with its vectors, whose time is estimated; at least a tenth of
    the measured time."""
    return max(measured - plan.budget.estimate(VECTORS), measured / 10)


def log_plan(plan: Plan, steps: int, seconds: float, left: float) -> None:
    """Log what training gets of the minutes, by the times that were measured meanwhile."""
    count = plan.budget.trainings
    number = f"{count} trainings of {left:.0f} s" if count > 1 else f"training {left:.0f} s"
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
    spacing = -(-num_examples // SAMPLES)
    sample = examples.batch(range(0, num_examples, spacing))
    return f"{sizes} {batch_fingerprint(sample)}"
