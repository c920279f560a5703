"""Scores of simple models on the rows of a training."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from bothways.base.io import write_atomic
from bothways.base.log import logger
from bothways.tasks.linear_baselines import fit_tfidf
from bothways.tasks.scores import Predictions
from bothways.tasks.texts import TextTask
from bothways.tasks.training_task import TrainingTask
from bothways.training.finetuning.ground.budget import PART_OF_WORDS, WORDS, Budget
from bothways.training.finetuning.ground.score import Score

MANY_ROWS = 2000  # from which the time of TF-IDF is estimated
PART = 20  # a twentieth of the rows is fitted for the estimate
SLOW = 5.0  # seconds after which the score of a baseline is logged with its time
BASELINES = "baselines.json"  # scores of the baselines, for a resumed run


def score(task: TrainingTask, split: str, file: Path, budget: Budget) -> list[Score]:
    """Score the baselines on a split for which there is time. The scores are stored in a file for resumed runs, with
    the predictions of models that can be saved."""
    if not file.exists():
        rows = []
        start = time.monotonic()
        for baseline in task.baselines(split, words=has_time_for_words(task, budget)):
            budget.seconds[baseline.name] = time.monotonic() - start
            score = Score.of(baseline.name, task, baseline.predictions)
            predictions = baseline.predictions.to_json() if baseline.model else None
            rows.append([score.model, score.value, score.interval, score.resamples_json(), predictions])

            seconds = time.monotonic() - start
            if seconds > SLOW:
                logger.info(f"baseline {score.model}: {task.metric} {score.value:.4f} ({seconds:.0f} s)")
            start = time.monotonic()
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(rows))
    return read(file)


def has_time_for_words(task: TrainingTask, budget: Budget) -> bool:
    """Whether there is time for TF-IDF."""
    seconds = seconds_of_words(task, budget)
    return seconds is None or budget.allows(WORDS, seconds)


def seconds_of_words(task: TrainingTask, budget: Budget) -> float | None:
    """About how long TF-IDF takes, by the time of a small part of the rows, which is measured once; None for rows that
    are few enough for any limit, and without a limit."""
    if budget.limit is None or not isinstance(task, TextTask):
        return None
    num_rows = len(task.tables["train"])
    if num_rows < MANY_ROWS:
        return None
    if PART_OF_WORDS not in budget.seconds:
        with budget.timed(PART_OF_WORDS):
            fit_tfidf(task, max_rows=num_rows // PART)
    return PART * budget.estimate(PART_OF_WORDS)


def read(file: Path) -> list[Score]:
    """The scores that are stored in a file."""
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [
        Score.from_json(
            name,
            value,
            resamples,
            interval=(low, high),
            predictions=predictions and Predictions.from_json(predictions),
        )
        for name, value, (low, high), resamples, predictions in rows
    ]


def mean_scores(folds: Sequence[Sequence[Score]]) -> list[Score]:
    """The mean of each baseline over folds."""
    return [Score.mean(scores[0].model, scores, same_rows=False) for scores in zip(*folds, strict=True)]
