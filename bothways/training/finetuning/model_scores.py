"""The scores of a model of a run: over seeds, or over the folds of a cross-validation.

In cross-validation (Stone 1974) each fold is predicted by a model trained on the other folds, and the model of the run
is trained on all folds by the same recipe. The delivered model is trained on more rows than the model of a fold, so the
cross-validated score is slightly pessimistic. The trainings share most of their rows: the deviation over folds is the
uncertainty of the score of one fold, the interval over all rows is the uncertainty of the score of all folds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from bothways.base.errors import location_fields
from bothways.base.io import write_atomic
from bothways.measure import metrics
from bothways.tasks.scores import Predictions
from bothways.tasks.training_task import Metrics, TrainingTask, baseline_metrics
from bothways.training.finetuning.ground.baselines import mean_scores
from bothways.training.finetuning.ground.linear_candidates import FewRows, LinearCandidate
from bothways.training.finetuning.ground.score import THIS_MODEL, Score
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.seeds import SeedResult

FOLDS = "folds"  # name of the "split" that is reported
OUT_OF_FOLD = "out-of-fold.jsonl"


@dataclass(frozen=True)
class CrossValidation:
    """Results of cross-validation.

    metrics, baselines (empty if not requested) and predictions have an entry per fold. scores: the scores of all rows
    together, each with its 95 % interval as NAME_interval. score: the mean over folds; with `is_pooled`, which
    is for folds of a few rows, the score of all rows together is reported instead of that mean, and resampled; metrics
    has one entry, of all rows.
    """

    metrics: Sequence[Metrics]
    baselines: Sequence[Sequence[Score]]
    predictions: Sequence[Predictions]
    scores: Mapping[str, Any]
    score: Score
    is_pooled: bool = False

    @staticmethod
    def of(plan: Plan, folds: Sequence[SeedResult]) -> "CrossValidation":
        predictions = [fold.predictions for fold in folds if fold.predictions]
        scores = plan.task.scoring.score_predictions(Predictions.joined(predictions))
        score = Score.mean(THIS_MODEL, [fold.scores["test"] for fold in folds], same_rows=False)
        fold_metrics = [fold.metrics["test"] for fold in folds]
        return CrossValidation(
            metrics=fold_metrics,
            baselines=[fold.baselines for fold in folds],
            predictions=predictions,
            scores=scores,
            score=score,
        )

    @staticmethod
    def out_of_fold(few: FewRows, candidate: LinearCandidate) -> "CrossValidation":
        """That of a linear model of few rows, by the folds of the score: the score of all rows together."""
        scoring = few.task.scoring
        whole = few.predictions(candidate)
        scores = scoring.score_predictions(whole)
        values = scoring.compute_metrics("train", few.task.outputs_of(candidate.scores_NC))
        return CrossValidation(
            metrics=[values],
            baselines=(),
            predictions=[*map(whole.take, few.score_folds)],
            scores=scores,
            score=Score.of_scores(THIS_MODEL, scores, few.task.metric),
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

    def summary(self, metric: str) -> dict[str, Any]:
        """Mean and deviation over folds, the score of all rows together and its interval, as bothways.json has them."""
        pooled = self.scores[metric]
        values = [pooled] if self.is_pooled else self.values(metric)
        mean, std = metrics.mean_and_std(values)
        failed = int(pooled <= fmean(self.values("baseline"))) if self.is_pooled else len(self.failed(metric))
        return {
            "interval": self.scores[f"{metric}_interval"],
            "rows": sum(len(rows.where) for rows in self.predictions),
            "split": FOLDS,
            "mean": mean,
            "std": std,
            "n": len(values),
            "failed": failed,
            "scores": {FOLDS: values},
            "pooled": pooled,
        }

    def baseline_scores(self) -> list[Score]:
        """The mean of each baseline over folds."""
        return mean_scores(self.baselines)

    def of_baseline(self, task: TrainingTask, name: str) -> "CrossValidation":
        """The cross-validation of a baseline whose predictions are stored."""
        chosen = [score for scores in self.baselines for score in scores if score.model == name]
        predictions = [score.predictions for score in chosen if score.predictions]
        by_fold = [task.scoring.score_predictions(rows) for rows in predictions]
        fold_metrics = [baseline_metrics(values, scores) for values, scores in zip(self.metrics, by_fold, strict=True)]
        scores = task.scoring.score_predictions(Predictions.joined(predictions))
        return CrossValidation(
            metrics=fold_metrics,
            baselines=(),
            predictions=predictions,
            scores=scores,
            score=Score.mean(name, [Score.of_scores(name, one, task.metric) for one in by_fold], same_rows=False),
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
    """The scores of a model, over seeds or folds.

    task: whose metric is the score.
    split: whose rows are scored, without folds.
    metrics_by_seed: by seed and split.
    kept: the seed of the model.
    resampled: the score with the resamples that pair it with other models.
    folds: of the cross-validation, if there is one.
    predictions: by split, of a baseline; the report shows them instead of the encoder's.
    """

    task: TrainingTask
    split: str
    metrics_by_seed: Mapping[int, Mapping[str, Metrics]]
    kept: int
    resampled: Score
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
    def mean(self) -> float:
        """Of the metric, over seeds or folds; or of all rows together, if each fold has a few."""
        mean: float = self.summary["mean"]
        return mean

    @property
    def rows(self) -> int:
        """The number of rows that are scored."""
        rows: int = self.summary["rows"]
        return rows

    @property
    def frozen(self) -> bool:
        """Whether the encoder is the pre-trained one, since training it was not better on dev."""
        return all(values["best_step"] == 0 for values in self.by_split.values())

    @property
    def score(self) -> Score:
        """The mean with its resamples."""
        return replace(self.resampled, value=self.mean)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """As bothways.json has it: a metric on a split, over seeds or folds.

        interval: 95 % interval; its bounds are averaged over seeds. rows: in the split. n: number of seeds or folds.
        failed: of those no better than the trivial baseline. scores: of each seed or fold, by split. pooled: in
        cross-validation, the metric of all rows together, to which the interval belongs.
        """
        metric = self.task.metric
        by_seed = self.metrics_by_seed.values()
        scores = {name: [by_split[name][metric] for by_split in by_seed] for name in self.by_split}
        mean, std = metrics.mean_and_std(scores[self.split])
        intervals = [by_split[self.split][f"{metric}_interval"] for by_split in by_seed]
        summary = {
            "interval": [*map(fmean, zip(*intervals, strict=True))],
            "rows": self.by_split[self.split]["rows"],
            "metric": metric,
            "split": self.split,
            "selected_on": "dev" if "dev" in self.by_split else "out-of-fold",
            "mean": mean,
            "std": std,
            "n": len(self.metrics_by_seed),
            "failed": len(self.failed),
            "scores": scores,
            "kept_seed": self.kept,
            "frozen": self.frozen,
        }
        if self.folds is None:
            return summary

        of_folds = self.folds.summary(metric)
        return summary | of_folds | {"scores": of_folds["scores"] | scores}

    def has_predictions_of(self, baseline: Score) -> bool:
        """Whether the predictions of a baseline are stored, since it is a model that can be saved."""
        stored = [baseline]
        if self.folds:
            stored = [score for scores in self.folds.baselines for score in scores if score.model == baseline.model]
        return any(score.predictions is not None for score in stored)

    def of_baseline(self, score: Score, dev: Predictions) -> "ModelScores":
        """The scores of a baseline whose predictions are stored. dev: its predictions on dev."""
        folds = self.folds and self.folds.of_baseline(self.task, score.model)
        predictions = {"dev": dev}

        if not folds and score.predictions:
            predictions[self.split] = score.predictions

        values = {
            name: baseline_metrics(self.by_split[name], self.task.scoring.score_predictions(rows))
            for name, rows in predictions.items()
        }

        return ModelScores(
            task=self.task,
            split="dev" if folds else self.split,
            metrics_by_seed={self.kept: values},
            kept=self.kept,
            resampled=score,
            folds=folds,
            predictions=predictions,
        )
