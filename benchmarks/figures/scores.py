"""Scores of kept predictions, by the metrics of the package, and their form in a table."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bothways.measure.metrics import classification, classification_intervals, mean_intervals, wilson_interval

Table = list[str]


@dataclass(frozen=True)
class Figures:
    """What a measurement says.

    values: numbers by name, for sentences.
    tables: lines of Markdown by name.
    """

    values: dict[str, float]
    tables: dict[str, Table]


@dataclass(frozen=True)
class Stated:
    """A score and its 95 % interval, as fractions. number: the rows that it is measured on."""

    value: float
    low: float
    high: float
    number: int = 0

    def percent(self) -> str:
        return f"{100 * self.value:.1f} ({100 * self.low:.1f} to {100 * self.high:.1f})"

    def fraction(self, digits: int = 3) -> str:
        return f"{self.value:.{digits}f} ({self.low:.3f} to {self.high:.3f})"


def of_labels(gold: np.ndarray, predicted: Sequence[np.ndarray], metric: str = "accuracy") -> Stated:
    """The score of the answers to several draws together; rows are resampled with all their answers.

    gold: right labels, [N].
    predicted: for each draw the labels of the same rows, [N].
    metric: a key of `classification`.
    """
    gold_M = np.tile(gold, len(predicted)).tolist()
    predicted_M = np.concatenate([*predicted]).tolist()
    rows = [*range(len(gold))] * len(predicted)

    value = classification(gold_M, predicted_M)[metric]
    if metric == "accuracy" and len(predicted) > 1:
        # The mean of what is right, as `classification_intervals` has it, without the resamples of each class.
        right_M = [float(a == b) for a, b in zip(gold_M, predicted_M, strict=True)]
        low, high = mean_intervals({metric: right_M}, rows)[metric]
    else:
        low, high = classification_intervals(gold_M, predicted_M, groups=rows if len(predicted) > 1 else None)[metric]
    return Stated(value, low, high)


def share(is_right: np.ndarray) -> Stated:
    """A proportion, with its Wilson interval."""
    low, high = wilson_interval(int(is_right.sum()), len(is_right))
    return Stated(float(is_right.mean()), low, high, len(is_right))


def auroc(higher_N: np.ndarray, lower_M: np.ndarray) -> float:
    """The area under the ROC curve: how often one of the first scores is above one of the second; equal ones count
    half."""
    below_N = np.searchsorted(np.sort(lower_M), higher_N, side="left")
    not_above_N = np.searchsorted(np.sort(lower_M), higher_N, side="right")
    return float((below_N + not_above_N).mean() / 2 / len(lower_M))


def with_bounds(name: str, stated: Stated, scale: float = 1.0) -> dict[str, float]:
    """The value, and the bounds of its interval under NAME.low and NAME.high."""
    return {name: scale * stated.value, f"{name}.low": scale * stated.low, f"{name}.high": scale * stated.high}


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The lines of a table."""
    lines = [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]
