"""Selection of the model of a run among its seeds, and its reported scores.

In cross-validation (Stone 1974) each fold is predicted by a model trained on the other folds, and the model of the run
is trained on all folds by the same recipe. The delivered model is trained on more rows than the model of a fold, so the
cross-validated score is slightly pessimistic. The trainings share most of their rows: the deviation over folds is the
uncertainty of the score of one fold, the interval over all rows is the uncertainty of the score of all folds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from safetensors.torch import load_file

from bothways.base.errors import location_fields
from bothways.base.io import write_atomic
from bothways.base.log import muted
from bothways.measure import metrics
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.weights import WEIGHTS
from bothways.tasks.scores import Predictions
from bothways.tasks.training_task import Metrics, TrainingTask, baseline_metrics
from bothways.training.finetuning.baselines import BaselineScore, Resamples, mean_scores
from bothways.training.finetuning.linear_candidates import FewRows, LinearCandidate
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.seeds import SeedResult, seed_directory

FOLDS = "folds"  # name of the "split" that is reported
OUT_OF_FOLD = "out-of-fold.jsonl"


@dataclass(frozen=True)
class Score:
    """The score of a model: a metric on a split, over seeds or folds.

    mean, std: None without a score. n: number of seeds or folds; failed: of those no better than the trivial baseline.
    scores: of each seed or fold, by split. interval: 95 % interval; its bounds are averaged over seeds. rows: number of
    rows in the split. frozen: whether the encoder is the pre-trained one, since training it was not better on dev.
    pooled: in cross-validation, the metric of all rows together, to which the interval belongs.
    """

    interval: Sequence[float] | None
    rows: int
    metric: str
    split: str
    selected_on: str
    mean: float | None
    std: float | None
    n: int
    failed: int
    scores: Mapping[str, Sequence[float]]
    kept_seed: int
    frozen: bool
    pooled: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "pooled" or value is not None}


@dataclass(frozen=True)
class CrossValidation:
    """Results of cross-validation.

    metrics, baselines (empty if not requested) and predictions have an entry per fold. scores: the scores of all rows
    together, each with its 95 % interval as NAME_interval. resamples: of the mean over folds; with `is_pooled`, which
    is for folds of a few rows, the score of all rows together is reported instead of that mean, and resampled; metrics
    has one entry, of all rows.
    """

    metrics: Sequence[Metrics]
    baselines: Sequence[Sequence[BaselineScore]]
    predictions: Sequence[Predictions]
    scores: Mapping[str, Any]
    resamples: Resamples
    is_pooled: bool = False

    @staticmethod
    def of(plan: Plan, folds: Sequence[SeedResult]) -> "CrossValidation":
        predictions = [fold.predictions for fold in folds if fold.predictions]
        scores = plan.task.scoring.score_predictions(Predictions.joined(predictions))
        resamples = Resamples.mean([fold.resamples["test"] for fold in folds], same_rows=False)
        fold_metrics = [fold.metrics["test"] for fold in folds]
        return CrossValidation(
            metrics=fold_metrics,
            baselines=[fold.baselines for fold in folds],
            predictions=predictions,
            scores=scores,
            resamples=resamples,
        )

    @staticmethod
    def out_of_fold(few: FewRows, candidate: LinearCandidate) -> "CrossValidation":
        """That of a linear model of few rows, by the folds of the score: the score of all rows together."""
        scoring = few.task.scoring
        whole = few.predictions(candidate)
        scores = scoring.score_predictions(whole)
        values = scoring.compute_metrics("train", few.task.outputs_of(candidate.scores_NC))
        resamples = Resamples.of(scores, few.task.metric)
        return CrossValidation(
            metrics=[values],
            baselines=(),
            predictions=[*map(whole.take, few.score_folds)],
            scores=scores,
            resamples=resamples,
            is_pooled=True,
        )

    @property
    def all_predictions(self) -> Predictions:
        return Predictions.joined(self.predictions)

    def values(self, name: str) -> list[float]:
        """One score for each fold."""
        return [values[name] for values in self.metrics]

    def failed(self, metric: str) -> list[int]:
        """Folds whose model is no better than the trivial baseline; none if each has a few rows."""
        if self.is_pooled:
            return []
        return [fold for fold, values in enumerate(self.metrics) if values[metric] <= values["baseline"]]

    def score(self, of_seeds: Score) -> Score:
        """Mean and deviation over folds, the score of all rows together and its interval. of_seeds: the score of the
        model of the run."""
        metric = of_seeds.metric
        pooled = self.scores[metric]
        values = [pooled] if self.is_pooled else self.values(metric)
        mean, std = metrics.mean_and_std(values)
        failed = int(pooled <= fmean(self.values("baseline"))) if self.is_pooled else len(self.failed(metric))
        interval = self.scores[f"{metric}_interval"]
        rows = sum(len(one.where) for one in self.predictions)
        of_folds = replace(of_seeds, mean=mean, std=std, n=len(values), failed=failed, pooled=pooled, interval=interval)
        return replace(of_folds, split=FOLDS, scores={FOLDS: values, **of_seeds.scores}, rows=rows)

    def baseline_scores(self, task: TrainingTask) -> list[BaselineScore]:
        """The mean of each baseline over folds."""
        return mean_scores(self.baselines)

    def of_baseline(self, task: TrainingTask, name: str) -> "CrossValidation":
        """The cross-validation of a baseline whose predictions are stored."""
        chosen = [score for scores in self.baselines for score in scores if score.name == name]
        predictions = [score.predictions for score in chosen if score.predictions]
        by_fold = [task.scoring.score_predictions(rows) for rows in predictions]
        fold_metrics = [baseline_metrics(values, scores) for values, scores in zip(self.metrics, by_fold, strict=True)]
        scores = task.scoring.score_predictions(Predictions.joined(predictions))
        resamples = Resamples.mean([Resamples.of(one, task.metric) for one in by_fold], same_rows=False)
        return CrossValidation(
            metrics=fold_metrics,
            baselines=(),
            predictions=predictions,
            scores=scores,
            resamples=resamples,
        )

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


@dataclass(frozen=True)
class ModelScores:
    """Scores of a model.

    metrics_by_seed: by seed and split; kept: the seed of the model. resamples: of the score. predictions: a baseline's
    predictions by split, which the report shows instead of the encoder's.
    """

    task: TrainingTask
    split: str
    metrics_by_seed: Mapping[int, Mapping[str, Metrics]]
    kept: int
    resamples: Resamples
    folds: CrossValidation | None = None
    predictions: Mapping[str, Predictions] | None = None

    @property
    def by_split(self) -> Mapping[str, Metrics]:
        """The metrics of the kept seed."""
        return self.metrics_by_seed[self.kept]

    @property
    def trivial(self) -> float:
        """The metric of the trivial baseline on dev, or on the only split."""
        values = self.by_split.get("dev") or self.by_split[self.split]
        trivial: float = values["baseline"]
        return trivial

    @property
    def failed(self) -> list[int]:
        """Seeds no better than the trivial baseline."""
        values = {seed: by_split[self.split] for seed, by_split in self.metrics_by_seed.items()}
        return [seed for seed in values if values[seed][self.task.metric] <= values[seed]["baseline"]]

    @property
    def score(self) -> Score:
        metric = self.task.metric
        by_seed = self.metrics_by_seed.values()
        scores = {name: [by_split[name][metric] for by_split in by_seed] for name in self.by_split}
        mean, std = metrics.mean_and_std(scores[self.split])
        intervals = [by_split[self.split][f"{metric}_interval"] for by_split in by_seed]

        score = Score(
            interval=[*map(fmean, zip(*intervals, strict=True))],
            rows=self.by_split[self.split]["rows"],
            metric=metric,
            split=self.split,
            selected_on="dev" if "dev" in self.by_split else "out-of-fold",
            mean=mean,
            std=std,
            n=len(self.metrics_by_seed),
            failed=len(self.failed),
            scores=scores,
            kept_seed=self.kept,
            frozen=all(values["best_step"] == 0 for values in self.by_split.values()),
        )

        return self.folds.score(score) if self.folds else score

    def of_baseline(self, score: BaselineScore, dev: Predictions) -> "ModelScores":
        """Those of a baseline whose predictions are stored. dev: its predictions on dev."""
        folds = self.folds and self.folds.of_baseline(self.task, score.name)
        predictions = {"dev": dev}

        if not folds and score.predictions:
            predictions[self.split] = score.predictions

        values = {
            name: baseline_metrics(self.by_split[name], self.task.scoring.score_predictions(rows))
            for name, rows in predictions.items()
        }

        assert score.resamples is not None
        split = "dev" if folds else self.split

        return ModelScores(
            task=self.task,
            split=split,
            metrics_by_seed={self.kept: values},
            kept=self.kept,
            resamples=score.resamples,
            folds=folds,
            predictions=predictions,
        )


@dataclass(frozen=True)
class Selection:
    """The trained model of a run, the result of its seed, and its scores. baselines: scores of simple models on the
    same rows. calibration: as bothways.json has it."""

    model: Checkpoint
    kept: SeedResult
    scores: ModelScores
    baselines: Sequence[BaselineScore]
    calibration: Mapping[str, Any] | None


def select(plan: Plan, results: Sequence[SeedResult], directory: Path) -> Selection:
    """Select the model of the best seed on dev, or with folds the one that is trained on all of them.

    directory: of the run, which has the weights.
    """
    task = plan.task
    seeds = {result.seed: result for result in results if result.fold is None}
    kept = seeds[best_seed({seed: one.metrics["dev"][task.metric] for seed, one in seeds.items()})]

    with muted():
        model = plan.prepare_model(kept.seed)
    model.model.load_state_dict(load_file(seed_directory(directory, kept.seed) / WEIGHTS), strict=False)

    calibration = kept.calibration
    resamples = [one.resamples[plan.split] for one in seeds.values()]
    metrics_by_seed = {seed: one.metrics for seed, one in seeds.items()}
    scores = ModelScores(
        task=task,
        split=plan.split,
        metrics_by_seed=metrics_by_seed,
        kept=kept.seed,
        resamples=Resamples.mean(resamples, same_rows=True),
    )

    baselines = seeds[plan.seeds[0]].baselines

    if plan.few and plan.few.folds:
        folds = CrossValidation.out_of_fold(plan.few, plan.few.scored(plan.few.chosen))
        scores = replace(scores, folds=folds, resamples=folds.resamples)
        baselines = []
        if plan.compares:
            others = [candidate for candidate in plan.few.others if candidate is not plan.few.chosen]
            scored = [*map(plan.few.scored, others)]
            baselines = [BaselineScore.of(one.name, plan.few.task, plan.few.predictions(one)) for one in scored]
    elif plan.num_folds:
        folds = CrossValidation.of(plan, [result for result in results if result.fold is not None])
        scores = replace(scores, folds=folds, resamples=folds.resamples)
        baselines = folds.baseline_scores(task) if plan.compares else []
        if of_folds := task.scoring.calibrate_folds(folds.all_predictions):
            calibration = of_folds.to_json()

    return Selection(
        model=model,
        kept=kept,
        scores=scores,
        baselines=baselines,
        calibration=calibration,
    )


def best_seed(scores: Mapping[int, float]) -> int:
    """The seed with the best score, the first of equal ones."""
    return max(scores, key=lambda seed: (scores[seed], -seed))
