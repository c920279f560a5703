"""The trainings of a run: those of the folds, then those of the model of the run. What is done is stored for a resumed
run."""

import json
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
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
from bothways.text.data.datasets import unread_splits_warning
from bothways.training.finetuning import baselines
from bothways.training.finetuning.baselines import BASELINES, BaselineScore, Resamples
from bothways.training.finetuning.division import plan_minutes
from bothways.training.finetuning.plan import Plan, log_epochs
from bothways.training.finetuning.training import fingerprint_examples, train, trained_state
from bothways.training.run import Run
from bothways.training.run_checkpoints import FOLDER

SEEDS, SCORES = "seeds", "scores.json"
RESERVED_BYTES = 2**18  # for a seed's metrics, its course, and the header of its weights


@dataclass(frozen=True)
class SeedResult:
    """The result of one training.

    fold: the part of the rows that it was not trained on; None: a training of the model of the run. metrics: by split,
    with 95 % intervals; resamples: of the metric. predictions: for the rows of the fold. baselines: scores of simple
    models on the same rows; those of all seeds are with the first. calibration: as bothways.json has it. teacher: the
    teacher's own scores by split.
    """

    seed: int
    fold: int | None
    metrics: Mapping[str, Metrics]
    resamples: Mapping[str, Resamples]
    predictions: Predictions | None
    calibration: Mapping[str, Any] | None
    teacher: Mapping[str, BaselineScore]
    baselines: list[BaselineScore]

    def write(self, file: Path) -> None:
        """Store all but the baselines, which have their own file."""
        stored = {
            "metrics": self.metrics,
            "resamples": {split: values.to_json() for split, values in self.resamples.items()},
            "predictions": self.predictions and asdict(self.predictions),
            "calibration": self.calibration,
            "teacher": {split: (score.value, score.interval) for split, score in self.teacher.items()},
        }
        write_atomic(file, json.dumps(stored))

    @staticmethod
    def read(file: Path, seed: int, fold: int | None) -> "SeedResult":
        stored, scored = json.loads(file.read_text(encoding="utf-8")), file.with_name(BASELINES)
        resamples = {split: Resamples.from_json(values) for split, values in stored["resamples"].items()}
        predictions = stored["predictions"] and Predictions(**stored["predictions"])
        teacher = {split: BaselineScore("teacher", *score) for split, score in stored["teacher"].items()}
        simple = baselines.read(scored) if scored.exists() else []
        values, calibration = stored["metrics"], stored["calibration"]
        return SeedResult(seed, fold, values, resamples, predictions, calibration, teacher, simple)


def train_seeds(plan: Plan, run: Run, *, folds_only: bool = False) -> list[SeedResult]:
    """Train and score a model for each fold and each seed; folds_only: without the model of the run."""
    if not plan.follows_few:
        logger.info(plan.task.summary.describe())
    if plan.teacher:
        with run.timed("teacher"):
            _ = plan.teacher_outputs  # computed here
    log_start(plan)
    plan_minutes(plan, run)
    results = list[SeedResult]()
    for number, (seed, fold) in enumerate(plan.trainings):
        if fold is None and folds_only:
            break
        plan.budget.trainings = plan.num_trainings - number
        if results and results[-1].fold is not None and fold is None:
            logger.info("final model: trained on all folds, except a tenth that selects its weights")
        file = seed_directory(run.directory, seed) / SCORES
        if not file.exists():
            train_seed(plan.of_fold(fold), seed, run, file, is_first=seed == plan.seeds[0])
        results.append(SeedResult.read(file, seed, fold))
        if fold is None:
            values = results[-1].metrics.items()
            scores = ", ".join(f"{split} {plan.task.metric} {one[plan.task.metric]:.4f}" for split, one in values)
            logger.info(f"seed {seed}: {'trained' if plan.unscored else scores}")
    return results


