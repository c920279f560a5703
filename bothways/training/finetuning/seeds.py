"""The trainings of a run: first of its folds, then of the model of the run. A resumed run finds each result that was
stored."""

import json
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, flag, format_count
from bothways.base.io import reserve_space, write_atomic
from bothways.base.log import logger, muted
from bothways.base.progress import working
from bothways.measure import metrics
from bothways.model.checkpoint.weights import WEIGHTS, write_weights
from bothways.model.model import Model
from bothways.model.parameters import fingerprint_weights
from bothways.tasks.scores import Predictions
from bothways.tasks.training_task import Metrics, Scoring, calibration_errors
from bothways.text.rows.datasets import unread_splits_warning
from bothways.training.finetuning.division import plan_minutes
from bothways.training.finetuning.ground import baselines
from bothways.training.finetuning.ground.baselines import BASELINES
from bothways.training.finetuning.ground.epochs import log_epochs
from bothways.training.finetuning.ground.score import THIS_MODEL, Score
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.training import fingerprint_examples, train, trained_state
from bothways.training.run import Run
from bothways.training.run_checkpoints import FOLDER

SEEDS = "seeds"
SCORES = "scores.json"
RESERVED_BYTES = 2**18  # for a seed's metrics, its course, and the header of its weights


@dataclass(frozen=True)
class SeedResult:
    """The result of one training.

    seed: of the training.
    fold: the part of the rows that it was not trained on; None: a training of the model of the run.
    metrics: by split, with 95 % intervals.
    scores: of the metric, by split.
    predictions: for the rows of the fold.
    calibration: as bothways.json has it.
    teacher: the teacher's own scores by split.
    baselines: scores of simple models on the same rows; the first seed has them for all seeds.
    """

    seed: int
    fold: int | None
    metrics: Mapping[str, Metrics]
    scores: Mapping[str, Score]
    predictions: Predictions | None
    calibration: Mapping[str, Any] | None
    teacher: Mapping[str, Score]
    baselines: list[Score]

    def write(self, file: Path) -> None:
        """Store all but the baselines, which have their own file."""
        stored = {
            "metrics": self.metrics,
            "resamples": {split: score.resamples_json() for split, score in self.scores.items()},
            "predictions": self.predictions and self.predictions.to_json(),
            "calibration": self.calibration,
            "teacher": {split: (score.value, score.interval) for split, score in self.teacher.items()},
        }
        write_atomic(file, json.dumps(stored))

    @staticmethod
    def read(file: Path, metric: str, seed: int, fold: int | None) -> "SeedResult":
        """The stored result of a seed, with the baselines beside it. metric: of the task."""
        stored = json.loads(file.read_text(encoding="utf-8"))
        baselines_file = file.with_name(BASELINES)
        return SeedResult(
            seed=seed,
            fold=fold,
            metrics=stored["metrics"],
            scores={
                split: Score.from_json(THIS_MODEL, stored["metrics"][split][metric], resamples)
                for split, resamples in stored["resamples"].items()
            },
            predictions=stored["predictions"] and Predictions.from_json(stored["predictions"]),
            calibration=stored["calibration"],
            teacher={split: Score("teacher", *score) for split, score in stored["teacher"].items()},
            baselines=baselines.read(baselines_file) if baselines_file.exists() else [],
        )


def train_seeds(plan: Plan, run: Run, *, folds_only: bool = False) -> list[SeedResult]:
    """Train and score a model for each fold and each seed; folds_only: without the model of the run."""
    if not plan.follows_few:
        logger.info(plan.task.report.describe())
    if plan.teacher:
        with run.timed("teacher"):
            _ = plan.teacher_outputs  # computed here
    log_start(plan)
    plan_minutes(plan, run)

    results: list[SeedResult] = []
    for number, (seed, fold) in enumerate(plan.trainings):
        if fold is None and folds_only:
            break
        plan.budget.trainings = plan.num_trainings - number
        if results and results[-1].fold is not None and fold is None:
            logger.info("final model: trained on all folds, except a tenth that selects its weights")

        # A resumed run reads the results of the seeds that are done.
        file = seed_directory(run.directory, seed) / SCORES
        if not file.exists():
            train_seed(plan.of_fold(fold), seed, run, file, is_first=seed == plan.seeds[0])
        results.append(SeedResult.read(file, plan.task.metric, seed, fold))
        if fold is None:
            log_seed(plan, results[-1])
    return results


