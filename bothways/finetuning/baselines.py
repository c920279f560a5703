"""Simple models beside a fine-tuning run: their scores on the same splits, and whether fine-tuning was worth it."""

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

LONG = 5.0  # seconds after which a baseline says how long it took
TFIDF = "TF-IDF"  # what the baseline that can be saved begins with; it comes first
NOT_BETTER = "not better than"
SAVED = "tfidf"  # in a run's directory: the model of a baseline that is better
BASELINES = "baselines.json"  # beside what else a run that goes on finds done


@dataclass(frozen=True)
class Score:
    """The metric of a baseline. interval: where other rows would put it, with 95 % probability, if that is known."""

    name: str
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Beside:
    """What a report shows of simple models: their scores, and how the fine-tuned one compares."""

    scores: Sequence[Score]
    verdict: str

    @property
    def warnings(self) -> list[str]:
        return [self.verdict] if self.verdict.startswith(NOT_BETTER) else []


def scores(task: Task, split: str, file: Path) -> list[Score]:
    """Those of all baselines on a split; kept in a file, so that a run that goes on does not compute them again."""
    if not file.exists():
        found, began = [], time.monotonic()
        for one in task.baselines(split):
            measured = task.scores(one.predictions)
            found.append([one.name, measured[task.metric], measured[f"{task.metric}_interval"]])
            if (seconds := time.monotonic() - began) > LONG:
                logger.info(f"baseline {one.name}: {task.metric} {measured[task.metric]:.4f} ({seconds:.0f} s)")
            began = time.monotonic()
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(found))
    return read_scores(file)


def read_scores(file: Path) -> list[Score]:
    read = json.loads(file.read_text(encoding="utf-8"))
    return [Score(name, value, (low, high)) for name, value, (low, high) in read]


def means(by_fold: Sequence[Sequence[Score]]) -> list[Score]:
    """The mean of each baseline over folds."""
    return [Score(fold[0].name, fmean(one.value for one in fold), None) for fold in zip(*by_fold, strict=True)]


def best_of(baselines: Mapping[str, float]) -> str:
    return max(baselines, key=baselines.__getitem__)


def table(metric: str, split: str, baselines: Mapping[str, float]) -> list[str]:
    """A line for each baseline."""
    width = max(map(len, baselines), default=0)
    rows = [f"  {name:{width}}  {value:8.2%}" for name, value in baselines.items()]
    return [f"baselines, {split} {metric}:", *rows] if rows else []


def verdict(result: Mapping[str, Any], saved: Path | None = None) -> str:
    """Whether the fine-tuned model of a result (as bothways.json has it) is better than the best baseline, and how to
    use one that is as good. saved: where the model over TF-IDF is."""
    best = best_of(result["baselines"])
    score = result["baselines"][best]
    model = "frozen, with a linear head" if result.get("frozen") else "fine-tuned"
    numbers = f"{result['mean']:.2%} ({model}) against {score:.2%}, {result['rows']:,} rows"
    if result["mean"] > score:
        doubt = "" if result["interval"][0] > score else "; the difference may be chance"
        return f"better than the best baseline, {best}: {numbers}{doubt}"
    which = "that one" if best.startswith(TFIDF) else f"{TFIDF}, as good too,"
    way = f"; to use {which} instead: {command_name()} predict {quote(str(saved))} FILE" if saved else ""
    return f"{NOT_BETTER} {best}: {numbers}{way}"


def keep(task: Task, result: Mapping[str, Any], target: Path, described: Checkpoint) -> Path | None:
    """Save the model over TF-IDF if the fine-tuned one is not better; where it is. described: labels, and how the model
    came to be."""
    scores = [score for name, score in result["baselines"].items() if name.startswith(TFIDF)]
    if not scores or result["mean"] > scores[0]:
        return None
    model = next(task.baselines("dev")).model  # fitted again, which takes seconds
    assert model is not None
    save(model, target, described)
    return target
