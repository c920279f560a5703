"""Pre-training (Devlin 2018, section 3.1): text -> pairs -> masked batch -> scores at the masked places -> loss ->
step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bothways.batch import Batch
from bothways.checkpoint import Checkpoint
from bothways.data.masking import MaskRule
from bothways.data.order import Order, divide, fingerprint
from bothways.model.compiled import compile_layers
from bothways.settings import Pretrain
from bothways.tasks import ends
from bothways.tasks.progress import Tell, lines, silence, watched
from bothways.tasks.recipes import Complete
from bothways.tasks.text import Text, corpora, read, tokenizer_of
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.train.loop import fit
from bothways.train.parallel import Processes, joined
from bothways.train.state import Callback, Run
from bothways.train.timing import seconds_a_step


@dataclass(frozen=True)
class Result:
    """What a run came to: its directory, the model in it, its last held-out figures, and minutes, tokens and kWh."""

    directory: Path
    model: Path
    figures: Mapping[str, Any]
    cost: Mapping[str, Any]


def run(settings: Pretrain, tell: Tell = lines, *, progress: Callback | None = None) -> Result:
    """Pre-train as told; leaves model, checkpoints, metrics, curves and bothways.json in the run's directory."""
    corpora(settings)  # so that a mistyped file leaves no run behind
    start = ends.start_of(settings)
    settings = ends.settled(settings, start)
    given = Tokenizer.load(settings.tokenizer) if settings.tokenizer else start.tokenizer if start else None
    with joined() as processes:
        resume, leads, tell = settings.resume, processes.leads, tell if processes.leads else silence
        with Run(settings.out, "pretrain", settings, resume=resume, leads=leads, tell=tell, progress=progress) as run:
            text = read(settings, tokenizer_of(settings, run.directory, processes, given, tell), tell)
            return train(*ends.begin(settings, start, text, tell), text, run, processes, tell)


def train(settings: Complete, begun: Checkpoint, text: Text, run: Run, processes: Processes, tell: Tell) -> Result:
    model, aim = begun.model, ends.aim_of(settings)
    module = ends.trained_of(settings, begun, text)
    order = Order(
        text.store, text.training, length=settings.length, pairs=aim.pairs, batch_tokens=settings.batch_tokens,
        seed=settings.seed, separators=text.tokenizer.reading.separators,
    )  # fmt: skip
    rule = MaskRule.of(text.tokenizer, settings.mask_rate, settings.masks)
    plan = ends.plan_of(settings, processes)

    def steps(first: int) -> Iterator[Sequence[Batch]]:
        for number, step in enumerate(order.steps(first), first):
            rate = ends.mask_rate_at(number, settings, plan)
            parts = divide(step.rows, step.examples.sizes, processes.world * settings.micro_batches)
            yield [
                aim.batch(text.store, step, rows, text.tokenizer, rule, seed=settings.seed, rate=rate)
                for rows in parts[processes.rank :: processes.world] if rows
            ]  # fmt: skip

    if settings.compile:
        compile_layers(model)
    timed = partial(seconds_a_step, module, aim.losses, aim.counts, steps, plan, processes)
    plan = replace(plan, steps=ends.num_steps(settings, run, processes, timed, tell))
    held = ends.held_out_of(settings, text)
    checkpoints, start = ends.going_on(settings, text, order, plan, run, processes, tell)
    run.note(steps=plan.steps, parameters=sum(value.numel() for value in model.parameters()), **text.facts)
    with watched(run, plan, model.config, next(steps(0)), tell, settings.tensorboard, start, processes) as record:
        fit(
            module, aim.losses, aim.counts, ends.waiting_for_none(steps, plan), plan,
            evaluate=lambda: held.measure(module),
            record=ends.watching_plateau(record, held, plan, start, tell), checkpoints=checkpoints, start=start,
            processes=processes, fingerprint=fingerprint,
        )  # fmt: skip
    return Result(run.directory, run.directory / "model", *ends.finish(settings, begun, module, held, run, processes))
