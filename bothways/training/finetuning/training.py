"""One training of a run: linear start, trials, training in floating point and optionally in int8, and averaging of the
initial and the final weights.

Each phase has its options and checkpoints; the order of the examples continues from one to the next. The choices of the
trials are stored, so that a resumed run repeats them.
"""

import hashlib
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file
from torch import Tensor

from bothways.base.device import STEPS_BEFORE_CAP, cap_retained_memory, retain_freed_memory
from bothways.base.log import logger
from bothways.model.checkpoint.weights import write_weights
from bothways.model.int8 import round_table
from bothways.model.int8_training import CALIBRATION_EXAMPLES, calibrate_fake_int8, read_examples
from bothways.model.model import Model
from bothways.tasks.batch_plan import Examples
from bothways.text.batching import batch_fingerprint, spread_evenly
from bothways.training.finetuning.gain import select_fraction, select_gain
from bothways.training.finetuning.ground.course import Course
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.processes import Training
from bothways.training.finetuning.time_left import INT8_SHARE, LINEAR, seconds_after
from bothways.training.finetuning.trials import Trial, read_or_choose_steps
from bothways.training.progress import TrainingProgress
from bothways.training.run import Run
from bothways.training.run_checkpoints import Checkpoints, TrainingState
from bothways.training.schedule import TrainingOptions
from bothways.training.trainer import OUT_OF_TIME

# In the directory of a seed.
STEPS = "steps.json"
LINEAR_START = "linear_start.safetensors"
INT8 = "int8"
HEADS = "heads."  # with which the names of a head's weights begin
MIN_INT8_STEPS = 20
INT8_RATE = 0.2  # of the peak learning rate before
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


def train(plan: Plan, model: Model, seed: int, run: Run, directory: Path) -> Course:
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


def train_float(plan: Plan, model: Model, seed: int, run: Run, directory: Path) -> tuple[Course, TrainingOptions]:
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
