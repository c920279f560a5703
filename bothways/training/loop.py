"""Training loop: steps, evaluations, checkpoints, metrics.

The model is any module whose losses a callable computes.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from torch import nn

from bothways.base.errors import InputError, flag
from bothways.model.losses import Counts, Losses
from bothways.text.batch import Batch
from bothways.training.distributed import SINGLE_PROCESS, Processes
from bothways.training.run_checkpoints import NO_CHECKPOINTS, Checkpoints, SavedCheckpoint, TrainingState
from bothways.training.schedule import TrainingOptions
from bothways.training.signals import Stopped, catch_stop_signals
from bothways.training.step import StepQueue
from bothways.training.trainer import Trainer

Steps = Callable[[int], Iterator[Sequence[Batch]]]
Write = Callable[[dict[str, Any]], None]  # of a row of metrics


def fit(
    module: nn.Module,
    losses: Losses,
    counts: Counts,
    steps: Steps,
    options: TrainingOptions,
    *,
    evaluate: Callable[[], Mapping[str, float]],
    record: Write,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
    start: SavedCheckpoint | None = None,
    processes: Processes = SINGLE_PROCESS,
    fingerprint: Callable[[Batch], str] = lambda batch: f"of {batch.num_tokens} tokens",
    reads_late: bool | None = None,
) -> TrainingState:
    """Train a float32 module, computing in options.dtype; after training it is float32 on the CPU.

    module: trained in place.
    losses: losses(module, batch) gives (sum, count) by name.
    counts: counts(batch) gives the same counts from the labels alone.
    steps: steps(first) yields the micro-batches of this process for each step.
    options: length, learning rate, evaluations, and how the weights are selected.
    evaluate: metrics of held-out text; called in the main process only.
    record: called with a row of metrics per step ("train") and per evaluation ("heldout"), in the main process only.
    checkpoints: where the state of the training is saved.
    start: the checkpoint to resume from.
    processes: among which the micro-batches of a step are divided.
    fingerprint: names a batch in an error message.
    reads_late: whether a step is queued before the loss of the last one is read, where that is possible; None: on a
        GPU. Rows, weights and errors are the same.

    InputError if a loss is not finite; it names the batch by its fingerprint. With checkpoints, SIGTERM and Ctrl-C save
    after the current step and raise Stopped.
    """
    trainer = Trainer(module, losses, counts, options=options, processes=processes)
    progress = trainer.load(start)
    write = record if processes.is_main_process else _discard
    if options.evaluate_first and start is None:
        progress, _ = trainer.evaluate_and_record(progress, evaluate, write)

    loop = Loop(
        StepQueue(trainer, progress.scale, reads_late=reads_late),
        steps(progress.step),
        write,
        checkpoints=checkpoints,
        fingerprint=fingerprint,
    )
    with catch_stop_signals(when=checkpoints.folder is not None) as stop_requested:
        while trainer.has_more(progress):
            progress, stop = loop.advance(progress, stop_requested)
            is_last = not trainer.has_more(progress)

            metrics: Mapping[str, float] = {}
            if is_last or options.evaluates_at(progress.step):
                progress, metrics = trainer.evaluate_and_record(progress, evaluate, write)
                progress = trainer.stop_early(progress)
                is_last = not trainer.has_more(progress)

            # After the last step no other step would notice a signal that came during the evaluation.
            stop = stop or (is_last and stop_requested())
            saves_end = is_last and checkpoints.at_end
            if saves_end or options.saves_at(progress.step) or stop:
                checkpoints.save(progress, trainer.optimizer.state(), metrics.get("loss"), options.dtype)
            if stop and not saves_end:
                raise Stopped(f"stopped at step {progress.step:,}; go on with {flag('resume', True)}")

    trainer.optimizer.write_masters(module)
    module.to("cpu").eval()
    return progress


def _discard(row: dict[str, Any]) -> None:
    """Metrics in processes other than the main process."""


class Loop:
    """Runs the steps up to the next event: an evaluation, a checkpoint, a stop signal or the end.

    steps: those that were queued; at an event all have been read.
    batches: the micro-batches of this process for each step.
    write: is called with a row of metrics per step.
    checkpoints: of the run, for error messages.
    fingerprint: names a batch in an error message.
    """

    def __init__(
        self,
        steps: StepQueue,
        batches: Iterator[Sequence[Batch]],
        write: Write,
        *,
        checkpoints: Checkpoints,
        fingerprint: Callable[[Batch], str],
    ) -> None:
        self.steps = steps
        self.batches = batches
        self.write = write
        self.checkpoints = checkpoints
        self.fingerprint = fingerprint

        # Since when time counts as time of training that no row has.
        self.began = 0.0

    def advance(self, progress: TrainingState, stop_requested: Callable[[], bool]) -> tuple[TrainingState, bool]:
        """Steps up to the next event: the state there, and whether any process was asked to stop.

        progress: the state at the last event.
        stop_requested: whether this process was asked to stop.
        """
        stop = False
        self.began = time.perf_counter()
        while True:
            try:
                self.steps.add(progress, next(self.batches))
            except InputError:
                # The steps before it are recorded, and an error in one of them comes first.
                while self.steps.number:
                    progress, _ = self._read(progress, stop_requested)
                raise

            # A signal can come while a row is written, so it is looked for before each reading.
            is_event = self._is_event(progress, progress.step + self.steps.number)
            while self.steps.number and (is_event or self.steps.is_full or stop_requested()):
                progress, stop = self._read(progress, stop_requested)
            if not self.steps.number:
                return progress, stop

    def _is_event(self, progress: TrainingState, step: int) -> bool:
        trainer = self.steps.trainer
        options = trainer.options
        return step == trainer.last_step(progress) or options.evaluates_at(step) or options.saves_at(step)

    def _read(self, progress: TrainingState, stop_requested: Callable[[], bool]) -> tuple[TrainingState, bool]:
        """Read the numbers of the first queued step, and record them."""
        micro_batches = self.steps.first.micro_batches
        progress, row, stop = self.steps.read(progress, stop_requested)
        _refuse_infinite(
            row,
            progress.step,
            micro_batches,
            fingerprint=self.fingerprint,
            processes=self.steps.trainer.processes,
            checkpoints=self.checkpoints,
        )

        progress = replace(progress, seconds=progress.seconds + time.perf_counter() - self.began)
        self.write({**progress.row, "split": "train", **row})
        # The time of writing does not count.
        self.began = time.perf_counter()
        return progress, stop


def _refuse_infinite(
    row: Mapping[str, Any],
    step: int,
    micro_batches: Sequence[Batch],
    *,
    fingerprint: Callable[[Batch], str],
    processes: Processes,
    checkpoints: Checkpoints,
) -> None:
    """InputError if the loss of a step, or a gradient that was not skipped, is not finite."""
    is_good = math.isfinite(row["loss"]) and (math.isfinite(row["norm"]) or row.get("skipped"))
    if is_good:
        return
    gathered = processes.gather([fingerprint(batch) for batch in micro_batches])
    names = ", ".join(chain.from_iterable(gathered))
    raise InputError(
        f"step {step}: loss {row['loss']}, gradient norm {row['norm']}, batch {names}; last good "
        f"checkpoint: {checkpoints.last or 'none'}; restart with a lower {flag('learning_rate')} or "
        f"{flag('dtype', 'float32')}"
    )
