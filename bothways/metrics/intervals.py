"""95 % confidence intervals: Wilson intervals and the percentile bootstrap.

A proportion of independent rows gets a Wilson interval (1927). All other scores get a percentile bootstrap (Efron 1979)
over independent units: texts, documents or passages. The draws depend only on the number of units. With no errors every
resample is perfect and the bootstrap interval has no width, so an interval is never narrower than the Wilson interval
of a proportion of as many trials. Letters: U units, N rows, M decisions, C labels.
"""

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from bothways.rng import Purpose, generator

Interval = tuple[float, float]
Decision = tuple[Any, ...]  # (index of the row, label, position in the row): the class of a text, or an entity
Statistic = Callable[[np.ndarray], Mapping[str, float]]  # draws of each unit [U] -> scores by name
RESAMPLES, FEWEST_RESAMPLES, MOST_DRAWS = 1000, 200, 2 * 10**7
FEW_ROWS = 100  # below this, even an accuracy of 90 % is uncertain by 6 points or more
FEW_UNITS = 20  # below this, a bootstrap over groups is too narrow to be meaningful


def wilson_interval(successes: float, trials: float, z: float = 1.96) -> Interval:
    """The Wilson interval of the proportion successes / trials (Wilson 1927); 95 % with the default z."""
    if not trials:
        return 0.0, 1.0
    share = successes / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def with_intervals(scores: Mapping[str, Any], bounds: Mapping[str, Interval]) -> dict[str, Any]:
    """The scores, with NAME_interval: [low, high] after each score that has bounds."""
    merged: dict[str, Any] = {}
    for name, value in scores.items():
        merged[name] = value
        if name in bounds:
            merged[f"{name}_interval"] = [*bounds[name]]
    return merged


def few_rows_warning(num_rows: int, rows: str, split: str) -> str:
    """A warning if a split has fewer than FEW_ROWS rows; else ""."""
    if num_rows >= FEW_ROWS:
        return ""
    low, high = wilson_interval(0.9 * num_rows, num_rows)
    return (
        f"{split}: {num_rows} {rows} are too few to compare models (an accuracy of 90 % could be anything from "
        f"{low:.0%} to {high:.0%}); cross-validate with --folds 5 (finetune), which scores every row"
    )


