"""Classification and regression metrics: accuracy, F1, Matthews, correlations, calibration.

Also multi-label scores, perplexity, and mean and standard deviation over seeds.
Letters: N texts, C labels, U distinct values, V vocabulary entries.
"""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from bothways.measure.metrics.intervals import (
    Interval,
    Intervals,
    bootstrap,
    decision_intervals,
    mean_intervals,
    resampling_units,
    widen_correlation,
    wilson_interval,
)

Label = TypeVar("Label", str, int)


def classification(
    gold: Sequence[Label],
    predicted: Sequence[Label],
    *,
    positive: Label | None = None,
) -> dict[str, float]:
    """accuracy, f1_macro, f1_micro, Matthews correlation (0 if undefined), `majority` and, with two classes, f1.

    gold, predicted: the label of each text.
    positive: the class whose F1 is f1; by default, if gold and predicted labels have two classes, the last in sorted
        order (1 of 0 and 1; "pos" of "neg" and "pos").

    majority is the accuracy of always predicting the most frequent gold label.

    >>> classification([0, 1, 1, 0], [0, 1, 0, 0])["accuracy"]
    0.75
    """
    names = sorted(set(gold) | set(predicted))
    index_by_name = {name: index for index, name in enumerate(names)}
    gold_N = np.array([index_by_name[label] for label in gold])
    predicted_N = np.array([index_by_name[label] for label in predicted])

    gold_C, predicted_C, right_C = (
        np.bincount(labels, minlength=len(names)).astype(float)
        for labels in (gold_N, predicted_N, gold_N[gold_N == predicted_N])
    )
    f1_C = 2 * right_C / (gold_C + predicted_C)
    accuracy = float(right_C.sum() / len(gold))

    scores = {
        "accuracy": accuracy,
        "f1_macro": float(f1_C.mean()),
        "f1_micro": accuracy,  # with one label per text, micro F1 equals accuracy
        "matthews": _matthews(gold_C, predicted_C, right_C),
        "majority": float(gold_C.max() / len(gold)),
    }
    positive = _positive(names, positive)
    if positive is not None:
        scores["f1"] = float(f1_C[index_by_name[positive]]) if positive in index_by_name else 0.0
    return scores


def _positive(names: Sequence[Label], positive: Label | None) -> Label | None:
    """The class of f1: the one that is named, else the last of two."""
    if positive is None and len(names) == 2:
        return names[1]
    return positive


def _matthews(gold_C: np.ndarray, predicted_C: np.ndarray, right_C: np.ndarray) -> float:
    """The correlation of gold and predicted classes (Gorodkin 2004, eq. 8), from their counts."""
    total = gold_C.sum()
    covariance = right_C.sum() * total - gold_C @ predicted_C
    variances = (total**2 - predicted_C @ predicted_C) * (total**2 - gold_C @ gold_C)
    return float(covariance / np.sqrt(variances)) if variances else 0.0


def classification_intervals(
    gold: Sequence[Label],
    predicted: Sequence[Label],
    *,
    positive: Label | None = None,
    groups: Sequence[Hashable] | None = None,
) -> Intervals:
    """95 % intervals of the scores of `classification`.

    gold, predicted: the label of each text.
    positive: the class whose F1 is f1, as for `classification`.
    groups: texts of a group are resampled together; None: all texts are independent.
    """
    names = sorted(set(gold) | set(predicted))
    positive = _positive(names, positive)
    rows = range(len(gold))
    bounds = decision_intervals(
        list(zip(rows, gold, strict=True)),
        list(zip(rows, predicted, strict=True)),
        _units(groups, len(gold)),
        positive,
    )

    sources = {
        "accuracy": "f1",
        "f1_micro": "f1",
        "f1_macro": "f1_macro",
        "matthews": "matthews",
    }
    if positive is not None:
        sources["f1"] = "f1_positive"
    intervals = {name: bounds[source] for name, source in sources.items()}
    resamples = {name: bounds.resamples[source] for name, source in sources.items()}

    # With one label per text, micro F1 equals accuracy: both are proportions of texts.
    is_right = [a == b for a, b in zip(gold, predicted, strict=True)]
    accuracy = _proportion_interval(is_right, bounds["f1"], bounds.num_units)
    intervals["accuracy"] = accuracy
    intervals["f1_micro"] = accuracy
    return Intervals(intervals, resamples, bounds.num_units)


def _units(groups: Sequence[Hashable] | None, num_rows: int) -> np.ndarray:
    if groups is None:
        return np.arange(num_rows)
    return resampling_units(groups)


def _proportion_interval(is_right: Sequence[bool], clustered: Interval, num_units: int) -> Interval:
    """Wilson's interval if all rows are independent, else the bootstrap interval over groups."""
    if num_units == len(is_right):
        return wilson_interval(sum(is_right), len(is_right))
    return clustered


