"""Interface of a fine-tuning task: examples, head, losses, metrics, baselines, report."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from bothways.base.errors import InputError, flag, location_columns
from bothways.base.rng import Purpose, generator
from bothways.measure import report
from bothways.measure.metrics.label_errors import LabelError
from bothways.model.linear.tfidf import TfidfModel
from bothways.settings.finetune import FineTune
from bothways.tasks import task_from_heads
from bothways.tasks.batch_plan import Examples, compute_outputs
from bothways.tasks.class_decoding import Calibration
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.task import Evaluator
from bothways.tasks.windows import Long, WindowPolicy, window_of
from bothways.text.batch import Batch
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.checkpoint.scope import Scope
    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.model.transforms import Transform

Metrics = dict[str, Any]  # values by name; NAME_interval: [low, high]
TEACHER_TEMPERATURE = 2.0  # of the softmax over the scores of both models (Hinton 2015)
TEACHER = "teacher"  # name of the loss of a teacher's outputs
# Names among the metrics of a split.
UNCALIBRATED = "calibration_error_before"
CALIBRATED = "calibration_error"


class Baseline(NamedTuple):
    """A simple model: its predictions for a split, and the model itself if it can be saved."""

    name: str
    predictions: Predictions
    model: TfidfModel | None = None


class LabelObjective(ABC):
    """The loss of labels. Its targets are texts, words, windows or pairs, with or without a label.

    target: name of the loss. negligible_loss: below which training has nothing left to learn; 0: never. ranks_batch:
    whether a target is compared with all others of its micro-batch.
    """

    target: str
    negligible_loss: ClassVar[float] = 0.0
    ranks_batch: bool = False

    def module(self, model: Model, seed: int) -> nn.Module:
        return model

    def num_targets(self, batch: Batch) -> int:
        """Number of targets in a batch."""
        assert batch.labels is not None
        return len(batch.labels)

    @abstractmethod
    def forward(self, module: Any, batch: Batch) -> Tensor:
        """The outputs of the model for the targets of a batch."""

    @abstractmethod
    def label_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        """The loss of the labels; targets without a label add 0."""

    @abstractmethod
    def teacher_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        """The distance to the teacher's outputs for the targets, `batch.soft_labels`."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.target: self.num_targets(batch)}

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> dict[str, Loss]:
        """The loss of the labels, as (sum, number of targets)."""
        return {self.target: (self.label_loss(outputs, batch)[0], self.num_targets(batch))}


