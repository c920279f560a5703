"""The gain of a training on dev: a task delivers the model before training unless the trained one is clearly better.

Training on few examples overfits, and a point between the initial and the final weights often scores better (WiSE-FT,
Wortsman 2022). The rows of dev select it.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from bothways.base.errors import format_count
from bothways.base.io import write_atomic
from bothways.base.log import logger, muted
from bothways.measure import metrics
from bothways.measure.metrics.intervals import FEW_UNITS, difference_interval, percentile_interval
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.weights import write_weights
from bothways.model.model import Model
from bothways.model.transforms import finalize_all
from bothways.training.finetuning.card import card_of
from bothways.training.finetuning.ground.linear_candidates import CERTAIN
from bothways.training.finetuning.ground.score import THIS_MODEL, Score
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.scored_rows import MIN_TEST_ROWS
from bothways.training.run import Run

DOUBT = 0.5  # standard errors of a gain that is enough for a training that was asked for
LOSS = "loss"  # of a gain that is one of the loss
GAIN = "gain.json"  # in the directory of a seed
TRAINED = "trained"  # directory of a run: a trained model that is not delivered
WEIGHTS = "not_delivered.safetensors"  # beside it: trained weights that are no clear gain
FRACTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the way from the initial to the trained weights
FEW_ROWS = 300  # with fewer rows the loss selects, since it has more information per row than the metric


@dataclass(frozen=True)
class Gain:
    """The metric on dev before training and after it, and the 95 % interval of the difference, paired by row.

    metric: or LOSS, whose difference is counted from after to before.
    fraction: of the way from the initial to the trained weights.
    rows: number of rows or queries of dev.
    """

    metric: str
    before: float
    after: float
    low: float
    high: float
    fraction: float
    rows: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval lies above 0."""
        return self.low > metrics.TIE

    @property
    def is_likely(self) -> bool:
        """Whether it is more than DOUBT standard errors."""
        return self.low + self.high > DOUBT / CERTAIN * (self.high - self.low) + metrics.TIE

    @property
    def difference(self) -> str:
        if self.metric == LOSS:
            return f"{self.low:+.3f} to {self.high:+.3f}"
        return f"{100 * self.low:+.1f} to {100 * self.high:+.1f} points"

    def write(self, directory: Path) -> None:
        write_atomic(directory / GAIN, json.dumps(asdict(self)))

    @staticmethod
    def read(directory: Path) -> "Gain | None":
        """The gain of a seed; None for tasks that need none."""
        file = directory / GAIN
        return Gain(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None

    def describe(self) -> str:
        """The two scores, and the difference with its interval in points; or that there are too few rows for them."""
        if self.rows < MIN_TEST_ROWS:
            return f"{format_count(self.rows, 'row')} of dev cannot show a gain"
        form = ".3f" if self.metric == LOSS else ".2%"
        return (
            f"{self.metric} {self.before:{form}} before training, {self.after:{form}} after it; the "
            f"{'gain' if self.metric == LOSS else 'difference'} is {self.difference} (95 % interval, "
            f"{format_count(self.rows, 'row')})"
        )


# --- between the initial and the trained weights ----------------------------------------------------------------------


def select_fraction(plan: Plan, model: Model, initial: Mapping[str, Tensor], directory: Path) -> float:
    """Give the model the best of the weights between `initial` and its own, in place, or the initial ones unless the
    best is clearly better on dev (likely better, if a training was asked for); returns their fraction. The gain is
    stored in the directory, with the trained weights if they are not kept.

    By the loss on dev, for few rows; else by the metric, and the loss for ties.
    """
    scoring = plan.task.scoring
    trained = {name: value.clone() for name, value in model.state_dict().items() if name in initial}
    quality_by_fraction: dict[float, tuple[float, float]] = {}
    losses_by_fraction: dict[float, Tensor] = {}
    scores: dict[float, Score] = {}
    for fraction in FRACTIONS:
        model.load_state_dict(dict(interpolate(initial, trained, fraction)), strict=False)
        outputs = scoring.outputs(plan.inference_copy(model), "dev")
        losses_N = scoring.row_losses("dev", outputs)
        metric = 0.0
        if len(losses_N) >= FEW_ROWS:
            metric = scoring.compute_metrics("dev", outputs)[scoring.metric]
            scores[fraction] = dev_score(plan, outputs)
        quality_by_fraction[fraction] = (metric, -float(losses_N.mean()))
        losses_by_fraction[fraction] = losses_N

    best = max(FRACTIONS[1:], key=quality_by_fraction.__getitem__)
    gain = loss_gain(losses_by_fraction[0.0], losses_by_fraction[best], best)
    if scores and not gain.is_clear:
        gain = gain_of(plan, scores[0.0], scores[best], best)
    is_enough = gain.is_likely if plan.was_asked else gain.is_clear
    kept = best if is_enough and quality_by_fraction[best] > quality_by_fraction[0.0] else 0.0

    weights = dict(interpolate(initial, trained, best))
    if not kept:
        logger.info(f"not kept: the trained weights: {gain.describe()}")
        gain.write(directory)
        if not plan.quantizes:  # int8 layers are trained from the weights that are kept
            write_trained(weights, directory)
    elif kept < 1.0:
        logger.info(
            f"kept: {kept:.0%} of the way from {plan.task.initial_model} to the trained weights, the best point on dev"
        )
    model.load_state_dict(weights if kept else dict(initial), strict=False)
    return kept


def select_gain(plan: Plan, model: Model, initial: Mapping[str, Tensor], directory: Path) -> float:
    """Give the model the weights between `initial` and its own whose gain on dev is surest, in place, or the initial
    ones if that is no clear gain; returns their fraction. The gain is stored in the directory, with the trained weights
    if they are not kept.

    Surest: the lower end of the interval is highest. The best metric often belongs to weights far from the initial
    ones, by which some queries gain much and others lose.
    """
    scoring = plan.task.scoring
    trained = {name: value.clone() for name, value in model.state_dict().items() if name in initial}
    scores: dict[float, Score] = {}
    for fraction in FRACTIONS:
        model.load_state_dict(dict(interpolate(initial, trained, fraction)), strict=False)
        scores[fraction] = dev_score(plan, scoring.outputs(plan.inference_copy(model), "dev"))

    gains = [gain_of(plan, scores[0.0], scores[fraction], fraction) for fraction in FRACTIONS[1:]]
    gain = max(gains, key=lambda one: (one.low, one.after, one.fraction))
    kept = gain.fraction if gain.is_clear else 0.0
    weights = dict(interpolate(initial, trained, gain.fraction))
    if not kept and not plan.quantizes:  # int8 layers are trained from the weights that are kept
        write_trained(weights, directory)
    gain.write(directory)

    way = (
        "the trained weights"
        if gain.fraction == 1
        else f"{gain.fraction:.0%} of the way from {plan.task.initial_model} to them"
    )
    logger.info(f"{'kept' if kept else 'not kept'}: {way}: {gain.describe()}")
    model.load_state_dict(weights if kept else dict(initial), strict=False)
    return kept


def interpolate(
    initial: Mapping[str, Tensor], trained: Mapping[str, Tensor], fraction: float
) -> Iterator[tuple[str, Tensor]]:
    """Weights between two models; exact at both ends."""
    for name, value in trained.items():
        if fraction == 1.0 or not value.is_floating_point():
            yield name, value
        else:
            yield name, torch.lerp(initial[name], value, fraction)


# --- of scores and of losses ------------------------------------------------------------------------------------------


def dev_score(plan: Plan, outputs: Any) -> Score:
    """The score of outputs for dev with its resamples, which pair it with the score of other weights."""
    task = plan.task
    parts = plan.task.scoring.compared_outputs(outputs)
    scores = [Score.of(THIS_MODEL, task, task.scoring.predictions("dev", part)) for part in parts]
    return Score.mean(THIS_MODEL, scores, same_rows=True)


def gain_of(plan: Plan, before: Score, after: Score, fraction: float) -> Gain:
    """The gain from one score of dev to another.

    The interval is from a bootstrap, without the floor of `difference_interval`: ranks of queries are no decisions,
    and where no query differs an interval of no width is right, as that is no gain. Fewer than FEW_UNITS queries get
    the floor, since all of three may gain by luck.
    """
    assert before.resamples_B is not None and after.resamples_B is not None
    num_units = after.num_units
    interval_of = difference_interval if num_units < FEW_UNITS else percentile_interval
    difference_B = after.resamples_B - before.resamples_B
    low, high = interval_of(after.value - before.value, difference_B, num_units)
    return Gain(
        metric=plan.task.metric,
        before=before.value,
        after=after.value,
        low=low,
        high=high,
        fraction=fraction,
        rows=num_units,
    )


def loss_gain(before_N: Tensor, after_N: Tensor, fraction: float) -> Gain:
    """The gain from the losses of the rows of dev to lower ones. Of few rows they say more than decisions do."""
    gain_N = before_N - after_N
    mean = float(gain_N.mean())
    half_width = CERTAIN * float(gain_N.std(correction=0)) / math.sqrt(len(gain_N))
    before = float(before_N.mean())
    after = float(after_N.mean())
    return Gain(
        metric=LOSS,
        before=before,
        after=after,
        low=mean - half_width,
        high=mean + half_width,
        fraction=fraction,
        rows=len(gain_N),
    )


# --- trained weights that are not delivered ---------------------------------------------------------------------------


def write_trained(weights: Mapping[str, Tensor], directory: Path) -> None:
    """Store trained weights that are no clear gain, for `save_trained`."""
    directory.mkdir(parents=True, exist_ok=True)
    write_weights(dict(weights), directory / WEIGHTS)


def save_trained(
    plan: Plan, run: Run, metadata: Mapping[str, Any], *, seed: int, seed_directory: Path, delivered: str = ""
) -> str:
    """Save the trained model of the kept seed beside the model of the run, if it is not delivered.

    metadata: of that model.
    seed_directory: with the gain and the weights of the seed.
    delivered: name of what is delivered, if that is not the model before training.

    Returns the line that says so, or "" if the trained model is delivered.
    """
    gain = Gain.read(seed_directory)
    if gain is None or gain.is_clear:
        return ""

    initial = plan.task.initial_model
    line = f"not delivered: training was not clearly better on dev than {initial}: {gain.describe()}"
    line += f"; delivered: {delivered or initial}"
    if not (seed_directory / WEIGHTS).exists():
        return line

    with muted():
        trained = plan.prepare_model(seed)
    trained.model.load_state_dict(load_file(seed_directory / WEIGHTS), strict=False)
    stored = finalize_all(plan.transforms, trained.model)
    saved = replace(trained, metadata={**metadata, **stored})
    checkpoint.save(saved, run.directory / TRAINED, card=card_of(saved))
    return f"{line}; the trained model is in {run.directory / TRAINED}"
