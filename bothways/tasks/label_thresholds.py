"""Thresholds of labels of a multi-label model: the probability above which a text has a label, fitted on dev.

Few texts say little about a threshold: it is 0.5 unless held-out texts of dev gain by another, one for all labels or
one for each, and the threshold of a label with few texts is drawn towards the threshold of all labels.

Letters: N texts, C labels, K thresholds that are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bothways.base.rng import Purpose, generator
from bothways.tasks.class_decoding import EVEN

Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]
GRID = np.linspace(0.05, 0.95, 37)
MIN_ROWS = 50  # of dev, below which the threshold stays 0.5
FOLDS = 5
PRIOR_TEXTS = 20  # texts with a label at which its own threshold counts as much as the common one
MIN_GAIN = 0.005  # of the metric on held-out texts, by which a threshold per label, or another than 0.5, must be better


def fit_thresholds(
    probabilities_NC: Floats, targets_NC: Labels, score: Callable[[Labels, Labels], float]
) -> NDArray[np.float64]:
    """The threshold of each label, [C].

    targets_NC: 0 and 1. score: the metric of predicted labels, (gold, predicted) -> the higher the better.
    """
    num_rows, num_labels = targets_NC.shape
    even_C = np.full(num_labels, EVEN)
    if num_rows < MIN_ROWS:
        return even_C

    fits: Sequence[Callable[[Floats, Labels], Floats]] = (shared_threshold, threshold_per_label)

    best_C = even_C
    best = score(targets_NC, (probabilities_NC > EVEN).astype(np.int64))

    fold_N = generator(0, Purpose.FOLDS).permutation(num_rows) % FOLDS
    for fit in fits:
        decided_NC = np.zeros_like(targets_NC)
        for fold in range(FOLDS):
            is_out_N = fold_N == fold
            thresholds_C = fit(probabilities_NC[~is_out_N], targets_NC[~is_out_N])
            decided_NC[is_out_N] = probabilities_NC[is_out_N] > thresholds_C
        if (reached := score(targets_NC, decided_NC)) > best + MIN_GAIN:
            best_C = fit(probabilities_NC, targets_NC)
            best = reached

    return best_C


def shared_threshold(probabilities_NC: Floats, targets_NC: Labels) -> Floats:
    """The threshold of all labels with the highest micro F1, [C]."""
    counts = counts_by_threshold(probabilities_NC, targets_NC)
    best = middle_of_best(f1_of(*(count_KC.sum(1, keepdims=True) for count_KC in counts)))
    return np.full(targets_NC.shape[1], float(best[0]))


def threshold_per_label(probabilities_NC: Floats, targets_NC: Labels) -> Floats:
    """The threshold of each label with its highest F1, drawn towards the common threshold by PRIOR_TEXTS, [C]."""
    own_C = middle_of_best(f1_of(*counts_by_threshold(probabilities_NC, targets_NC)))
    weight_C = targets_NC.sum(0) / (targets_NC.sum(0) + PRIOR_TEXTS)
    return weight_C * own_C + (1 - weight_C) * shared_threshold(probabilities_NC, targets_NC)


def counts_by_threshold(probabilities_NC: Floats, targets_NC: Labels) -> tuple[Floats, Floats, Floats]:
    """For each threshold and label, [K, C]: right, predicted and gold texts."""
    right = []
    predicted = []
    for threshold in GRID:
        has_label_NC = probabilities_NC > threshold
        right.append((has_label_NC & (targets_NC == 1)).sum(0))
        predicted.append(has_label_NC.sum(0))
    gold_KC = np.broadcast_to(targets_NC.sum(0), (len(GRID), targets_NC.shape[1]))
    return np.array(right, np.float64), np.array(predicted, np.float64), gold_KC.astype(np.float64)


def f1_of(right: Floats, predicted: Floats, gold: Floats) -> Floats:
    f1: Floats = 2 * right / np.maximum(predicted + gold, 1)
    return f1


def middle_of_best(f1_KC: Floats) -> Floats:
    """The threshold of the highest F1 of each column; of several, the one that is nearest to 0.5."""
    distance_K = np.abs(GRID - EVEN)
    is_best_KC = f1_KC >= f1_KC.max(0) - 1e-12
    return GRID[np.where(is_best_KC, distance_K[:, None], np.inf).argmin(0)]
