"""What one kind of fine-tuning is made of: examples, a head, losses, figures, and what a reader is shown."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from bothways import metrics, report
from bothways.batch import Batch
from bothways.batching import sort_by_length, token_batches
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.config import EncoderConfig
from bothways.device import choose_device, choose_dtype
from bothways.evaluation.scores import Predictions
from bothways.inference.windows import WindowPolicy
from bothways.linear.tfidf import TfidfModel
from bothways.model.model import Model
from bothways.model.parameters import move_model
from bothways.settings import FineTune
from bothways.training.losses import Loss

Figures = dict[str, Any]  # numbers by name; NAME_interval: [low, high]
TOKENS = 4096  # a batch of what is only measured


class Examples(Protocol):
    """Labelled examples of one split."""

    @property
    def sizes(self) -> Sequence[int]:
        """Tokens of each."""

    def batch(self, rows: Sequence[int]) -> Batch:
        """Those rows as the model reads them, with labels."""


class Baseline(NamedTuple):
    """What a simple model predicts, and the model itself if it can be saved."""

    name: str
    predictions: Predictions
    model: TfidfModel | None = None


class Task(ABC):
    """One kind of fine-tuning: its examples by split (train, dev and perhaps test), its head, losses and figures."""

    name: ClassVar[str]
    doubted: ClassVar[str] = report.CONFIDENT_LEARNING
    """What makes a row's label doubtful; "" where rows have none."""
    constant: ClassVar[str] = "commonest answer"
    """The name of the model that learned nothing, whose metric is `baseline`."""
    at_once: ClassVar[float] = math.inf
    """Tokens of a micro-batch at most; a longer example is one of its own. Only where losses of examples are apart."""
    few: ClassVar[int] = 0
    """Examples of train and dev together below which the encoder is left as it is, unless epochs are asked for."""
    least_examples: ClassVar[int] = 1
    """Examples of average length that a step holds at least, where nothing is said of its size."""
    step_0: ClassVar[str] = "the frozen encoder with a linear head"
    """What a model is before the first step; "" where it can do nothing then."""
    start: Checkpoint
    data: Mapping[str, Examples]

    @property
    @abstractmethod
    def metric(self) -> str:
        """The figure that is reported and chosen by; the higher the better."""

    def examples(self, seed: int, epoch: int) -> Examples:
        """What is trained on in one pass."""
        return self.data["train"]

    @abstractmethod
    def begin(self, seed: int) -> Checkpoint:
        """What training starts from: the encoder with a new head."""

    def fit_head(self, model: Model, on: Sequence[str] = ("train",)) -> None:  # noqa: B027
        """Give a model that training begins with the head that is best on what its encoder gives now for the examples
        of these splits (LP-FT, Kumar 2022)."""

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, int]:
        """How many targets each loss runs over."""

    @abstractmethod
    def losses(self, model: Model, batch: Batch) -> dict[str, Loss]:
        """The losses by name, each (sum, count)."""

    @abstractmethod
    def outputs(self, model: Model, split: str) -> Any:
        """What the model gives for the examples of a split, from which all below is worked out."""

    @abstractmethod
    def evaluate(self, split: str, outputs: Any) -> Figures:
        """The mean `loss`, the metric, and as `baseline` what the metric would be of a model that learned nothing."""

    def measure(self, model: Model, split: str) -> Figures:
        return self.evaluate(split, self.outputs(model, split))

    @abstractmethod
    def num_rows(self, split: str) -> int:
        """Texts, sentences, questions or pairs: what scores are counted by."""

    @abstractmethod
    def predictions(self, split: str, outputs: Any) -> Predictions:
        """What was predicted of each row."""

    @abstractmethod
    def scores(self, found: Predictions) -> dict[str, Any]:
        """The metric and others like it, each with its 95 % interval as NAME_interval."""

    @abstractmethod
    def lengths(self, split: str) -> Sequence[int]:
        """Tokens of each text, or pair that is read as one, before it is divided into windows or cut."""

    @abstractmethod
    def describe(self) -> str:
        """The data in a few lines."""

    def finished(self, model: Model) -> None:  # noqa: B027
        """What is left to do to a trained model before it is saved."""

    def baselines(self, split: str) -> Iterator[Baseline]:
        """Simple models fitted on the same training rows, with all choices made on dev or in cross-validation, and what
        each predicts of a split."""
        yield from ()

    def parts(self, found: Predictions) -> list[report.Section]:
        """What the report page shows of predictions: mistakes, above all. Their rows are among the task's own."""
        return []

    def doubts(self, found: Predictions) -> list[report.LabelIssue]:
        """Rows whose labels may be wrong, the most doubtful first, by a model that was not trained on them."""
        return []

    @property
    def warnings(self) -> list[str]:
        """What a reader of the scores must know of the data."""
        return []

    def facts(self, figures: Mapping[str, Figures]) -> dict[str, Any]:
        """What prediction needs to know beside weights and labels, of a model with these figures by split."""
        return {}


def with_bounds(task: Task, split: str, outputs: Any) -> Figures:
    """The figures of a split, those that have 95 % intervals with them, and the number of its `rows`."""
    figures, found = task.evaluate(split, outputs), task.predictions(split, outputs)
    scores = task.scores(found)
    bounds = {name: scores[f"{name}_interval"] for name in figures if f"{name}_interval" in scores}
    return {**metrics.with_intervals(figures, bounds), "rows": len(found.where)}


def length_line(lengths: Sequence[int]) -> str:
    """How long the texts of a split are."""
    middle, most = np.percentile(lengths, [50, 90])
    return f"tokens: median {middle:.0f}, 90 % up to {most:.0f}, longest {max(lengths):,}"


def outputs(
    model: Model, examples: Examples, read: Callable[[Model, Batch], Iterable[Tensor]], tokens: int = TOKENS
) -> list[Tensor]:
    """What `read` gives for each example, in order, on the processor in float32; nothing is trained."""
    device, sizes = next(model.parameters()).device, examples.sizes
    found: dict[int, Tensor] = {}
    with torch.inference_mode():
        model.eval()
        for rows in token_batches(sort_by_length(range(len(sizes)), sizes), sizes, tokens):
            read_rows = read(model, examples.batch(rows).to(device))
            found |= {row: value.float().cpu() for row, value in zip(rows, read_rows, strict=True)}
    return [found[row] for row in range(len(sizes))]


def peak_rate(settings: FineTune, config: EncoderConfig) -> float:
    """The rate asked for, or one for the model's width.

    Wide models were fine-tuned at 5e-5 (768; Devlin 2018, appendix A.3) and at 2e-5 to 5e-5 (1,024), narrow ones at
    3e-4 (256; Clark 2020, appendix B); MiniLM's 384 do better at 1.5e-4 than at 5e-5 (docs/LOG.md).
    """
    return (
        min(5e-5 * (768 / config.hidden_size) ** 1.5, 5e-4)
        if settings.learning_rate is None
        else settings.learning_rate
    )


def at_work(model: Model, settings: FineTune) -> Model:
    """A copy as it predicts: where and in the numbers it was trained in."""
    device = choose_device("auto")
    copy = deepcopy(model)
    move_model(copy, device, choose_dtype(settings.dtype, device))
    return copy.eval()


def window_policy(settings: FineTune, start: Checkpoint) -> WindowPolicy:
    """How long texts are read in training: neighbouring windows share a quarter."""
    max_length = start.model.config.max_position_embeddings
    return WindowPolicy(settings.window, settings.window // 4, settings.long, max_length=max_length)
