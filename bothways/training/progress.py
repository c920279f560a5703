"""Training progress: bar on a terminal, log lines elsewhere, TensorBoard; FLOPs of a step."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

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

# By verb.
TITLES = {
    "pretrain": "pre-training",
    "distill": "distillation",
}
RECENT = 20  # steps to average the speed over


@contextmanager
def track_progress(
    run: Run,
    options: TrainingOptions,
    config: EncoderConfig,
    batches: Sequence[Batch],
    rows: Callable[[Batch], Tensor | None],
    board: bool,
    start: SavedCheckpoint | None,
    processes: Processes,
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that records a row of metrics: metrics.jsonl, progress, and TensorBoard if `board`.

    run: whose metrics are recorded.
    options: of the training loop.
    config: of the model, to count FLOPs per token.
    batches: a sample of the micro-batches, to count FLOPs per token.
    rows: the tokens of a batch that are read; None: all.
    board: whether curves are written for TensorBoard.
    start: the checkpoint that the run resumes from.
    processes: whose hardware is measured, all together.
    """
    # Before the bar: the peak is measured, and both numbers stand in bothways.json.
    tokens = sum(batch.num_tokens for batch in batches)
    flops = sum(training_flops(config, batch, rows(batch)) for batch in batches) / max(1, tokens)
    peak = sum(processes.gather(measure_peak_flops(options.device, options.dtype)))
    run.update_metadata(flops_per_token=flops, peak_flops=peak)
    steps_before = start.progress.step if start else 0

    with ExitStack() as stack:
        title = TITLES[run.metadata["verb"]]
        bar = TrainingProgress(title, options.steps, flops_per_token=flops, peak=peak)
        displays: list[Callable[[dict[str, Any]], None]] = [stack.enter_context(bar).show]
        if board and run.is_main_process:
            curves = tensorboard_curves(run.directory / "tensorboard", steps_before)
            displays.append(stack.enter_context(curves))

        def record(row: dict[str, Any]) -> None:
            run.log_metrics(**row)

            # Not before, so that the memory of batches of the usual sizes is retained.
            if row["step"] == steps_before + STEPS_BEFORE_CAP and options.device.type == "cpu":
                cap_retained_memory()

            for show in displays:
                show(row)

        yield record


