"""The last part of a training with --quantize: with fake int8 layers, from the best float weights (Jacob 2018)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from bothways.batch import Batch
from bothways.batching import batch_fingerprint, token_batches
from bothways.evaluation.before_after import spread_evenly
from bothways.finetuning.setup import FineTuneSetup
from bothways.finetuning.teacher import Lessons
from bothways.log import logger
from bothways.model.int8 import round_table
from bothways.model.int8_training import calibrate_fake_int8
from bothways.model.model import Model
from bothways.tasks.text_examples import MAX_TOKENS
from bothways.training.loop import fit
from bothways.training.losses import forward_losses
from bothways.training.progress import TrainingProgress
from bothways.training.run import Run
from bothways.training.run_checkpoints import Checkpoints

SHARE, MIN_STEPS = 1 / 3, 20  # of the steps before
RATE = 0.2  # of the peak learning rate before
CALIBRATION_EXAMPLES = 256


def train_int8(
    setup: FineTuneSetup, model: Model, seed: int, run: Run, lessons: Lessons | None, directory: Path
) -> Model:
    """Turn on the rounding of a trained model and train it on; returns a copy for inference. directory: for
    checkpoints.

    The order of the examples goes on where it ended. The best weights on dev are kept, those before this training
    included."""
    task, source, batch_plan = setup.task, lessons or setup.task, setup.batches
    steps_before = run.metadata["steps"]
    steps = max(MIN_STEPS, round(SHARE * steps_before))
    before = task.scoring.evaluate(setup.inference_copy(model), "dev")[task.metric]
    with run.timed("calibration"):
        calibrate(setup, model, lessons)
    objective = setup.objective(lessons)
    words = model.encoder.embeddings.words.weight
    words.requires_grad_(False)  # it has the values that are stored

    def batches(first_step: int) -> Iterator[Sequence[Batch]]:
        for examples, rows in islice(batch_plan.steps(source, seed), steps_before + first_step, None):
            yield [examples.batch(part) for part in batch_plan.micro_batches(rows, examples.sizes)]

    options = replace(
        setup.options,
        seed=seed,
        steps=steps,
        learning_rate=RATE * run.metadata["learning_rate"],
        warmup=0.0,
        evaluate_every=max(1, steps // 4),
        evaluate_first=True,
        keeps_initial=True,
    )
    checkpoints = Checkpoints(directory, keep=1, at_end=False)
    resumed = checkpoints.load_latest(options.dtype) if directory.exists() else None
    first_step = steps_before + (resumed.progress.step if resumed else 0)
    run.truncate_metrics(first_step if resumed else steps_before, seed)
    rounded = []
    with TrainingProgress(f"int8, seed {seed}", steps) as bar:

        def record(row: dict[str, Any]) -> None:
            if row["split"] == "heldout":
                rounded.append(row[task.metric])
            run.log_metrics(**{**row, "step": steps_before + row["step"]}, seed=seed)
            bar.show(row)

        progress = fit(
            objective.module(model, seed),
            forward_losses(objective),
            objective.counts,
            batches,
            options,
            evaluate=lambda: task.scoring.evaluate(model, "dev"),
            record=record,
            checkpoints=checkpoints,
            start=resumed,
            fingerprint=batch_fingerprint,
        )
    words.requires_grad_(True)
    logger.info(
        f"seed {seed}: dev {task.metric} {before:.4f} in floating point, {rounded[0]:.4f} in int8 without training, "
        f"{progress.best or rounded[-1]:.4f} with"
        if rounded
        else f"seed {seed}: int8 was trained before"
    )
    return setup.inference_copy(model)


def calibrate(setup: FineTuneSetup, model: Model, lessons: Lessons | None) -> None:
    """Measure the inputs of the layers on training examples, and round from then on."""
    task = lessons.task if lessons else setup.task
    examples, objective = task.data["train"], setup.task.objective
    rows = spread_evenly(range(len(examples.sizes)), CALIBRATION_EXAMPLES)
    device = setup.options.device
    model.to(device).eval()

    def read() -> None:
        with torch.inference_mode():
            for part in token_batches(rows, examples.sizes, MAX_TOKENS):
                objective.forward(model, examples.batch(part).to(device))

    calibrate_fake_int8(model, read)
    round_table(model)
    model.to("cpu")