def train_seed(plan: Plan, seed: int, run: Run, file: Path, *, is_first: bool) -> None:
    """Train with one seed, and store the weights and, in the file, the result.

    OSError, before the training, if the disk has no space for them.
    """
    is_fold, directory = plan.fold is not None, file.parent
    if plan.compares and not plan.few and (is_fold or (is_first and not plan.num_folds)):
        with run.timed("baselines"):
            split = "test" if is_fold else plan.split
            baselines.score(plan.task, split, directory / BASELINES, plan.budget)
    with nullcontext() if is_first else muted():
        model = plan.prepare_model(seed).model
    if is_first and plan.uses_default_rate:
        rate, width = plan.options.learning_rate, model.config.hidden_size
        logger.info(f"peak learning rate {rate:.1e}, for a width of {width} ({flag('learning_rate')})")
    directory.mkdir(parents=True, exist_ok=True)
    reserved = directory / "room"
    reserve_space(reserved, sum(value.nbytes for value in trained_state(model).values()) + RESERVED_BYTES)
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
    task, scoring, trained = plan.task, plan.task.scoring, plan.inference_copy(model)
    outputs = {"dev": scoring.outputs(trained, "dev")}
    calibration = scoring.calibrate("dev", outputs["dev"]) if plan.fold is None else None
    if best_step == 0 and plan.fold is None and not task.needs_gain:
        logger.info(f"seed {seed}: {task.initial_model} was best on dev; kept")
    if "test" in task.data:
        outputs["test"] = scoring.outputs(trained, "test")
    metrics_by_split, resamples = dict[str, Metrics](), dict[str, Resamples]()
    for split, values in outputs.items():
        if split == "test":  # the thresholds of labels are fitted to dev
            scoring = scoring.decided_by(calibration)
        metrics_by_split[split], resamples[split] = metrics_with_resamples(scoring, split, values)
        metrics_by_split[split] |= calibration_errors(scoring, split, values, calibration) | {"best_step": best_step}
    predictions = None if plan.fold is None else scoring.predictions("test", outputs["test"])
    calibrated = calibration.to_json() if calibration else None
    teacher = plan.teacher_outputs.scores if plan.teacher_outputs else {}
    return SeedResult(seed, plan.fold, metrics_by_split, resamples, predictions, calibrated, teacher, [])


def metrics_with_resamples(scoring: Scoring, split: str, outputs: Any) -> tuple[Metrics, Resamples]:
    """Metrics of a split with their 95 % intervals and the number of `rows`, and the resamples of the metric."""
    values, predictions = scoring.compute_metrics(split, outputs), scoring.predictions(split, outputs)
    scores = scoring.score_predictions(predictions)
    intervals = {name: scores[f"{name}_interval"] for name in values if f"{name}_interval" in scores}
    rows = {"rows": len(predictions.where)}
    return metrics.with_intervals(values, intervals) | rows, Resamples.of(scores, scoring.metric)


def seed_directory(directory: Path, seed: int) -> Path:
    """Where the weights and the result of a seed are stored until all seeds of a run are done."""
    return directory / SEEDS / str(seed)


def log_start(plan: Plan) -> None:
    """Log warnings about the data, and the length of the training."""
    if plan.unscored:
        logger.info(plan.unscored)
    elif not plan.num_folds and (
        warning := metrics.few_rows_warning(plan.task.summary.num_rows(plan.split), "rows", plan.split)
    ):
        logger.info(warning)
    if not plan.skips_training:
        log_epochs(plan.epochs, plan.task.min_steps, plan.epoch(0))
    if (num_processes := plan.processes.world_size) > 1 and plan.task.objective.ranks_batch:
        logger.warning(f"each of {num_processes} processes has its own negatives: those of its part of the step")
    if warning := unread_splits_warning(*(plan.sources[split] for split in ("train", "dev", "test"))):
        logger.info(warning)


def log_fold(plan: Plan, result: SeedResult) -> None:
    num_test, num_train, num_dev = (plan.task.summary.num_rows(split) for split in ("test", "train", "dev"))
    logger.info(
        f"fold {(plan.fold or 0) + 1} of {plan.num_folds}: {plan.task.metric} "
        f"{result.metrics['test'][plan.task.metric]:.4f} of {format_count(num_test, 'row')}, trained on {num_train:,}, "
        f"weights selected on {num_dev:,}"
    )


def check_same(plan: Plan) -> None:
    """InputError if processes have different training examples or models to start from."""
    if plan.processes.world_size == 1:
        return
    facts = fingerprint_examples(plan.task.data["train"]), fingerprint_weights(plan.task.pretrained.model)
    first, *others = plan.processes.gather(facts)
    for rank, other in enumerate(others, 1):
        for name, one, theirs in zip(("training examples", "weights to start from"), first, other, strict=True):
            if one != theirs:
                raise InputError(f"process {rank} has other {name} than process 0; all machines need the same files")


def check_unchanged(plan: Plan, run: Run) -> None:
    """InputError if a resumed run was started with other examples or other weights, or with another teacher."""
    task, sources = plan.task, plan.sources
    examples = {split: fingerprint_examples(examples) for split, examples in task.data.items()}
    recorded = run.metadata.get("examples", examples)
    if changed := [split for split in examples if examples[split] != recorded.get(split)]:
        raise InputError(
            f"{run.directory}: the run was started with other examples of {changed[0]}; give the same files, or a new "
            "directory"
        )
    weights = {"start": fingerprint_weights(task.pretrained.model)}
    if plan.teacher:
        weights["teacher"] = fingerprint_weights(plan.teacher.checkpoint.model)
    for name, source in (("start", sources["model"]), ("teacher", sources["teacher"])):
        if name in weights and run.metadata.get(name, weights[name]) != weights[name]:
            raise InputError(
                f"{run.directory}: the weights in {source} have changed since the run was started; restore them, or "
                "give a new directory"
            )
    run.update_metadata(examples=examples, **weights, rows={split: task.summary.num_rows(split) for split in examples})
