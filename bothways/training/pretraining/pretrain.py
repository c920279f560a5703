"""Pre-training: masking, forward pass, losses, training loop (Devlin 2018, section 3.1)."""

import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from bothways.model.losses import Counts, Losses, forward_losses
from bothways.settings.pretrain import Pretrain
from bothways.text.batch import Batch
from bothways.text.batching import batch_fingerprint, divide_evenly
from bothways.text.corpus.candidates import CandidateRule, draw_candidates
from bothways.text.corpus.sampler import StepRows
from bothways.training.distributed import SINGLE_PROCESS, Processes
from bothways.training.loop import Steps, fit
from bothways.training.pretraining.objectives import example_batch
from bothways.training.pretraining.recipes import resolve_settings
from bothways.training.pretraining.result import PretrainingResult, finish, warn_on_plateau
from bothways.training.pretraining.setup import (
    PretrainingSetup,
    build_setup,
    built_ahead,
    check_own_objective,
    choose_vocabulary,
    load_start,
    open_run,
    open_text,
)
from bothways.training.pretraining.text_data import PretrainingData, prepare_tokenizer, read_data
from bothways.training.progress import track_progress
from bothways.training.run import Callbacks, Run
from bothways.training.run_checkpoints import TrainingState
from bothways.training.schedule import TrainingOptions
from bothways.training.step import StepQueue
from bothways.training.trainer import Trainer

# Seconds and steps that are timed, at least.
TIMED_SECONDS = 3.0
TIMED_STEPS = 8
LAST = 10  # one of this many parts of the steps, the last one, runs over all words


def run(settings: Pretrain, *, callbacks: Callbacks = ()) -> PretrainingResult:
    """Pre-train a model. Writes model, checkpoints, metrics, curves and bothways.json to the run directory."""
    # Before the run directory exists: a mistyped path leaves nothing behind.
    text = open_text(settings)
    check_own_objective(settings)
    start = load_start(settings)
    settings = resolve_settings(settings, start)
    vocabulary = choose_vocabulary(settings, start)

    with open_run("pretrain", settings, callbacks) as (run, processes, device):
        tokenizer = prepare_tokenizer(text, vocabulary, run.directory, processes)
        data = read_data(text, tokenizer, new_vocabulary=start is None)
        setup = build_setup(settings, start, data, device)
        return train(setup, data, run, processes)


def train(setup: PretrainingSetup, data: PretrainingData, run: Run, processes: Processes) -> PretrainingResult:
    """Train the module of a set-up.

    setup: model, sampler and options, of pre-training or of distillation.
    data: the text that the rows of the sampler refer to.
    run: the directory that metrics, checkpoints and the model are written to.
    processes: among which each step is divided.
    """
    module = setup.module
    heldout = setup.heldout
    objective = setup.objective
    losses = forward_losses(objective)

    # How many steps fit into the minutes is known after some steps of the same batches.
    timed = partial(mean_seconds_per_step, setup, data, processes)
    options = replace(setup.options, steps=setup.length.num_steps(run, processes, timed))
    steps = build_steps(setup, data, options, processes)
    checkpoints, saved = setup.open_checkpoints(data, run, processes)
    model = setup.initial.model
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    run.update_metadata(steps=options.steps, parameters=num_parameters, **data.facts)

    progress = track_progress(
        run,
        options,
        model.config,
        batches=next(steps(0)),
        rows=objective.rows,
        board=setup.tensorboard,
        start=saved,
        processes=processes,
    )
    with ExitStack() as opened, progress as write:
        record = warn_on_plateau(name_candidates(write, setup, options), heldout, options, saved)
        fit(
            module,
            losses,
            objective.counts,
            steps=lambda first: opened.enter_context(closing(steps(first))),
            options=options,
            evaluate=lambda: heldout.measure(module),
            record=record,
            checkpoints=checkpoints,
            start=saved,
            processes=processes,
            fingerprint=batch_fingerprint,
        )
    return finish(setup, run, processes)


