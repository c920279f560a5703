"""Cross-validation (Stone 1974): each fold is predicted by a model trained on the other folds.

The final model is trained on all folds by the same recipe. It is trained on more rows than the model of a fold, so the
cross-validated score is slightly pessimistic. The trainings share most of their rows: the deviation over folds is the
uncertainty of the score of one fold, the interval over all rows that of the score of all folds.
"""

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from bothways import metrics
from bothways.errors import InputError, format_count, location_fields
from bothways.finetuning import baselines as baseline_scores
from bothways.finetuning.baselines import BASELINES, BaselineScore, Resamples
from bothways.finetuning.setup import FineTuneSetup, build_setup
from bothways.io import write_atomic
from bothways.log import logger, muted
from bothways.model.model import Model
from bothways.settings.finetune import FineTune
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.training_task import Metrics, TrainingTask, baseline_metrics, resamples_of
from bothways.training.run_checkpoints import FOLDER

FOLDS = "folds"  # name of the "split" that is reported
OUT_OF_FOLD, FOLD = "out-of-fold.jsonl", "fold.json"
MIN_TEST_ROWS = 5  # a test split with fewer rows, divided off the training table, judges nothing
ENOUGH_TEST_ROWS = 20  # with fewer, a model whose folds take seconds is cross-validated
SMALL_FOLDS, MIN_FOLDED_ROWS = 4, 10  # of a table with no more test rows, which has this many rows or more


@dataclass(frozen=True)
class ScorePlan:
    """A run and what its score is measured on.

    folds: the tasks of the folds, for a table that is too small for a test split. measured: what the score is, for
    such a table; unscored: why there is no score.
    """

    settings: FineTune
    task: TrainingTask
    folds: Sequence[TrainingTask] = ()
    fold_settings: FineTune | None = None
    measured: str = ""
    unscored: str = ""

    def fold_setup(self, build_task: Callable[[FineTune, int | None], TrainingTask]) -> Callable[[int], FineTuneSetup]:
        """The function that sets up a fold."""
        settings = self.fold_settings or self.settings
        return lambda fold: build_setup(settings, self.folds[fold] if self.folds else build_task(settings, fold))


def plan_scores(settings: FineTune, build_task: Callable[[FineTune, int | None], TrainingTask]) -> ScorePlan:
    """How to score a run. If a test split divided off the training table would have fewer than MIN_TEST_ROWS rows
    (ENOUGH_TEST_ROWS, if the encoder stays frozen), every row is scored by a linear head on frozen vectors that was
    fitted to the other folds; without such a head, or with too few rows for folds, there is no score."""
    task = build_task(settings, None)
    is_split = not (settings.folds or settings.dev or settings.test or settings.teacher or settings.seeds > 1)
    num_test = task.summary.num_rows("test") if is_split else 0
    if not is_split or num_test >= (ENOUGH_TEST_ROWS if task.stays_frozen else MIN_TEST_ROWS):
        return ScorePlan(settings, task)
    num_rows = num_test + task.summary.num_development_rows
    remedy = f"about {10 * MIN_TEST_ROWS} rows, or a file for --test, give one"
    if task.min_folded_rows == math.inf:
        reason = f"{format_count(num_test, 'test row')} of {num_rows} are too few to judge it"
        return ScorePlan(settings, task, unscored=f"no score: {reason}; --folds 5 scores every row; {remedy}")
    folded = replace(settings, folds=SMALL_FOLDS)
    fold_settings = folded if task.stays_frozen else replace(folded, learning_rate=0.0, linear_start=True)
    try:
        folds = [build_task(fold_settings, fold) for fold in range(SMALL_FOLDS)]
        full_task = build_task(folded, None)
    except InputError:  # a part would be empty
        folds = []
    if not folds or num_rows < task.min_folded_rows:
        reason = f"{num_rows} rows are too few for {SMALL_FOLDS} folds"
        few = f"it takes about {max(MIN_FOLDED_ROWS, task.min_folded_rows):g}, or a file for --test"
        return ScorePlan(settings, task, unscored=f"no score: {reason}; {few}")
    measured = f"out-of-fold, {num_rows} rows, {SMALL_FOLDS} folds, frozen vectors"
    return ScorePlan(folded, full_task, folds, fold_settings, measured)


class Train(Protocol):
    """Train a model with a seed. Returns a copy for inference, and the step of its weights."""

    def __call__(self, setup: FineTuneSetup, model: Model, seed: int, *, fold: int) -> tuple[Model, int]: ...


