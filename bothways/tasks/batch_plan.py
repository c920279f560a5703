"""Training examples, and how they are divided: an epoch into steps, a step into micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean
from typing import TYPE_CHECKING, Protocol

from bothways.tasks.arrays import Floats
from bothways.text.batch import Batch
from bothways.text.batching import chunked, divide_evenly, epoch_order, sort_by_length, token_batches

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.model import Model
    from bothways.tasks.training_task import TrainingTask

EPOCHS = 3.0  # unless --epochs is given
USUAL_STEPS = 300  # of EPOCHS; with fewer examples, steps are smaller
BATCH_TOKENS = 2048  # tokens of a step, unless --batch-tokens is given; more for long texts (min_step_examples)
INFERENCE_TOKENS = 2048  # tokens of a batch without gradients


class Examples(Protocol):
    """Labelled examples of one split."""

    @property
    def sizes(self) -> Sequence[int]:
        """Tokens of each example."""

    def batch(self, rows: Sequence[int]) -> Batch:
        """These examples as input of the model, with labels."""


@dataclass(frozen=True)
class Epoch:
    """One pass over the training examples, in steps, examples and tokens."""

    steps: int
    examples: int
    tokens: int


class ExampleSource(Protocol):
    """A task, or a teacher's outputs: a source of training examples."""

    def training_examples(self, seed: int, epoch: int) -> Examples:
        """The examples of one epoch."""
        ...


@dataclass(frozen=True)
class BatchPlan:
    """How the examples of an epoch are divided into steps, and steps into micro-batches.

    batch_size: examples of a step; else it has batch_tokens tokens. By default these are BATCH_TOKENS, or for few
    examples as many as give USUAL_STEPS, but at least min_step_tokens, and at least as many as min_step_examples
    examples of average length. max_micro_batch_tokens: a longer example forms its own micro-batch.
    """

    batch_size: int | None
    batch_tokens: int | None
    gradient_accumulation: int
    min_step_examples: int
    min_step_tokens: int
    max_micro_batch_tokens: float

    @staticmethod
    def of(task: TrainingTask) -> BatchPlan:
        settings = task.settings
        limits = (task.min_step_examples, task.min_step_tokens, task.max_micro_batch_tokens)
        return BatchPlan(settings.batch_size, settings.batch_tokens, settings.gradient_accumulation, *limits)

    def steps(self, source: ExampleSource, seed: int) -> Iterator[tuple[Examples, list[int]]]:
        """The rows of each step and the examples that they index, endlessly."""
        for epoch in count():
            examples = source.training_examples(seed, epoch)
            for rows in self.step_rows(seed, epoch, examples.sizes):
                yield examples, rows

    def epoch(self, source: ExampleSource, seed: int) -> Epoch:
        sizes = source.training_examples(seed, 0).sizes
        return Epoch(len(list(self.step_rows(seed, 0, sizes))), len(sizes), sum(sizes))

    def step_rows(self, seed: int, epoch: int, sizes: Sequence[int]) -> Iterator[list[int]]:
        """The rows of each step of an epoch. sizes: tokens of each example."""
        order = epoch_order(len(sizes), seed=seed, epoch=epoch).tolist()
        if self.batch_size:
            return chunked(order, self.batch_size)
        if self.batch_tokens:
            return token_batches(order, sizes, self.batch_tokens)
        usual = min(BATCH_TOKENS, max(self.min_step_tokens, round(EPOCHS * sum(sizes) / USUAL_STEPS)))
        return token_batches(order, sizes, max(usual, self.min_step_examples * fmean(sizes)))

    def micro_batches(self, rows: Sequence[int], sizes: Sequence[int], world_size: int = 1) -> Iterator[list[int]]:
        """The rows of a step as micro-batches: as many as requested, or more if there are more processes, or if they
        would hold too many tokens."""
        for part in divide_evenly(rows, sizes, max(self.gradient_accumulation, world_size)):
            yield from token_batches(part, sizes, self.max_micro_batch_tokens)


def compute_outputs(
    model: Model,
    examples: Examples,
    forward: Callable[[Model, Batch], Iterable[Tensor]],
    tokens: int = INFERENCE_TOKENS,
) -> list[Floats]:
    """`forward` for each example, in order, without gradients, float32."""
    import torch

    device = next(model.parameters()).device
    sizes = examples.sizes
    outputs: dict[int, Floats] = {}
    with torch.inference_mode():
        model.eval()
        for rows in token_batches(sort_by_length(range(len(sizes)), sizes), sizes, tokens):
            values = forward(model, examples.batch(rows).to(device))
            outputs |= {row: value.float().cpu().numpy() for row, value in zip(rows, values, strict=True)}
    return [outputs[row] for row in range(len(sizes))]
