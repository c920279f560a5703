"""Drop of a model's score after quantization or export, on a user's own texts.

With labels the score is the task's metric, such as accuracy, entity F1 or SQuAD's F1. Without labels it is the
percentage of unchanged predictions (including guesses of masked words), or the mean cosine of vectors. All scores are
percentages, so drops are in percentage points.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.errors import InputError, flag, format_count
from bothways.base.log import logger
from bothways.inference.predictor import Predictor
from bothways.settings.base import TextColumns
from bothways.settings.tables_in_memory import MemoryTable, TableSource
from bothways.tasks import TASKS
from bothways.tasks.task import Evaluator, LabelledRows

DEFAULT_MAX_DROP = 0.5  # points
MAX_ROWS = 2000  # that a drop is measured on
NORMAL_95 = 1.96  # 95 % of a normal distribution lie within this many deviations of the mean
JACKKNIFE_GROUPS = 20  # groups of rows; each is left out once


def read_evaluation_rows(model: Predictor, file: Path, columns: TextColumns) -> LabelledRows:
    """The rows of a file for a model's task. InputError if the file cannot be read, or has labels that are unknown to
    the model."""
    return TASKS[model.task].load().read(model, [file], columns, need_labels=False)


@dataclass(frozen=True)
class Drop:
    """The drop of a model's primary score, in points, and its standard error."""

    metric: str
    points: float
    standard_error: float

    def is_within(self, max_drop: float) -> bool:
        """Whether the upper end of the interval is within the allowed drop (in points); 100 allows every drop."""
        return self.interval[1] <= max_drop or self.points <= max_drop >= 100  # false for NaN

    def check(self, max_drop: float, texts: int, change: str, way_out: str) -> None:
        """InputError unless the upper end of the interval is within the allowed drop.

        max_drop: the allowed drop, in points.
        texts: the number of texts measured, for the message.
        change: the change that causes the drop, for the message.
        way_out: an alternative, for the message.
        """
        if self.is_within(max_drop):
            return

        reason = f"{change} {self}, measured on {format_count(texts, 'text')}; {max_drop:g} are allowed"
        if self.points < max_drop:
            needed = self.texts_needed(max_drop, texts)
            reason += f", and it may lose more: about {needed:,} texts to measure on would tell"
            if needed > MAX_ROWS:
                reason += f", and at most {MAX_ROWS:,} are measured on"

        high = self.interval[1]
        allowance = f"{math.ceil(10 * high) / 10:g}" if math.isfinite(high) else "more"
        raise InputError(f"{reason}; {way_out}, or allow {allowance} with {flag('max_drop')}")

    def texts_needed(self, max_drop: float, texts: int) -> int:
        """About how many texts it takes for an interval that is within the allowed drop. texts: the number measured."""
        ratio = NORMAL_95 * self.standard_error / (max_drop - self.points)
        # Without a changed prediction the standard error is the error of one change, 100 / texts; else it is
        # proportional to 1 / sqrt(texts).
        is_unchanged = self.points == 0 and self.standard_error == 100 / texts
        return math.ceil(texts * (ratio if is_unchanged else ratio**2))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the drop."""
        half = NORMAL_95 * self.standard_error
        return self.points - half, self.points + half

    @property
    def is_gain(self) -> bool:
        """Whether the score rises by at least 0.01 points, as printed."""
        return round(self.points, 2) < 0

    def __str__(self) -> str:
        """'loses 0.40 points of accuracy (95 % interval 0.20 to 0.60)', or 'gains ...' with the gain's interval."""
        verb, sign = ("gains", -1) if self.is_gain else ("loses", 1)
        low, high = sorted(sign * bound for bound in self.interval)
        points = f"{sign * self.points:z.2f} points of {self.metric}"
        return f"{verb} {points} (95 % interval {low:z.2f} to {high:z.2f})"


def measure_drop(
    evaluator: Evaluator[Any, Any],
    rows: Sequence[Any],
    predictions: Sequence[Any],
    reference: Sequence[Any],
) -> Drop:
    """The drop of the score from the unchanged to the changed model.

    evaluator: scores predictions.
    rows: the rows.
    predictions, reference: the predictions of the changed and of the unchanged model.

    The standard error is a jackknife estimate over 20 groups of rows (Efron 1982). If no prediction has changed, it is
    computed as if one had.
    """

    def drop(indices: Sequence[int]) -> tuple[str, float]:
        some_rows = [rows[index] for index in indices]
        after = [predictions[index] for index in indices]
        before = [reference[index] for index in indices]
        (metric, score), *_ = evaluator.score(some_rows, before, before).percentages.items()
        return metric, score - evaluator.score(some_rows, after, before).percentages[metric]

    num_rows = len(rows)
    metric, points = drop(range(num_rows))

    num_groups = min(JACKKNIFE_GROUPS, num_rows)
    drops = []
    for group in range(num_groups):
        others = [row for row in range(num_rows) if row % num_groups != group]
        drops.append(drop(others)[1])
    standard_error = float(np.sqrt((num_groups - 1) * np.array(drops).var()))
    if standard_error == 0:
        standard_error = 100 / num_rows
    return Drop(metric, points, standard_error)


def selected_on(model: Predictor, files: Iterable[TableSource]) -> dict[str, str]:
    """{"selected_on": split}, with a warning, if the model was trained or selected on one of the files; else {}."""
    for split, use in (("train", "trained on"), ("dev", "selected on")):
        used = model.description.settings.get(split)
        for file in files:
            if _is_same(file, used):
                logger.warning(f"{file}: the model was {use} this file, so the scores say little about other text")
                return {"selected_on": split}
    return {}


def _is_same(file: TableSource, used: Any) -> bool:
    """Whether data is `used`, an entry of bothways.json: a path, or the record of an in-memory table."""
    if isinstance(used, list):  # several tables
        return any(_is_same(file, part) for part in used)
    if isinstance(file, MemoryTable):
        return isinstance(used, dict) and used.get("fingerprint") == file.fingerprint
    return isinstance(used, str) and Path(used).resolve() == Path(file).resolve()
