"""The score of a model on some rows, with the resamples that pair it with the score of another model on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from bothways.measure import metrics
from bothways.measure.metrics import Interval
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.training_task import TrainingTask

THIS_MODEL = "this model"  # the model of a run, beside baselines with names


@dataclass(frozen=True)
class Score:
    """The metric of a model on some rows.

    model: its name, for tables and verdicts.
    value: the metric.
    interval: its 95 % interval, if known.
    resamples_B: the metric in each bootstrap resample (`metrics.bootstrap`), if known. Those of two models on the same
    rows are paired: each has drawn the same rows.
    num_units: the number of independent units that were drawn.
    predictions: of a model that can be saved.
    """

    model: str
    value: float
    interval: Interval | None = None
    resamples_B: np.ndarray | None = None
    num_units: int = 0
    predictions: Predictions | None = None

    @staticmethod
    def of_scores(model: str, scores: Scores, metric: str, value: float | None = None) -> "Score":
        """The score of a metric among others. value: of the metric; None: the one among these scores."""
        assert scores.intervals is not None
        return Score(
            model=model,
            value=scores[metric] if value is None else value,
            interval=scores.get(f"{metric}_interval"),
            resamples_B=scores.intervals.resamples[metric],
            num_units=scores.intervals.num_units,
        )

    @staticmethod
    def of(model: str, task: TrainingTask, predictions: Predictions) -> "Score":
        """The score of predictions by the metric of a task."""
        return Score.of_scores(model, task.scoring.score_predictions(predictions), task.metric)

    @staticmethod
    def mean(model: str, scores: Sequence["Score"], *, same_rows: bool) -> "Score":
        """The mean of several scores: of models on the same rows, or of folds."""
        known = [(score.resamples_B, score.num_units) for score in scores if score.resamples_B is not None]
        num_resamples = min(len(resamples_B) for resamples_B, _ in known)
        units = [num_units for _, num_units in known]
        return Score(
            model=model,
            value=fmean(score.value for score in scores),
            resamples_B=np.mean([resamples_B[:num_resamples] for resamples_B, _ in known], axis=0),
            num_units=units[0] if same_rows else sum(units),
        )

    def difference(self, other: "Score") -> Interval:
        """95 % interval of the difference between this score and another one on the same rows."""
        assert self.resamples_B is not None
        num_resamples = len(self.resamples_B)
        other_B: np.ndarray | float = other.value
        if other.resamples_B is not None:
            num_resamples = min(num_resamples, len(other.resamples_B))
            other_B = other.resamples_B[:num_resamples]
        difference_B = self.resamples_B[:num_resamples] - other_B
        return metrics.difference_interval(self.value - other.value, difference_B, self.num_units)

    def resamples_json(self) -> dict[str, Any]:
        """The resamples, as files of a run have them."""
        assert self.resamples_B is not None
        return {"values": self.resamples_B.tolist(), "units": self.num_units}

    @staticmethod
    def from_json(model: str, value: float, resamples: Mapping[str, Any], **more: Any) -> "Score":
        """A score with stored resamples. more: further fields."""
        return Score(
            model=model,
            value=value,
            resamples_B=np.array(resamples["values"]),
            num_units=resamples["units"],
            **more,
        )
