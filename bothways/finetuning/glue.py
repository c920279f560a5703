"""The table of GLUE (Wang 2018): a model fine-tuned on each task that is there, with one recipe, scored on dev."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bothways import metrics
from bothways.data.glue import TASKS, GlueTask
from bothways.errors import InputError
from bothways.finetuning import classify, regress
from bothways.finetuning.finetune import Result
from bothways.log import logger
from bothways.settings import Classify, Glue, Recipe, Regress

Row = tuple[str, Result]


@dataclass(frozen=True)
class Table:
    """The result of each task; the average of their means, and the deviation over seeds of each seed's average. SICK,
    which is no task of GLUE, counts where it stands alone."""

    rows: tuple[Row, ...]

    @property
    def average(self) -> float:
        return metrics.mean_and_std(self.by_seed)[0]

    @property
    def std(self) -> float:
        return metrics.mean_and_std(self.by_seed)[1]

    @property
    def by_seed(self) -> list[float]:
        """Each seed's average over the tasks."""
        counted = [result.scores for name, result in self.rows if name != "SICK"] or [self.rows[0][1].scores]
        return [sum(scores) / len(counted) for scores in zip(*counted, strict=True)]


def run(settings: Glue) -> Table:
    """Fine-tune on each task, in one directory each. Tasks without training data are left out, and said."""
    if unknown := sorted(set(settings.tasks) - TASKS.keys()):
        raise InputError(f"task {unknown[0]!r} is unknown; expected some of {', '.join(TASKS)}")
    rows = []
    for name in settings.tasks or TASKS:
        files = files_of(settings.directory / name, TASKS[name])
        if "train" in files and "dev" in files:
            its = "; published without a dev set: its test set stands in" if "test" in files["dev"].name else ""
            logger.info(f"{name}:{its}")
            rows.append((name, fine_tune(settings, name, files)))
        elif files or name in settings.tasks:
            logger.info(f"{name}: left out, {settings.directory / name} has no training data beside dev")
    if not rows:
        raise InputError(f"{settings.directory}: no task of GLUE there ({', '.join(TASKS)}), a folder each")
    return Table(tuple(rows))


def files_of(folder: Path, task: GlueTask) -> dict[str, Path]:
    """The files of a task that are there, by split."""
    found = {}
    for split, names in task.files.items():
        if there := [folder / name for name in names if (folder / name).is_file()]:
            found[str(split)] = there[0]
    return found


def fine_tune(settings: Glue, name: str, files: dict[str, Path]) -> Result:
    """One task, chosen by and reported on its dev set, as is usual; the result says so."""
    task, out = TASKS[name], settings.out / name
    recipe: dict[str, Any] = {field.name: getattr(settings, field.name) for field in fields(Recipe)}
    data: dict[str, Any] = {"model": settings.model, "train": files["train"], "dev": files["dev"], "out": out}
    columns: dict[str, Any] = {"label_column": task.label, "metric": task.metric}
    if task.kind == "regress":
        return regress.run(Regress(**recipe, **data, **columns))
    return classify.run(Classify(**recipe, **data, **columns))
