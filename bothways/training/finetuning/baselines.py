"""Scores of simple models on the rows of a training, with the resamples that pair them with the model's scores."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bothways.base.io import write_atomic
from bothways.base.log import logger
from bothways.measure import metrics
from bothways.measure.metrics import Interval
from bothways.tasks.linear_baselines import fit_tfidf
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.texts import TextTask
from bothways.tasks.training_task import TrainingTask
from bothways.training.finetuning.budget import PART_OF_WORDS, WORDS, Budget

MANY_ROWS = 2000  # from which the time of TF-IDF is estimated
PART = 20  # a twentieth of the rows is fitted for the estimate
SLOW = 5.0  # seconds after which the score of a baseline is logged with its time
BASELINES = "baselines.json"  # scores of the baselines, for a resumed run


@dataclass(frozen=True)
class Resamples:
    """The metric in each bootstrap resample, which pairs the scores of models on the same rows; see
    `metrics.bootstrap`. num_units: the number of units that were drawn."""

    values_B: np.ndarray
    num_units: int

    @staticmethod
    def of(scores: Scores, metric: str) -> "Resamples":
        assert scores.intervals is not None
        return Resamples(scores.intervals.resamples[metric], scores.intervals.num_units)

    @staticmethod
    def unknown() -> "Resamples":
        """Those of a score that is not known."""
        return Resamples(np.full(1, np.nan), 0)

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> "Resamples":
        return Resamples(np.array(stored["values"]), stored["units"])

    def to_json(self) -> dict[str, Any]:
        return {"values": self.values_B.tolist(), "units": self.num_units}

    @staticmethod
    def mean(parts: Sequence["Resamples"], *, same_rows: bool) -> "Resamples":
        """Resamples of the mean of several scores: of models on the same rows, or of folds."""
        num_resamples = min(len(part.values_B) for part in parts)
        values_B = np.mean([part.values_B[:num_resamples] for part in parts], axis=0)
        units = [part.num_units for part in parts]
        return Resamples(values_B, units[0] if same_rows else sum(units))


@dataclass(frozen=True)
class BaselineScore:
    """The metric of a baseline, with its 95 % interval and resamples if known. predictions: if it can be saved."""

    name: str
    value: float
    interval: Interval | None
    resamples: Resamples | None = None
    predictions: Predictions | None = None

    @staticmethod
    def of(name: str, task: TrainingTask, predictions: Predictions, *, keep: bool = True) -> "BaselineScore":
        """The score of predictions, which are kept with it on request."""
        scores = task.scoring.score_predictions(predictions)
        resamples = Resamples.of(scores, task.metric)
        return BaselineScore(
            name=name,
            value=scores[task.metric],
            interval=scores[f"{task.metric}_interval"],
            resamples=resamples,
            predictions=predictions if keep else None,
        )

    def lead_over(self, other: "BaselineScore") -> Interval:
        """95 % interval of the difference between this score and another one on the same rows."""
        assert self.resamples is not None
        return other.difference(self.value, self.resamples)

    def difference(self, value: float, resamples: Resamples) -> Interval:
        """95 % interval of the difference between another score on the same rows and this one."""
        num_resamples = len(resamples.values_B)
        own_B: np.ndarray | float = self.value
        if self.resamples:
            num_resamples = min(num_resamples, len(self.resamples.values_B))
            own_B = self.resamples.values_B[:num_resamples]
        return metrics.difference_interval(
            value - self.value, resamples.values_B[:num_resamples] - own_B, resamples.num_units
        )


def score(task: TrainingTask, split: str, file: Path, budget: Budget) -> list[BaselineScore]:
    """Score the baselines on a split for which there is time. The scores are stored in a file for resumed runs, with
    the predictions of models that can be saved."""
    if not file.exists():
        rows = []
        start = time.monotonic()
        for baseline in task.baselines(split, words=has_time_for_words(task, budget)):
            budget.seconds[baseline.name] = time.monotonic() - start
            scores = task.scoring.score_predictions(baseline.predictions)
            interval = scores[f"{task.metric}_interval"]
            predictions = baseline.predictions.to_json() if baseline.model else None
            rows.append(
                [baseline.name, scores[task.metric], interval, Resamples.of(scores, task.metric).to_json(), predictions]
            )
            if (seconds := time.monotonic() - start) > SLOW:
                logger.info(f"baseline {baseline.name}: {task.metric} {scores[task.metric]:.4f} ({seconds:.0f} s)")
            start = time.monotonic()
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(rows))
    return read(file)


def has_time_for_words(task: TrainingTask, budget: Budget) -> bool:
    """Whether there is time for TF-IDF."""
    seconds = seconds_of_words(task, budget)
    return seconds is None or budget.allows(WORDS, seconds)


def seconds_of_words(task: TrainingTask, budget: Budget) -> float | None:
    """About how long TF-IDF takes, by the time of a small part of the rows, which is measured once; None for rows that
    are few enough for any limit, and without a limit."""
    if budget.limit is None or not isinstance(task, TextTask):
        return None
    num_rows = len(task.tables["train"])
    if num_rows < MANY_ROWS:
        return None
    if PART_OF_WORDS not in budget.seconds:
        with budget.timed(PART_OF_WORDS):
            fit_tfidf(task, max_rows=num_rows // PART)
    return PART * budget.estimate(PART_OF_WORDS)


def read(file: Path) -> list[BaselineScore]:
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [
        BaselineScore(
            name=name,
            value=value,
            interval=(low, high),
            resamples=Resamples.from_json(resamples),
            predictions=predictions and Predictions.from_json(predictions),
        )
        for name, value, (low, high), resamples, predictions in rows
    ]


def mean_scores(folds: Sequence[Sequence[BaselineScore]]) -> list[BaselineScore]:
    """The mean of each baseline over folds."""
    means = []
    for scores in zip(*folds, strict=True):
        resamples = Resamples.mean([score.resamples for score in scores if score.resamples], same_rows=False)
        means.append(
            BaselineScore(
                name=scores[0].name,
                value=fmean(score.value for score in scores),
                interval=None,
                resamples=resamples,
            )
        )
    return means