@dataclass(frozen=True)
class Distilled:
    """alpha * (distance to a teacher's outputs) + (1 - alpha) * (loss of the labels), for batches with soft labels."""

    objective: LabelObjective
    alpha: float

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each loss that is computed."""
        weights = {TEACHER: self.alpha, self.objective.target: 1 - self.alpha}
        return {name: weight for name, weight in weights.items() if weight}

    def module(self, model: Model, seed: int) -> nn.Module:
        return self.objective.module(model, seed)

    def forward(self, module: Any, batch: Batch) -> Tensor:
        return self.objective.forward(module, batch)

    def counts(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(self.weights, self.objective.num_targets(batch))

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> Mapping[str, Loss]:
        num_targets = self.objective.num_targets(batch)
        losses = {}
        for name, weight in self.weights.items():
            loss = self.objective.teacher_loss if name == TEACHER else self.objective.label_loss
            total, _ = loss(outputs, batch)
            losses[name] = (total if weight == 1 else weight * total), num_targets
        return losses


@dataclass(frozen=True)
class Scoring(ABC):
    """Outputs of a model for all examples of a split, and their scores.

    metric: the one to report and to select weights by; higher is better. trivial_baseline: name of the prediction that
    needs no learning; its metric is the `baseline` of `compute_metrics`. ragged_outputs: whether the outputs for an
    example have a row per token, so that the outputs of a batch are concatenated. has_row_losses: if `row_losses`
    exists.
    """

    trivial_baseline: ClassVar[str] = "most frequent answer"
    ragged_outputs: ClassVar[bool] = False
    has_row_losses: ClassVar[bool] = False
    task: TrainingTask

    @property
    @abstractmethod
    def metric(self) -> str:
        """The name of the metric."""

    @property
    def evaluator(self) -> Evaluator[Any, Any]:
        """The evaluator of predictions; tasks without one override `score_predictions`."""
        raise NotImplementedError

    def forward(self, model: Model, batch: Batch) -> Iterable[Tensor]:
        """The outputs for each example of a batch."""
        return self.task.objective.forward(model, batch)

    def outputs(self, model: Model, split: str) -> Any:
        """Outputs of the model for each example, or joined; the input of `compute_metrics` and `predictions`."""
        return compute_outputs(model, self.task.data[split], self.forward)

    @abstractmethod
    def compute_metrics(self, split: str, outputs: Any) -> Metrics:
        """The metric and related ones, the mean `loss`, and the trivial baseline's metric as `baseline`."""

    def evaluate(self, model: Model, split: str) -> Metrics:
        return self.compute_metrics(split, self.outputs(model, split))

    @abstractmethod
    def predictions(self, split: str, outputs: Any) -> Predictions:
        """The prediction for each row."""

    def score_predictions(self, predictions: Predictions) -> Scores:
        """The metric and related ones, each with its 95 % interval."""
        return self.evaluator.compare(predictions.gold, predictions.predicted, predictions.groups)

    def compared_outputs(self, outputs: Any) -> Sequence[Any]:
        """The parts of a model's outputs whose metric, averaged, is compared before and after training."""
        return [outputs]

    def row_losses(self, split: str, outputs: Any) -> Tensor:
        """The loss of each row for these outputs, [N], for tasks with has_row_losses."""
        raise NotImplementedError

    def calibrate(self, split: str, outputs: Any) -> Calibration | None:
        """The calibration of these outputs; None for tasks without one."""
        return None

    def decided_by(self, calibration: Calibration | None) -> Self:
        """With the thresholds of a calibration, for outputs of the model before it is calibrated."""
        return self

    def calibrate_folds(self, predictions: Predictions) -> Calibration | None:
        """The calibration of out-of-fold predictions; None for tasks without one."""
        return None

    def calibration_error(self, split: str, outputs: Any) -> float | None:
        """The expected calibration error of these outputs, in 0..1."""
        return None


