"""Fine-tuning runs: train each seed or fold, select weights on dev, score, report.

Fine-tuning is that of Devlin 2018, section 4. Several seeds are reported with mean and standard deviation, since single
runs mislead (Dodge 2020; Mosbach 2021).
"""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file

from bothways import metrics
from bothways.batch import Batch
from bothways.batching import batch_fingerprint
from bothways.checkpoint import checkpoint
from bothways.checkpoint.checkpoint import unread_warning
from bothways.checkpoint.contents import Checkpoint
from bothways.checkpoint.description import METADATA_FILE, read_metadata
from bothways.checkpoint.formats.format import ONLY_BOTHWAYS
from bothways.checkpoint.formats.tfidf import ENCODER, write_tfidf
from bothways.checkpoint.weights import WEIGHTS, write_weights
from bothways.data.datasets import unread_splits_warning
from bothways.device import STEPS_BEFORE_CAP, cap_retained_memory, choose_device, retain_freed_memory
from bothways.errors import InputError, for_caller
from bothways.finetuning import baselines
from bothways.finetuning.averaging import select_fraction, trained_state
from bothways.finetuning.baselines import BASELINES, MODEL, SAVED, TFIDF, BaselineScore, Comparison, Resamples
from bothways.finetuning.cross_validation import CrossValidation, cross_validate, plan_scores
from bothways.finetuning.quantized import train_int8
from bothways.finetuning.recipe import format_learning_rates
from bothways.finetuning.rehearsal import Rehearsal, read_or_make_plan
from bothways.finetuning.report import write_report
from bothways.finetuning.resume import LinearStart, check_unchanged, fingerprint_examples
from bothways.finetuning.setup import FineTuneSetup, build_setup
from bothways.finetuning.teacher import Lessons, Teacher, load_teacher
from bothways.io import reserve_space, write_atomic
from bothways.log import logger, muted, working
from bothways.model.model import Model
from bothways.report import plot
from bothways.settings.finetune import FineTune
from bothways.tasks import TASK, task_from_heads
from bothways.tasks.class_decoding import CALIBRATION
from bothways.tasks.scores import Predictions
from bothways.tasks.training_task import (
    RESAMPLES,
    Metrics,
    Summary,
    TrainingTask,
    baseline_metrics,
    calibration_errors,
    metrics_with_intervals,
)
from bothways.training.loop import fit
from bothways.training.losses import forward_losses
from bothways.training.progress import TrainingProgress
from bothways.training.run import Callbacks, Run, read_metrics
from bothways.training.run_checkpoints import FOLDER, Checkpoints
from bothways.training.transforms import DivideScores, finalize_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bothways.inference.predictor import Predictor

SEEDS, SCORES, PLAN, INT8 = "seeds", "scores.json", "plan.json", "int8"
ENCODER_FACTS = ("mean", "std", "n", "failed", "interval", "scores", "pooled")  # beside the result of TF-IDF
OPTIONAL = "pooled baselines verdict dtype delivered encoder teacher readers measured".split()  # of a result
UNSCORED = {"mean": None, "std": None, "interval": None, "failed": 0}  # the result of a run without a score
RESERVED_BYTES = 2**18  # for a seed's metrics and the header of its weights


