"""Pre-training (Devlin 2018, section 3.1): text -> pairs -> masked batch -> scores at the masked places -> loss ->
step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bothways.batch import Batch
from bothways.batching import batch_fingerprint, divide_evenly
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.corpus.masking import MaskRule
from bothways.corpus.sampler import StepSampler
from bothways.model.compile import compile_layers
from bothways.pretraining import setup
from bothways.pretraining.inputs import Text, corpora, read, tokenizer_of
from bothways.pretraining.recipes import Complete
from bothways.settings import Pretrain
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import Processes, joined
from bothways.training.loop import fit
from bothways.training.progress import watched
from bothways.training.run import Callback, Run
from bothways.training.timing import seconds_a_step


@dataclass(frozen=True)
class Result:
    """What a run came to: its directory, the model in it, its last held-out figures, and minutes, tokens and kWh."""

    directory: Path
    model: Path
    figures: Mapping[str, Any]
    cost: Mapping[str, Any]


def run(settings: Pretrain, *, progress: Callback | None = None) -> Result:
    """Pre-train as told; leaves model, checkpoints, metrics, curves and bothways.json in the run's directory."""
    corpora(settings)  # so that a mistyped file leaves no run behind
    start = setup.start_of(settings)
    settings = setup.settled(settings, start)
    given = Tokenizer.load(settings.tokenizer) if settings.tokenizer else start.tokenizer if start else None
    with joined() as processes:
        resume, leads = settings.resume, processes.leads
        with Run(settings.out, "pretrain", settings, resume=resume, leads=leads, progress=progress) as run:
            text = read(settings, tokenizer_of(settings, run.directory, processes, given))
            return train(*setup.begin(settings, start, text), text, run, processes)


def train(settings: Complete, begun: Checkpoint, text: Text, run: Run, processes: Processes) -> Result:
    model, aim = begun.model, setup.aim_of(settings)
    module = setup.trained_of(settings, begun, text)
    order = StepSampler(
        text.store, text.training, length=settings.max_length, pairs=aim.pairs, batch_tokens=settings.batch_tokens,
        seed=settings.seed, separators=text.tokenizer.backend.num_separators,
    )  # fmt: skip
    rule = MaskRule.from_tokenizer(text.tokenizer, settings.mask_rate, settings.masking)
    plan = setup.plan_of(settings, processes)

    def steps(first: int) -> Iterator[Sequence[Batch]]:
        for number, step in enumerate(order.steps(first), first):
            rate = setup.mask_rate_at(number, settings, plan)
            parts = divide_evenly(step.rows, step.examples.sizes, processes.world * settings.gradient_accumulation)
            yield [
                aim.batch(text.store, step, rows, text.tokenizer, rule, seed=settings.seed, rate=rate)
                for rows in parts[processes.rank :: processes.world] if rows
            ]  # fmt: skip

    if settings.compile:
        compile_layers(model)
    timed = partial(seconds_a_step, module, aim.losses, aim.counts, steps, plan, processes)
    plan = replace(plan, steps=setup.num_steps(settings, run, processes, timed))
    held = setup.held_out_of(settings, text)
    checkpoints, start = setup.going_on(settings, text, order, plan, run, processes)
    run.note(steps=plan.steps, parameters=sum(value.numel() for value in model.parameters()), **text.facts)
    with watched(run, plan, model.config, next(steps(0)), settings.tensorboard, start, processes) as record:
        fit(
            module, aim.losses, aim.counts, setup.waiting_for_none(steps, plan), plan,
            evaluate=lambda: held.measure(module),
            record=setup.watching_plateau(record, held, plan, start), checkpoints=checkpoints, start=start,
            processes=processes, fingerprint=batch_fingerprint,
        )  # fmt: skip
    return Result(run.directory, run.directory / "model", *setup.finish(settings, begun, module, held, run, processes))
