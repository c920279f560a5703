"""A trained model that is not delivered, since on dev it is not better than what there was without training."""

from pathlib import Path

from bothways.io import atomic_directory, to_json
from bothways.measure import metrics
from bothways.model.checkpoint.description import METADATA_FILE, NOT_DELIVERED
from bothways.tasks.training_task import TrainingTask
from bothways.training.finetuning.baselines import BaselineScore
from bothways.training.finetuning.seeds import SeedResult

TRAINED = "trained"  # directory of a run: a trained model that is not delivered


def refusal(task: TrainingTask, kept: SeedResult) -> str:
    """Why a model is not delivered, in one line; "" if it is, or if the task has no start that needs no training.

    The 95 % interval of its lead over that start on dev must be above 0. kept: the training of the model.
    """
    if not task.keeps_start:
        return ""
    start = next(baseline for baseline in task.baselines("dev") if baseline.name == task.keeps_start)
    before = BaselineScore.of(start.name, task, start.predictions)
    after = kept.metrics["dev"][task.metric]
    low, high = before.difference(after, kept.resamples["dev"])
    if low > metrics.TIE:
        return ""
    number = kept.metrics["dev"]["rows"]
    return (
        f"not delivered: on dev, {task.metric} is {after:.2%} with the trained model and {before.value:.2%} with "
        f"{start.name} ({number:,} {task.objective.target}); the difference is {100 * low:+.1f} to {100 * high:+.1f} "
        "points (95 % interval), which is not clearly above 0"
    )


def write_refusal(directory: Path, reason: str, trained: Path) -> None:
    """Write into the directory of the model that there is none, why, and where the trained one is."""
    with atomic_directory(directory) as place:
        stored = {NOT_DELIVERED: f"{reason}; the trained model is in {trained}"}
        (place / METADATA_FILE).write_text(to_json(stored, 2) + "\n", encoding="utf-8")