@dataclass(frozen=True)
class TaskReport(ABC):
    """What a run tells of its rows: numbers and warnings about them, mistakes in predictions, likely label errors.

    label_issue_criterion: the condition for a likely label error; "" for a task without `label_issues`.
    label_issue_parts: what each of its label issues has besides a text: "pair" (a second one), "span" (the part of the
    text that the label applies to).
    """

    label_issue_criterion: ClassVar[str] = ""
    label_issue_parts: ClassVar[tuple[str, ...]] = ()
    task: TrainingTask

    @abstractmethod
    def num_rows(self, split: str) -> int:
        """Number of texts, sentences, questions or pairs."""

    @abstractmethod
    def lengths(self, split: str) -> Sequence[int]:
        """Tokens of each whole text (or pair that is encoded together)."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """A description of the data."""

    def describe(self) -> str:
        """A description of the data with its warnings, in a few lines."""
        return "\n".join([*self.lines(), *self.warnings])

    @property
    @abstractmethod
    def warnings(self) -> list[str]:
        """Warnings about the data."""

    @property
    def num_development_rows(self) -> int:
        return self.num_rows("train") + self.num_rows("dev")

    def sections(self, predictions: Predictions) -> list[report.Section]:
        """Sections about predictions, such as the mistakes. All rows belong to this task."""
        return []

    def texts(self, where: Sequence[str]) -> Mapping[str, list[Any]]:
        """The columns of predictions.csv with the texts at these locations; none for a task without such a file."""
        return {}

    def shown(self, labels: list[Any]) -> list[Any]:
        """Gold or predicted labels as in predictions.csv."""
        return labels

    def columns(self, predictions: Predictions) -> dict[str, list[Any]]:
        """The columns of predictions.csv; none for a task that has no such file."""
        if not (texts := self.texts(predictions.where)):
            return {}
        labels = {name: self.shown(getattr(predictions, name)) for name in ("gold", "predicted")}
        return {**location_columns(predictions.where), **texts, **labels}

    def other_columns(self, where: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """The other columns of the rows in their tables. columns: those that are there already."""
        return {}

    def label_issues(self, predictions: Predictions) -> list[report.LabelIssue]:
        """Rows whose label may be wrong, the most suspicious first, from predictions of models not trained on them."""
        return []


class TrainingTask(ABC):
    """Base class of fine-tuning tasks: a head, and an object for each other part.

    data: the examples by split: train, dev and optionally test. min_folded_rows: rows from which a linear head on
    frozen vectors can be cross-validated, if the task has one. max_micro_batch_tokens: limit of a micro-batch, for
    tasks whose examples have independent losses; a longer example forms its own. min_step_examples, min_step_tokens:
    minimum size of a step in examples of average length and in tokens, unless its size is set. min_steps: of a
    training, unless epochs are given (`num_epochs`). initial_model: the model before the first step; "" if it is not
    worth evaluating. num_kinds: of what the rows are to be told apart: classes, labels, or 2 for numbers; None for a
    task without linear models that a few rows are enough for. needs_gain: whether the initial model is delivered unless
    the trained one is clearly better on dev: the 95 % interval of the difference, paired by row, lies above 0.
    keeps_start: name of the baseline that needs no training, than which a model must be better on dev to be delivered;
    "" for tasks that always deliver one.
    """

    name: ClassVar[str]
    min_folded_rows: float = math.inf
    max_micro_batch_tokens: ClassVar[float] = math.inf
    num_kinds: int | None = None
    min_step_examples: ClassVar[int] = 1
    min_step_tokens: ClassVar[int] = 2048
    min_steps: ClassVar[int] = 300
    initial_model: ClassVar[str] = "the frozen encoder with a linear head"
    needs_gain: ClassVar[bool] = False
    keeps_start: ClassVar[str] = ""
    hint: str = ""  # a way out if there is only one training example
    settings: FineTune
    pretrained: Checkpoint
    data: Mapping[str, Examples]

    @property
    @abstractmethod
    def objective(self) -> LabelObjective:
        """The loss of the labels."""

    @property
    @abstractmethod
    def scoring(self) -> Scoring:
        """Predictions and their scores."""

    @property
    @abstractmethod
    def report(self) -> TaskReport:
        """Numbers and warnings about the rows, mistakes, and likely label errors."""

    @property
    def metric(self) -> str:
        """The metric to report and to select weights by; higher is better."""
        return self.scoring.metric

    @property
    def transforms(self) -> Sequence[Transform]:
        """Changes of the model that belong to the task."""
        return ()

    def training_examples(self, seed: int, epoch: int) -> Examples:
        """The examples of one epoch."""
        return self.data["train"]

    def inference_copy(self, model: Model) -> Model:
        """A copy in eval mode, on the device and in the number format of the training."""
        from bothways.base.device import choose_device, choose_dtype
        from bothways.model.parameters import inference_copy

        device = choose_device(self.settings.device)
        return inference_copy(model, device, choose_dtype(self.settings.dtype, device))

    @abstractmethod
    def initial_checkpoint(self, seed: int) -> Checkpoint:
        """The pre-trained encoder with a new head."""

    def scope(self, model: Model, *, is_trained: bool) -> Scope | None:
        """Where the training texts of this model lie; None for tasks that do not ask. model: for inference. is_trained:
        whether its encoder was trained on them."""
        return None

    def fit_head(self, model: Model, splits: Sequence[str] = ("train",)) -> None:  # noqa: B027
        """Fit the head to the model's features of these splits, with the encoder as it is (LP-FT, Kumar 2022)."""

    @abstractmethod
    def read_by(self, teacher: Checkpoint) -> TrainingTask:
        """The task as a teacher reads it. InputError if the model cannot teach this task."""

    def soft_labels(self, reader: TrainingTask, outputs: Any) -> list[Tensor]:
        """The teacher's outputs for each training example, as the objective's `teacher_loss` compares them.

        reader: the task as the teacher reads it. outputs: the outputs of the teacher for train.
        """
        import torch

        return [*map(torch.from_numpy, outputs)]

    @abstractmethod
    def with_unlabelled(self) -> TrainingTask:
        """The task with the texts of `unlabelled` as further training examples, without labels."""

    def baselines(self, split: str, *, words: bool = True) -> Iterator[Baseline]:
        """Simple models, fitted on train and tuned on dev or in cross-validation, with predictions for a split.

        words: also those over TF-IDF.
        """
        yield from ()

    def out_of_fold(self) -> Predictions | None:
        """Predictions for all rows, or a sample of them, by linear models on frozen vectors of the other folds; None
        for tasks without such a model."""
        return None

    def metadata(self, metrics_by_split: Mapping[str, Metrics]) -> dict[str, Any]:
        """Metadata that inference needs besides weights and labels. metrics_by_split: of the saved model."""
        return {}


