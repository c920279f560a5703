"""Baselines of a run: scores of simple models, and whether fine-tuning beats them."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from statistics import fmean
from typing import Any

from bothways.checkpoint.checkpoint import Checkpoint
from bothways.finetuning.task import Task
from bothways.inference.tfidf_predictor import save
from bothways.io import write_atomic
from bothways.log import command_name, logger
from bothways.metrics import Interval

SLOW = 5.0  # seconds after which the score of a baseline is logged with its time
TFIDF = "TF-IDF"  # how the names of baselines that can be saved begin; they come first
NOT_BETTER = "not better than"
# Options of `finetune` that keep the encoder as it is and fit its head, by the names of baselines like that.
TRAIN_HEAD_ONLY = {
    "frozen vectors": "--learning-rate 0 --pooling mean",
    "frozen vector pairs": "--learning-rate 0 --pooling pair",
    "frozen states": "--learning-rate 0",
}
COSINE = "cosine of frozen vectors"
SAVED = "tfidf"  # directory of a run with a baseline that is as good
BASELINES = "baselines.json"  # scores of the baselines, for a resumed run


@dataclass(frozen=True)
class BaselineScore:
    """The metric of a baseline, with its 95 % interval if known."""

    name: str
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Comparison:
    """The scores of the baselines, and the verdict: whether the fine-tuned model is better."""

    scores: Sequence[BaselineScore]
    verdict: str

    @property
    def warnings(self) -> list[str]:
        return [self.verdict] if self.verdict.startswith(NOT_BETTER) else []


def score(task: Task, split: str, file: Path) -> list[BaselineScore]:
    """Score all baselines on a split. The scores are stored in a file for resumed runs."""
    if not file.exists():
        rows, start = [], time.monotonic()
        for baseline in task.baselines(split):
            scores = task.score_predictions(baseline.predictions)
            rows.append([baseline.name, scores[task.metric], scores[f"{task.metric}_interval"]])
            if (seconds := time.monotonic() - start) > SLOW:
                logger.info(f"baseline {baseline.name}: {task.metric} {scores[task.metric]:.4f} ({seconds:.0f} s)")
            start = time.monotonic()
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(rows))
    return read(file)


def read(file: Path) -> list[BaselineScore]:
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [BaselineScore(name, value, (low, high)) for name, value, (low, high) in rows]


def mean_scores(folds: Sequence[Sequence[BaselineScore]]) -> list[BaselineScore]:
    """The mean of each baseline over folds."""
    return [
        BaselineScore(scores[0].name, fmean(score.value for score in scores), None)
        for scores in zip(*folds, strict=True)
    ]


def format_table(metric: str, split: str, baselines: Mapping[str, float]) -> list[str]:
    """Lines of a table with a row per baseline."""
    width = max(map(len, baselines), default=0)
    rows = [f"  {name:{width}}  {value:8.2%}" for name, value in baselines.items()]
    return [f"baselines, {split} {metric}:", *rows] if rows else []


def verdict(result: Mapping[str, Any], saved: Path | None = None, *, model: str, few: bool = False) -> str:
    """Whether the fine-tuned model beats the best baseline, and how to use a baseline that is as good.

    result: `result` of bothways.json. saved: directory of the TF-IDF model, if it was saved. model: the initial model.
    few: whether the encoder stayed frozen because there are few examples.
    """
    name = max(result["baselines"], key=result["baselines"].__getitem__)
    score = result["baselines"][name]
    kind = "frozen, with a linear head" if result["frozen"] else "fine-tuned"
    numbers = f"{result['mean']:.2%} ({kind}) against {score:.2%}, {result['rows']:,} rows"
    if result["mean"] > score:
        doubt = "" if result["interval"][0] > score else "; the difference may be chance"
        return f"better than the best baseline, {name}: {numbers}{doubt}"
    usage = ""
    if name.startswith(TFIDF) and saved:
        usage = f"; to use it instead: {command_name()} predict {quote(str(saved))} FILE"
    for prefix, options in TRAIN_HEAD_ONLY.items():
        if name.startswith(prefix) and (few or not result["frozen"]):
            usage = f"; to train only a linear head on the frozen encoder: {options}{' --epochs 1' * few}"
    if name == COSINE:
        command = f"{command_name()} embed {quote(model)} FILE --text-column COLUMN -o VECTORS.npy"
        usage = f"; to use it instead, for both columns: {command}; the cosine is the product of the vectors"
    return f"{NOT_BETTER} {name}: {numbers}{usage}"


def save_if_better(task: Task, result: Mapping[str, Any], directory: Path, final: Checkpoint) -> Path | None:
    """Save the TF-IDF model if the fine-tuned one is not better. Returns the directory, or None.

    final: labels and metadata for the saved model.
    """
    scores = [score for name, score in result["baselines"].items() if name.startswith(TFIDF)]
    if not scores or result["mean"] > scores[0]:
        return None
    model = next(task.baselines("dev")).model  # fitted again: it takes seconds, and nothing is kept in memory
    assert model is not None
    save(model, directory, final)
    return directory