def train_seed(plan: Plan, seed: int, run: Run, file: Path, *, is_first: bool) -> None:
    """Train with one seed, and store the weights and, in the file, the result.

    plan: of the run or of a fold.
    seed: of the training.
    run: whose metrics are recorded.
    file: for the result.
    is_first: whether it is the first seed, whose messages hold for all.

    OSError, before the training, if the disk has no space for them.
    """
    is_fold = plan.fold is not None
    directory = file.parent
    if plan.compares and not plan.few and (is_fold or (is_first and not plan.num_folds)):
        with run.timed("baselines"):
            split = "test" if is_fold else plan.split
            baselines.score(plan.task, split, directory / BASELINES, plan.budget)

    with nullcontext() if is_first else muted():
        model = plan.prepare_model(seed).model
    if is_first and plan.uses_default_rate:
        rate = plan.options.learning_rate
        width = model.config.hidden_size
        logger.info(f"peak learning rate {rate:.1e}, for a width of {width} ({flag('learning_rate')})")

    # A full disk is noticed before the training, not after it.
    directory.mkdir(parents=True, exist_ok=True)
    reserved = directory / "room"
    num_bytes = sum(value.nbytes for value in trained_state(model).values())
    reserve_space(reserved, num_bytes + RESERVED_BYTES)
    course = train(plan, model, seed, run, directory)

    with working("scores"):
        result = score(plan, model, seed, course.selected_step)
    reserved.unlink()
    course.write(directory)
    if not is_fold:
        write_weights(trained_state(model), directory / WEIGHTS)
    result.write(file)
    shutil.rmtree(directory / FOLDER, ignore_errors=True)
    if is_fold:
        log_fold(plan, result)


def score(plan: Plan, model: Model, seed: int, best_step: int) -> SeedResult:
    """Score a trained model on dev and test."""
    task = plan.task
    scoring = task.scoring
    trained = plan.inference_copy(model)
    outputs = {"dev": scoring.outputs(trained, "dev")}
    calibration = scoring.calibrate("dev", outputs["dev"]) if plan.fold is None else None
    if best_step == 0 and plan.fold is None and not task.needs_gain:
        logger.info(f"seed {seed}: {task.initial_model} was best on dev; kept")
    if "test" in task.data:
        outputs["test"] = scoring.outputs(trained, "test")

    metrics_by_split: dict[str, Metrics] = {}
    scores: dict[str, Score] = {}
    for split, values in outputs.items():
        # The thresholds of labels are fitted to dev, so they decide on test only.
        if split == "test":
            scoring = scoring.decided_by(calibration)
        metrics_by_split[split], scores[split] = metrics_and_score(scoring, split, values)
        metrics_by_split[split] |= calibration_errors(scoring, split, values, calibration)
        metrics_by_split[split] |= {"best_step": best_step}

    return SeedResult(
        seed=seed,
        fold=plan.fold,
        metrics=metrics_by_split,
        scores=scores,
        predictions=None if plan.fold is None else scoring.predictions("test", outputs["test"]),
        calibration=calibration.to_json() if calibration else None,
        teacher=plan.teacher_outputs.scores if plan.teacher_outputs else {},
        baselines=[],
    )


def metrics_and_score(scoring: Scoring, split: str, outputs: Any) -> tuple[Metrics, Score]:
    """Metrics of a split with their 95 % intervals and the number of `rows`, and the score of the metric."""
    values = scoring.compute_metrics(split, outputs)
    predictions = scoring.predictions(split, outputs)
    scores = scoring.score_predictions(predictions)
    intervals = {name: scores[f"{name}_interval"] for name in values if f"{name}_interval" in scores}
    num_rows = {"rows": len(predictions.where)}
    score = Score.of_scores(THIS_MODEL, scores, scoring.metric, values[scoring.metric])
    return metrics.with_intervals(values, intervals) | num_rows, score