def baseline_metrics(values: Metrics, scores: Scores) -> Metrics:
    """The metrics of a baseline that a model has too. values: of the model, on the same rows."""
    return {
        name: scores.get(name, value)
        for name, value in values.items()
        if name in (*scores, "rows", "baseline", "best_step")
    }


def calibration_errors(scoring: Scoring, split: str, outputs: Any, calibration: Calibration | None) -> Metrics:
    """The expected calibration error of a split before and after calibration; nothing for tasks without one."""
    if calibration is None:
        return {}
    values = {
        UNCALIBRATED: scoring.calibration_error(split, outputs),
        CALIBRATED: scoring.calibration_error(split, outputs / calibration.temperature),
    }
    return {name: value for name, value in values.items() if value is not None}


def label_issue(error: LabelError, where: str, text: str, **more: Any) -> report.LabelIssue:
    """A likely label error in the text at `where`. more: its second text, or the part of it that the label is of."""
    values = error.label, error.suggested, error.label_probability, error.suggested_probability
    return report.LabelIssue(where, text, *values, **more, is_likely=error.is_likely)


def describe_lengths(lengths: Sequence[int], of: str = "tokens") -> str:
    median, high = np.percentile(lengths, [50, 90])
    return f"{of}: median {median:.0f}, 90 % up to {high:.0f}, longest {max(lengths):,}"


def text_reader(windows: tuple[int, int, Long], model: Checkpoint) -> tuple[Tokenizer, WindowPolicy]:
    """How a model reads texts in training. windows: as the settings have them."""
    size, overlap, long = windows
    config = model.model.config
    policy = WindowPolicy(window_of(config, size, long), overlap, long, max_length=config.max_position_embeddings)
    return model.need_tokenizer(), policy


def check_task(teacher: Checkpoint, task: str, source: object) -> None:
    """source: of the teacher, for messages. InputError unless the teacher was fine-tuned for a task of this name."""
    if (actual := task_from_heads(teacher.model.num_outputs, teacher)) != task:
        raise InputError(
            f"{source}: a model for {actual} cannot teach {task}; fine-tune it on the same data first (finetune {task} "
            f"{flag('model', source)})"
        )


def sample_rows(counts: Sequence[int], target: int, *, seed: int) -> list[int]:
    """Random rows, in order, whose counts (such as labelled tokens) add up to at least `target`, or all rows."""
    rows = []
    total = 0
    for row in generator(seed, Purpose.FOLDS).permutation(len(counts)).tolist():
        if total >= target:
            break
        rows.append(row)
        total += counts[row]
    return sorted(rows)
