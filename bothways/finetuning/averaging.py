"""Points between the model before and after training, of which dev selects one (WiSE-FT, Wortsman 2022).

Few examples train a model far beyond what they can teach it; the way there is often better than its end.
"""

from collections.abc import Iterator, Mapping
from math import sqrt

import torch
from torch import Tensor

from bothways.finetuning.plan import Plan
from bothways.log import logger
from bothways.model.model import Model

FRACTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the way from the initial to the trained weights
FEW_ROWS = 300  # with fewer rows, the loss selects, which tells more per row than the metric
DOUBT = 0.5  # the initial weights are kept unless the gain is larger than this many standard errors


def select_fraction(plan: Plan, model: Model, initial: Mapping[str, Tensor]) -> float:
    """Give the model the best of the weights between `initial` and its own, in place; returns their fraction.

    By the loss on dev, for few rows; else by the metric, and the loss for ties.
    """
    scoring, trained = plan.task.scoring, trained_state(model)
    quality_by_fraction: dict[float, tuple[float, float]] = {}
    losses_by_fraction: dict[float, Tensor] = {}
    for fraction in FRACTIONS:
        model.load_state_dict(dict(interpolate(initial, trained, fraction)), strict=False)
        outputs = scoring.outputs(plan.inference_copy(model), "dev")
        losses_N = scoring.row_losses("dev", outputs)
        assert losses_N is not None
        metric = scoring.compute_metrics("dev", outputs)[scoring.metric] if len(losses_N) >= FEW_ROWS else 0.0
        quality_by_fraction[fraction] = (metric, -float(losses_N.mean()))
        losses_by_fraction[fraction] = losses_N
    best = max(FRACTIONS, key=quality_by_fraction.__getitem__)
    gain_N = losses_by_fraction[0.0] - losses_by_fraction[best]
    if len(gain_N) < FEW_ROWS and gain_N.mean() <= DOUBT * gain_N.std(correction=0) / sqrt(len(gain_N)):
        best = 0.0
    if 0.0 < best < 1.0:
        logger.info(
            f"kept: {best:.0%} of the way from {plan.task.initial_model} to the trained weights, the best point on dev"
        )
    model.load_state_dict(dict(interpolate(initial, trained, best)), strict=False)
    return best


def trained_state(model: Model) -> dict[str, Tensor]:
    """A copy of the values that training changes: all but frozen parameters."""
    frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
    return {name: value.clone() for name, value in model.state_dict().items() if name not in frozen}


def interpolate(
    initial: Mapping[str, Tensor], trained: Mapping[str, Tensor], fraction: float
) -> Iterator[tuple[str, Tensor]]:
    """Weights between two models; exact at both ends."""
    for name, value in trained.items():
        if fraction == 1.0 or not value.is_floating_point():
            yield name, value
        else:
            yield name, torch.lerp(initial[name], value, fraction)
