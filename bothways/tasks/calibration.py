"""Calibration of a classifier on held-out scores: one temperature (Guo 2017), and scores for prediction sets.

The temperature divides all scores, so it changes no decision. Targets are smoothed as by Platt (1999), so that a few
rows that are all right do not make it 0. Prediction sets are those of split conformal prediction (Vovk 2005; the
threshold on the probability of Sadinle 2019).

Letters: N rows, C classes or labels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.tasks.prediction_sets import Calibration

LOWEST, HIGHEST, STEPS = 0.2, 20.0, 400  # temperatures that are tried, on a logarithmic scale
MAX_STORED = 2000  # rows whose scores are stored


def fit_calibration(scores_NC: Tensor, targets: Tensor, *, multi_label: bool) -> Calibration:
    """The temperature with the lowest loss on these rows, and how unlikely each gold class is at this temperature.

    targets: classes [N], or 0 and 1 of each label [N, C].
    """
    temperature = fit_temperature(scores_NC, targets, multi_label=multi_label)
    strangeness = ()
    if not multi_label:
        gold_N = (scores_NC / temperature).softmax(-1).gather(1, targets[:, None])[:, 0]
        ordered_N = (1 - gold_N).sort().values
        kept = torch.linspace(0, len(ordered_N) - 1, min(len(ordered_N), MAX_STORED)).round().long()
        strangeness = tuple(round(value, 6) for value in ordered_N[kept].tolist())
    return Calibration(temperature, len(scores_NC), strangeness)


def fit_temperature(scores_NC: Tensor, targets: Tensor, *, multi_label: bool) -> float:
    losses = []
    temperatures = torch.logspace(torch.tensor(LOWEST).log10().item(), torch.tensor(HIGHEST).log10().item(), STEPS)
    rows, classes = scores_NC.shape
    for temperature in temperatures:
        scaled_NC = scores_NC.double() / temperature
        if multi_label:
            smoothed = (targets.double() * rows + 1) / (rows + 2)
            losses.append(F.binary_cross_entropy_with_logits(scaled_NC, smoothed))
        else:
            smoothing = min(1.0, 2 * classes / ((classes - 1) * (rows + 4)))
            losses.append(F.cross_entropy(scaled_NC, targets, label_smoothing=smoothing))
    return float(temperatures[int(torch.stack(losses).argmin())])