@dataclass(frozen=True)
class CrossValidation:
    """Results of cross-validation.

    metrics, baselines (empty if not requested) and predictions have an entry per fold. scores: the scores of all rows
    together, each with its 95 % interval as NAME_interval. resamples: of the mean over folds; with `is_pooled`, which
    is for folds of a few rows, the score of all rows together is reported instead of that mean, and resampled.
    """

    metrics: Sequence[Metrics]
    baselines: Sequence[Sequence[BaselineScore]]
    predictions: Sequence[Predictions]
    scores: Mapping[str, Any]
    resamples: Resamples
    is_pooled: bool = False

    @property
    def all_predictions(self) -> Predictions:
        return Predictions.joined(self.predictions)

    def values(self, name: str) -> list[float]:
        """One score for each fold."""
        return [values[name] for values in self.metrics]

    @property
    def failed(self) -> list[int]:
        """Folds whose model is no better than the trivial baseline; none if each has a few rows."""
        if self.is_pooled:
            return []
        return [fold for fold, values in enumerate(self.metrics) if values["failed"]]

    def summary(self, metric: str) -> dict[str, Any]:
        """Mean and deviation over folds, the score of all rows together and its interval: `result` in bothways.json."""
        pooled = self.scores[metric]
        values = [pooled] if self.is_pooled else self.values(metric)
        mean, std = metrics.mean_and_std(values)
        failed = int(pooled <= fmean(self.values("baseline"))) if self.is_pooled else len(self.failed)
        return {
            "split": FOLDS,
            "mean": mean,
            "std": std,
            "n": len(values),
            "failed": failed,
            "pooled": pooled,
            "scores": {FOLDS: values},
            "interval": self.scores[f"{metric}_interval"],
            "rows": sum(len(predictions.where) for predictions in self.predictions),
        }

    def baseline_scores(self, task: TrainingTask) -> list[BaselineScore]:
        """The mean of each baseline over folds, or its score on all rows together."""
        if not self.is_pooled:
            return baseline_scores.mean_scores(self.baselines)
        pooled = []
        for parts in zip(*self.baselines, strict=True):
            rows = Predictions.joined([part.predictions for part in parts if part.predictions])
            pooled.append(BaselineScore.of(parts[0].name, task, rows))
        return pooled

    def of_baseline(self, task: TrainingTask, name: str) -> "CrossValidation":
        """The cross-validation of a baseline whose predictions are stored."""
        chosen = [score for scores in self.baselines for score in scores if score.name == name]
        predictions = [score.predictions for score in chosen if score.predictions]
        by_fold = [task.scoring.score_predictions(rows) for rows in predictions]
        fold_metrics = [
            {**baseline_metrics(values, scores), "failed": scores[task.metric] <= values["baseline"]}
            for values, scores in zip(self.metrics, by_fold, strict=True)
        ]
        scores = task.scoring.score_predictions(Predictions.joined(predictions))
        resamples = resample(task, predictions, scores if self.is_pooled else None)
        return CrossValidation(fold_metrics, (), predictions, scores, resamples, self.is_pooled)

    def write_predictions(self, directory: Path) -> None:
        """Write the out-of-fold prediction for every row as JSON lines."""
        lines = [
            json.dumps(
                location_fields(where) | {"fold": fold, "gold": gold, "predicted": predicted, "details": details}
            )
            for fold, rows in enumerate(self.predictions)
            for where, gold, predicted, details in zip(rows.where, rows.gold, rows.predicted, rows.details, strict=True)
        ]
        write_atomic(directory / OUT_OF_FOLD, "".join(f"{line}\n" for line in lines))


def cross_validate(
    setup: FineTuneSetup, build_fold: Callable[[int], FineTuneSetup], train: Train, directory: Path
) -> CrossValidation:
    """Train and score a model for each fold; fold k uses seed + 1 + k.

    setup: of all folds together. build_fold: creates the one whose test split is a fold. directory: has a subdirectory
    per seed, from which a resumed run reads the folds that are done.
    """
    fold_metrics, fold_predictions, fold_baselines = [], [], []
    task, first_seed = setup.task, setup.seeds[0] + 1
    for fold in range(setup.folds):
        file = directory / str(first_seed + fold) / FOLD
        if not file.exists():
            run_fold(build_fold(fold), train, file, seed=first_seed + fold, fold=fold, pooled=bool(setup.measured))
        stored = json.loads(file.read_text(encoding="utf-8"))
        fold_metrics.append(stored["metrics"])
        fold_predictions.append(Predictions(**stored["predictions"]))
        if setup.compares:
            fold_baselines.append(baseline_scores.read(file.with_name(BASELINES)))
    scores, is_pooled = task.scoring.score_predictions(Predictions.joined(fold_predictions)), bool(setup.measured)
    resamples = resample(task, fold_predictions, scores if is_pooled else None)
    return CrossValidation(fold_metrics, fold_baselines, fold_predictions, scores, resamples, is_pooled)


def resample(task: TrainingTask, by_fold: Sequence[Predictions], pooled: Scores | None) -> Resamples:
    """Resamples of the mean over folds; pooled: of these scores of all rows together instead."""
    scores = [task.scoring.score_predictions(rows) for rows in by_fold] if pooled is None else [pooled]
    parts = [Resamples.from_json(resamples_of(values, task.metric)) for values in scores]
    return Resamples.mean(parts, same_rows=False)


def run_fold(setup: FineTuneSetup, train: Train, file: Path, *, seed: int, fold: int, pooled: bool) -> None:
    """Train the model of one fold, and write its metrics and predictions to a file; pooled: of all baselines too."""
    task = setup.task
    if setup.compares:
        baseline_scores.score(task, "test", file.with_name(BASELINES), keep=pooled)
    with muted():
        initial = setup.prepare_model(seed)
    model, _ = train(setup, initial.model, seed, fold=fold)
    task.scoring.evaluate(model, "dev")  # sets what is tuned on dev, such as a threshold
    outputs = task.scoring.outputs(model, "test")
    values = task.scoring.compute_metrics("test", outputs)
    values["failed"] = values[task.metric] <= values["baseline"]
    file.parent.mkdir(parents=True, exist_ok=True)
    predictions = task.scoring.predictions("test", outputs)
    write_atomic(file, json.dumps({"metrics": values, "predictions": asdict(predictions)}))
    shutil.rmtree(file.with_name(FOLDER), ignore_errors=True)
    rows = {split: task.summary.num_rows(split) for split in ("train", "dev", "test")}
    logger.info(
        f"fold {fold + 1} of {setup.folds}: {task.metric} {values[task.metric]:.4f} of "
        f"{format_count(rows['test'], 'row')}, trained on "
        f"{rows['train']:,}, weights selected on {rows['dev']:,}"
    )