def multi_label(
    gold: Sequence[Collection[str]],
    predicted: Sequence[Collection[str]],
    names: Sequence[str],
) -> dict[str, float]:
    """Multi-label scores: subset accuracy, f1_micro, f1_macro, f1_samples and `majority`.

    gold, predicted: the labels of each text.
    names: all labels.

    accuracy is the fraction of texts whose label set is exactly right, majority the accuracy of always predicting the
    most frequent label set. A text without gold and predicted labels has F1 1. f1_macro skips labels that occur neither
    in the gold labels nor in the predictions.
    """
    gold_NC = indicators(gold, names)
    predicted_NC = indicators(predicted, names)
    right_NC = 2 * (gold_NC & predicted_NC)
    total_NC = gold_NC.astype(int) + predicted_NC

    f1_C = _ratio(right_NC.sum(axis=0), total_NC.sum(axis=0))
    f1_N = _ratio(right_NC.sum(axis=1), total_NC.sum(axis=1))
    used_C = total_NC.any(axis=0)
    return {
        "accuracy": float((gold_NC == predicted_NC).all(axis=1).mean()),
        "f1_micro": float(_ratio(right_NC.sum(), total_NC.sum())),
        "f1_macro": float(f1_C[used_C].mean()) if used_C.any() else 1.0,
        "f1_samples": float(f1_N.mean()),
        "majority": Counter(map(frozenset, gold)).most_common(1)[0][1] / len(gold),
    }


def multi_label_intervals(
    gold: Sequence[Collection[str]],
    predicted: Sequence[Collection[str]],
    groups: Sequence[Hashable] | None = None,
) -> Intervals:
    """95 % intervals of the scores of `multi_label`.

    gold, predicted: the labels of each text.
    groups: texts of a group are resampled together; None: all texts are independent.
    """
    unit_N = _units(groups, len(gold))
    bounds = decision_intervals(_row_labels(gold), _row_labels(predicted), unit_N)

    is_right = []
    f1_by_text = []
    for gold_labels, predicted_labels in zip(map(set, gold), map(set, predicted), strict=True):
        is_right.append(gold_labels == predicted_labels)
        total = len(gold_labels) + len(predicted_labels)
        f1_by_text.append(2 * len(gold_labels & predicted_labels) / total if total else 1.0)
    means = mean_intervals({"accuracy": [*map(float, is_right)], "f1_samples": f1_by_text}, unit_N.tolist())

    intervals = {
        "accuracy": _proportion_interval(is_right, means["accuracy"], means.num_units),
        "f1_micro": bounds["f1"],
        "f1_macro": bounds["f1_macro"],
        "f1_samples": means["f1_samples"],
    }
    resamples = {
        "f1_micro": bounds.resamples["f1"],
        "f1_macro": bounds.resamples["f1_macro"],
        **means.resamples,
    }
    return Intervals(intervals, resamples, bounds.num_units)


def _row_labels(labels: Sequence[Collection[str]]) -> list[tuple[int, str]]:
    """(row, label) of every label."""
    return [(row, label) for row, row_labels in enumerate(labels) for label in row_labels]


def indicators(labels: Sequence[Collection[str]], names: Sequence[str]) -> np.ndarray:
    """[N, C], True where a text has a label."""
    column_by_name = {name: index for index, name in enumerate(names)}
    indicators_NC = np.zeros((len(labels), len(names)), bool)
    for row, row_labels in enumerate(labels):
        indicators_NC[row, [column_by_name[name] for name in row_labels]] = True
    return indicators_NC


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """numerator / denominator; 1 where both are 0."""
    ratios: np.ndarray = np.where(denominator > 0, numerator, 1) / np.maximum(denominator, 1)
    return ratios


def regression(gold: Sequence[float] | np.ndarray, predicted: Sequence[float] | np.ndarray) -> dict[str, float]:
    """pearson, spearman (0 if either side is constant), mean_squared_error, mean_absolute_error and `variance`.

    variance: of the gold numbers, that is, the squared error of always predicting their mean.
    """
    gold_N = np.asarray(gold, float)
    predicted_N = np.asarray(predicted, float)
    return _number_scores(gold_N, predicted_N, _order(gold_N), _order(predicted_N))