@dataclass(frozen=True)
class FineTuneResult:
    """Result of a run: mean and standard deviation of the metric on `split`, over seeds or folds, for the kind of model
    that is in `model`.

    failed: number of seeds or folds no better than the trivial baseline. interval: 95 % interval (bounds averaged over
    seeds). rows: number of rows in the split. pooled: in cross-validation, the metric of all rows together, to which
    the interval belongs. baselines: the metric of simple models on the same rows; verdict: whether fine-tuning beats
    the best of them. frozen: whether the encoder of the saved model is the pre-trained one, since training it was not
    better on dev. dtype: the number format in which the encoder was scored; "" if unknown. delivered: name of the
    baseline that is in `model` instead, since the 95 % interval of its lead on dev is above 0; the encoder is beside
    it, and `encoder` has its mean, std, interval and scores. teacher: the teacher's own metric by split, if there is a
    teacher. readers: a line on which libraries read the model, if transformers does not read all of it.
    measured: what the score is where a table has too few rows for a test split: "out-of-fold, 16 rows, 4 folds, frozen
    vectors". With too few for that, mean and std are nan, and the verdict is the reason.
    """

    directory: Path
    model: Path
    task: str
    metric: str
    split: str
    mean: float
    std: float
    failed: int
    scores: list[float]
    interval: tuple[float, float] | None
    rows: int | None
    pooled: float | None = None
    baselines: dict[str, float] = field(default_factory=dict)
    verdict: str = ""
    frozen: bool = False
    dtype: str = ""
    delivered: str = ""
    encoder: dict[str, Any] = field(default_factory=dict)
    teacher: dict[str, float] = field(default_factory=dict)
    readers: str = ""
    measured: str = ""

    def load(self, **options: Any) -> "Predictor":
        """The saved model. options: those of `bothways.load`."""
        from bothways.inference.load import load

        return load(self.model, **options)

    def plot(self, file: str | Path | None = None) -> "Figure":
        """Loss, metric and learning rate over steps as a matplotlib figure, which is also written to `file`."""
        figures = read_metadata(self.directory / METADATA_FILE).get("figures", {})
        levels = {"baseline": figures["dev"]["baseline"]} if "dev" in figures else {}
        rows = read_metrics(self.directory)
        return plot.draw_curves(rows, title=f"Fine-tuning, {self.task}", levels=levels, metric=self.metric, file=file)

    def _repr_html_(self) -> str:
        """The scores as a table, in notebooks."""
        interval = "{:.4f} to {:.4f}".format(*self.interval) if self.interval else ""
        rows = [("this model", self.mean, interval)]
        rows += [("fine-tuned encoder", self.encoder["mean"], "")] if self.encoder else []
        rows += [(name, score, "") for name, score in self.baselines.items()]
        body = "".join(
            f"<tr><td>{escape(name)}</td><td>{score:.4f}</td><td>{interval}</td></tr>" for name, score, interval in rows
        )
        score = f"{escape(self.metric)} {escape(self.measured) or f'on {self.split}'}"
        head = f"<tr><th>{escape(self.task)}</th><th>{score}</th><th>95 %</th></tr>"
        report = self.directory / "report.html"
        return f"<table>{head}{body}</table><p>{escape(for_caller(self.verdict))}</p><p>{escape(str(report))}</p>"


def run(
    settings: FineTune, build_task: Callable[[FineTune, int | None], TrainingTask], callbacks: Callbacks = ()
) -> FineTuneResult:
    """Fine-tune in a run directory. build_task: creates the task, or in cross-validation the task of a fold."""
    if (processes := os.environ.get("WORLD_SIZE") or "1") != "1":
        raise InputError(f"fine-tuning uses a single process, but WORLD_SIZE is {processes}; start it without torchrun")
    choose_device(settings.device)  # before any work
    with working("reading the data"):
        plan = plan_scores(settings, build_task)
    settings = plan.settings
    setup = build_setup(settings, plan.task, plan.measured, plan.unscored)
    teacher = load_teacher(setup.task)
    with Run(
        settings.out,
        f"finetune {setup.task.name}",
        settings,
        resume=settings.resume,
        device=setup.options.device,
        callbacks=callbacks,
    ) as run:
        return run_seeds(setup, run, plan.fold_setup(build_task), teacher)