def build_steps(
    setup: PretrainingSetup, data: PretrainingData, options: TrainingOptions, processes: Processes
) -> Callable[[int], Generator[Sequence[Batch], None, None]]:
    """The micro-batches of this process, step by step: examples -> token ids -> masked tokens -> candidates."""
    objective = setup.objective
    candidates = setup.candidates
    num_parts = max(setup.gradient_accumulation, processes.world_size)

    def tasks(first: int) -> Iterator[tuple[int, StepRows]]:
        return enumerate(setup.sampler.steps(first), first)

    def build(task: tuple[int, StepRows]) -> Sequence[Batch]:
        number, step = task
        parts = divide_evenly(step.rows, step.examples.sizes, num_parts)
        micro_batches = []
        for part in range(processes.rank, num_parts, processes.world_size):
            rows = parts[part]
            if not rows:
                continue
            batch = example_batch(data.store, step, rows, data.tokenizer)
            batch = objective.mask(batch, step, rows, setup.rule, seed=options.seed)
            if candidates and number < steps_over_candidates(options.steps):
                batch = draw_candidates(
                    batch,
                    candidates,
                    seed=options.seed,
                    step=number,
                    micro_batch=part,
                )
            micro_batches.append(batch)
        return micro_batches

    return built_ahead(tasks, build, options.device, setup.builders, data.store.is_local)


def steps_over_candidates(steps: int) -> int:
    """How many of these steps run over candidates, where a recipe has any: all but the last tenth.

    >>> steps_over_candidates(1000)
    900
    """
    return steps * (LAST - 1) // LAST


def name_candidates(
    write: Callable[[dict[str, Any]], None], setup: PretrainingSetup, options: TrainingOptions
) -> Callable[[dict[str, Any]], None]:
    """Wrap `write`: the row of a step whose loss is over candidates has their number, since such a loss is lower than
    the loss over all words.

    write: takes each row of metrics.
    setup: has the candidates, if any.
    options: have the number of steps.
    """
    if setup.candidates is None:
        return write
    number = setup.candidates.number
    last = steps_over_candidates(options.steps)

    def write_named(row: dict[str, Any]) -> None:
        is_over_candidates = row["split"] == "train" and row["step"] <= last
        write({**row, "candidates": number} if is_over_candidates else row)

    return write_named


def mean_seconds_per_step(setup: PretrainingSetup, data: PretrainingData, processes: Processes) -> float:
    """Seconds per step, on average over a run: with candidates for all but the last tenth of its steps.

    setup, data, processes: as for `train`.
    """
    # A run without end, so that the timed steps are steps over candidates if there are any.
    endless = replace(setup.options, steps=sys.maxsize)

    def seconds(candidates: CandidateRule | None) -> float:
        return seconds_per_step(
            setup.module,
            forward_losses(setup.objective),
            setup.objective.counts,
            steps=build_steps(replace(setup, candidates=candidates), data, endless, processes),
            options=setup.options,
            processes=processes,
        )

    over_all_words = seconds(None)
    if setup.candidates is None:
        return over_all_words
    return ((LAST - 1) * seconds(setup.candidates) + over_all_words) / LAST


def seconds_per_step(
    module: nn.Module,
    losses: Losses,
    counts: Counts,
    steps: Steps,
    options: TrainingOptions,
    processes: Processes = SINGLE_PROCESS,
) -> float:
    """Seconds per step on a copy of the module.

    module, losses, counts, steps, options, processes: as for `fit` (loop.py).
    """
    trainer = Trainer(deepcopy(module), losses, counts, options=options, processes=processes)
    times: list[float] = []
    batches = steps(0)
    state = TrainingState()
    queue = StepQueue(trainer, state.scale)
    while processes.broadcast(sum(times) < TIMED_SECONDS or len(times) < TIMED_STEPS):
        began = time.perf_counter()
        queue.add(state, next(batches))
        if queue.is_full:
            queue.read(state)
            times.append(time.perf_counter() - began)

    # The 25th percentile: robust against other load, which only makes steps longer.
    return processes.broadcast(sorted(times)[len(times) // 4])
