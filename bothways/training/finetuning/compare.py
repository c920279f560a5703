"""The comparison of a fine-tuned model with simple ones: whether it is better, and which model the run delivers."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from statistics import fmean

from bothways.base.errors import flag, flags, format_count
from bothways.base.terminal import command_name
from bothways.measure import metrics
from bothways.measure.metrics import Interval
from bothways.tasks.linear_baselines import COSINE
from bothways.tasks.training_task import Baseline, TrainingTask
from bothways.training.finetuning.ground.score import Score
from bothways.training.finetuning.model_scores import ModelScores
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.refusal import refusal
from bothways.training.finetuning.run_models import RunEncoder, RunModel, RunTfidf
from bothways.training.finetuning.run_scores import BETTER, RunScores, differences
from bothways.training.run import Run

WORSE = "worse than"  # how a verdict begins on a model that is clearly worse
# Options of `finetune` that keep the encoder as it is and fit its head, by the names of baselines like that.
TRAIN_HEAD_ONLY: Mapping[str, dict[str, object]] = {
    "frozen vectors": {"learning_rate": 0, "pooling": "mean"},
    "frozen vector pairs": {"learning_rate": 0, "pooling": "pair"},
    "frozen states": {"learning_rate": 0},
}
MAX_ROWS_NEEDED = 1_000_000  # beyond which no number of rows is named
MAX_WIDTH = 0.8  # of the interval of a difference; a wider one is not shown


def compare(plan: Plan, encoder: RunEncoder, baselines: Sequence[Score], run: Run) -> RunScores:
    """Compare the selected encoder with the baselines, and choose what is delivered: the encoder, or the baseline that
    can be saved, where that is clearly better on dev.

    baselines: their scores on the rows of the encoder's score.
    """
    refused = refusal(plan.task, encoder, baselines)
    if not plan.compares:
        return RunScores(encoder, refused=refused)

    scores = encoder.scores
    compared = with_trivial(plan, scores, baselines)

    with run.timed("baselines"):
        rival, lead = choose_rival(plan, encoder, compared)

    saved = {rival.name: run.directory / rival.place} if rival and not lead else {}
    text = verdict(encoder, compared, differences(scores, compared), plan, saved)

    delivered = text
    if rival and lead:
        delivered = delivered_verdict(rival, encoder, lead, text)

    return RunScores(
        model=encoder,
        baselines=compared,
        model_verdict=text,
        verdict=delivered,
        rival=rival,
        delivers_rival=lead is not None,
        refused=refused,
    )


def with_trivial(plan: Plan, scores: ModelScores, baselines: Sequence[Score]) -> list[Score]:
    """The scores of the baselines with the score of the trivial one.

    plan: of the run.
    scores: of a model on the same rows.
    baselines: their scores.
    """
    name = plan.task.scoring.trivial_baseline
    # One that is scored row by row is not repeated without its resamples.
    if name in {score.model for score in baselines}:
        return [*baselines]
    trivial = fmean(scores.folds.values("baseline")) if scores.folds else scores.by_split[plan.split]["baseline"]
    return [Score(name, trivial), *baselines]


def choose_rival(
    plan: Plan, encoder: RunEncoder, baselines: Sequence[Score]
) -> tuple[RunTfidf | None, Interval | None]:
    """The baseline that is saved, and its lead on dev for which it is delivered instead of the encoder.

    baselines: their scores.

    No baseline is saved if none can be, or if the encoder is clearly better on the reported rows. Without a clear lead
    on dev, or if an option asks for a kind of encoder, the baseline is saved beside the encoder.
    """
    score = next((score for score in baselines if encoder.scores.has_predictions_of(score)), None)
    if score is None:
        return None, None

    # Baselines that can be saved come first.
    baseline = next(plan.task.baselines("dev"))
    assert baseline.model is not None
    lead = lead_on_dev(plan.task, baseline, encoder)
    is_delivered = plan.delivers_tfidf and is_clearly_better(lead)
    if not is_delivered and is_clearly_better(encoder.scores.score.difference(score)):
        return None, None

    rival = RunTfidf(
        name=score.model,
        model=baseline.model,
        scores=encoder.scores.of_baseline(score, baseline.predictions),
        described=encoder.checkpoint,
    )
    return rival, lead if is_delivered else None


def verdict(
    model: RunModel,
    baselines: Sequence[Score],
    differences: Mapping[str, Interval],
    plan: Plan,
    saved: Mapping[str, Path],
) -> str:
    """Whether the model of the run beats the best baseline, and how to use a baseline that is better.

    It is undecided if the 95 % interval of the difference contains 0.

    model: of the run.
    baselines: their scores.
    differences: intervals of the differences between the scores of the model and of each baseline, by name.
    plan: of the run.
    saved: directories of baselines that are saved beside the model, by name.
    """
    scores = model.scores
    best = max(baselines, key=lambda baseline: baseline.value)
    name = best.model
    mean = scores.mean
    low, high = differences[name]

    kind = model.kind(plan)
    is_start = scores.frozen and plan.task.needs_gain
    if is_start and name == plan.task.scoring.trivial_baseline and abs(mean - best.value) <= metrics.TIE:
        return f"as good as {name}: {kind} is delivered, {mean:.2%}, {format_count(scores.rows, 'row')}"

    numbers = f"{mean:.2%} ({kind}) against {best.value:.2%}, {format_count(scores.rows, 'row')}"
    if high - low > MAX_WIDTH:
        return f"cannot tell whether it is better than {name}: {numbers}, which are too few to compare models"

    numbers += f"; the difference is {100 * low:+.1f} to {100 * high:+.1f} points (95 % interval)"
    if plan.measured and not scores.frozen:
        numbers += f"; {flag('folds', 5)} measures the trained encoder, which this is not"
    if is_clearly_better((low, high)):
        return f"{BETTER} the best baseline, {name}: {numbers}"
    if high < -metrics.TIE:
        return f"{WORSE} {name}: {numbers}{usage(name, scores, plan, saved)}"

    rows = rows_needed(mean - best.value, (low, high), scores.rows)
    enough = f"; about {rows:,} rows would show a difference of this size" if rows else ""
    instead = usage(name, scores, plan, saved) if name in saved else ""
    return f"cannot tell whether it is better than {name}: {numbers}{enough}{instead}"


def usage(name: str, scores: ModelScores, plan: Plan, saved: Mapping[str, Path]) -> str:
    """How to use a baseline instead of the model of the run.

    name: of the baseline.
    scores: of the model.
    plan: of the run.
    saved: directories of saved baselines, by name.
    """
    if name in saved:
        return f"; to use it instead: {command_name()} predict {quote(str(saved[name]))} FILE"
    if name == COSINE:
        command = f"{command_name()} embed {quote(str(plan.sources['model']))} FILE --text-column COLUMN -o VECTORS.npy"
        return f"; to use it instead, for both columns: {command}; the cosine is the product of the vectors"
    options = next((options for prefix, options in TRAIN_HEAD_ONLY.items() if name.startswith(prefix)), {})
    if not options or scores.frozen:
        return ""
    return f"; to train only a linear head on the frozen encoder: {flags(options)}"


def rows_needed(difference: float, interval: Interval, rows: int) -> int | None:
    """About how many rows make a difference this large significant, with two digits; None beyond MAX_ROWS_NEEDED.

    The interval of a mean narrows with the square root of the rows.
    """
    half_width = (interval[1] - interval[0]) / 2
    if abs(difference) * (MAX_ROWS_NEEDED / rows) ** 0.5 <= half_width or half_width <= metrics.TIE:
        return None
    needed = max(rows + 1, math.ceil(rows * (half_width / abs(difference)) ** 2))
    unit = 10 ** max(0, len(str(needed)) - 2)
    return -(-needed // unit) * unit


def is_clearly_better(difference: Interval) -> bool:
    """Whether the 95 % interval of the difference to a baseline lies above 0."""
    return difference[0] > metrics.TIE


def delivered_verdict(rival: RunModel, encoder: RunEncoder, lead: Interval, verdict: str) -> str:
    """Why a baseline is the model of a run.

    rival: the baseline.
    encoder: that is not delivered.
    lead: of the baseline on dev.
    verdict: on the encoder.
    """
    low, high = lead
    rows = format_count(encoder.scores.by_split["dev"]["rows"], "row")
    return (
        f"delivered: {rival.name}, better than the {encoder.name} on dev by {100 * low:.1f} to {100 * high:.1f} points "
        f"(95 % interval, {rows}); the encoder, in {encoder.place}: {verdict}"
    )


def lead_on_dev(task: TrainingTask, baseline: Baseline, encoder: RunEncoder) -> Interval:
    """95 % interval of how much better a baseline is on dev than the encoder."""
    assert encoder.kept is not None
    return Score.of(baseline.name, task, baseline.predictions).difference(encoder.kept.scores["dev"])