def run_seeds(
    setup: FineTuneSetup,
    run: Run,
    build_fold: Callable[[int], FineTuneSetup] | None = None,
    teacher: Teacher | None = None,
) -> FineTuneResult:
    """Train with each seed, keep the best or median model by dev, and report on test, or else on dev.

    With folds, the scores are those of cross-validation, and the model is trained on all folds afterwards.
    """
    task = setup.task
    if len(task.data["train"].sizes) < 2:
        raise InputError(f"{setup.sources['train']}: only one training example; at least two are needed{task.hint}")
    check_unchanged(task, run, setup.sources, teacher.checkpoint.model if teacher else None)
    if "result" in run.metadata:
        logger.info(f"{run.directory}: the run is already done")
        return read_result(run, task.name)
    split = "test" if "test" in task.data else "dev"
    logger.info(task.summary.describe())
    lessons = None
    if teacher:
        with run.timed("teacher"):
            lessons = teacher.teach()
    log_start(setup, split, lessons)

    folds, baseline_scores = None, list[BaselineScore]()
    if setup.folds and build_fold:
        folds = cross_validate(setup, build_fold, partial(train_fold, run=run, teacher=teacher), run.directory / SEEDS)
        baseline_scores = folds.baseline_scores(task)
        except_dev = "" if task.stays_frozen else ", except a tenth that selects its weights"
        logger.info(f"final model: trained on all folds{except_dev}")
    elif setup.compares:
        with run.timed("baselines"):
            baseline_scores = baselines.score(task, split, run.directory / SEEDS / BASELINES)

    metrics_by_seed: dict[int, dict[str, Metrics]] = {}
    for seed in setup.seeds:
        is_first = seed == setup.seeds[0]
        with nullcontext() if is_first else muted():
            initial = setup.prepare_model(seed)
        if is_first:
            log_learning_rates(setup, initial.model)
        metrics_by_seed[seed] = run_seed(setup, initial.model, seed, run, lessons)
        scores = (f"{name} {task.metric} {values[task.metric]:.4f}" for name, values in metrics_by_seed[seed].items())
        logger.info(f"seed {seed}: {'trained' if setup.unscored else ', '.join(scores)}")
    kept = select_seed(
        {seed: by_split["dev"][task.metric] for seed, by_split in metrics_by_seed.items()}, setup.keep_seed
    )
    initial.model.load_state_dict(load_file(seed_directory(run, kept) / WEIGHTS), strict=False)
    by_seed = [values[split][RESAMPLES] for values in metrics_by_seed.values()]
    resamples = Resamples.mean([*map(Resamples.from_json, by_seed)], same_rows=True)
    dev = metrics_by_seed[kept]["dev"]
    calibration = dev.get(CALIBRATION)
    if folds and (of_folds := task.scoring.calibrate_folds(folds.all_predictions)):
        calibration = of_folds.to_json()
    metrics_by_seed = {seed: without_details(values) for seed, values in metrics_by_seed.items()}
    if calibration:
        DivideScores(calibration["temperature"]).finalize(initial.model)

    trained = Outcome(task, split, metrics_by_seed, kept, folds)
    trained.result |= facts_of_score(setup, lessons)
    facts, delivered, comparison = facts_for_inference(task, metrics_by_seed[kept], initial), trained, None
    if setup.compares:
        trivial = fmean(folds.values("baseline")) if folds else metrics_by_seed[kept][split]["baseline"]
        rivals = [BaselineScore(task.scoring.trivial_baseline, trivial, None), *baseline_scores]
        trained.compare(rivals, folds.resamples if folds else resamples)
        described = replace(initial, metadata=facts)
        with run.timed("baselines"):
            delivered = choose_model(setup, trained, rivals, dev, described, run)
        comparison = Comparison(rivals, delivered.result["verdict"])
    if delivered.folds:
        delivered.folds.write_predictions(run.directory)
    write_report(
        setup,
        run,
        initial.model,
        delivered.metrics_by_seed,
        kept=kept,
        failed=failed_seeds(task, split, delivered.metrics_by_seed),
        folds=delivered.folds,
        comparison=comparison,
        delivered=delivered.predictions,
        result=delivered.result,
        teacher=lessons.scores if lessons else {},
    )
    stored = finalize_all(setup.transforms, initial.model)
    metadata = {**run.origin, "result": trained.result, **facts, **stored}
    if calibration:
        metadata[CALIBRATION] = calibration
    saved = replace(initial, metadata=metadata)
    checkpoint.save(saved, run.directory / (MODEL if delivered is trained else ENCODER))
    if delivered is trained and (line := unread_warning(saved)):
        delivered.result["readers"] = line
    # Last: it marks the run as done.
    run.update_metadata(result=delivered.result, figures=delivered.metrics_by_seed[kept])
    shutil.rmtree(run.directory / SEEDS)
    return read_result(run, task.name)


