"""A trained model that is not delivered, since on dev it is not better than what there was without training."""

from collections.abc import Sequence
from pathlib import Path

from bothways.base.io import atomic_directory, to_json
from bothways.measure import metrics
from bothways.model.checkpoint.description import METADATA_FILE, NOT_DELIVERED
from bothways.tasks.training_task import TrainingTask
from bothways.training.finetuning.ground.score import Score
from bothways.training.finetuning.run_models import RunEncoder


def refusal(task: TrainingTask, encoder: RunEncoder, baselines: Sequence[Score]) -> str:
    """Why an encoder is not delivered, in one line; "" if it is, or if the task has no start that needs no training.

    The 95 % interval of its lead over that start must be above 0: on dev, or with folds on all of them, by the models
    that were not trained on them.

    task: that the encoder was trained for.
    encoder: with its scores.
    baselines: their scores.
    """
    if not task.keeps_start:
        return ""
    scores = encoder.scores
    of_folds = [baseline for baseline in baselines if baseline.model == task.keeps_start]
    if scores.folds and of_folds:
        (before,) = of_folds
        after = scores.score
        number = scores.rows
        where = "out-of-fold"
    else:
        start = next(baseline for baseline in task.baselines("dev") if baseline.name == task.keeps_start)
        before = Score.of(start.name, task, start.predictions)
        assert encoder.kept is not None
        after = encoder.kept.scores["dev"]
        number = encoder.kept.metrics["dev"]["rows"]
        where = "on dev"

    low, high = after.difference(before)
    if low > metrics.TIE:
        return ""
    return (
        f"not delivered: {where}, {task.metric} is {after.value:.2%} with the trained model and {before.value:.2%} "
        f"with {before.model} ({number:,} {task.objective.target}); the difference is {100 * low:+.1f} to "
        f"{100 * high:+.1f} points (95 % interval), which is not clearly above 0"
    )


def write_refusal(directory: Path, reason: str, trained: Path) -> None:
    """Write into the directory of the model that there is none, why, and where the trained one is."""
    with atomic_directory(directory) as place:
        stored = {NOT_DELIVERED: f"{reason}; the trained model is in {trained}"}
        (place / METADATA_FILE).write_text(to_json(stored, 2) + "\n", encoding="utf-8")
