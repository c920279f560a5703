"""The run on few rows: linear models on the frozen encoder and on TF-IDF, each row predicted out-of-fold, and the
chosen model fitted to all rows. It takes seconds, and only its folds depend on random numbers, so that a resumed run
repeats it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bothways.base.errors import flag, format_count
from bothways.base.log import logger, muted
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import Description
from bothways.model.linear.tfidf import TfidfModel
from bothways.tasks.scores import Predictions
from bothways.tasks.training_task import Metrics, TrainingTask
from bothways.text.rows.datasets import unread_splits_warning
from bothways.training.finetuning.compare import is_clearly_better, verdict
from bothways.training.finetuning.fit_tfidf import describe_labels
from bothways.training.finetuning.ground.budget import MARGIN
from bothways.training.finetuning.ground.epochs import num_steps
from bothways.training.finetuning.ground.linear_candidates import FewRows, LinearCandidate
from bothways.training.finetuning.ground.score import THIS_MODEL, Score
from bothways.training.finetuning.model_scores import FOLDS, CrossValidation, ModelScores
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.run_models import RunEncoder, RunModel, RunTfidf
from bothways.training.finetuning.run_scores import RunScores, differences
from bothways.training.finetuning.scored_rows import LINEAR_MODELS
from bothways.training.finetuning.seeds import SeedResult, metrics_and_score
from bothways.training.finetuning.trials import TIMED_STEPS, Trial
from bothways.training.run import Run

TRIES_TRAINING = "tries_training"  # key in bothways.json: whether there was time to try fine-tuning
OTHER_WORK = 1.5  # time of a training relative to its steps: linear start, trials, evaluations


@dataclass(frozen=True)
class Fitted:
    """A candidate, fitted to all rows. task: as the model reads it. model: the encoder with its head, and with TF-IDF
    if that is a part; None for TF-IDF alone, which is then `words`. scores: on test, or out-of-fold; None without."""

    candidate: LinearCandidate
    task: TrainingTask
    model: Checkpoint | None
    words: TfidfModel | None
    scores: ModelScores

    @property
    def predictions(self) -> Predictions:
        """Of the scored rows."""
        if self.scores.folds:
            return self.scores.folds.all_predictions
        assert self.scores.predictions is not None
        return self.scores.predictions[self.scores.split]

    @cached_property
    def score(self) -> Score:
        """For comparison with another candidate on the same rows."""
        return Score.of(self.candidate.name, self.task, self.predictions)

    def encoder(self, few: FewRows) -> RunEncoder:
        """The model, if it has an encoder."""
        assert self.model is not None
        calibration = few.task.scoring.calibrate_folds(few.predictions(self.candidate)) if few.folds else None
        return RunEncoder(
            checkpoint=self.model,
            scores=self.scores,
            calibration=calibration.to_json() if calibration else None,
        )

    def tfidf(self, plan: Plan, described: Description) -> RunTfidf:
        """The model, if it is TF-IDF alone. described: its labels."""
        assert self.words is not None and plan.few is not None
        return RunTfidf(
            name=self.candidate.name,
            model=self.words.scaled(1.0, plan.few.mean_output),
            scores=self.scores,
            described=described,
        )


def fit_few_rows(plan: Plan, run: Run) -> tuple[Plan, RunScores]:
    """Fit and score the linear models, and fit the chosen one to all rows. Returns the plan whose task reads what the
    model reads, and the model with its scores, compared with the other kinds of models."""
    few = plan.few
    assert few is not None

    logger.info(plan.task.report.describe())
    log_reason(plan)

    with run.timed("out_of_fold"):
        chosen = few.chosen

    candidate = chosen if chosen.reads or plan.is_tfidf else few.best_head

    with run.timed("linear_start"):
        fitted = fit_candidate(plan, few, candidate)
        others = list[Fitted]()
        if plan.compares:
            others = [fit_candidate(plan, few, one) for one in few.others if one is not candidate]

    model = fitted.tfidf(plan, describe_labels(few.task)) if plan.is_tfidf else fitted.encoder(few)
    measured = plan.measured.replace(LINEAR_MODELS, chosen.parts)
    plan = replace(plan, task=fitted.task, transforms=(*fitted.task.transforms,), measured=measured)
    return plan, compare_few(plan, chosen, model, others, run)


def log_reason(plan: Plan) -> None:
    """Log why the encoder is not trained."""
    logger.info(plan.reason)
    if plan.unscored:
        logger.info(plan.unscored)
    if warning := unread_splits_warning(*(plan.sources[split] for split in ("train", "dev", "test"))):
        logger.info(warning)


def fit_candidate(plan: Plan, few: FewRows, candidate: LinearCandidate) -> Fitted:
    """Fit a candidate to all rows, and score it."""
    if few.folds:
        candidate = few.scored(candidate)

    task: TrainingTask = few.task
    model = None
    words = few.fit_words(candidate) if candidate.word_share else None
    if candidate.reads is not None:
        with muted():
            task, model = few.fit_head(candidate)
        model = replace(model, words=words)

    return Fitted(
        candidate=candidate,
        task=task,
        model=model,
        words=words,
        scores=measure(plan, few, candidate, model, words),
    )


def measure(
    plan: Plan, few: FewRows, candidate: LinearCandidate, model: Checkpoint | None, words: TfidfModel | None
) -> ModelScores:
    """Scores of a candidate: on the test rows by the model of all rows, or else out-of-fold."""
    seed = plan.seeds[0]
    scoring = few.task.scoring

    if "test" in few.task.data:
        outputs = few.task.outputs_of(few.test_scores(candidate, model, words))
        values, score = metrics_and_score(scoring, "test", outputs)
        predictions = {"test": scoring.predictions("test", outputs)}
        return ModelScores(
            task=few.task,
            split="test",
            metrics_by_seed={seed: {"test": at_start(values)}},
            kept=seed,
            resampled=score,
            folds=None,
            predictions=predictions,
        )

    if not few.folds:
        return unknown_scores(few.task, seed)

    values, score = metrics_and_score(scoring, "train", few.task.outputs_of(candidate.scores_NC))
    folds = CrossValidation.out_of_fold(few, candidate)
    return ModelScores(
        task=few.task,
        split=FOLDS,
        metrics_by_seed={seed: {FOLDS: at_start(values)}},
        kept=seed,
        resampled=score,
        folds=folds,
    )


def at_start(values: Metrics) -> Metrics:
    """The metrics of a model that was not trained."""
    return {**values, "best_step": 0}


def unknown_scores(task: TrainingTask, seed: int) -> ModelScores:
    """Those of a model that no row is left to score."""
    nothing = dict.fromkeys((task.metric, "baseline"), math.nan)
    values = at_start({**nothing, f"{task.metric}_interval": [math.nan, math.nan], "rows": 0})
    return ModelScores(
        task=task,
        split=FOLDS,
        metrics_by_seed={seed: {FOLDS: values}},
        kept=seed,
        resampled=Score(THIS_MODEL, math.nan, resamples_B=np.full(1, np.nan)),
        folds=None,
        predictions={},
    )


def compare_few(plan: Plan, chosen: LinearCandidate, model: RunModel, others: Sequence[Fitted], run: Run) -> RunScores:
    """The comparison with TF-IDF and with the encoder alone. TF-IDF is delivered if it was chosen, and saved beside the
    encoder if that is not clearly better.

    plan: of the run.
    chosen: the candidate with the lowest loss.
    model: fitted to all rows.
    others: that it is compared with.
    run: with the directories of the models.
    """
    if not plan.compares:
        return RunScores(model)

    few = plan.few
    assert few is not None
    split = model.scores.split
    trivial = model.scores.by_split[split]["baseline"]
    baselines = [Score(plan.task.scoring.trivial_baseline, trivial), *(other.score for other in others)]

    rival = None
    is_chosen = False
    for other in others:
        if other.model is not None or few.task.option_set is not None:
            continue
        is_chosen = other.candidate.name == chosen.name and plan.delivers_tfidf
        if is_chosen or not is_clearly_better(model.scores.score.difference(other.score)):
            rival = other.tfidf(plan, model.description)

    saved = {rival.name: run.directory / rival.place} if rival and not is_chosen else {}
    text = verdict(model, baselines, differences(model.scores, baselines), plan, saved)

    delivered = text
    if rival and is_chosen:
        delivered = f"delivered: {rival.name}, whose out-of-fold loss is lower (95 % interval); the encoder: {text}"
    return RunScores(
        model=model,
        baselines=baselines,
        model_verdict=text,
        verdict=delivered,
        rival=rival,
        delivers_rival=is_chosen,
    )


# --- a training that is tried if there is time ------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingTried:
    """A training of the encoder in cross-validation, compared on the same rows with the linear models of the same
    number of folds. is_better: beyond the 95 % interval of the paired difference. line: that in words."""

    is_better: bool
    line: str

    def noted(self, scores: RunScores) -> RunScores:
        """The scores of the linear models that are delivered instead, with this line in the verdict."""
        verdict = f"{self.line}; {scores.verdict}" if scores.verdict else self.line
        return replace(scores, verdict=verdict, model_verdict=verdict)


def plan_training(plan: Plan, run: Run) -> Plan | None:
    """The plan of a training in cross-validation; None if there is no time for it, or no limit of time was given."""
    if plan.build_trained is None or plan.budget.limit is None or plan.processes.world_size > 1:
        return None
    trained = plan.build_trained()
    if TRIES_TRAINING not in run.metadata:
        seconds = estimate_trainings(trained)
        has_time = seconds <= plan.budget.left
        run.update_metadata(**{TRIES_TRAINING: has_time})
        number = format_count(trained.num_folds, "fold")
        if has_time:
            logger.info(f"fine-tuning is tried on {number}, which takes about {seconds / 60:.1f} minutes")
        else:
            minutes = math.ceil((plan.budget.spent + seconds) / 60 / (1 - MARGIN))
            logger.info(f"no time to try fine-tuning on {number}; {flag('minutes', minutes)} has enough")
    return trained if run.metadata[TRIES_TRAINING] else None


def estimate_trainings(plan: Plan) -> float:
    """About how many seconds all trainings of a plan take, by a few steps of the first one."""
    fold = plan.of_fold(0)
    seed = plan.seeds[0]
    with muted():
        model = fold.prepare_model(seed).model
    steps = num_steps(fold.epochs, fold.task.min_steps, fold.epoch(seed))
    _, seconds = Trial(fold, model, seed).run(TIMED_STEPS, fold.options.learning_rate)
    return OTHER_WORK * steps * seconds * plan.num_trainings


def compare_trained(plan: Plan, trained: Plan, results: Sequence[SeedResult]) -> TrainingTried:
    """Compare the folds of a training with the linear models of as many folds."""
    assert plan.few is not None
    few = replace(plan.few, num_folds=trained.num_folds)
    chosen = next(one for one in few.candidates if one.name == plan.few.chosen.name)
    linear = few.predictions(few.scored(chosen))

    by_location = {}
    for result in results:
        assert result.predictions is not None
        for row, where in enumerate(result.predictions.where):
            by_location[str(where)] = result.predictions.take([row])

    same_rows = Predictions.joined(by_location[str(where)] for where in linear.where)
    ours = Score.of("fine-tuned", few.task, replace(same_rows, groups=linear.groups))
    theirs = Score.of(chosen.name, few.task, linear)
    low, high = ours.difference(theirs)
    is_better = is_clearly_better((low, high))

    line = (
        f"fine-tuned on the same {trained.num_folds} folds: {ours.value:.2%} against {theirs.value:.2%}; the "
        f"difference is {100 * low:+.1f} to {100 * high:+.1f} points (95 % interval), so "
        + ("the fine-tuned encoder is delivered" if is_better else "the frozen one is delivered")
    )
    return TrainingTried(is_better, line)
