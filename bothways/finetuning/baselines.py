"""Baselines of a run: scores of simple models, and whether fine-tuning beats them."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from statistics import fmean
from typing import Any

import numpy as np

from bothways import metrics
from bothways.checkpoint.formats.tfidf import ENCODER
from bothways.errors import format_count
from bothways.io import write_atomic
from bothways.log import command_name, logger
from bothways.metrics import Interval
from bothways.tasks.linear_baselines import COSINE
from bothways.tasks.scores import Predictions
from bothways.tasks.training_task import RESAMPLES, Baseline, TrainingTask, resamples_of

SLOW = 5.0  # seconds after which the score of a baseline is logged with its time
TFIDF = "TF-IDF"  # how the names of baselines that can be saved begin; they come first
BETTER, WORSE = "better than", "worse than"  # how a verdict begins, unless it cannot tell
# Options of `finetune` that keep the encoder as it is and fit its head, by the names of baselines like that.
TRAIN_HEAD_ONLY = {
    "frozen vectors": "--learning-rate 0 --pooling mean",
    "frozen vector pairs": "--learning-rate 0 --pooling pair",
    "frozen states": "--learning-rate 0",
}
MAX_ROWS_NEEDED = 1_000_000  # beyond which no number of rows is named
MAX_WIDTH = 0.8  # of the interval of a difference; a wider one says nothing, and is not shown
MODEL, SAVED = "model", "tfidf"  # directories of a run: what it delivers, and a baseline that may be as good
BASELINES = "baselines.json"  # scores of the baselines, for a resumed run


@dataclass(frozen=True)
class Resamples:
    """The metric in each bootstrap resample, which pairs the scores of models on the same rows; see
    `metrics.bootstrap`. num_units: the number of units that were drawn."""

    values_B: np.ndarray
    num_units: int

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> "Resamples":
        return Resamples(np.array(stored["values"]), stored["units"])

    @staticmethod
    def mean(parts: Sequence["Resamples"], *, same_rows: bool) -> "Resamples":
        """Resamples of the mean of several scores: of models on the same rows, or of folds."""
        num_resamples = min(len(part.values_B) for part in parts)
        values_B = np.mean([part.values_B[:num_resamples] for part in parts], axis=0)
        units = [part.num_units for part in parts]
        return Resamples(values_B, units[0] if same_rows else sum(units))


@dataclass(frozen=True)
class BaselineScore:
    """The metric of a baseline, with its 95 % interval and resamples if known. predictions: if it can be saved."""

    name: str
    value: float
    interval: Interval | None
    resamples: Resamples | None = None
    predictions: Predictions | None = None

    @staticmethod
    def of(name: str, task: TrainingTask, predictions: Predictions, *, keep: bool = True) -> "BaselineScore":
        """The score of predictions, which are kept with it on request."""
        scores = task.scoring.score_predictions(predictions)
        resamples = Resamples.from_json(resamples_of(scores, task.metric))
        return BaselineScore(
            name, scores[task.metric], scores[f"{task.metric}_interval"], resamples, predictions if keep else None
        )

    def difference(self, value: float, resamples: Resamples) -> Interval:
        """95 % interval of the difference between another score on the same rows and this one."""
        num_resamples = len(resamples.values_B)
        own_B: np.ndarray | float = self.value
        if self.resamples:
            num_resamples = min(num_resamples, len(self.resamples.values_B))
            own_B = self.resamples.values_B[:num_resamples]
        return metrics.difference_interval(
            value - self.value, resamples.values_B[:num_resamples] - own_B, resamples.num_units
        )


@dataclass(frozen=True)
class Comparison:
    """The scores of the baselines, and the verdict: whether the fine-tuned model is better."""

    scores: Sequence[BaselineScore]
    verdict: str

    @property
    def warnings(self) -> list[str]:
        return [] if self.verdict.startswith(BETTER) else [self.verdict]


def score(task: TrainingTask, split: str, file: Path, *, keep: bool = False) -> list[BaselineScore]:
    """Score all baselines on a split. The scores are stored in a file for resumed runs, with the predictions of models
    that can be saved; keep: of all."""
    if not file.exists():
        rows, start = [], time.monotonic()
        for baseline in task.baselines(split):
            scores = task.scoring.score_predictions(baseline.predictions)
            interval = scores[f"{task.metric}_interval"]
            predictions = asdict(baseline.predictions) if baseline.model or keep else None
            rows.append([baseline.name, scores[task.metric], interval, resamples_of(scores, task.metric), predictions])
            if (seconds := time.monotonic() - start) > SLOW:
                logger.info(f"baseline {baseline.name}: {task.metric} {scores[task.metric]:.4f} ({seconds:.0f} s)")
            start = time.monotonic()
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(rows))
    return read(file)


def read(file: Path) -> list[BaselineScore]:
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [
        BaselineScore(
            name, value, (low, high), Resamples.from_json(resamples), predictions and Predictions(**predictions)
        )
        for name, value, (low, high), resamples, predictions in rows
    ]


def mean_scores(folds: Sequence[Sequence[BaselineScore]]) -> list[BaselineScore]:
    """The mean of each baseline over folds."""
    means = []
    for scores in zip(*folds, strict=True):
        resamples = Resamples.mean([score.resamples for score in scores if score.resamples], same_rows=False)
        means.append(BaselineScore(scores[0].name, fmean(score.value for score in scores), None, resamples))
    return means


def format_table(metric: str, split: str, baselines: Mapping[str, float]) -> list[str]:
    """Lines of a table with a row per baseline."""
    width = max(map(len, baselines), default=0)
    rows = [f"  {name:{width}}  {value:8.2%}" for name, value in baselines.items()]
    return [f"baselines, {split} {metric}:", *rows] if rows else []


def verdict(result: Mapping[str, Any], saved: Path | None = None, *, model: str, few: bool = False) -> str:
    """Whether the fine-tuned model beats the best baseline, and how to use a baseline that is better.

    It cannot be told if the 95 % interval of the difference contains 0. result: `result` of bothways.json. saved:
    directory of the TF-IDF model, if it was saved. model: the initial model. few: whether the encoder stayed frozen
    because there are few examples.
    """
    name = max(result["baselines"], key=result["baselines"].__getitem__)
    score, (low, high) = result["baselines"][name], result["differences"][name]
    is_frozen = result["frozen"] or bool(result.get("measured"))
    kind = "frozen, with a linear head" if is_frozen else "fine-tuned"
    numbers = f"{result['mean']:.2%} ({kind}) against {score:.2%}, {format_count(result['rows'], 'row')}"
    if high - low > MAX_WIDTH:
        return f"cannot tell whether it is better than {name}: {numbers}, which are too few to compare models"
    numbers += f"; the difference is {100 * low:+.1f} to {100 * high:+.1f} points (95 % interval)"
    if result.get("measured") and not result["frozen"]:
        numbers += "; --folds 5 measures the trained encoder, which this is not"
    if is_clearly_better(result, name):
        return f"{BETTER} the best baseline, {name}: {numbers}"
    usage = ""
    if name.startswith(TFIDF) and saved:
        usage = f"; to use it instead: {command_name()} predict {quote(str(saved))} FILE"
    if high >= -metrics.TIE:
        rows = rows_needed(result["mean"] - score, (low, high), result["rows"])
        enough = f"; about {rows:,} rows would show a difference of this size" if rows else ""
        return f"cannot tell whether it is better than {name}: {numbers}{enough}{usage}"
    for prefix, options in TRAIN_HEAD_ONLY.items():
        if name.startswith(prefix) and (few or not result["frozen"]):
            usage = f"; to train only a linear head on the frozen encoder: {options}{' --epochs 1' * few}"
    if name == COSINE:
        command = f"{command_name()} embed {quote(model)} FILE --text-column COLUMN -o VECTORS.npy"
        usage = f"; to use it instead, for both columns: {command}; the cosine is the product of the vectors"
    return f"{WORSE} {name}: {numbers}{usage}"


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


def is_clearly_better(result: Mapping[str, Any], baseline: str) -> bool:
    """Whether the 95 % interval of the difference to a baseline lies above 0."""
    low, _ = result["differences"][baseline]
    return bool(low > metrics.TIE)


def delivered_verdict(name: str, lead: Interval, rows: int, encoder: str) -> str:
    """Why TF-IDF is the model of a run. lead: of TF-IDF on dev. encoder: the verdict on the fine-tuned encoder."""
    low, high = lead
    return (
        f"delivered: {name}, better than the fine-tuned encoder on dev by {100 * low:.1f} to {100 * high:.1f} points "
        f"(95 % interval, {format_count(rows, 'row')}); the encoder, in {ENCODER}: {encoder}"
    )


def lead_on_dev(task: TrainingTask, baseline: Baseline, dev: Mapping[str, Any]) -> Interval:
    """95 % interval of how much better a baseline is on dev than the model with the metrics and resamples `dev`."""
    scores = task.scoring.score_predictions(baseline.predictions)
    resamples = Resamples.from_json(resamples_of(scores, task.metric))
    model = BaselineScore(MODEL, dev[task.metric], None, Resamples.from_json(dev[RESAMPLES]))
    return model.difference(scores[task.metric], resamples)
