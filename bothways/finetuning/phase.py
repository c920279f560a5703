"""The phases of one training: in floating point, and with --quantize then with fake int8 layers (Jacob 2018).

Each phase has its options and checkpoints; the order of the examples goes on from one to the next.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from bothways.batching import batch_fingerprint, spread_evenly
from bothways.checkpoint.weights import write_weights
from bothways.device import STEPS_BEFORE_CAP, cap_retained_memory, retain_freed_memory
from bothways.finetuning.averaging import select_fraction, trained_state
from bothways.finetuning.plan import Plan
from bothways.finetuning.resume import fingerprint_examples
from bothways.finetuning.trial import Trial, read_or_choose_steps
from bothways.log import logger
from bothways.model.int8 import round_table
from bothways.model.int8_training import CALIBRATION_EXAMPLES, calibrate_fake_int8, read_examples
from bothways.model.model import Model
from bothways.training.loop import fit
from bothways.training.losses import forward_losses
from bothways.training.progress import TrainingProgress
from bothways.training.run import Run
from bothways.training.run_checkpoints import Checkpoints, TrainingState
from bothways.training.schedule import TrainingOptions

STEPS, LINEAR_START, HEADS, INT8 = "plan.json", "linear_start.safetensors", "heads.", "int8"
INT8_SHARE, MIN_INT8_STEPS = 1 / 3, 20  # of the steps before
INT8_RATE = 0.2  # of the peak learning rate before


@dataclass(frozen=True)
class Phase:
    """A part of a training. title: for the progress. directory: for checkpoints. steps_before: of the earlier parts."""

    title: str
    directory: Path
    options: TrainingOptions
    steps_before: int = 0


def train(plan: Plan, model: Model, seed: int, run: Run, directory: Path) -> int:
    """Train a model with one seed, in place: afterwards it has the weights that were selected on dev. Returns the step
    of these weights; 0: those before the training. directory: for the files of a resumed run."""
    if plan.options.device.type == "cpu":
        retain_freed_memory()
    best_step, options = train_float(plan, model, seed, run, directory)
    if plan.quantizes:
        train_int8(plan, model, options, run, directory / INT8)
    return best_step


def train_float(plan: Plan, model: Model, seed: int, run: Run, directory: Path) -> tuple[int, TrainingOptions]:
    """The training in floating point: linear start, trials, training, and the selection of a point on the way. Returns
    the step of the weights, and the options."""
    name = f"seed {seed}" if plan.fold is None else f"fold {plan.fold + 1}"
    if plan.options.evaluate_first:
        with run.timed("linear_start"):
            fit_or_read_head(plan, model, directory / LINEAR_START)
    initial = trained_state(model) if plan.averages else {}
    with run.timed("trial"):
        steps = read_or_choose_steps(directory / STEPS, Trial(plan, model, seed))
    run.update_metadata(steps=steps.steps, steps_per_epoch=steps.steps_per_epoch, learning_rate=steps.learning_rate)
    options = replace(
        plan.options,
        seed=seed,
        steps=steps.steps,
        learning_rate=steps.learning_rate,
        evaluate_every=steps.evaluate_every,
    )
    progress, _ = train_phase(plan, model, Phase(f"fine-tuning, {name}", directory, options), run)
    if progress.stopped_at:
        logger.info(f"stopped at step {progress.step:,} of {options.steps:,} ({name}), as training no longer paid")
    keeps_initial = initial and options.steps and select_fraction(plan, model, initial) == 0
    return 0 if keeps_initial else progress.best_step, options


def train_int8(plan: Plan, model: Model, before: TrainingOptions, run: Run, directory: Path) -> None:
    """Turn on the rounding of a trained model and train it on. The best weights on dev are kept, those before this
    training included. before: options of the training before."""
    seed, metric, steps = before.seed, plan.task.metric, max(MIN_INT8_STEPS, round(INT8_SHARE * before.steps))
    score = plan.task.scoring.evaluate(plan.inference_copy(model), "dev")[metric]
    with run.timed("calibration"):
        calibrate(plan, model)
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
    objective, options, before, scores = plan.objective, phase.options, phase.steps_before, list[float]()
    fingerprint = fingerprint_examples(plan.examples)
    checkpoints = Checkpoints(phase.directory, keep=1, order={"examples": fingerprint}, at_end=False)
    resumed = checkpoints.load_latest(options.dtype) if checkpoints.exist else None
    first_step = resumed.progress.step if resumed else 0
    run.truncate_metrics(before + first_step if resumed else before or -1, options.seed)
    keys = {"seed": options.seed} if plan.fold is None else {"seed": options.seed, "fold": plan.fold}
    with TrainingProgress(phase.title, options.steps) as bar:

        def record(row: dict[str, Any]) -> None:
            if row["split"] == "heldout":
                scores.append(row[plan.task.metric])
            run.log_metrics(**{**row, "step": before + row["step"]}, **keys)
            if row["step"] == first_step + STEPS_BEFORE_CAP and options.device.type == "cpu":
                cap_retained_memory()
            bar.show(row)

        progress = fit(
            objective.module(model, options.seed),
            forward_losses(objective),
            objective.counts,
            lambda first: plan.steps(options.seed, before + first),
            options,
            evaluate=lambda: plan.task.scoring.evaluate(model, "dev"),
            record=record,
            checkpoints=checkpoints,
            start=resumed,
            fingerprint=batch_fingerprint,
        )
    return progress, scores


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
