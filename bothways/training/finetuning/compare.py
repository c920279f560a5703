"""The comparison of a fine-tuned model with simple ones: whether it is better, and which model the run delivers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from statistics import fmean

from bothways.base.errors import flag, flags, format_count
from bothways.base.terminal import command_name
from bothways.measure import metrics
from bothways.measure.metrics import Interval
from bothways.model.checkpoint.formats.tfidf import ENCODER
from bothways.model.linear.tfidf import TfidfModel
from bothways.tasks.linear_baselines import COSINE
from bothways.tasks.training_task import Baseline, TrainingTask
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.refusal import refusal
from bothways.training.finetuning.score import Score
from bothways.training.finetuning.seeds import SeedResult
from bothways.training.finetuning.select import ModelScores, Selection
from bothways.training.run import Run

TFIDF = "TF-IDF"  # how the names of baselines that can be saved begin; they come first
# How a verdict begins, unless it cannot tell.
BETTER = "better than"
WORSE = "worse than"
# Options of `finetune` that keep the encoder as it is and fit its head, by the names of baselines like that.
TRAIN_HEAD_ONLY: Mapping[str, dict[str, object]] = {
    "frozen vectors": {"learning_rate": 0, "pooling": "mean"},
    "frozen vector pairs": {"learning_rate": 0, "pooling": "pair"},
    "frozen states": {"learning_rate": 0},
}
MAX_ROWS_NEEDED = 1_000_000  # beyond which no number of rows is named
MAX_WIDTH = 0.8  # of the interval of a difference; a wider one is not shown
# Directories of a run.
MODEL = "model"  # the delivered model
SAVED = "tfidf"  # a baseline that may be as good


@dataclass(frozen=True)
class SavedTfidf:
    """A saved TF-IDF model with its scores. lead: 95 % interval of its lead over the encoder on dev, for which it is
    delivered instead; None: it is saved beside the encoder."""

    name: str
    model: TfidfModel
    scores: ModelScores
    lead: Interval | None


@dataclass(frozen=True)
class Comparison:
    """The models of a run, compared.

    baselines: the scores of the baselines; none if they are not compared.
    encoder_verdict: whether the fine-tuned encoder is better.
    verdict: the verdict on the model that is delivered.
    tfidf: the TF-IDF model, if it is saved.
    refused: why no model is delivered.
    """

    baselines: Sequence[Score] = ()
    encoder_verdict: str = ""
    verdict: str = ""
    tfidf: SavedTfidf | None = None
    refused: str = ""

    @property
    def warnings(self) -> list[str]:
        return [] if self.verdict.startswith(BETTER) else [self.verdict]

    def differences(self, scores: ModelScores) -> dict[str, Interval]:
        """95 % intervals of the difference between the score of a model and the score of each baseline."""
        return differences(scores, self.baselines)

    def delivered(self, encoder: ModelScores) -> ModelScores:
        """Scores of the delivered model. encoder: scores of the encoder."""
        return self.tfidf.scores if self.tfidf and self.tfidf.lead else encoder


def compare(plan: Plan, selection: Selection, run: Run) -> Comparison:
    """Compare the selected model with the baselines, and choose what is delivered: the encoder, or TF-IDF where it is
    clearly better on dev. TF-IDF is also saved beside the encoder, unless that is clearly better on the reported
    rows."""
    refused = refusal(plan.task, selection)
    if not plan.compares:
        return Comparison(refused=refused)

    task = plan.task
    encoder = selection.scores

    trivial = fmean(encoder.folds.values("baseline")) if encoder.folds else encoder.by_split[plan.split]["baseline"]
    scores = [*selection.baselines]
    # One that is scored row by row is not repeated without its resamples.
    if task.scoring.trivial_baseline not in {score.model for score in scores}:
        scores.insert(0, Score(task.scoring.trivial_baseline, trivial))

    with run.timed("baselines"):
        tfidf = choose_tfidf(plan, selection, scores)

    saved = run.directory / SAVED if tfidf and not tfidf.lead else None
    text = verdict(encoder, scores, differences(encoder, scores), plan, saved)

    delivered = text
    if tfidf and tfidf.lead:
        delivered = delivered_verdict(tfidf.name, tfidf.lead, encoder.by_split["dev"]["rows"], text)

    return Comparison(
        baselines=scores,
        encoder_verdict=text,
        verdict=delivered,
        tfidf=tfidf,
        refused=refused,
    )


def differences(scores: ModelScores, baselines: Sequence[Score]) -> dict[str, Interval]:
    """95 % intervals of the difference between the score of a model and the score of each baseline."""
    return {baseline.model: scores.score.difference(baseline) for baseline in baselines}


def choose_tfidf(plan: Plan, selection: Selection, scores: Sequence[Score]) -> SavedTfidf | None:
    """The TF-IDF model that is saved, if any."""
    task = plan.task
    encoder = selection.scores
    if plan.few:  # a training of few rows was asked for, and TF-IDF is only compared
        return None
    score = next((score for score in scores if score.model.startswith(TFIDF)), None)
    if score is None or score.resamples_B is None:
        return None
    baseline = next(task.baselines("dev"))
    assert baseline.model is not None
    lead = lead_on_dev(task, baseline, selection.kept)
    is_delivered = plan.delivers_tfidf and lead[0] > metrics.TIE
    if not is_delivered and is_clearly_better(encoder.score.difference(score)):
        return None
    measured = encoder.of_baseline(score, baseline.predictions)
    return SavedTfidf(name=score.model, model=baseline.model, scores=measured, lead=lead if is_delivered else None)


def verdict(
    scores: ModelScores,
    baselines: Sequence[Score],
    differences: Mapping[str, Interval],
    plan: Plan,
    saved: Path | None = None,
) -> str:
    """Whether the fine-tuned model beats the best baseline, and how to use a baseline that is better.

    It is undecided if the 95 % interval of the difference contains 0. saved: directory of the TF-IDF model, if it was
    saved.
    """
    best = max(baselines, key=lambda baseline: baseline.value)
    name = best.model
    mean = scores.mean
    low, high = differences[name]

    kind = "frozen, with a linear head" if scores.frozen or plan.measured else "fine-tuned"
    if scores.frozen and plan.task.needs_gain:
        kind = plan.task.initial_model
        if name == plan.task.scoring.trivial_baseline and abs(mean - best.value) <= metrics.TIE:
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
    with_tfidf = usage(name, scores, plan, saved) if name.startswith(TFIDF) else ""
    return f"cannot tell whether it is better than {name}: {numbers}{enough}{with_tfidf}"


def usage(name: str, scores: ModelScores, plan: Plan, saved: Path | None) -> str:
    """How to use a baseline instead of the fine-tuned model."""
    if name.startswith(TFIDF):
        return f"; to use it instead: {command_name()} predict {quote(str(saved))} FILE" if saved else ""
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


def delivered_verdict(name: str, lead: Interval, rows: int, encoder: str) -> str:
    """Why TF-IDF is the model of a run. lead: of TF-IDF on dev. encoder: the verdict on the fine-tuned encoder."""
    low, high = lead
    return (
        f"delivered: {name}, better than the fine-tuned encoder on dev by {100 * low:.1f} to {100 * high:.1f} points "
        f"(95 % interval, {format_count(rows, 'row')}); the encoder, in {ENCODER}: {encoder}"
    )


def lead_on_dev(task: TrainingTask, baseline: Baseline, seed: SeedResult) -> Interval:
    """95 % interval of how much better a baseline is on dev than the model of a seed."""
    return Score.of(baseline.name, task, baseline.predictions).difference(seed.scores["dev"])