def bootstrap(num_units: int, statistic: Statistic) -> dict[str, Interval]:
    """The 2.5th and 97.5th percentiles of each score over resamples of the units.

    With very many units, fewer resamples are drawn (see MOST_DRAWS).
    """
    num_resamples = max(FEWEST_RESAMPLES, min(RESAMPLES, MOST_DRAWS // num_units))
    scores = []
    for resample in range(num_resamples):
        drawn = generator(0, Purpose.BOOTSTRAP, resample).integers(num_units, size=num_units)
        scores.append(statistic(np.bincount(drawn, minlength=num_units)))
    bounds = {
        name: np.quantile([sample_scores[name] for sample_scores in scores], (0.025, 0.975)) for name in scores[0]
    }
    return {name: (float(low), float(high)) for name, (low, high) in bounds.items()}


def widen(bounds: Interval, value: float, trials: float, lowest: float = 0.0) -> Interval:
    """`bounds`, extended to the Wilson interval of `value` where that is wider.

    value: taken as a proportion of `trials` between `lowest` and 1; outside, which the Matthews correlation of spans
    can be, as the nearer end.
    """
    share = min(max((value - lowest) / (1 - lowest), 0.0), 1.0)
    low, high = wilson_interval(share * trials, trials)
    return min(bounds[0], lowest + (1 - lowest) * low), max(bounds[1], lowest + (1 - lowest) * high)


def resampling_units(groups: Sequence[Hashable]) -> np.ndarray:
    """The resampling unit of each row: its group, or the row itself if there are fewer than FEW_UNITS groups. [N]"""
    unit_by_group: dict[Hashable, int] = {}
    unit_N = np.array([unit_by_group.setdefault(group, len(unit_by_group)) for group in groups], np.int64)
    return unit_N if len(unit_by_group) >= FEW_UNITS else np.arange(len(groups))


def mean_interval(
    values: Sequence[float], groups: Sequence[Hashable], weights: Sequence[float] | None = None
) -> Interval:
    """95 % interval of the weighted mean of values in 0..1, one per row.

    weights: for example the number of words of a sentence, if its value is a tag accuracy. None: all equal.
    """
    unit_N, weight_N = resampling_units(groups), np.ones(len(values)) if weights is None else np.asarray(weights, float)
    sum_U = np.bincount(unit_N, np.asarray(values, float) * weight_N)
    weight_U = np.bincount(unit_N, weight_N)

    def mean(drawn_U: np.ndarray) -> dict[str, float]:
        return {"mean": float((drawn_U * sum_U).sum() / (drawn_U * weight_U).sum())}

    value = mean(np.ones(len(sum_U)))["mean"]
    return widen(bootstrap(len(sum_U), mean)["mean"], value, float(weight_U.sum()))


def decision_intervals(
    gold: Collection[Decision], predicted: Collection[Decision], unit_N: np.ndarray, positive: str | int | None = None
) -> dict[str, Interval]:
    """95 % intervals of the scores of `decision_scores`. unit_N: the resampling unit of each row."""
    decision_sets = (set(gold), set(predicted), set(gold) & set(predicted))
    index_by_label = {
        label: index
        for index, label in enumerate(sorted({decision[1] for decision in decision_sets[0] | decision_sets[1]}))
    }
    positive_index = index_by_label.setdefault(positive, len(index_by_label)) if positive is not None else None
    units = [unit_N[np.array([decision[0] for decision in decisions], np.int64)] for decisions in decision_sets]
    label_indices = [
        np.array([index_by_label[decision[1]] for decision in decisions], np.int64) for decisions in decision_sets
    ]

    def scores(drawn_U: np.ndarray) -> dict[str, float]:
        gold_C, predicted_C, right_C = (
            np.bincount(label_M, drawn_U[unit_M], minlength=len(index_by_label))
            for unit_M, label_M in zip(units, label_indices, strict=True)
        )
        return decision_scores(gold_C, predicted_C, right_C, positive_index)

    num_units = int(unit_N.max()) + 1
    values, bounds = scores(np.ones(num_units)), bootstrap(num_units, scores)
    num_positive = [sum(decision[1] == positive for decision in decisions) for decisions in decision_sets]
    num_gold, num_predicted, _ = map(len, decision_sets)
    trials = dict.fromkeys(values, (num_gold + num_predicted) / 2)
    trials |= {"precision": num_predicted, "recall": num_gold, "f1_positive": (num_positive[0] + num_positive[1]) / 2}
    lowest = {"matthews": -1.0}
    return {name: widen(bounds[name], values[name], trials[name], lowest.get(name, 0.0)) for name in values}


def decision_scores(
    gold_C: np.ndarray, predicted_C: np.ndarray, right_C: np.ndarray, positive: int | None = None
) -> dict[str, float]:
    """precision, recall, f1, f1_macro, Matthews correlation and f1_positive, from counts of decisions per label.

    0 / 0 counts as 0. f1_macro skips labels without decisions; the correlation assumes one decision per row;
    f1_positive is the F1 of the label with index `positive`.
    """
    gold, predicted, right = gold_C.sum(), predicted_C.sum(), right_C.sum()
    used_C = gold_C + predicted_C > 0
    f1_C = 2 * right_C / np.maximum(gold_C + predicted_C, 1)
    covariance = right * gold - gold_C @ predicted_C
    variances = (gold**2 - predicted_C @ predicted_C) * (gold**2 - gold_C @ gold_C)
    scores = {
        "precision": right / max(predicted, 1),
        "recall": right / max(gold, 1),
        "f1": 2 * right / max(gold + predicted, 1),
        "f1_macro": f1_C[used_C].mean() if used_C.any() else 0.0,
        "matthews": covariance / math.sqrt(variances) if variances > 0 else 0.0,
    }
    if positive is not None:
        scores["f1_positive"] = f1_C[positive]
    return {name: float(value) for name, value in scores.items()}
