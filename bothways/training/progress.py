"""Training progress: bar on a terminal, log lines elsewhere, TensorBoard; FLOPs of a step."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from bothways.base.device import STEPS_BEFORE_CAP, cap_retained_memory, measure_peak_flops
from bothways.base.errors import needs_package
from bothways.base.progress import (
    LINE_EVERY,
    ProgressBar,
    draws_bars,
    format_duration,
    heartbeat,
    show_progress,
    working,
)
from bothways.model.config import EncoderConfig, RandomBlocksConfig
from bothways.text.batch import Batch
from bothways.training.distributed import Processes
from bothways.training.run import Run
from bothways.training.run_checkpoints import SavedCheckpoint
from bothways.training.schedule import TrainingOptions

TITLES = {"pretrain": "pre-training", "distill": "distillation"}  # by verb
RECENT = 20  # steps to average the speed over


class TrainingProgress:
    """Shows loss, tokens/s, fraction of peak FLOP/s, and time left: a bar on a terminal, else a log line every half
    minute, which includes the learning rate.

    flops_per_token: of matrix products. peak: FLOP/s of the hardware. 0: unknown.
    """

    def __init__(self, title: str, steps: int, *, flops_per_token: float = 0, peak: float = 0) -> None:
        self.title, self.steps = title, steps
        self.bar = ProgressBar(title, steps)
        self.logs = not draws_bars()
        self.fraction_per_token = flops_per_token / peak if peak else 0.0
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self.logged = time.monotonic()
        self.lines = heartbeat.lines

    def __enter__(self) -> "TrainingProgress":
        self.bar.__enter__()
        self.work = working(self.title)
        self.shown = self.work.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.work.__exit__(None, None, None)
        self.bar.__exit__()

    def show(self, row: dict[str, Any]) -> None:
        if row["split"] == "train":
            self.recent.append(row)
            self.bar.update(row["step"], f"loss {row['loss']:.3f}  {self.speed()}")
        self.shown.detail = f"step {row['step']:,} of {self.steps:,}"
        if not self.logs or not row["step"]:
            return
        loss = "held-out loss" if row["split"] == "heldout" else "loss"
        rate = f"learning rate {self.recent[-1]['learning_rate']:.1e}, " if self.recent else ""
        self.shown.detail += (
            f", {loss} {row['loss']:.4f}, {rate}{self.speed()}, {format_duration(self.seconds_left())} left"
        )
        # Between slow steps the heartbeat writes the line; it is not written again after the step.
        if self.lines != heartbeat.lines:
            self.lines = heartbeat.lines
            self.logged = time.monotonic()
        if time.monotonic() - self.logged > LINE_EVERY:
            self.logged = time.monotonic()
            show_progress(f"{self.title}: {self.shown.detail}")

    def speed(self) -> str:
        """Speed of the last steps: '3,456 tokens/s, 56% of peak FLOP/s'."""
        rate = self._per_second("tokens")
        fraction = f", {rate * self.fraction_per_token:.0%} of peak FLOP/s" if self.fraction_per_token else ""
        return f"{rate:,.0f} tokens/s{fraction}"

    def seconds_left(self) -> float:
        done = self.recent[-1]["step"] if self.recent else 0
        return (self.steps - done) / max(self._per_second("step"), 1e-9)

    def _per_second(self, name: str) -> float:
        """Increase per second of a column of the metrics over the last steps."""
        if not self.recent:
            return 0.0
        first = self.recent[0] if len(self.recent) > 1 else {name: 0, "seconds": 0.0}
        last = self.recent[-1]
        return float((last[name] - first[name]) / max(last["seconds"] - first["seconds"], 1e-9))


@contextmanager
def tensorboard_curves(directory: Path, first: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that writes metrics as TensorBoard curves. first: later steps written before a resume are
    purged."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise needs_package("tensorboard", error.name or "tensorboard", "tensorboard") from None
    with SummaryWriter(directory, purge_step=first + 1) as writer:

        def show(row: dict[str, Any]) -> None:
            for name, value in row.items():
                if isinstance(value, (int, float)) and name not in ("step", "split"):
                    writer.add_scalar(f"{name}/{row['split']}", value, row["step"])

        yield show


@contextmanager
def track_progress(
    run: Run,
    options: TrainingOptions,
    config: EncoderConfig,
    batches: Sequence[Batch],
    board: bool,
    start: SavedCheckpoint | None,
    processes: Processes,
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that records a row of metrics: metrics.jsonl, progress, and TensorBoard if `board`.

    batches: a sample, to estimate FLOPs per token. start: the checkpoint the run resumes from.
    """
    tokens = sum(batch.num_tokens for batch in batches)
    flops = sum(training_flops(config, batch) for batch in batches) / max(1, tokens)
    peak = sum(processes.gather(measure_peak_flops(options.device, options.dtype)))
    run.update_metadata(flops_per_token=flops, peak_flops=peak)
    with ExitStack() as stack:
        bar = TrainingProgress(TITLES[run.metadata["verb"]], options.steps, flops_per_token=flops, peak=peak)
        displays: list[Callable[[dict[str, Any]], None]] = [stack.enter_context(bar).show]
        first = start.progress.step if start else 0
        if board and run.is_main_process:
            displays.append(stack.enter_context(tensorboard_curves(run.directory / "tensorboard", first)))

        def record(row: dict[str, Any]) -> None:
            run.log_metrics(**row)
            if row["step"] == first + STEPS_BEFORE_CAP and options.device.type == "cpu":
                cap_retained_memory()
            for show in displays:
                show(row)

        yield record


def training_flops(config: EncoderConfig, batch: Batch) -> int:
    """FLOPs of the forward and backward pass for a batch with masked positions: 6 per weight and token, and
    attention."""
    if config.direction == "halves":  # two stacks, and a head on both
        masked = 0 if batch.masked_labels is None else len(batch.masked_labels)
        return 2 * training_flops(config.half("forward"), batch) + 12 * masked * (config.hidden_size // 2) ** 2
    hidden, inner = config.hidden_size, config.intermediate_size
    embedding = config.embedding_size or hidden
    layer = 4 * hidden**2 + (3 if config.feed_forward == "gated" else 2) * hidden * inner
    masked = 0 if batch.masked_labels is None else len(batch.masked_labels)
    weights = batch.num_tokens * config.num_hidden_layers * layer
    weights += batch.num_tokens * embedding * hidden * (embedding != hidden)
    weights += masked * embedding * (hidden + config.vocab_size)
    pairs = 0  # query-key pairs, over all layers
    for index in range(config.num_hidden_layers):
        window = config.layer_window(index)
        keys = batch.lengths.clamp(max=2 * window + 1) if window else batch.lengths
        if isinstance(
            config.sparse_attention, RandomBlocksConfig
        ):  # ignoring the first and the last block, with full attention
            sparse = (5 + config.sparse_attention.num_random) * config.sparse_attention.size
            keys = torch.where(batch.lengths > config.sparse_attention.max_full_length, sparse, batch.lengths)
        pairs += int(torch.sum(batch.lengths * keys))
        if config.relative_positions:  # per term one product, where pairs have two, over 2 S - 1 distances
            pairs += len(config.relative_positions.terms) * int(torch.sum(batch.lengths * (2 * batch.lengths - 1))) // 2
    return 6 * weights + 12 * pairs * hidden