def facts_for_inference(
    task: TrainingTask, metrics_by_split: Mapping[str, Metrics], model: Checkpoint
) -> dict[str, Any]:
    """What inference needs besides weights and labels. metrics_by_split: of the model."""
    facts = task.metadata(metrics_by_split)
    return facts if task_from_heads(model.model.num_outputs, model) == task.name else {**facts, TASK: task.name}


def facts_of_score(setup: FineTuneSetup, lessons: Lessons | None) -> dict[str, Any]:
    """What is reported beside the score of the encoder: the number format, on what it was measured, or why there is
    none, and the scores of the teacher."""
    facts: dict[str, Any] = {"dtype": str(setup.options.dtype).removeprefix("torch.")}
    if setup.unscored:
        facts |= UNSCORED | {"verdict": setup.unscored}
    elif setup.measured:
        facts["measured"] = setup.measured
    if lessons:
        facts["teacher"] = {name: score.value for name, score in lessons.scores.items()}
    return facts


def run_seed(
    setup: FineTuneSetup, model: Model, seed: int, run: Run, lessons: Lessons | None = None
) -> dict[str, Metrics]:
    """Train with one seed and store its weights and metrics by split, which a resumed run reads.

    OSError, before the training, if the disk has no space for them.
    """
    file = seed_directory(run, seed) / SCORES
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        reserved = file.with_name("room")
        reserve_space(reserved, sum(value.nbytes for value in trained_state(model).values()) + RESERVED_BYTES)
        metrics_by_split = train_and_score(setup, model, seed, run, lessons)
        reserved.unlink()
        write_weights(trained_state(model), file.with_name(WEIGHTS))
        write_atomic(file, json.dumps(metrics_by_split))
        shutil.rmtree(file.with_name(FOLDER), ignore_errors=True)
    stored: dict[str, Metrics] = json.loads(file.read_text(encoding="utf-8"))
    return stored


def train_and_score(
    setup: FineTuneSetup, model: Model, seed: int, run: Run, lessons: Lessons | None = None
) -> dict[str, Metrics]:
    """Train and return the metrics by split. Afterwards the model has the weights that were selected on dev."""
    trained, best_step = train(setup, model, seed, run, lessons=lessons)
    if setup.quantizes:
        trained = train_int8(setup, model, seed, run, lessons, seed_directory(run, seed) / INT8)
    with working("scores"):
        return score_splits(setup, model, trained, seed, best_step, run)


def score_splits(
    setup: FineTuneSetup, model: Model, trained: Model, seed: int, best_step: int, run: Run
) -> dict[str, Metrics]:
    """The metrics by split of a trained model, whose copy for inference is `trained`."""
    task, scoring = setup.task, setup.task.scoring
    outputs = {"dev": scoring.outputs(trained, "dev")}
    calibration = scoring.calibrate("dev", outputs["dev"])
    if setup.stays_frozen:
        with run.timed("linear_start"):
            task.fit_head(model, splits=("train", "dev"))
        trained = setup.inference_copy(model)
    elif best_step == 0:
        logger.info(f"seed {seed}: {task.initial_model} was best on dev; kept")
    if "test" in task.data:
        outputs["test"] = scoring.outputs(trained, "test")
    metrics_by_split = {
        split: {
            **metrics_with_intervals(scoring, split, values),
            **calibration_errors(scoring, split, values, calibration),
            "best_step": best_step,
        }
        for split, values in outputs.items()
    }
    if calibration:
        metrics_by_split["dev"][CALIBRATION] = calibration.to_json()
    return metrics_by_split


