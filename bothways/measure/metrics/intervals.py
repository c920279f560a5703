"""95 % confidence intervals: Wilson intervals and the percentile bootstrap.

A proportion of independent rows gets a Wilson interval (1927). All other scores get a percentile bootstrap (Efron 1979)
over independent units: texts, documents, passages, or groups of rows. The draws depend only on the number of units, so
that the resamples of two models on the same rows are paired.

A model without errors is perfect in every resample, so its bootstrap interval has no width. Therefore an interval is
never narrower than the Wilson interval of a proportion of as many trials; for a correlation, never narrower than
Fisher's.

Letters: U units, N rows, M decisions, C labels, B resamples.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from bothways.base.errors import flag
from bothways.base.rng import Purpose, generator

Interval = tuple[float, float]
# The index of the row, the label, and for an entity its position in the row: the class of a text has none.
Decision = tuple[Any, ...]
# How often each unit is drawn in each resample [B, U] -> scores by name [B].
Statistic = Callable[[np.ndarray], Mapping[str, np.ndarray]]
# Name of a score, its bounds and its value -> bounds that are at least as wide.
Widen = Callable[[str, Interval, float], Interval]

RESAMPLES = 1000
FEWEST_RESAMPLES = 200  # however many units there are
MOST_DRAWS = 2 * 10**7  # units times resamples: from 20,000 units on, fewer resamples are drawn
BLOCK_DRAWS = 2**16  # draws of units that are scored at once: they fit into a processor's cache
FEW_DRAWS = 2**10  # units up to which draws are kept for the next call, 64 blocks of half a megabyte at most
FEW_SUMMED = 8  # numpy adds fewer values one after the other, so that zeros between them change no bit of the sum

FEW_ROWS = 100  # below this, even an accuracy of 90 % is uncertain by 6 points or more
FEW_UNITS = 20  # below this, a percentile bootstrap is clearly too narrow (see `percentile_interval`)
# The 0.975 quantiles of Student's t with 1, 2, ... FEW_UNITS - 2 degrees of freedom.
T = (
    12.706204736174694,
    4.302652729749462,
    3.1824463052837078,
    2.7764451051977934,
    2.5705818356363146,
    2.4469118511449786,
    2.364624251592784,
    2.306004135204166,
    2.262157162798205,
    2.228138851986274,
    2.200985160091639,
    2.1788128296672284,
    2.1603686564627913,
    2.144786687917804,
    2.131449545559776,
    2.1199052992212546,
    2.1098155778333156,
    2.1009220402410382,
)
Z = 1.96  # 95 % of a normal distribution lie within this many standard deviations of the mean
TIE = 1e-9  # scores that differ by less are equal: they are sums of the same floats in different orders


class Intervals(dict[str, Interval]):
    """95 % intervals of scores by name.

    resamples: the scores in each bootstrap resample, [B] by name.
    num_units: the number of units that were drawn.
    """

    def __init__(self, bounds: Mapping[str, Interval], resamples: Mapping[str, np.ndarray], num_units: int) -> None:
        super().__init__(bounds)
        self.resamples = resamples
        self.num_units = num_units


def with_intervals(scores: Mapping[str, Any], bounds: Mapping[str, Interval]) -> dict[str, Any]:
    """The scores, with NAME_interval: [low, high] after each score that has bounds."""
    merged: dict[str, Any] = {}
    for name, value in scores.items():
        merged[name] = value
        if name in bounds:
            merged[f"{name}_interval"] = [*bounds[name]]
    return merged


def few_rows_warning(num_rows: int, rows: str, split: str, way_out: str = "") -> str:
    """A warning if a split has fewer than FEW_ROWS rows; else "".

    num_rows: the number of rows.
    rows: the noun for them, such as texts.
    split: the split or the file that has them.
    way_out: the advice; "" for the advice on a table that a model is fine-tuned on.
    """
    if num_rows >= FEW_ROWS:
        return ""

    # An example that a reader can judge: the interval of 90 % right.
    low, high = wilson_interval(0.9 * num_rows, num_rows)
    way_out = way_out or f"cross-validate with {flag('folds', 5)} (finetune), which scores every row"
    return (
        f"{split}: {num_rows} {rows} are too few to compare models (an accuracy of 90 % could be anything from "
        f"{low:.0%} to {high:.0%}); {way_out}"
    )


def wilson_interval(successes: float, trials: float, z: float = Z) -> Interval:
    """The Wilson interval of the proportion successes / trials (Wilson 1927); 95 % with the default z.

    >>> wilson_interval(30, 30)
    (0.8864829086095221, 1.0)
    """
    if not trials:
        return 0.0, 1.0

    share = successes / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    variance = share * (1 - share) / trials + z * z / (4 * trials * trials)
    half = z / scale * math.sqrt(variance)
    return max(0.0, middle - half), min(1.0, middle + half)


def resampling_units(groups: Sequence[Hashable]) -> np.ndarray:
    """The resampling unit of each row: its group, or the row itself if there is only one group. [N]"""
    unit_by_group: dict[Hashable, int] = {}
    unit_N = np.array([unit_by_group.setdefault(group, len(unit_by_group)) for group in groups], np.int64)
    if len(unit_by_group) > 1:
        return unit_N
    return np.arange(len(groups))


def mean_intervals(
    columns: Mapping[str, Sequence[float]],
    groups: Sequence[Hashable],
    weights: Sequence[float] | None = None,
) -> Intervals:
    """95 % intervals of the weighted means of columns of values in 0..1, which have a value per row.

    columns: the values by the name of the score.
    groups: rows of a group are resampled together.
    weights: for example the number of words of a sentence, if its value is a tag accuracy. None: all equal.
    """
    unit_N = resampling_units(groups)
    weight_N = np.ones(len(groups)) if weights is None else np.asarray(weights, float)

    # A resample then needs the sums of its units only, not their rows.
    weight_U = np.bincount(unit_N, weight_N)
    sums = {name: np.bincount(unit_N, np.asarray(values, float) * weight_N) for name, values in columns.items()}

    def means(draws_BU: np.ndarray) -> dict[str, np.ndarray]:
        total_B = (draws_BU * weight_U).sum(1)
        return {name: (draws_BU * sum_U).sum(1) / total_B for name, sum_U in sums.items()}

    # A row of weight 7, a sentence of 7 words, is 7 trials.
    trials = float(weight_U.sum())
    return bootstrap(len(weight_U), means, lambda name, bounds, value: widen(bounds, value, trials))


def decision_intervals(
    gold: Collection[Decision],
    predicted: Collection[Decision],
    unit_N: np.ndarray,
    positive: str | int | None = None,
) -> Intervals:
    """95 % intervals of the scores of `decision_scores`.

    gold: the annotated decisions.
    predicted: the decisions of the model.
    unit_N: the resampling unit of each row.
    positive: the label of f1_positive; None: without this score.
    """
    gold_set = set(gold)
    predicted_set = set(predicted)
    decision_sets = (gold_set, predicted_set, gold_set & predicted_set)

    labels = {decision[1] for decision in gold_set | predicted_set}
    index_by_label = {label: index for index, label in enumerate(sorted(labels))}
    positive_index = None
    if positive is not None:
        positive_index = index_by_label.setdefault(positive, len(index_by_label))

    # The unit that each decision is drawn with, and the index of its label, by set.
    units = []
    label_indices = []
    for decisions in decision_sets:
        units.append(unit_N[np.array([decision[0] for decision in decisions], np.int64)])
        label_indices.append(np.array([index_by_label[decision[1]] for decision in decisions], np.int64))

    def scores(draws_BU: np.ndarray) -> dict[str, np.ndarray]:
        # A decision counts as often as its unit is drawn.
        counts = []
        for unit_M, label_M in zip(units, label_indices, strict=True):
            by_resample = [np.bincount(label_M, drawn_U[unit_M], len(index_by_label)) for drawn_U in draws_BU]
            counts.append(np.stack(by_resample))
        gold_BC, predicted_BC, right_BC = counts
        return decision_scores(gold_BC, predicted_BC, right_BC, positive_index)

    # A right decision stands among the gold and among the predicted ones, so the trials of F1 are half of both numbers.
    num_gold = len(gold_set)
    num_predicted = len(predicted_set)
    num_gold_positive = sum(decision[1] == positive for decision in gold_set)
    num_predicted_positive = sum(decision[1] == positive for decision in predicted_set)
    trials_of_all = (num_gold + num_predicted) / 2
    trials = {
        "precision": num_predicted,
        "recall": num_gold,
        "f1_positive": (num_gold_positive + num_predicted_positive) / 2,
    }

    def widened(name: str, bounds: Interval, value: float) -> Interval:
        lowest = -1.0 if name == "matthews" else 0.0
        return widen(bounds, value, trials.get(name, trials_of_all), lowest)

    num_units = int(unit_N.max()) + 1
    return bootstrap(num_units, scores, widened)


def decision_scores(
    gold_BC: np.ndarray,
    predicted_BC: np.ndarray,
    right_BC: np.ndarray,
    positive: int | None = None,
) -> dict[str, np.ndarray]:
    """precision, recall, f1, f1_macro, Matthews correlation and f1_positive, from counts of decisions per label. [B]

    0 / 0 counts as 0. f1_macro skips labels without decisions; the correlation assumes one decision per row.

    gold_BC: how many gold decisions have each label.
    predicted_BC: how many predicted decisions have each label.
    right_BC: how many decisions with each label are both.
    positive: index of the label whose F1 is f1_positive; None: without this score.
    """
    gold_B = gold_BC.sum(1)
    predicted_B = predicted_BC.sum(1)
    right_B = right_BC.sum(1)
    used_BC = gold_BC + predicted_BC > 0
    f1_BC = 2 * right_BC / np.maximum(gold_BC + predicted_BC, 1)

    # The Matthews correlation of any number of classes (Gorodkin 2004): a covariance over two standard deviations.
    covariance_B = right_B * gold_B - (gold_BC * predicted_BC).sum(1)
    squares_B = gold_B.astype(float) ** 2  # a product of two would overflow integers from 55,000 decisions on
    variances_B = (squares_B - (predicted_BC**2).sum(1)) * (squares_B - (gold_BC**2).sum(1))
    deviations_B = np.sqrt(np.where(variances_B > 0, variances_B, 1))

    scores = {
        "precision": right_B / np.maximum(predicted_B, 1),
        "recall": right_B / np.maximum(gold_B, 1),
        "f1": 2 * right_B / np.maximum(gold_B + predicted_B, 1),
        "f1_macro": mean_of_used(f1_BC, used_BC),
        "matthews": np.where(variances_B > 0, covariance_B / deviations_B, 0.0),
    }
    if positive is not None:
        scores["f1_positive"] = f1_BC[:, positive]
    return scores


def mean_of_used(value_BC: np.ndarray, used_BC: np.ndarray) -> np.ndarray:
    """The mean of the used values of each resample, 0 if none is used. [B]

    value_BC: the values; unused values are 0.
    used_BC: whether each value is used.
    """
    num_labels = value_BC.shape[1]
    if num_labels < FEW_SUMMED or used_BC.all():
        return np.asarray(value_BC.sum(1) / np.maximum(used_BC.sum(1), 1))

    # numpy adds more values in parts, so that zeros between them would change the last bits.
    pairs = zip(value_BC, used_BC, strict=True)
    return np.array([value_C[used_C].mean() if used_C.any() else 0.0 for value_C, used_C in pairs])


def bootstrap(num_units: int, statistic: Statistic, widened: Widen) -> Intervals:
    """The `percentile_interval` of each score over resamples of the units, widened.

    num_units: the number of independent units; with very many, fewer resamples are drawn (see MOST_DRAWS).
    statistic: the scores of each resample.
    widened: makes an interval wider, where it would be too narrow.
    """
    blocks = [statistic(draws_BU) for draws_BU in draw_resamples(num_units)]
    resamples = {name: np.concatenate([scores[name] for scores in blocks]) for name in blocks[0]}
    whole = statistic(np.ones((1, num_units), np.int64))  # each unit once: the score itself

    bounds = {}
    for name, resamples_B in resamples.items():
        value = float(whole[name][0])
        percentiles = percentile_interval(value, resamples_B, num_units)
        bounds[name] = widened(name, percentiles, value)
    return Intervals(bounds, resamples, num_units)


def draw_resamples(num_units: int) -> Iterator[np.ndarray]:
    """How often each unit is drawn in each resample, in blocks [B, U] of about BLOCK_DRAWS draws."""
    num_resamples = max(FEWEST_RESAMPLES, min(RESAMPLES, MOST_DRAWS // num_units))
    size = max(1, BLOCK_DRAWS // num_units)
    draw = _draw_few if num_units <= FEW_DRAWS else _draw_block

    for first in range(0, num_resamples, size):
        yield draw(num_units, first, min(first + size, num_resamples))


def _draw_block(num_units: int, first: int, last: int) -> np.ndarray:
    """How often each unit is drawn in the resamples `first` to `last - 1`."""
    draws_BU = np.empty((last - first, num_units), np.int64)
    for row, resample in enumerate(range(first, last)):
        # A generator for each resample: the draws are the same for any size of blocks.
        drawn = generator(0, Purpose.BOOTSTRAP, resample).integers(num_units, size=num_units)
        draws_BU[row] = np.bincount(drawn, minlength=num_units)

    draws_BU.flags.writeable = False  # kept draws are shared by all callers
    return draws_BU


_draw_few = lru_cache(maxsize=64)(_draw_block)  # a run scores the same rows many times


def percentile_interval(value: float, resamples_B: np.ndarray, num_units: int) -> Interval:
    """The 2.5th and 97.5th percentiles of the resamples, further from the value with fewer than FEW_UNITS units.

    Their distances from the value are then multiplied by the ratio of two widths: of a t interval with the sample
    variance, and of a normal interval with the variance of the resamples.

    value: the score of the rows themselves.
    resamples_B: the score of each resample.
    num_units: the number of units that were drawn.
    """
    low, high = np.quantile(resamples_B, (0.025, 0.975))
    if 1 < num_units < FEW_UNITS:
        # T begins with one degree of freedom, which two units have. The root: resamples of n units vary by (n - 1) / n
        # of the sample variance.
        factor = T[num_units - 2] / Z * math.sqrt(num_units / (num_units - 1))
        low = min(low, value - (value - low) * factor)
        high = max(high, value + (high - value) * factor)
    return float(low), float(high)


def difference_interval(value: float, resamples_B: np.ndarray, num_units: int) -> Interval:
    """95 % interval of the difference of two scores in 0..1 on the same rows, from paired resamples.

    If the scores are the same on every unit, no resample differs and the percentiles have no width. So the interval
    also covers the interval that four more units would give, two in favour of either side (Agresti and Min 2005).

    value: the difference of the scores of the rows themselves.
    resamples_B: the difference of the scores of each resample.
    num_units: the number of units that were drawn.
    """
    low, high = percentile_interval(value, resamples_B, num_units)

    # The four units leave the sum of the differences as it is. If they alone differ, its standard deviation is 2.
    middle = value * num_units / (num_units + 4)
    half = 2 * Z / (num_units + 4)
    return min(low, value, middle - half), max(high, value, middle + half)


def widen(bounds: Interval, value: float, trials: float, lowest: float = 0.0) -> Interval:
    """The bounds of a score, extended to the Wilson interval where that is wider.

    bounds: the bootstrap interval, which is cut to between `lowest` and 1.
    value: the score, taken as a proportion of the way from `lowest` to 1. The Matthews correlation of spans can lie
        outside; then it is taken as the nearer end.
    trials: the number of trials of the proportion.
    lowest: the least value that the score can have.
    """
    share = min(max((value - lowest) / (1 - lowest), 0.0), 1.0)
    low, high = wilson_interval(share * trials, trials)
    low = lowest + (1 - lowest) * low  # back from a proportion to the scale of the score
    high = lowest + (1 - lowest) * high

    bootstrap_low = max(bounds[0], lowest)
    bootstrap_high = min(bounds[1], 1.0)
    return min(bootstrap_low, low), max(bootstrap_high, high)


def widen_correlation(bounds: Interval, value: float, num_rows: int) -> Interval:
    """The bounds of a correlation, cut to between -1 and 1, and extended to Fisher's interval (1921) where it is wider.

    The standard error is the one of Bonett and Wright (2000) for ranks. Correlations of N rows are limited to
    1 - 2 / N, since a perfect one has no interval. With three rows or fewer the interval is -1 to 1.

    bounds: the bootstrap interval.
    value: the correlation.
    num_rows: the number of rows.
    """
    if num_rows <= 3:
        return -1.0, 1.0

    limit = 1 - 2 / num_rows
    limited = min(max(value, -limit), limit)
    half = Z * math.sqrt((1 + limited**2 / 2) / (num_rows - 3))
    # Correlations are skewed; their inverse hyperbolic tangents are nearly normal.
    low = math.tanh(math.atanh(limited) - half)
    high = math.tanh(math.atanh(limited) + half)

    bootstrap_low = max(bounds[0], -1.0)
    bootstrap_high = min(bounds[1], 1.0)
    return min(bootstrap_low, low, value), max(bootstrap_high, high, value)
