"""Measuring candidates: the size, speed and score of a model, and its loss against the first candidate.

Letter: B resamples of the rows, which intervals are computed from.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

from bothways.evaluation.before_after import Drop, measure_drop
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.int8 import int8_state_dict, is_int8
from bothways.model.model import Model
from bothways.model.prepacked import prepack
from bothways.shrink.cutting import encoder_weights
from bothways.tasks.task import LabelledRows
from bothways.tasks.training_task import TrainingTask
from bothways.text.batching import spread_evenly

SPEED_ROWS = 512  # rows of a split that are timed
SPEED_TEXTS = 64  # rows of a file that are timed
SPEED_BATCH = 32  # texts of a batch that is timed
REPEATS = 5  # timings of each model, of which the median counts
NORMAL_95 = 1.96  # standard errors from the middle to an end of a 95 % interval


@dataclass(frozen=True)
class Candidate:
    """A model that may be delivered.

    name: in tables and messages.
    checkpoint: the model itself.
    size: bytes of its weights on disk.
    predictor: the model as it predicts the user's rows, for UserRows; TaskSplit needs none.
    unchanged: in an int8 model, the layers or products that are not int8.
    """

    name: str
    checkpoint: Checkpoint
    size: int
    predictor: Predictor | None = None
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """A measured candidate, compared with the first one.

    name, size, unchanged: of the candidate.
    share: weights of the layers, relative to the weights of the first candidate's layers.
    speed: texts per second, relative to the speed of the first candidate.
    texts_per_second: the speed of the first candidate, times `speed`.
    figures: scores in percent by metric, the metric of the choice first.
    interval: the 95 % interval of the first figure.
    drop: the loss on the rows that are reported.
    dev_drop: the loss on the rows that candidates are chosen on.
    """

    name: str
    size: int
    share: float
    speed: float
    texts_per_second: float
    figures: dict[str, float]
    interval: tuple[float, float]
    drop: Drop
    dev_drop: Drop
    unchanged: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        """The first figure."""
        return next(iter(self.figures.values()))

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.score:.2f} {self.drop.metric} ({self.drop.points:+.2f} lost), {self.share:.0%} of the "
            f"weights, {self.size / 1e6:.1f} MB, {self.speed:.2f} times as fast"
        )


class Scale:
    """A pair of scales: measures candidates and compares them with the first one, which is the model as it was."""

    def __init__(self, dev: "Sample", reported: "Sample", first: Candidate) -> None:
        """
        dev: the rows that candidates are chosen on.
        reported: the rows of the report; the same object if there are no others.
        first: the candidate that others are compared with.
        """
        self.dev = dev
        self.reported = reported
        self.first = first

        self.first_on_dev, self.first_reported = self._evaluate(first, None, None)

        workload, texts = reported.workload(first)
        self.texts_per_second = texts / seconds_in_turn([workload])[0]

    def measure(self, candidate: Candidate) -> Measured:
        """All measures of a candidate, which is timed in turn with the first one."""
        if candidate is self.first:
            on_dev = self.first_on_dev
            reported = self.first_reported
            speed = 1.0
        else:
            on_dev, reported = self._evaluate(candidate, self.first_on_dev, self.first_reported)
            speed = relative_speed(self.reported, self.first, candidate)

        whole = encoder_weights(self.first.checkpoint.model.config)
        return Measured(
            name=candidate.name,
            size=candidate.size,
            share=encoder_weights(candidate.checkpoint.model.config) / whole,
            speed=speed,
            texts_per_second=speed * self.texts_per_second,
            figures=reported.figures,
            interval=reported.interval,
            drop=reported.drop,
            dev_drop=on_dev.drop,
            unchanged=candidate.unchanged,
        )

    def _evaluate(
        self,
        candidate: Candidate,
        first_on_dev: "Evaluated | None",
        first_reported: "Evaluated | None",
    ) -> "tuple[Evaluated, Evaluated]":
        """The scores of a candidate on `dev` and on `reported`, which are computed once if both are the same rows.

        candidate: the model.
        first_on_dev, first_reported: the scores of the first candidate; None: this is the first.
        """
        on_dev = self.dev.evaluate(candidate, first_on_dev)
        if self.reported is self.dev:
            return on_dev, on_dev
        return on_dev, self.reported.evaluate(candidate, first_reported)


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluated:
    """Scores of a candidate on some rows.

    figures: in percent by metric.
    interval: the 95 % interval of the first figure.
    drop: the loss of the first figure against the first candidate.
    outputs: the drops of other candidates are computed from the outputs of the first. Only the sample that made them
        knows their form.
    """

    figures: dict[str, float]
    interval: tuple[float, float]
    drop: Drop
    outputs: Any


@dataclass(frozen=True)
class UserRows:
    """Rows of a file, with labels or without, as `predict` reads them."""

    data: LabelledRows

    def evaluate(self, candidate: Candidate, first: Evaluated | None) -> Evaluated:
        """The scores, and the drop from the scores of the first candidate. first: None if this is the first."""
        evaluator = self.data.evaluator
        rows = self.data.rows
        outputs = self.predict(candidate, rows)
        reference = first.outputs if first else outputs

        scores = evaluator.score(rows, outputs, reference, intervals=self.data.labelled)
        if first:
            drop = measure_drop(evaluator, rows, outputs, reference)
        else:
            drop = Drop(scores.primary, points=0.0, standard_error=0.0)

        figures = scores.percentages
        interval_name = f"{scores.primary}_interval"
        if interval_name in scores:
            low, high = (100 / scores.maximum * end for end in scores[interval_name])
        else:
            # A metric without an interval of its own gets the width of the drop's interval.
            low = figures[scores.primary] - NORMAL_95 * drop.standard_error
            high = figures[scores.primary] + NORMAL_95 * drop.standard_error

        return Evaluated(figures, (low, high), drop, outputs)

    def workload(self, candidate: Candidate) -> tuple[Callable[[], object], int]:
        """A function whose time is measured, and the number of texts that it computes."""
        rows = [self.data.rows[row] for row in spread_evenly(range(len(self.data)), SPEED_TEXTS)]
        return partial(self.predict, candidate, rows), len(rows)

    def predict(self, candidate: Candidate, rows: Sequence[Any]) -> list[Any]:
        """A prediction per row."""
        assert candidate.predictor is not None
        return self.data.evaluator.predict(candidate.predictor, rows)


@dataclass(frozen=True)
class TaskSplit:
    """A split of a fine-tuning task, evaluated as in fine-tuning.

    task: the task as the first candidate reads it.
    split: its name, such as "dev".
    read: makes the task for a model with another vocabulary, which must read the rows again.
    """

    task: TrainingTask
    split: str
    read: Callable[[Checkpoint], TrainingTask]

    def evaluate(self, candidate: Candidate, first: Evaluated | None) -> Evaluated:
        """The score, and the drop from the score of the first candidate. first: None if this is the first."""
        task, model = self.reader(candidate.checkpoint)
        metric = task.metric
        scoring = task.scoring

        outputs = scoring.outputs(model, self.split)
        score = float(scoring.compute_metrics(self.split, outputs)[metric])
        intervals = scoring.score_predictions(scoring.predictions(self.split, outputs)).intervals
        assert intervals is not None
        low, high = intervals[metric]
        resamples_B = intervals.resamples[metric]

        drop = Drop(metric, points=0.0, standard_error=0.0)
        if first:
            first_score, first_resamples_B = first.outputs
            # Both candidates have the same resamples, so their difference leaves out how rows differ in difficulty.
            error = 100 * float(np.std(first_resamples_B - resamples_B))
            # Without any difference the error is taken as if one unit had changed, as in `measure_drop`.
            drop = Drop(
                metric,
                points=100 * (first_score - score),
                standard_error=error or 100 / intervals.num_units,
            )
        return Evaluated({metric: 100 * score}, (100 * low, 100 * high), drop, (score, resamples_B))

    def workload(self, candidate: Candidate) -> tuple[Callable[[], object], int]:
        """A function whose time is measured, and the number of texts that it computes: hidden states without a head."""
        task, model = self.reader(candidate.checkpoint)
        examples = task.data[self.split]
        encode = prepack(model)
        device = next(model.parameters()).device

        # Batches of similar length, as in prediction, are built before the time is taken.
        rows = spread_evenly(range(len(examples.sizes)), SPEED_ROWS)
        by_length = sorted(rows, key=examples.sizes.__getitem__)
        batches = []
        for start in range(0, len(by_length), SPEED_BATCH):
            batches.append(examples.batch(by_length[start : start + SPEED_BATCH]).to(device))

        @torch.inference_mode()
        def encode_all() -> list[Any]:
            return [encode(batch) for batch in batches]

        return encode_all, len(by_length)

    def reader(self, checkpoint: Checkpoint) -> tuple[TrainingTask, Model]:
        """The task as a model reads it, and a copy of the model for inference."""
        if checkpoint.need_tokenizer().vocab == self.task.pretrained.need_tokenizer().vocab:
            return self.task, self.task.inference_copy(checkpoint.model)

        task = self.read(checkpoint)
        return task, task.inference_copy(task.pretrained.model)


Sample = UserRows | TaskSplit  # rows that candidates are measured on


# --- size and speed ---------------------------------------------------------------------------------------------------


def num_bytes(model: Model) -> int:
    """Bytes of the weights on disk."""
    state = int8_state_dict(model) if is_int8(model) else model.state_dict()
    return sum(weight.nbytes for weight in state.values())


def relative_speed(sample: Sample, first: Candidate, other: Candidate) -> float:
    """Texts per second of a candidate, relative to the first one; both compute the same texts of a sample."""
    workloads = [sample.workload(candidate)[0] for candidate in (first, other)]
    seconds_before, seconds_after = seconds_in_turn(workloads)
    return seconds_before / seconds_after


def seconds_in_turn(calls: Sequence[Callable[[], object]]) -> list[float]:
    """The median time of each call. The calls are made in turn, so that other load affects all of them equally."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(REPEATS):
        for call, times in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return [*map(median, seconds)]
