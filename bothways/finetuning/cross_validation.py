"""Cross-validation (Stone 1974): each fold of the one table is scored by a model that was trained on the others, so
that every row is scored by a model that has not seen it.

A fold's model is trained by the same recipe as the one that is kept, which all folds are for; having seen fewer rows it
is a little worse, so the score is on the safe side. (Trainings share most of their rows: the deviation over folds says
how much a score of one fold may mislead, the interval over all rows how much the score of all may.)
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from bothways import metrics
from bothways.evaluation.scores import Predictions
from bothways.finetuning.baselines import BASELINES, Score, read_scores, scores
from bothways.finetuning.task import Figures, Task
from bothways.io import write_atomic
from bothways.log import logger, muted
from bothways.model.model import Model
from bothways.training.run_checkpoints import FOLDER

FOLDS = "folds"  # the name of the split that a score over folds is of
OUT_OF_FOLD, DONE = "out-of-fold.jsonl", "fold.json"


class Train(Protocol):
    """Train a model of a task from a seed; a copy of it as it predicts, and the step at which it was best."""

    def __call__(self, task: Task, model: Model, seed: int, *, fold: int) -> tuple[Model, int]: ...


@dataclass(frozen=True)
class Validated:
    """figures: of each fold by its own model. baselines: of each fold, if they were asked for. predictions: of each
    fold's rows. scores: of all of them together, each with its 95 % interval as NAME_interval."""

    figures: Sequence[Figures]
    baselines: Sequence[Sequence[Score]]
    predictions: Sequence[Predictions]
    scores: Mapping[str, Any]

    @property
    def joined(self) -> Predictions:
        return Predictions.joined(self.predictions)

    def values(self, name: str) -> list[float]:
        """A score of each fold."""
        return [figures[name] for figures in self.figures]

    @property
    def failed(self) -> list[int]:
        """Folds whose model was no better than one that learned nothing."""
        return [fold for fold, figures in enumerate(self.figures) if figures["failed"]]

    def result(self, metric: str) -> dict[str, Any]:
        """What a run tells of it: mean and deviation over folds, the score of all rows together and its interval."""
        mean, std = metrics.mean_and_std(self.values(metric))
        return {
            "split": FOLDS, "mean": mean, "std": std, "n": len(self.figures), "failed": len(self.failed),
            "pooled": self.scores[metric], "interval": self.scores[f"{metric}_interval"],
            "rows": sum(len(one.where) for one in self.predictions),
        }  # fmt: skip

    def write(self, directory: Path) -> None:
        """What was predicted of every row by the model that had not seen it, one object a line."""
        lines = [
            json.dumps({"where": where, "fold": fold, "gold": gold, "predicted": predicted, "details": details})
            for fold, own in enumerate(self.predictions)
            for where, gold, predicted, details in zip(own.where, own.gold, own.predicted, own.details, strict=True)
        ]
        write_atomic(directory / OUT_OF_FOLD, "".join(f"{line}\n" for line in lines))


def cross_validate(
    whole: Task,
    task_of: Callable[[int], Task],
    train: Train,
    directory: Path,
    *,
    seed: int,
    folds: int,
    baselines: bool,
) -> Validated:
    """Train and score every fold, with the seeds after `seed`; `whole` is the task of all of them. What is done stands
    in `directory`, a folder a seed, so that a run that goes on finds it."""
    figures, predictions, simple = [], [], []
    for fold in range(folds):
        done = directory / str(seed + 1 + fold) / DONE
        if not done.exists():
            task = task_of(fold)
            if baselines:
                scores(task, "test", done.with_name(BASELINES))
            with muted():
                begun = task.begin(seed + 1 + fold)
            model, _ = train(task, begun.model, seed + 1 + fold, fold=fold)
            task.evaluate("dev", task.outputs(model, "dev"))  # settles what is chosen on dev, such as a threshold
            outputs = task.outputs(model, "test")
            own = task.evaluate("test", outputs)
            own["failed"] = own[task.metric] <= own["baseline"]
            done.parent.mkdir(parents=True, exist_ok=True)
            found = {"figures": own, "predictions": asdict(task.predictions("test", outputs))}
            write_atomic(done, json.dumps(found))
            shutil.rmtree(done.with_name(FOLDER), ignore_errors=True)
            rows = {split: task.num_rows(split) for split in ("train", "dev", "test")}
            logger.info(
                f"fold {fold + 1} of {folds}: {task.metric} {own[task.metric]:.4f} of {rows['test']:,} rows, trained "
                f"on {rows['train']:,}, chosen by {rows['dev']:,}"
            )
        read = json.loads(done.read_text(encoding="utf-8"))
        figures.append(read["figures"])
        predictions.append(Predictions(**read["predictions"]))
        if baselines:
            simple.append(read_scores(done.with_name(BASELINES)))
    return Validated(figures, simple, predictions, whole.scores(Predictions.joined(predictions)))
