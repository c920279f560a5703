"""Calibration of a classifier on held-out scores: one temperature (Guo 2017), and scores for prediction sets.

The temperature divides all scores, so it changes no decision. Targets are smoothed as by Platt (1999), so that a few
rows that are all right do not make it 0. Prediction sets are those of split conformal prediction (Vovk 2005; the
threshold on the probability of Sadinle 2019).

Letters: N rows, C classes or labels.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bothways.inference.prediction_sets import Calibration
from bothways.metrics.arrays import Floats, softmax

LOWEST, HIGHEST, STEPS = 0.2, 20.0, 400  # temperatures that are tried, on a logarithmic scale
MAX_STORED = 2000  # rows whose scores are stored


def fit_calibration(scores_NC: Floats, targets: NDArray[Any], *, multi_label: bool) -> Calibration:
    """The temperature with the lowest loss on these rows, and how unlikely each gold class is at this temperature.

    targets: classes [N], or 0 and 1 of each label [N, C].
    """
    temperature = fit_temperature(scores_NC, targets, multi_label=multi_label)
    strangeness = ()
    if not multi_label:
        ordered_N = np.sort(1 - np.take_along_axis(softmax(scores_NC / temperature), targets[:, None], 1)[:, 0])
        kept = np.linspace(0, len(ordered_N) - 1, min(len(ordered_N), MAX_STORED)).round().astype(np.int64)
        strangeness = tuple(round(value, 6) for value in ordered_N[kept].tolist())
    return Calibration(temperature, len(scores_NC), strangeness)


def fit_temperature(scores_NC: Floats, targets: NDArray[Any], *, multi_label: bool) -> float:
    """The temperature with the lowest cross-entropy: the mean of a linear function of scores / temperature, and of the
    logarithm of a sum of powers."""
    (rows, classes), scores_NC = scores_NC.shape, scores_NC.astype(np.float64)
    if multi_label:
        smoothed_NC = (targets * rows + 1) / (rows + 2)
        linear = (np.maximum(scores_NC, 0) - scores_NC * smoothed_NC).mean()
        below_NC = -np.abs(scores_NC)
    else:
        smoothing = min(1.0, 2 * classes / ((classes - 1) * (rows + 4)))
        below_NC = scores_NC - scores_NC.max(1, keepdims=True)
        gold_N = np.take_along_axis(below_NC, targets[:, None], 1)
        linear = (smoothing - 1) * gold_N.mean() - smoothing * below_NC.mean()

    def loss(temperature: float) -> float:
        powers_NC = np.exp(below_NC / temperature)
        logarithms = np.log1p(powers_NC) if multi_label else np.log(powers_NC.sum(1))
        return float(logarithms.mean() + linear / temperature)

    return min(np.geomspace(LOWEST, HIGHEST, STEPS, dtype=np.float32).tolist(), key=loss)
