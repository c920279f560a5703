"""95 % intervals: where a score would lie on other rows of the same kind.

A share of independent rows has Wilson's interval (1927). All other scores have a percentile bootstrap (Efron 1979) over
units that are independent of each other: texts, documents, passages. Its draws depend on the number of units alone.
Where nothing went wrong every resample is perfect too and the bootstrap has no width, so an interval is never narrower
than Wilson's for a share of as many trials. Letters: U units, N rows, M marks, C labels.
"""

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from bothways.rng import Purpose, generator

Interval = tuple[float, float]
Decision = tuple[Any, ...]  # (number of its row, label, where in the row)
Statistic = Callable[[np.ndarray], Mapping[str, float]]  # how often each unit was drawn [U] -> scores by name
RESAMPLES, FEWEST_RESAMPLES, MOST_DRAWS = 1000, 200, 2 * 10**7
FEW_ROWS = 100  # on fewer, even a share of 90 % is uncertain by 6 points or more
FEW_UNITS = 20  # a bootstrap over fewer groups of rows would be too narrow to mean anything


def wilson_interval(successes: float, trials: float, z: float = 1.96) -> Interval:
    """The 95 % interval of a share (Wilson 1927)."""
    if not trials:
        return 0.0, 1.0
    share = successes / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def with_intervals(scores: Mapping[str, Any], bounds: Mapping[str, Interval]) -> dict[str, Any]:
    """The scores, each that has an interval followed by it as NAME_interval: [low, high]."""
    found: dict[str, Any] = {}
    for name, value in scores.items():
        found[name] = value
        if name in bounds:
            found[f"{name}_interval"] = [*bounds[name]]
    return found


def few_rows_warning(number: int, rows: str, split: str) -> str:
    """What a reader of scores of so few rows must know; "" where there are enough."""
    if number >= FEW_ROWS:
        return ""
    low, high = wilson_interval(0.9 * number, number)
    return (
        f"{split}: {number} {rows} are too few to tell good models from better ones (90 % right could be anything from "
        f"{low:.0%} to {high:.0%}); cross-validate with --folds 5 (finetune), which scores every row"
    )


def bootstrap(num_units: int, statistic: Statistic) -> dict[str, Interval]:
    """The 2.5th and 97.5th percentile of each score over resamples of the units; fewer resamples of very many units."""
    number = max(FEWEST_RESAMPLES, min(RESAMPLES, MOST_DRAWS // num_units))
    scores = []
    for resample in range(number):
        drawn = generator(0, Purpose.BOOTSTRAP, resample).integers(num_units, size=num_units)
        scores.append(statistic(np.bincount(drawn, minlength=num_units)))
    bounds = {name: np.quantile([one[name] for one in scores], (0.025, 0.975)) for name in scores[0]}
    return {name: (float(low), float(high)) for name, (low, high) in bounds.items()}


def widen(bounds: Interval, value: float, trials: float, lowest: float = 0.0) -> Interval:
    """`bounds`, or Wilson's where those lie further out: of `value`, between `lowest` and 1, as a share of so many
    trials."""
    low, high = wilson_interval((value - lowest) / (1 - lowest) * trials, trials)
    return min(bounds[0], lowest + (1 - lowest) * low), max(bounds[1], lowest + (1 - lowest) * high)


def resampling_units(groups: Sequence[Hashable]) -> np.ndarray:
    """The unit of each row, numbered from 0: its group, or the row itself where there are fewer than FEW_UNITS
    groups."""
    numbers: dict[Hashable, int] = {}
    unit_N = np.array([numbers.setdefault(group, len(numbers)) for group in groups], np.int64)
    return unit_N if len(numbers) >= FEW_UNITS else np.arange(len(groups))


def mean_interval(
    values: Sequence[float], groups: Sequence[Hashable], weights: Sequence[float] | None = None
) -> Interval:
    """Of the mean of values in 0..1, one a row; weights: how much each row counts (its words, where a value is the
    share of those that are right)."""
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
    """Of precision, recall and F1 over all marks (a text's class is one mark, so is each entity), of F1 averaged over
    labels as f1_macro, of Matthews' correlation where each row has one mark, and as f1_positive of the F1 of one label.

    unit_N: the unit of each row.
    """
    kinds = (set(gold), set(predicted), set(gold) & set(predicted))
    labels = {label: number for number, label in enumerate(sorted({mark[1] for mark in kinds[0] | kinds[1]}))}
    place = labels.setdefault(positive, len(labels)) if positive is not None else None
    units = [unit_N[np.array([mark[0] for mark in marks], np.int64)] for marks in kinds]
    numbers = [np.array([labels[mark[1]] for mark in marks], np.int64) for marks in kinds]

    def scores(drawn_U: np.ndarray) -> dict[str, float]:
        gold_C, predicted_C, right_C = (
            np.bincount(number_M, drawn_U[unit_M], minlength=len(labels))
            for unit_M, number_M in zip(units, numbers, strict=True)
        )
        return decision_scores(gold_C, predicted_C, right_C, place)

    num_units = int(unit_N.max()) + 1
    values, bounds = scores(np.ones(num_units)), bootstrap(num_units, scores)
    own = [sum(mark[1] == positive for mark in marks) for marks in kinds]
    num_gold, num_predicted, _ = map(len, kinds)
    trials = dict.fromkeys(values, (num_gold + num_predicted) / 2)
    trials |= {"precision": num_predicted, "recall": num_gold, "f1_positive": (own[0] + own[1]) / 2}
    lowest = {"matthews": -1.0}
    return {name: widen(bounds[name], values[name], trials[name], lowest.get(name, 0.0)) for name in values}


def decision_scores(
    gold_C: np.ndarray, predicted_C: np.ndarray, right_C: np.ndarray, positive: int | None = None
) -> dict[str, float]:
    """The scores from the numbers of marks. A share of nothing is 0; a label with no mark is left out of f1_macro."""
    gold, predicted, right = gold_C.sum(), predicted_C.sum(), right_C.sum()
    used_C = gold_C + predicted_C > 0
    f1_C = 2 * right_C / np.maximum(gold_C + predicted_C, 1)
    agreed = right * gold - gold_C @ predicted_C
    possible = (gold**2 - predicted_C @ predicted_C) * (gold**2 - gold_C @ gold_C)
    scores = {
        "precision": right / max(predicted, 1),
        "recall": right / max(gold, 1),
        "f1": 2 * right / max(gold + predicted, 1),
        "f1_macro": f1_C[used_C].mean() if used_C.any() else 0.0,
        "matthews": agreed / math.sqrt(possible) if possible > 0 else 0.0,
    }
    if positive is not None:
        scores["f1_positive"] = f1_C[positive]
    return {name: float(value) for name, value in scores.items()}