def train_fold(
    setup: FineTuneSetup, model: Model, seed: int, *, fold: int, run: Run, teacher: Teacher | None
) -> tuple[Model, int]:
    """Train on the training rows of a fold."""
    with muted():
        lessons = Teacher.of(setup.task, teacher.checkpoint).teach() if teacher else None
    return train(setup, model, seed, run, fold, lessons)


def train(
    setup: FineTuneSetup, model: Model, seed: int, run: Run, fold: int | None = None, lessons: Lessons | None = None
) -> tuple[Model, int]:
    """Train with one seed, perhaps on the training rows of a fold. lessons: of a teacher, if there is one.

    Afterwards the model has the weights that were selected on dev. Returns a copy for inference, and the step of these
    weights.
    """
    task, source, batch_plan = setup.task, lessons or setup.task, setup.batches
    if setup.options.device.type == "cpu":
        retain_freed_memory()
    objective, directory = setup.objective(lessons), seed_directory(run, seed)

    def batches(first_step: int) -> Iterator[Sequence[Batch]]:
        for examples, rows in islice(batch_plan.steps(source, seed), first_step, None):
            yield [examples.batch(part) for part in batch_plan.micro_batches(rows, examples.sizes)]

    fingerprint = fingerprint_examples((lessons.task if lessons else task).data["train"])
    checkpoints = Checkpoints(directory, keep=1, order={"examples": fingerprint}, at_end=False)
    resumed = checkpoints.load_latest(setup.options.dtype) if (directory / FOLDER).exists() else None
    first_step = resumed.progress.step if resumed else 0
    run.truncate_metrics(first_step if resumed else -1, seed)
    if setup.options.evaluate_first:
        with run.timed("linear_start"):
            LinearStart(directory).apply(task, model)
    initial = trained_state(model) if setup.averages else {}
    with run.timed("rehearsal"):
        epoch = batch_plan.epoch(source, seed)
        rehearsal = Rehearsal(setup, model, objective, batches, seed, epoch.tokens / epoch.steps)
        plan = read_or_make_plan(directory / PLAN, rehearsal, epoch)
    run.update_metadata(steps=plan.steps, steps_per_epoch=plan.steps_per_epoch, learning_rate=plan.learning_rate)
    options = replace(
        setup.options,
        seed=seed,
        steps=plan.steps,
        learning_rate=plan.learning_rate,
        evaluate_every=plan.evaluate_every,
    )
    keys = {"seed": seed} if fold is None else {"seed": seed, "fold": fold}
    name = f"seed {seed}" if fold is None else f"fold {fold + 1}"
    with TrainingProgress(f"fine-tuning, {name}", options.steps) as bar:

        def record(row: dict[str, Any]) -> None:
            run.log_metrics(**row, **keys)
            if row["step"] == first_step + STEPS_BEFORE_CAP and options.device.type == "cpu":
                cap_retained_memory()
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
    if progress.stopped_at:
        logger.info(f"stopped at step {progress.step:,} of {options.steps:,} ({name}), as training no longer paid")
    best_step = progress.best_step
    if initial and options.steps and select_fraction(setup, model, initial) == 0:
        best_step = 0
    return setup.inference_copy(model), best_step


def log_start(setup: FineTuneSetup, split: str, lessons: Lessons | None = None) -> None:
    """Log warnings about the data, and the length of the training."""
    task, sources = setup.task, setup.sources
    if setup.unscored:
        logger.info(setup.unscored)
    elif not setup.folds and (warning := metrics.few_rows_warning(task.summary.num_rows(split), "rows", split)):
        logger.info(warning)
    if setup.stays_frozen:
        logger.info(describe_frozen(task.summary))
    elif not setup.skips_training:
        setup.length.log(setup.batches.epoch(lessons or task, 0))
    if warning := unread_splits_warning(sources["train"], sources["dev"], sources["test"]):
        logger.info(warning)


