"""The last training: on all rows, if dev and test were divided off the training table and more rows are worth it.

A training that is scored leaves a fifth of the table unread. If it took little of `minutes`, and a learning curve of
linear models says that the rest gains more than its interval, a last training reads all rows, for the steps that the
first one found on dev. No row is left to score it: the reported score belongs to the first model, which the run keeps.

Letters: N rows, F features, C outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from bothways.base.errors import flag, format_count
from bothways.base.log import logger, muted
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.scope import Scope
from bothways.model.checkpoint.weights import WEIGHTS, write_weights
from bothways.model.linear import linear_head
from bothways.model.linear.regressions import fold_rows
from bothways.model.transforms import DivideScores, finalize_all
from bothways.tasks.class_decoding import CALIBRATION
from bothways.tasks.texts import TextTask
from bothways.text.data.columns import join_tables
from bothways.training.finetuning.gain import Gain, interpolate, loss_gain
from bothways.training.finetuning.ground.course import Course
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.processes import Training
from bothways.training.finetuning.run_scores import RunScores
from bothways.training.finetuning.seeds import SEEDS, seed_directory
from bothways.training.finetuning.time_left import curve_seconds, seconds_after
from bothways.training.finetuning.training import fingerprint_examples, trained_state
from bothways.training.progress import TrainingProgress
from bothways.training.run import Run
from bothways.training.run_checkpoints import FOLDER, Checkpoints
from bothways.training.trainer import OUT_OF_TIME

SCORED = "scored"  # directory of a run: the model whose score is reported, if the model of all rows is delivered
ALL_ROWS = "all_rows"  # directory of the last training, beside the directories of the seeds
TRAINS_ALL_ROWS = "trains_all_rows"  # key in bothways.json: whether there is a last training
SHORT = 0.4  # of the minutes: a longer first training is the only one
FEWER = 5  # parts of the rows outside a fold, of which the smaller model of the learning curve lacks one
STRENGTHS = (0.3, 0.1, 0.03, 0.01, 0.003)  # of the penalty, falling


@dataclass(frozen=True)
class AllRows:
    """All rows of the training table as one split, as the first training reads them: the same labels, and numbers on
    the same scale.

    task: of the first training. joined: its splits whose rows were in the training table.
    """

    split: ClassVar[str] = "train"
    task: TextTask
    joined: tuple[str, ...]

    @staticmethod
    def of(plan: Plan) -> "AllRows":
        assert isinstance(plan.task, TextTask)
        joined = [split for split in plan.task.tables if not (split == "test" and plan.settings.test)]
        return AllRows(plan.task, (*joined,))

    @cached_property
    def order(self) -> list[int]:
        """The rows of the joined splits in the order of the table."""
        where = [place for split in self.joined for place in self.task.tables[split].where]
        return sorted(range(len(where)), key=lambda row: (where[row].file, where[row].row))

    @cached_property
    def whole(self) -> TextTask:
        """The task whose training rows are all of them."""
        table = join_tables(self.task.settings.train, [self.task.tables[split] for split in self.joined])
        targets = np.concatenate([self.task.data[split].targets for split in self.joined])
        task: TextTask = replace(self.task, tables={self.split: table.take(self.order)})  # type: ignore[type-var]
        with muted():
            return task.with_targets({self.split: targets[self.order]})

    @property
    def is_read_alike(self) -> bool:
        """Whether the head reads the same of more rows: many pairs are encoded together."""
        return self.whole.pair_features == self.task.pair_features

    @property
    def num_rows(self) -> int:
        return len(self.order)

    @property
    def num_scored(self) -> int:
        """Rows of the first training."""
        return len(self.task.tables[self.split])

    @cached_property
    def features(self) -> Tensor:
        """The features of the frozen encoder that the last layer of the head reads, [N, F]."""
        with muted(), torch.no_grad():
            pooler = self.task.initial_checkpoint(self.task.settings.seed).model.eval().pooler
            assert pooler is not None
            vectors_NF: Tensor = pooler(torch.cat([self.task.frozen[split]["head"] for split in self.joined]))
        return vectors_NF[self.order]


def train_all_rows(plan: Plan, scores: RunScores, run: Run) -> "LastTraining | None":
    """The last training, which is done when this returns; None if there is none. Its choice is stored, so that a
    resumed run repeats it."""
    if not can_train_all_rows(plan, scores):
        return None
    seed = scores.model.scores.kept
    course = Course.read(seed_directory(run.directory, seed))
    if course is None:
        return None
    rows = AllRows.of(plan)
    if TRAINS_ALL_ROWS not in run.metadata:
        run.update_metadata(**{TRAINS_ALL_ROWS: is_worth_it(plan, rows, course, run)})
    if not run.metadata[TRAINS_ALL_ROWS]:
        return None
    with run.timed("all_rows"):
        model = train_model(plan, rows, course, seed, run.directory / SEEDS / ALL_ROWS)
    return LastTraining(rows, model, course)


def can_train_all_rows(plan: Plan, scores: RunScores) -> bool:
    """Whether dev was divided off the training table, and a single model that was trained on the rest is delivered."""
    is_divided = plan.settings.dev is None and not plan.num_folds and plan.few is None
    is_single = len(plan.seeds) == 1 and plan.processes.world_size == 1
    is_plain = plan.teacher is None and not plan.quantizes
    is_delivered = scores.delivered is scores.model and not scores.refused
    is_trained = not scores.model.scores.frozen
    is_of_texts = isinstance(plan.task, TextTask) and plan.task.scoring.has_row_losses
    return plan.budget.limit is not None and all(
        (is_divided, is_single, is_plain, is_delivered, is_trained, is_of_texts)
    )


def is_worth_it(plan: Plan, rows: AllRows, course: Course, run: Run) -> bool:
    """Whether there is time for one more training, and the learning curve says that it gains."""
    budget = plan.budget
    assert budget.limit is not None
    if course.seconds >= SHORT * budget.limit:
        return False

    needed = course.seconds * course.share * rows.num_rows / rows.num_scored
    if needed + curve_seconds(plan) + seconds_after(plan) > budget.left or not rows.is_read_alike:
        return False

    with run.timed("learning_curve"):
        gain = learning_curve(rows)

    number = format_count(rows.num_rows, "row")
    line = f"frozen vectors, 80 % of the rows against all: the gain in loss is {gain.difference} (95 % interval)"
    if gain.is_clear:
        logger.info(f"{line}; a last training on all {number}, about {needed:.0f} s ({flag('minutes')})")
    else:
        logger.info(f"{line}; so the {number} are not trained on once more")
    return gain.is_clear


def learning_curve(rows: AllRows) -> Gain:
    """The gain in loss of linear models of the rows outside a fold over models of 80 % of these rows, on the same rows,
    with its 95 % interval. Each has the penalty with its lowest loss."""
    whole = rows.whole
    targets = whole.data[rows.split].targets
    units = whole.tables[rows.split].units
    every = np.arange(rows.num_rows)
    shape = (len(STRENGTHS), rows.num_rows, whole.num_outputs)
    fewer_SNC = torch.zeros(shape)
    all_SNC = torch.zeros(shape)
    for others, fold in fold_rows(targets, every, units, linear_head.FOLDS):
        kept, _ = fold_rows(targets, others, units, FEWER)[0]
        fewer_SNC[:, fold] = fold_scores(rows, kept, fold)
        all_SNC[:, fold] = fold_scores(rows, others, fold)

    fewer_N = best_losses(rows, fewer_SNC)
    all_N = best_losses(rows, all_SNC)
    return loss_gain(fewer_N, all_N, 1.0)


def fold_scores(rows: AllRows, fitted: np.ndarray, fold: np.ndarray) -> Tensor:
    """Scores of the rows of a fold by linear heads on other rows, one for each strength: [len(STRENGTHS), rows, C]."""
    whole = rows.whole
    subset = np.concatenate([fitted, fold])
    taken = linear_head.take((rows.features, torch.from_numpy(whole.data[rows.split].targets)), subset)
    held_out = range(len(fitted), len(subset))
    scores_SNC = linear_head.out_of_fold(taken, whole.row_loss, whole.num_outputs, [held_out], STRENGTHS)
    return scores_SNC[:, len(fitted) :]


def best_losses(rows: AllRows, scores_SNC: Tensor) -> Tensor:
    """The loss of each row, [N], by the strength with the lowest mean."""
    task = rows.whole
    losses = [task.scoring.row_losses(rows.split, task.outputs_of(scores_NC.numpy())) for scores_NC in scores_SNC]
    return min(losses, key=lambda losses_N: float(losses_N.mean()))


def train_model(plan: Plan, rows: AllRows, course: Course, seed: int, directory: Path) -> Checkpoint:
    """The model of all rows: from the same start, with the linear start of all rows, by the same seed and schedule for
    the same steps, at the same point between start and trained weights. Its steps are not in the metrics of the run.
    directory: for the files of a resumed run."""
    plan = replace(plan, task=rows.whole)
    with muted():
        trained = plan.prepare_model(seed)
    if (directory / WEIGHTS).exists():
        trained.model.load_state_dict(load_file(directory / WEIGHTS), strict=False)
        return trained
    model = trained.model
    if plan.options.evaluate_first:
        rows.task.fit_head(model, rows.joined)
    initial = trained_state(model)

    stops_at = course.stopped_at if course.stopped_at < course.best_step else 0
    options = replace(
        plan.options,
        seed=seed,
        steps=course.steps,
        end=course.best_step,
        learning_rate=course.learning_rate,
        best_by=None,
        evaluate_first=False,
        evaluate_every=stops_at,
        patience=None,
        negligible_loss=0.0,
    )
    checkpoints = Checkpoints(directory, keep=1, order={"examples": fingerprint_examples(plan.examples)}, at_end=False)
    training = Training.of(plan, model, options, 0, checkpoints)
    step = 0
    with TrainingProgress("fine-tuning, all rows", course.best_step) as bar:

        def record(row: dict[str, Any]) -> None:
            nonlocal step
            step = row["step"]
            if row["split"] == "train":
                bar.show(row)

        def evaluate() -> dict[str, Any]:
            """Nothing is evaluated, but the training is stopped where the first one was."""
            return {"loss": 0.0, OUT_OF_TIME: 0 < stops_at <= step}

        training.run(plan, training.load(plan), evaluate, record)

    weights = dict(interpolate(initial, trained_state(model), course.fraction))
    model.load_state_dict(weights, strict=False)
    directory.mkdir(parents=True, exist_ok=True)
    write_weights(weights, directory / WEIGHTS)
    rmtree(directory / FOLDER, ignore_errors=True)
    return trained


@dataclass(frozen=True)
class LastTraining:
    """A model that was trained on all rows. It is delivered, with the calibration of the model that is scored, if that
    has one."""

    rows: AllRows
    model: Checkpoint
    course: Course

    def describe(self, directory: Path, calibration: Mapping[str, Any] | None) -> str:
        """Which model has the score, and which one is delivered. directory: of the run. calibration: of both."""
        share = 100 * self.rows.num_scored / self.rows.num_rows
        return (
            f"the score is that of a model trained on {share:.0f} % of the rows, {directory / SCORED}; the delivered "
            f"one was trained on all {self.rows.num_rows:,}, for the same {self.course.best_step:,} steps"
            + (", and has the same calibration" if calibration else "")
        )

    def finished(self, plan: Plan, scored: Checkpoint) -> Checkpoint:
        """The model as it is saved. scored: the model that is scored, as it is saved."""
        model = self.model.model
        if calibration := scored.metadata.get(CALIBRATION):
            DivideScores(calibration["temperature"]).finalize(model)
        scope = self.scope(plan, scored.scope)
        finalize_all(plan.transforms, model)
        return replace(self.model, metadata=scored.metadata, scope=scope)

    def scope(self, plan: Plan, scored: Scope | None) -> Scope | None:
        """Where its training texts lie.

        scored: the scope of the scored model. Its texts of dev give the distances of held-out texts, since this model
        is trained on all texts.
        """
        if scored is None:
            return None
        own = self.rows.whole.scope(plan.inference_copy(self.model.model), is_trained=False)
        return own and replace(own, held_out=scored.held_out, rows=scored.rows)
