"""How a run tells a person how it is doing: a bar on a terminal, now and then a line elsewhere, TensorBoard files."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bothways.batch import Batch
from bothways.config import EncoderConfig
from bothways.device import STEPS_BEFORE_CAP, cap_retained_memory, measure_peak_flops
from bothways.errors import InputError
from bothways.log import ProgressBar, draws_bars, logger
from bothways.model.flops import training_flops
from bothways.training.distributed import Processes
from bothways.training.options import Plan
from bothways.training.run import Run
from bothways.training.run_checkpoints import Saved

LINE_EVERY = 30.0  # seconds, at least, between lines where there is no terminal
RECENT = 20  # steps whose speed is shown


class TrainingProgress:
    """Progress of training: loss, tokens/s, share of the hardware's matrix peak, time left. A bar on a terminal, else a
    line in the log every half minute, with the learning rate too.

    flops_per_token: of its matrix products; peak: the hardware's FLOP/s; 0 if unknown.
    """

    def __init__(self, title: str, steps: int, *, flops_per_token: float = 0, peak: float = 0) -> None:
        self.title, self.steps = title, steps
        self.bar = ProgressBar(title, steps)
        self.logs = not draws_bars()
        self.share_of_token = flops_per_token / peak if peak else 0.0
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self.logged = time.monotonic()

    def __enter__(self) -> "TrainingProgress":
        self.bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.__exit__()

    def show(self, row: dict[str, Any]) -> None:
        """Show one row of the metrics."""
        if row["split"] == "train":
            self.recent.append(row)
            self.bar.update(row["step"], f"loss {row['loss']:.3f}  {self.speed()}")
        if self.logs and row["step"] and time.monotonic() - self.logged > LINE_EVERY:
            self.logged = time.monotonic()
            loss = "held-out loss" if row["split"] == "heldout" else "loss"
            rate = f"learning rate {self.recent[-1]['learning_rate']:.1e}, " if self.recent else ""
            logger.info(
                f"{self.title}: step {row['step']:,} of {self.steps:,}, {loss} {row['loss']:.4f}, {rate}"
                f"{self.speed()}, {in_words(self.seconds_left())} left"
            )

    def speed(self) -> str:
        """'3,456 tokens/s, 56 % of the matrix peak' of the last steps."""
        rate = self._a_second("tokens")
        share = f", {rate * self.share_of_token:.0%} of the matrix peak" if self.share_of_token else ""
        return f"{rate:,.0f} tokens/s{share}"

    def seconds_left(self) -> float:
        done = self.recent[-1]["step"] if self.recent else 0
        return (self.steps - done) / max(self._a_second("step"), 1e-9)

    def _a_second(self, name: str) -> float:
        """How much of a figure of the rows the last steps added a second."""
        if not self.recent:
            return 0.0
        first = self.recent[0] if len(self.recent) > 1 else {name: 0, "seconds": 0.0}
        last = self.recent[-1]
        return float((last[name] - first[name]) / max(last["seconds"] - first["seconds"], 1e-9))


def in_words(seconds: float) -> str:
    """'40 s', '12 min', '3.4 h'"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class TensorBoard:
    """TensorBoard's files of a run, a curve for each number. first: what was written after this step is void."""

    def __init__(self, directory: Path, first: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError(
                f"tensorboard: needs the package {error.name}; pip install 'bothways[tensorboard]'"
            ) from None
        self.writer = SummaryWriter(directory, purge_step=first + 1)

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.close()

    def show(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            if isinstance(value, (int, float)) and name not in ("step", "split"):
                self.writer.add_scalar(f"{name}/{row['split']}", value, row["step"])


@contextmanager
def watched(
    run: Run,
    plan: Plan,
    config: EncoderConfig,
    batches: Sequence[Batch],
    board: bool,
    start: Saved | None,
    processes: Processes,
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What is to be called with each row of the record.

    batches: some of the run's, to know their work by. board: whether to write TensorBoard files. start: what the run
    goes on from.
    """
    tokens = sum(batch.num_tokens for batch in batches)
    work = sum(training_flops(config, batch) for batch in batches) / max(1, tokens)
    peak = sum(processes.gather(measure_peak_flops(plan.device, plan.dtype)))
    run.note(work_of_token=work, matrix_peak=peak)
    with ExitStack() as stack:
        bar = TrainingProgress("pre-training", plan.steps, flops_per_token=work, peak=peak)
        shown: list[TrainingProgress | TensorBoard] = [stack.enter_context(bar)]
        first = start.progress.step if start else 0
        if board and run.leads:
            shown.append(stack.enter_context(TensorBoard(run.directory / "tensorboard", first)))

        def record(row: dict[str, Any]) -> None:
            run.metric(**row)
            if row["step"] == first + STEPS_BEFORE_CAP and plan.device.type == "cpu":
                cap_retained_memory()
            for one in shown:
                one.show(row)

        yield record