def describe_frozen(summary: Summary) -> str:
    return (
        f"{summary.num_development_rows} examples are too few to measure whether training the encoder helps: it stays "
        "frozen, and its linear head is fitted to all of them (dev is scored by a head fitted to train only); "
        "--epochs 10 trains the encoder too"
    )


def log_learning_rates(setup: FineTuneSetup, model: Model) -> None:
    """Log learning rates that the user did not set."""
    if setup.options.layer_decay < 1:
        logger.info(format_learning_rates(setup.learning_rates(model)))
    elif setup.uses_default_rate:
        rate, width = setup.options.learning_rate, model.config.hidden_size
        logger.info(f"peak learning rate {rate:.1e}, for a width of {width} (--learning-rate)")


def select_seed(scores: Mapping[int, float], keep_seed: str) -> int:
    """The seed with the best or the median score (the lower of two medians)."""
    ranked = sorted(scores, key=lambda seed: (scores[seed], -seed))
    return ranked[-1] if keep_seed == "best" else ranked[(len(ranked) - 1) // 2]


def failed_seeds(task: TrainingTask, split: str, metrics_by_seed: Mapping[int, Mapping[str, Metrics]]) -> list[int]:
    """Seeds no better than the trivial baseline."""
    values = {seed: by_split[split] for seed, by_split in metrics_by_seed.items()}
    return [seed for seed in values if values[seed][task.metric] <= values[seed]["baseline"]]


def summarize(
    task: TrainingTask, split: str, metrics_by_seed: Mapping[int, Mapping[str, Metrics]], kept: int
) -> dict[str, Any]:
    """The `result` of bothways.json."""
    scores = {
        name: [by_split[name][task.metric] for by_split in metrics_by_seed.values()] for name in metrics_by_seed[kept]
    }
    mean, std = metrics.mean_and_std(scores[split])
    intervals = [by_split[split][f"{task.metric}_interval"] for by_split in metrics_by_seed.values()]
    return {
        "interval": [*map(fmean, zip(*intervals, strict=True))],
        "rows": metrics_by_seed[kept][split]["rows"],
        "metric": task.metric,
        "split": split,
        "selected_on": "dev",
        "mean": mean,
        "std": std,
        "n": len(metrics_by_seed),
        "failed": len(failed_seeds(task, split, metrics_by_seed)),
        "scores": scores,
        "kept_seed": kept,
        "frozen": metrics_by_seed[kept]["dev"]["best_step"] == 0,
    }


def without_details(metrics_by_split: Mapping[str, Metrics]) -> dict[str, Metrics]:
    return {
        split: {name: value for name, value in values.items() if name not in (RESAMPLES, CALIBRATION)}
        for split, values in metrics_by_split.items()
    }


class Outcome:
    """What is reported of a model: metrics by seed and split, the `result` of bothways.json, and the folds of
    cross-validation. predictions: those of a baseline by split, which the report shows instead of the encoder's."""

    def __init__(
        self,
        task: TrainingTask,
        split: str,
        metrics_by_seed: Mapping[int, dict[str, Metrics]],
        kept: int,
        folds: CrossValidation | None,
        predictions: Mapping[str, Predictions] | None = None,
    ) -> None:
        self.metrics_by_seed, self.kept, self.folds, self.predictions = metrics_by_seed, kept, folds, predictions
        self.result = summarize(task, split, metrics_by_seed, kept)
        if folds:
            summary = folds.summary(task.metric)
            self.result |= summary | {"scores": summary["scores"] | self.result["scores"]}

    def compare(self, scores: Sequence[BaselineScore], resamples: Resamples) -> None:
        """Add the baselines' scores to the result. resamples: of the model's score."""
        self.result["baselines"] = {score.name: score.value for score in scores}
        self.result["baseline_intervals"] = {score.name: score.interval for score in scores if score.interval}
        self.result["differences"] = {score.name: score.difference(self.result["mean"], resamples) for score in scores}

    def of_baseline(self, task: TrainingTask, score: BaselineScore, dev: Predictions) -> "Outcome":
        """The outcome of a baseline whose predictions are stored. dev: its predictions on dev."""
        by_split, split = self.metrics_by_seed[self.kept], self.result["split"]
        folds = self.folds and self.folds.of_baseline(task, score.name)
        predictions = {"dev": dev}
        if not folds and score.predictions:
            predictions[split] = score.predictions
        values = {
            name: baseline_metrics(by_split[name], task.scoring.score_predictions(rows))
            for name, rows in predictions.items()
        }
        return Outcome(task, "dev" if folds else split, {self.kept: values}, self.kept, folds, predictions)


def choose_model(
    setup: FineTuneSetup,
    trained: Outcome,
    scores: Sequence[BaselineScore],
    dev: Mapping[str, Any],
    described: Checkpoint,
    run: Run,
) -> Outcome:
    """The outcome of the model that the run delivers, with the verdict: the encoder, or TF-IDF where it is clearly
    better on dev. TF-IDF is also saved beside the encoder, unless that is clearly better on the reported rows.

    trained: the encoder's outcome. dev: its metrics on dev, with their resamples. described: has the labels and the
    metadata of the task.
    """
    task, result = setup.task, trained.result
    verdict = partial(baselines.verdict, result, model=str(setup.sources["model"]), few=setup.stays_frozen)
    score = next((score for score in scores if score.name.startswith(TFIDF)), None)
    if score is None or score.resamples is None:
        result["verdict"] = verdict()
        return trained
    baseline = next(task.baselines("dev"))  # fitted again: it takes seconds, and nothing is kept in memory
    assert baseline.model is not None
    lead = baselines.lead_on_dev(task, baseline, dev)
    is_delivered = setup.delivers_tfidf and lead[0] > metrics.TIE
    is_saved = not is_delivered and not baselines.is_clearly_better(result, score.name)
    result["verdict"] = verdict(run.directory / SAVED if is_saved else None)
    if not is_delivered and not is_saved:
        return trained
    tfidf = trained.of_baseline(task, score, baseline.predictions)
    tfidf.compare(scores, score.resamples)
    if is_delivered:
        facts = {name: result[name] for name in ENCODER_FACTS if name in result}
        text = baselines.delivered_verdict(score.name, lead, dev["rows"], result["verdict"])
        line = f"{ONLY_BOTHWAYS.format(score.name)}; the fine-tuned encoder is in {run.directory / ENCODER}"
        tfidf.result |= {"delivered": score.name, "encoder": facts, "verdict": text, "readers": line}
    metadata = {**run.origin, "result": tfidf.result, **described.metadata}
    write_tfidf(
        baseline.model, replace(described, metadata=metadata), run.directory / (MODEL if is_delivered else SAVED)
    )
    return tfidf if is_delivered else trained


def read_result(run: Run, task: str) -> FineTuneResult:
    """The result of a run that is done."""
    result = run.metadata["result"]
    values = {name: result[name] for name in ("metric", "split", "mean", "std", "failed", "rows", "frozen")}
    optional = {name: result[name] for name in OPTIONAL if name in result}
    if result["mean"] is None:
        values |= {"mean": math.nan, "std": math.nan}
    return FineTuneResult(
        run.directory,
        run.directory / MODEL,
        task,
        scores=[] if result["mean"] is None else result["scores"][result["split"]],
        interval=result["interval"] and tuple(result["interval"]),
        **values,
        **optional,
    )


def seed_directory(run: Run, seed: int) -> Path:
    """Where a seed's weights and metrics are stored until all seeds are done."""
    return run.directory / SEEDS / str(seed)
