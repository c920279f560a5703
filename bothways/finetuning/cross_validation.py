"""Cross-validation (Stone 1974): each fold is predicted by a model trained on the other folds.

The final model is trained on all folds by the same recipe. It is trained on more rows than the model of a fold, so the
cross-validated score is slightly pessimistic. The trainings share most of their rows: the deviation over folds is the
uncertainty of the score of one fold, the interval over all rows that of the score of all folds.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from bothways import metrics
from bothways.errors import format_count
from bothways.evaluation.scores import Predictions
from bothways.finetuning import baselines as baseline_scores
from bothways.finetuning.baselines import BASELINES, BaselineScore, Resamples
from bothways.finetuning.setup import FineTuneSetup
from bothways.finetuning.task import Metrics, Task, baseline_metrics, resamples_of
from bothways.io import write_atomic
from bothways.log import logger, muted
from bothways.model.model import Model
from bothways.row_location import location_fields
from bothways.training.run_checkpoints import FOLDER

FOLDS = "folds"  # name of the "split" that is reported
OUT_OF_FOLD, FOLD = "out-of-fold.jsonl", "fold.json"


class Train(Protocol):
    """Train a model with a seed. Returns a copy for inference, and the step of its weights."""

    def __call__(self, setup: FineTuneSetup, model: Model, seed: int, *, fold: int) -> tuple[Model, int]: ...


@dataclass(frozen=True)
class CrossValidation:
    """Results of cross-validation.

    metrics, baselines (empty if not requested) and predictions have an entry per fold. scores: the scores of all rows
    together, each with its 95 % interval as NAME_interval. resamples: of the mean over folds.
    """

    metrics: Sequence[Metrics]
    baselines: Sequence[Sequence[BaselineScore]]
    predictions: Sequence[Predictions]
    scores: Mapping[str, Any]
    resamples: Resamples

    @property
    def all_predictions(self) -> Predictions:
        return Predictions.joined(self.predictions)

    def values(self, name: str) -> list[float]:
        """One score for each fold."""
        return [values[name] for values in self.metrics]

    @property
    def failed(self) -> list[int]:
        """Folds whose model is no better than the trivial baseline."""
        return [fold for fold, values in enumerate(self.metrics) if values["failed"]]

    def summary(self, metric: str) -> dict[str, Any]:
        """Mean and deviation over folds, the score of all rows together and its interval: `result` in bothways.json."""
        mean, std = metrics.mean_and_std(self.values(metric))
        return {
            "split": FOLDS,
            "mean": mean,
            "std": std,
            "n": len(self.metrics),
            "failed": len(self.failed),
            "pooled": self.scores[metric],
            "interval": self.scores[f"{metric}_interval"],
            "rows": sum(len(predictions.where) for predictions in self.predictions),
        }

    def of_baseline(self, task: Task, name: str) -> "CrossValidation":
        """The cross-validation of a baseline whose predictions are stored."""
        chosen = [score for scores in self.baselines for score in scores if score.name == name]
        predictions = [score.predictions for score in chosen if score.predictions]
        by_fold = [task.scoring.score_predictions(rows) for rows in predictions]
        fold_metrics = [
            {**baseline_metrics(values, scores), "failed": scores[task.metric] <= values["baseline"]}
            for values, scores in zip(self.metrics, by_fold, strict=True)
        ]
        scores = task.scoring.score_predictions(Predictions.joined(predictions))
        resamples = [score.resamples for score in chosen if score.resamples]
        return CrossValidation(fold_metrics, (), predictions, scores, Resamples.mean(resamples, same_rows=False))

    def write_predictions(self, directory: Path) -> None:
        """Write the out-of-fold prediction for every row as JSON lines."""
        lines = [
            json.dumps(
                location_fields(where) | {"fold": fold, "gold": gold, "predicted": predicted, "details": details}
            )
            for fold, rows in enumerate(self.predictions)
            for where, gold, predicted, details in zip(rows.where, rows.gold, rows.predicted, rows.details, strict=True)
        ]
        write_atomic(directory / OUT_OF_FOLD, "".join(f"{line}\n" for line in lines))


def cross_validate(
    setup: FineTuneSetup, build_fold: Callable[[int], FineTuneSetup], train: Train, directory: Path
) -> CrossValidation:
    """Train and score a model for each fold; fold k uses seed + 1 + k.

    setup: of all folds together. build_fold: creates the one whose test split is a fold. directory: has a subdirectory
    per seed, from which a resumed run reads the folds that are done.
    """
    fold_metrics, fold_predictions, fold_baselines = [], [], []
    task, first_seed = setup.task, setup.seeds[0] + 1
    for fold in range(setup.folds):
        file = directory / str(first_seed + fold) / FOLD
        if not file.exists():
            run_fold(build_fold(fold), train, file, seed=first_seed + fold, fold=fold)
        stored = json.loads(file.read_text(encoding="utf-8"))
        fold_metrics.append(stored["metrics"])
        fold_predictions.append(Predictions(**stored["predictions"]))
        if setup.compares:
            fold_baselines.append(baseline_scores.read(file.with_name(BASELINES)))
    by_fold = [
        Resamples.from_json(resamples_of(task.scoring.score_predictions(predictions), task.metric))
        for predictions in fold_predictions
    ]
    scores = task.scoring.score_predictions(Predictions.joined(fold_predictions))
    resamples = Resamples.mean(by_fold, same_rows=False)
    return CrossValidation(fold_metrics, fold_baselines, fold_predictions, scores, resamples)


def run_fold(setup: FineTuneSetup, train: Train, file: Path, *, seed: int, fold: int) -> None:
    """Train the model of one fold, and write its metrics and predictions to a file."""
    task = setup.task
    if setup.compares:
        baseline_scores.score(task, "test", file.with_name(BASELINES))
    with muted():
        initial = setup.prepare_model(seed)
    model, _ = train(setup, initial.model, seed, fold=fold)
    task.scoring.evaluate(model, "dev")  # sets what is tuned on dev, such as a threshold
    outputs = task.scoring.outputs(model, "test")
    values = task.scoring.compute_metrics("test", outputs)
    values["failed"] = values[task.metric] <= values["baseline"]
    file.parent.mkdir(parents=True, exist_ok=True)
    predictions = task.scoring.predictions("test", outputs)
    write_atomic(file, json.dumps({"metrics": values, "predictions": asdict(predictions)}))
    shutil.rmtree(file.with_name(FOLDER), ignore_errors=True)
    rows = {split: task.summary.num_rows(split) for split in ("train", "dev", "test")}
    logger.info(
        f"fold {fold + 1} of {setup.folds}: {task.metric} {values[task.metric]:.4f} of "
        f"{format_count(rows['test'], 'row')}, trained on "
        f"{rows['train']:,}, weights selected on {rows['dev']:,}"
    )
