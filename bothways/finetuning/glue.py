"""GLUE benchmark (Wang 2018): fine-tune on each task, average the scores on dev."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bothways import metrics
from bothways.data.glue import TASKS, GlueTask
from bothways.errors import InputError
from bothways.finetuning.finetune import FineTuneResult
from bothways.finetuning.tasks import run as run_task
from bothways.log import logger
from bothways.settings.finetune import Classify, Glue, Recipe, Regress


@dataclass(frozen=True)
class GlueTable:
    """(task, result) of each task. `average` and `std` are the mean and deviation of each seed's average over tasks.

    SICK, which is not a GLUE task, is excluded from the average unless it is the only task.
    """

    rows: tuple[tuple[str, FineTuneResult], ...]

    @property
    def average(self) -> float:
        return metrics.mean_and_std(self.by_seed)[0]

    @property
    def std(self) -> float:
        return metrics.mean_and_std(self.by_seed)[1]

    @property
    def by_seed(self) -> list[float]:
        """Each seed's average over the tasks."""
        scores = [result.scores for name, result in self.rows if name != "SICK"] or [self.rows[0][1].scores]
        seeds = range(max(map(len, scores)))  # a delivered TF-IDF model has one score, whatever the seed
        return [sum(values[seed % len(values)] for values in scores) / len(scores) for seed in seeds]


def run(settings: Glue) -> GlueTable:
    """Fine-tune on each task, each in its own directory. Tasks without training data are skipped with a message."""
    if unknown := sorted(set(settings.tasks) - TASKS.keys()):
        raise InputError(f"task {unknown[0]!r} is unknown; use some of {', '.join(TASKS)}")
    rows = []
    for name in settings.tasks or TASKS:
        files = find_files(settings.directory / name, TASKS[name])
        if "train" in files and "dev" in files:
            note = " (published without a dev set: the test set is used instead)" if "test" in files["dev"].name else ""
            logger.info(f"{name}{note}")
            rows.append((name, fine_tune(settings, name, files)))
        elif files or name in settings.tasks:
            logger.info(f"{name}: skipped, since {settings.directory / name} does not have training data and a dev set")
    if not rows:
        raise InputError(f"{settings.directory}: no folder of a GLUE task found ({', '.join(TASKS)})")
    return GlueTable(tuple(rows))


def find_files(folder: Path, task: GlueTask) -> dict[str, Path]:
    """The files of a task that exist, by split."""
    files = {}
    for split, names in task.files.items():
        if existing := [folder / name for name in names if (folder / name).is_file()]:
            files[str(split)] = existing[0]
    return files


def fine_tune(settings: Glue, name: str, files: dict[str, Path]) -> FineTuneResult:
    """Fine-tune on one task; weights are selected and reported on its dev set, as usual for GLUE."""
    task = TASKS[name]
    recipe: dict[str, Any] = {field.name: getattr(settings, field.name) for field in fields(Recipe)}
    data: dict[str, Any] = {
        "model": settings.model,
        "train": files["train"],
        "dev": files["dev"],
        "out": settings.out / name,
    }
    columns: dict[str, Any] = {"label_column": task.label, "metric": task.metric}
    if task.kind == "regress":
        return run_task(Regress(**recipe, **data, **columns))
    return run_task(Classify(**recipe, **data, **columns))
