"""Training steps and learning rates: epochs, batches, layer-wise decay, frozen layers."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from statistics import fmean

from bothways.batching import chunked, divide_evenly, epoch_order, token_batches
from bothways.checkpoint.contents import Checkpoint
from bothways.config import EncoderConfig
from bothways.errors import format_count
from bothways.finetuning.task import Examples, Task
from bothways.finetuning.teacher import Lessons
from bothways.log import logger
from bothways.model.model import Model
from bothways.settings import FineTune
from bothways.training.optimizer import layer_depths
from bothways.training.transforms import Freeze, Transform, apply_all

EPOCHS, MIN_STEPS, MAX_EPOCHS = 3.0, 300, 20.0  # unless --epochs is given
BATCH_TOKENS = 2048  # unless --batch-tokens is given; more for long texts (Task.min_step_examples)


# --- epochs and steps


def stays_frozen(settings: FineTune, task: Task) -> bool:
    """Whether the encoder stays frozen: with few examples, dev is too small to show whether training helps."""
    explicit = (
        settings.epochs is not None or settings.dev is not None or not settings.linear_start or settings.is_distilled
    )
    return not explicit and num_development_rows(task) < task.freeze_below


def skips_training(settings: FineTune, task: Task) -> bool:
    """Whether the model is the linear start: for few examples, or with a learning rate of 0."""
    has_start = settings.linear_start and task.initial_model != ""
    return stays_frozen(settings, task) or (settings.learning_rate == 0 and has_start)


def num_development_rows(task: Task) -> int:
    return task.summary.num_rows("train") + task.summary.num_rows("dev")


def describe_frozen(task: Task) -> str:
    return (
        f"{num_development_rows(task)} examples are too few to measure whether training the encoder helps: it stays "
        "frozen, and its linear head is fitted to all of them (dev is scored by a head fitted to train only); "
        "--epochs 10 trains the encoder too"
    )


def num_epochs(settings: FineTune, steps_per_epoch: int) -> float:
    """The number of epochs: more for few examples, which need a minimum of steps (Mosbach 2021, section 6)."""
    if settings.epochs is not None:
        return settings.epochs
    return min(MAX_EPOCHS, max(EPOCHS, MIN_STEPS / steps_per_epoch))


def num_steps(settings: FineTune, steps_per_epoch: int) -> int:
    return max(1, math.ceil(num_epochs(settings, steps_per_epoch) * steps_per_epoch))


def log_epochs(settings: FineTune, steps_per_epoch: int) -> None:
    """Log the length of the training, if it is not three epochs; as a warning if it is far too short."""
    default = replace(settings, epochs=None)
    steps, default_steps = num_steps(settings, steps_per_epoch), num_steps(default, steps_per_epoch)
    default_epochs = num_epochs(default, steps_per_epoch)
    if settings.epochs is None:
        if default_epochs > EPOCHS:
            logger.info(
                f"{default_epochs:.3g} epochs of {format_count(steps_per_epoch, 'step')}, as there are few examples "
                "(--epochs)"
            )
        return
    verb = "epoch is" if settings.epochs == 1 else "epochs are"
    usual = f"the default is {default_steps:,} ({default_epochs:.3g} epochs)"
    text = f"{settings.epochs:g} {verb} {format_count(steps, 'step')}; {usual}"
    if steps < MIN_STEPS and 2 * steps <= default_steps:
        logger.warning(f"{text}; after so few steps a model has often learned little")
    elif steps != default_steps:
        logger.info(text)


# --- batches


def count_steps_per_epoch(settings: FineTune, task: Task, seed: int = 0, lessons: Lessons | None = None) -> int:
    examples = (lessons or task).training_examples(seed, 0)
    return len(list(step_rows(settings, task, seed, 0, examples.sizes)))


def iterate_steps(
    settings: FineTune, task: Task, seed: int, lessons: Lessons | None = None
) -> Iterator[tuple[Examples, list[int]]]:
    """The rows of each step and the examples that they index, endlessly. lessons: of a teacher, if there is one."""
    for epoch in count():
        examples = (lessons or task).training_examples(seed, epoch)
        for rows in step_rows(settings, task, seed, epoch, examples.sizes):
            yield examples, rows


def step_rows(settings: FineTune, task: Task, seed: int, epoch: int, sizes: Sequence[int]) -> Iterator[list[int]]:
    """The rows of each step of an epoch. sizes: tokens of each example."""
    order = epoch_order(len(sizes), seed=seed, epoch=epoch).tolist()
    if settings.batch_size:
        return chunked(order, settings.batch_size)
    default = max(BATCH_TOKENS, task.min_step_examples * fmean(sizes))
    return token_batches(order, sizes, settings.batch_tokens or default)


def micro_batches(settings: FineTune, task: Task, rows: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """The rows of a step as micro-batches: as many as requested, or more if they would hold too many tokens."""
    for part in divide_evenly(rows, sizes, settings.gradient_accumulation):
        yield from token_batches(part, sizes, task.max_micro_batch_tokens)


# --- learning rates


def peak_learning_rate(settings: FineTune, config: EncoderConfig) -> float:
    """The learning rate of the settings, or a default for the model's width.

    Wide models were fine-tuned at 5e-5 (768; Devlin 2018, appendix A.3) and at 2e-5 to 5e-5 (1,024), narrow ones at
    3e-4 (256; Clark 2020, appendix B); MiniLM with 384 does better at 1.5e-4 than at 5e-5 (docs/LOG.md).
    """
    if settings.learning_rate is not None:
        return settings.learning_rate
    return min(5e-5 * (768 / config.hidden_size) ** 1.5, 5e-4)


def layer_learning_rates(model: Model, settings: FineTune) -> list[tuple[str, float, int]]:
    """(name, peak learning rate, number of parameters) from the embeddings to the head; 0 for a frozen block.

    eta_l = eta * layer_decay^(L - l) (Sun 2019, section 5.3).
    """
    depths = layer_depths([name for name, _ in model.named_parameters()])
    top, sizes, trained = max(depths.values()), Counter[int](), set[int]()
    for name, value in model.named_parameters():
        sizes[depths[name]] += value.numel()
        if value.requires_grad:
            trained.add(depths[name])
    num_layers = model.config.num_unique_layers
    names = ["embeddings", *(f"layer {layer}" for layer in range(1, num_layers + 1)), "head"][: top + 1]
    peak = peak_learning_rate(settings, model.config)
    rates = [peak * settings.layer_decay ** (top - depth) for depth in range(top + 1)]
    return [
        (name, rates[depth] if depth in trained else 0.0, sizes[depth])
        for depth, name in enumerate(names) if sizes[depth]
    ]  # fmt: skip


def format_learning_rates(rates: Sequence[tuple[str, float, int]]) -> str:
    rows = [f"  {name:12} {f'{rate:.2e}' if rate else 'frozen'}" for name, rate, _ in rates]
    return "\n".join(["peak learning rates", *rows])


# --- transforms

# What changes the model for training, by setting: a new one is one entry. None: not requested.
TRANSFORMS: dict[str, Callable[[FineTune], Transform | None]] = {
    "freeze": lambda settings: Freeze(settings.freeze) if settings.freeze else None,
}


def transforms_of(task: Task) -> list[Transform]:
    """The transforms that the settings request, and those of the task."""
    requested = [build(task.settings) for build in TRANSFORMS.values()]
    return [*(transform for transform in requested if transform), *task.transforms]


def prepare_model(task: Task, seed: int) -> Checkpoint:
    """The initial model of a seed, as it is trained."""
    initial = task.initial_checkpoint(seed)
    apply_all(transforms_of(task), initial.model)
    return initial