def seed_directory(directory: Path, seed: int) -> Path:
    """Where the weights and the result of a seed are stored until all seeds of a run are done."""
    return directory / SEEDS / str(seed)


def log_start(plan: Plan) -> None:
    """Log warnings about the data, and the length of the training."""
    if plan.unscored:
        logger.info(plan.unscored)
    elif not plan.num_folds:
        num_rows = plan.task.report.num_rows(plan.split)
        few_rows = metrics.few_rows_warning(num_rows, "rows", plan.split)
        if few_rows:
            logger.info(few_rows)

    if not plan.skips_training:
        log_epochs(plan.epochs, plan.task.min_steps, plan.epoch(0))

    num_processes = plan.processes.world_size
    if num_processes > 1 and plan.task.objective.ranks_batch:
        logger.warning(f"each of {num_processes} processes has its own negatives: those of its part of the step")

    unread = unread_splits_warning(plan.sources["train"], plan.sources["dev"], plan.sources["test"])
    if unread:
        logger.info(unread)


def log_seed(plan: Plan, result: SeedResult) -> None:
    """Log the scores of a training of the model of the run."""
    if plan.unscored:
        logger.info(f"seed {result.seed}: trained")
        return
    metric = plan.task.metric
    scores = ", ".join(f"{split} {metric} {values[metric]:.4f}" for split, values in result.metrics.items())
    logger.info(f"seed {result.seed}: {scores}")


def log_fold(plan: Plan, result: SeedResult) -> None:
    """Log the score of a fold."""
    num_rows = plan.task.report.num_rows
    metric = plan.task.metric
    logger.info(
        f"fold {(plan.fold or 0) + 1} of {plan.num_folds}: {metric} "
        f"{result.metrics['test'][metric]:.4f} of {format_count(num_rows('test'), 'row')}, trained on "
        f"{num_rows('train'):,}, weights selected on {num_rows('dev'):,}"
    )


def check_same(plan: Plan) -> None:
    """InputError if processes have different training examples or models to start from."""
    if plan.processes.world_size == 1:
        return

    names = ("training examples", "weights to start from")
    fingerprints = (
        fingerprint_examples(plan.task.data["train"]),
        fingerprint_weights(plan.task.pretrained.model),
    )
    first, *others = plan.processes.gather(fingerprints)
    for rank, other in enumerate(others, 1):
        for name, expected, fingerprint in zip(names, first, other, strict=True):
            if fingerprint != expected:
                raise InputError(f"process {rank} has other {name} than process 0; all machines need the same files")


def check_unchanged(plan: Plan, run: Run) -> None:
    """InputError if a resumed run was started with other examples or other weights, or with another teacher."""
    task = plan.task
    sources = plan.sources
    fingerprints = {split: fingerprint_examples(examples) for split, examples in task.data.items()}
    recorded = run.metadata.get("examples", fingerprints)
    changed = [split for split in fingerprints if fingerprints[split] != recorded.get(split)]
    if changed:
        raise InputError(
            f"{run.directory}: the run was started with other examples of {changed[0]}; give the same files, or a new "
            "directory"
        )

    weights = {"start": fingerprint_weights(task.pretrained.model)}
    if plan.teacher:
        weights["teacher"] = fingerprint_weights(plan.teacher.checkpoint.model)
    source_by_name = {"start": sources["model"], "teacher": sources["teacher"]}
    for name, fingerprint in weights.items():
        if run.metadata.get(name, fingerprint) != fingerprint:
            raise InputError(
                f"{run.directory}: the weights in {source_by_name[name]} have changed since the run was started; "
                "restore them, or give a new directory"
            )

    rows = {split: task.report.num_rows(split) for split in fingerprints}
    run.update_metadata(examples=fingerprints, **weights, rows=rows)