def training_flops(config: EncoderConfig, batch: Batch, rows_R: Tensor | None = None) -> int:
    """FLOPs of the forward and backward pass for a batch with masked positions.

    config: of the encoder.
    batch: the tokens.
    rows_R: the tokens that are read, for which alone the last layer has queries, output and feed-forward; None: all.

    A weight that a token meets costs 6: a multiplication and an addition in the forward pass, twice as many in the
    backward pass. A pair of query and key costs 12 per hidden unit, since it has two products: the score and the sum of
    values.
    """
    masked = 0 if batch.masked_labels is None else len(batch.masked_labels)
    hidden = config.hidden_size
    if config.direction == "halves":
        # Two stacks, and a head on both.
        return 2 * training_flops(config.half("forward"), batch) + 12 * masked * (hidden // 2) ** 2

    inner = config.intermediate_size
    embedding = config.embedding_size or hidden
    num_feed_forward = 3 if config.feed_forward == "gated" else 2
    layer = 4 * hidden**2 + num_feed_forward * hidden * inner  # queries, keys, values and output; feed-forward

    # Each weight counts once for each token that it is multiplied with.
    weights = batch.num_tokens * config.num_hidden_layers * layer
    if rows_R is not None:
        keys_and_values = 2 * hidden**2
        weights -= (batch.num_tokens - len(rows_R)) * (layer - keys_and_values)
    if embedding != hidden:
        weights += batch.num_tokens * embedding * hidden
    # The head of masked words: a transform, and the vocabulary or the candidates.
    words = config.vocab_size if batch.candidates is None else len(batch.candidates)
    weights += masked * embedding * (hidden + words)

    return 6 * weights + 12 * _attention_pairs(config, batch) * hidden


def _attention_pairs(config: EncoderConfig, batch: Batch) -> int:
    """Query-key pairs, over all layers. Sparse attention is counted without its first and its last block, which have
    full attention."""
    pairs = 0
    for index in range(config.num_hidden_layers):
        window = config.layer_window(index)
        keys = batch.lengths.clamp(max=2 * window + 1) if window else batch.lengths

        # A block sees three neighbours with itself, the first and the last block, and some at random.
        if isinstance(config.sparse_attention, RandomBlocksConfig):
            sparse = (5 + config.sparse_attention.num_random) * config.sparse_attention.size
            keys = torch.where(batch.lengths > config.sparse_attention.max_full_length, sparse, batch.lengths)

        pairs += int(torch.sum(batch.lengths * keys))

        # Each term of relative positions is one product over the 2 S - 1 distances of a text of S tokens. A pair has
        # two products, so the distances count half.
        if config.relative_positions:
            distances = int(torch.sum(batch.lengths * (2 * batch.lengths - 1)))
            pairs += len(config.relative_positions.terms) * distances // 2
    return pairs


class TrainingProgress:
    """Shows loss, tokens/s, fraction of peak FLOP/s, and time left: a bar on a terminal, else a log line every half
    minute, which includes the learning rate.

    title: of the bar and the lines.
    steps: number of steps of the training.
    flops_per_token: of matrix products; 0: unknown.
    peak: FLOP/s of the hardware; 0: unknown.

    recent: the last rows of training metrics, over which the speed is averaged.
    logged: when a line was last written, here or by the heartbeat.
    lines: how many lines the heartbeat had written by then.
    work: the block that announces the training to the heartbeat.
    line: the entry of that block, whose detail the heartbeat shows.
    """

    def __init__(self, title: str, steps: int, *, flops_per_token: float = 0, peak: float = 0) -> None:
        self.title = title
        self.steps = steps
        self.bar = ProgressBar(title, steps)
        self.logs = not draws_bars()

        # Tokens per second times this is the fraction of the peak.
        self.fraction_per_token = flops_per_token / peak if peak else 0.0

        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self.logged = time.monotonic()
        self.lines = heartbeat.lines

    def __enter__(self) -> "TrainingProgress":
        self.bar.__enter__()
        self.work = working(self.title)
        self.line = self.work.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.work.__exit__(None, None, None)
        self.bar.__exit__()

    def show(self, row: dict[str, Any]) -> None:
        """Show a row of metrics."""
        if row["split"] == "train":
            self.recent.append(row)
            self.bar.update(row["step"], f"{loss_name(row)} {row['loss']:.3f}  {self.speed()}")

        self.line.detail = f"step {row['step']:,} of {self.steps:,}"
        if not self.logs or not row["step"]:
            return

        rate = f"learning rate {self.recent[-1]['learning_rate']:.1e}, " if self.recent else ""
        left = format_duration(self.seconds_left())
        self.line.detail += f", {loss_name(row)} {row['loss']:.4f}, {rate}{self.speed()}, {left} left"

        # If the heartbeat has written a line since, during a slow step, the half minute starts again.
        if self.lines != heartbeat.lines:
            self.lines = heartbeat.lines
            self.logged = time.monotonic()
        if time.monotonic() - self.logged > LINE_EVERY:
            self.logged = time.monotonic()
            show_progress(f"{self.title}: {self.line.detail}")

    def speed(self) -> str:
        """Speed of the last steps: '3,456 tokens/s, 56% of peak FLOP/s'."""
        rate = self._per_second("tokens")
        fraction = f", {rate * self.fraction_per_token:.0%} of peak FLOP/s" if self.fraction_per_token else ""
        return f"{rate:,.0f} tokens/s{fraction}"

    def seconds_left(self) -> float:
        """Seconds that the remaining steps take at the speed of the last steps."""
        done = self.recent[-1]["step"] if self.recent else 0
        return (self.steps - done) / max(self._per_second("step"), 1e-9)

    def _per_second(self, name: str) -> float:
        """Increase per second of a column of the metrics over the last steps."""
        if not self.recent:
            return 0.0
        # A first row alone is compared with the start of the training.
        first = self.recent[0] if len(self.recent) > 1 else {name: 0, "seconds": 0.0}
        last = self.recent[-1]
        seconds = max(last["seconds"] - first["seconds"], 1e-9)
        return float((last[name] - first[name]) / seconds)


def loss_name(row: Mapping[str, Any]) -> str:
    """The name of the loss in a row of metrics. Losses over candidates are lower than losses over all words."""
    if row["split"] == "heldout":
        return "held-out loss"
    return "loss over candidates" if "candidates" in row else "loss"


@contextmanager
def tensorboard_curves(directory: Path, steps_before: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that writes a row of metrics as points of TensorBoard curves.

    directory: of the curves.
    steps_before: steps of the checkpoint that the run resumes from; points of later steps are hidden, since these steps
        are trained again.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise needs_package("tensorboard", error.name or "tensorboard", "tensorboard") from None

    with SummaryWriter(directory, purge_step=steps_before + 1) as writer:

        def show(row: dict[str, Any]) -> None:
            for name, value in row.items():
                if isinstance(value, (int, float)) and name not in ("step", "split"):
                    writer.add_scalar(f"{name}/{row['split']}", value, row["step"])

        yield show
