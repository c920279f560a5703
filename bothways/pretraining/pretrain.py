"""Pre-training: masking, forward pass, losses, training loop (Devlin 2018, section 3.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor, nn

from bothways.batch import Batch
from bothways.batching import batch_fingerprint, divide_evenly
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.corpus.masking import MaskRule
from bothways.corpus.sampler import StepSampler
from bothways.device import choose_device
from bothways.model.compile import compile_layers
from bothways.pretraining import setup
from bothways.pretraining.inputs import PretrainingData, open_corpora, prepare_tokenizer, read_data
from bothways.pretraining.objective import example_batch
from bothways.pretraining.recipes import CompleteSettings
from bothways.settings import Pretrain
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import Processes, process_group
from bothways.training.loop import fit
from bothways.training.losses import Loss
from bothways.training.progress import track_progress
from bothways.training.run import Callbacks, Run
from bothways.training.timing import seconds_per_step


def run(settings: Pretrain, *, callbacks: Callbacks = ()) -> setup.PretrainingResult:
    """Pre-train a model. Writes model, checkpoints, metrics, curves and bothways.json to the run directory."""
    open_corpora(settings)  # before the run directory exists: a mistyped path leaves nothing behind
    start = setup.load_start(settings)
    settings = setup.resolve_settings(settings, start)
    tokenizer = Tokenizer.load(settings.tokenizer) if settings.tokenizer else start.tokenizer if start else None
    device = choose_device(settings.device)
    with process_group(device) as processes, Run(
        settings.out, "pretrain", settings, resume=settings.resume, is_main_process=processes.is_main_process,
        device=processes.device(device), callbacks=callbacks,
    ) as run:  # fmt: skip
        data = read_data(settings, prepare_tokenizer(settings, run.directory, processes, tokenizer))
        return train(*setup.build_initial(settings, start, data), data, run, processes)


def train(
    settings: CompleteSettings, initial: Checkpoint, data: PretrainingData, run: Run, processes: Processes
) -> setup.PretrainingResult:
    model, objective = initial.model, setup.objective_from_settings(settings)
    module = setup.build_module(settings, initial, data)
    sampler = StepSampler(
        data.store, data.training, length=settings.max_length, pairs=objective.pairs,
        batch_tokens=settings.batch_tokens, seed=settings.seed, separators=data.tokenizer.backend.num_separators,
    )  # fmt: skip
    rule = MaskRule.from_tokenizer(data.tokenizer, settings.mask_rate, settings.masking)
    options = setup.build_options(settings, processes)

    def steps(first: int) -> Iterator[Sequence[Batch]]:
        """The micro-batches of this process, step by step: examples -> token ids -> masked tokens."""
        for index, step in enumerate(sampler.steps(first), first):
            rate = setup.mask_rate_at(index, settings, options)
            parts = divide_evenly(step.rows, step.examples.sizes, processes.world_size * settings.gradient_accumulation)
            own_parts = [rows for rows in parts[processes.rank :: processes.world_size] if rows]
            batches = [(rows, example_batch(data.store, step, rows, data.tokenizer)) for rows in own_parts]
            yield [objective.mask(batch, step, rows, rule, seed=settings.seed, rate=rate) for rows, batch in batches]

    def losses(module: nn.Module, batch: Batch) -> Mapping[str, Loss]:
        outputs = objective.forward(module, batch)  # the encoder's hidden states, [T, H]
        return objective.losses(module, batch, outputs)

    if settings.compile:
        compile_layers(model)
    timed = partial(seconds_per_step, module, losses, objective.counts, steps, options, processes)
    options = replace(options, steps=setup.num_steps(settings, run, processes, timed))
    heldout = setup.build_heldout(settings, data)
    checkpoints, saved = setup.prepare_resume(settings, data, sampler, options, run, processes)
    run.update_metadata(steps=options.steps, parameters=sum(map(Tensor.numel, model.parameters())), **data.facts)
    with track_progress(run, options, model.config, next(steps(0)), settings.tensorboard, saved, processes) as record:
        fit(
            module, losses, objective.counts, setup.prefetched(steps, options), options,
            evaluate=lambda: heldout.measure(module), record=setup.warn_on_plateau(record, heldout, options, saved),
            checkpoints=checkpoints, start=saved, processes=processes, fingerprint=batch_fingerprint,
        )  # fmt: skip
    return setup.finish(settings, initial, module, heldout, run, processes)