def regression_intervals(
    gold: Sequence[float],
    predicted: Sequence[float],
    groups: Sequence[Hashable] | None = None,
) -> Intervals:
    """95 % intervals of the correlations and errors of `regression`.

    gold, predicted: the number of each text.
    groups: texts of a group are resampled together; None: all texts are independent.
    """
    gold_N = np.asarray(gold, float)
    predicted_N = np.asarray(predicted, float)
    # Sorted once, not for every resample.
    gold_order_N = _order(gold_N)
    predicted_order_N = _order(predicted_N)
    unit_N = _units(groups, len(gold_N))

    def scores(draws_BU: np.ndarray) -> dict[str, np.ndarray]:
        scores_by_resample = []
        for drawn_U in draws_BU:
            rows = np.repeat(np.arange(len(gold_N)), drawn_U[unit_N])
            resample = _number_scores(gold_N[rows], predicted_N[rows], gold_order_N[rows], predicted_order_N[rows])
            scores_by_resample.append(resample)
        return {name: np.array([resample[name] for resample in scores_by_resample]) for name in scores_by_resample[0]}

    def widened(name: str, bounds: Interval, value: float) -> Interval:
        if name in ("pearson", "spearman"):
            return widen_correlation(bounds, value, len(gold_N))
        return max(bounds[0], 0.0), bounds[1]  # no error is negative

    bounds = bootstrap(int(unit_N.max()) + 1, scores, widened)
    del bounds["variance"]
    return bounds


def _number_scores(
    gold_N: np.ndarray,
    predicted_N: np.ndarray,
    gold_order_N: np.ndarray,
    predicted_order_N: np.ndarray,
) -> dict[str, float]:
    return {
        "pearson": _pearson(gold_N, predicted_N),
        "spearman": _pearson(_ranks(gold_order_N), _ranks(predicted_order_N)),
        "mean_squared_error": float(((gold_N - predicted_N) ** 2).mean()),
        "mean_absolute_error": float(abs(gold_N - predicted_N).mean()),
        "variance": float(gold_N.var()),
    }


def _pearson(a_N: np.ndarray, b_N: np.ndarray) -> float:
    if np.ptp(a_N) == 0 or np.ptp(b_N) == 0:
        return 0.0

    a_N = a_N - a_N.mean()
    b_N = b_N - b_N.mean()
    # Sums, not products of matrices: products start threads, which a thousand resamples on a busy machine wait for.
    covariance = (a_N * b_N).sum()
    deviations = math.sqrt((a_N**2).sum()) * math.sqrt((b_N**2).sum())
    return float(covariance / deviations)


def _order(values_N: np.ndarray) -> np.ndarray:
    """The index of each value among the sorted distinct values."""
    order_N: np.ndarray = np.unique(values_N, return_inverse=True)[1]
    return order_N


def _ranks(order_N: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values have the mean of their ranks."""
    count_U = np.bincount(order_N)
    ranks_U = count_U.cumsum() - (count_U - 1) / 2
    ranks_N: np.ndarray = ranks_U[order_N]
    return ranks_N


@dataclass(frozen=True)
class Bin:
    """Predictions of similar confidence: their mean confidence, accuracy and count."""

    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class Reliability:
    """The bins of a reliability diagram. error: expected calibration error, in 0..1."""

    bins: list[Bin]
    error: float


def reliability(confidences: Sequence[float], right: Sequence[bool], bins: int = 10) -> Reliability:
    """Confidence and accuracy in bins of equal width, the first being (0, 1/bins] (Guo 2017, eq. 3); no empty bins.

    confidences: the probability of each predicted label, in 0..1.
    right: whether each prediction is correct.
    bins: the number of bins.
    """
    confidences_N = np.asarray(confidences, float)
    right_N = np.asarray(right, float)
    bin_N = np.clip(np.ceil(confidences_N * bins).astype(int) - 1, 0, bins - 1)

    filled = []
    for number in range(bins):
        is_inside_N = bin_N == number
        if is_inside_N.any():
            filled.append(
                Bin(
                    confidence=float(confidences_N[is_inside_N].mean()),
                    accuracy=float(right_N[is_inside_N].mean()),
                    count=int(is_inside_N.sum()),
                )
            )
    gaps = sum(bin.count * abs(bin.accuracy - bin.confidence) for bin in filled)
    return Reliability(filled, gaps / len(right_N))


def perplexity(mean_loss: float) -> float:
    """exp of a mean cross-entropy in nats, capped to avoid overflow."""
    return math.exp(min(mean_loss, 700.0))


def unigram_probabilities(counts_V: np.ndarray) -> np.ndarray:
    """Unigram probabilities from counts, with add-one smoothing. [V]"""
    shares_V: np.ndarray = (counts_V + 1) / (counts_V.sum() + len(counts_V))
    return shares_V


def unigram_loss(counts_V: np.ndarray, targets_M: np.ndarray) -> float:
    """Mean cross-entropy in nats of predicting every target by the unigram frequencies of the training text."""
    return float(-np.log(unigram_probabilities(counts_V)[targets_M]).mean())


def mean_and_std(scores: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (0 for a single score)."""
    deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
    return float(np.mean(scores)), deviation
