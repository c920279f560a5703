"""The run that trains TF-IDF on enough rows: fitted to train, with the penalty selected on dev, scored on test or in
cross-validation. It takes seconds and draws no random numbers, so that a resumed run repeats it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bothways.base.log import logger, muted
from bothways.model.checkpoint.description import Description
from bothways.tasks.linear_baselines import METHODS
from bothways.tasks.scores import Predictions
from bothways.tasks.texts import TextTask
from bothways.tasks.training_task import Metrics
from bothways.training.finetuning.compare import verdict, with_trivial
from bothways.training.finetuning.ground.baselines import mean_scores
from bothways.training.finetuning.ground.score import Score
from bothways.training.finetuning.model_scores import CrossValidation, ModelScores
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.run_models import RunTfidf
from bothways.training.finetuning.run_scores import RunScores, differences
from bothways.training.finetuning.seeds import SeedResult, log_fold, log_start, metrics_and_score
from bothways.training.run import Run


def fit_tfidf(plan: Plan, run: Run) -> RunScores:
    """Fit TF-IDF, score it, and compare it with the trivial baseline and with frozen static vectors."""
    logger.info(plan.task.report.describe())
    log_start(plan)

    with run.timed("tfidf"):
        folds = [fit_fold(plan, fold) for fold in range(plan.num_folds)]
        model = fit_model(plan, folds)

    if not plan.compares:
        return RunScores(model)
    with run.timed("baselines"):
        of_rows = mean_scores([fold.baselines for fold in folds]) if folds else score_baselines(plan, plan.split)

    baselines = with_trivial(plan, model.scores, of_rows)
    text = verdict(model, baselines, differences(model.scores, baselines), plan, {})
    return RunScores(model=model, baselines=baselines, model_verdict=text, verdict=text)


def fit_model(plan: Plan, folds: Sequence[SeedResult]) -> RunTfidf:
    """The model of the run. folds: the results of its cross-validation, if there is one."""
    task = text_task(plan)
    seed = plan.seeds[0]
    splits = [split for split in ("dev", "test") if split in task.data]
    measured = {split: measure(plan, split) for split in splits}

    scores = ModelScores(
        task=task,
        split=plan.split,
        metrics_by_seed={seed: {split: values for split, (values, _, _) in measured.items()}},
        kept=seed,
        resampled=measured[plan.split][1],
        predictions={split: predictions for split, (_, _, predictions) in measured.items()},
    )
    if folds:
        cross_validation = CrossValidation.of(plan, folds)
        scores = replace(scores, folds=cross_validation, resampled=cross_validation.score)

    # A model of standardized numbers gives numbers in their own unit when it is saved.
    mean = float(task.outputs_of(np.zeros((1, 1)))[0]) if task.linear_kind == "number" else 0.0
    return RunTfidf(
        name=f"TF-IDF + {METHODS[task.linear_kind]}",
        model=task.tfidf_model.scaled(task.output_scale, mean),
        scores=scores,
        described=describe_labels(task),
    )


def fit_fold(plan: Plan, fold: int) -> SeedResult:
    """The result of a model of the other folds on the rows of this one."""
    with muted():
        of_fold = plan.of_fold(fold)
        values, score, predictions = measure(of_fold, "test")
        baselines = score_baselines(of_fold, "test") if plan.compares else []

    result = SeedResult(
        seed=plan.seeds[0] + 1 + fold,
        fold=fold,
        metrics={"test": values},
        scores={"test": score},
        predictions=predictions,
        calibration=None,
        teacher={},
        baselines=baselines,
    )
    log_fold(of_fold, result)
    return result


def measure(plan: Plan, split: str) -> tuple[Metrics, Score, Predictions]:
    """Metrics, score and predictions of TF-IDF on a split, fitted to train."""
    task = text_task(plan)
    table = task.tables[split]
    scores_NC = task.tfidf_model(table.texts, table.pairs).astype(np.float32)
    outputs = task.outputs_of(scores_NC)
    values, score = metrics_and_score(task.scoring, split, outputs)
    return {**values, "best_step": 0}, score, task.scoring.predictions(split, outputs)


def score_baselines(plan: Plan, split: str) -> list[Score]:
    """Scores of linear models over frozen static vectors on a split, fitted to train."""
    task = text_task(plan)
    return [Score.of(one.name, task, one.predictions) for one in task.baselines(split, words=False)]


def text_task(plan: Plan) -> TextTask:
    """The task, which is one of whole texts."""
    assert isinstance(plan.task, TextTask)
    return plan.task


def describe_labels(task: TextTask) -> Description:
    """The labels of a model of a task."""
    with muted():
        initial = task.initial_checkpoint(task.settings.seed)
    return Description(labels=initial.labels, multi_label=initial.multi_label)
