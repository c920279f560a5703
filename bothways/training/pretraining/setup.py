"""Set-up of a pre-training run: from its settings to model, sampler and training options; after this nothing reads the
settings.

`open_text -> check_own_objective -> load_start -> choose_vocabulary -> open_run -> build_setup`, as `pretrain.py` calls
them; distillation shares `open_text`, `open_run` and `common_setup`.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from bothways.base.device import choose_device, choose_dtype, num_cores, retain_freed_memory
from bothways.base.errors import InputError, format_count
from bothways.base.log import logger
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.new_head import encoder_only
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import METADATA_FILE, read_metadata
from bothways.model.config import NO_POOLER, SIZES, EncoderConfig
from bothways.model.families import DEFAULT_MODEL_TYPE, FAMILIES
from bothways.settings.pretrain import Distill, Pretrain
from bothways.settings.tables_in_memory import TableSource
from bothways.text.batch import Batch
from bothways.text.batching import Task, build_in_processes, prefetch
from bothways.text.corpus.array_files import digest
from bothways.text.corpus.candidates import CandidateRule
from bothways.text.corpus.documents import Corpus
from bothways.text.corpus.masking import MaskRule, MaskUnit
from bothways.text.corpus.sampler import MixedSampler, StepSampler
from bothways.text.corpus.sentence_pairs import PairTask
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import Processes, process_group
from bothways.training.pretraining import recipes
from bothways.training.pretraining.heldout import HeldOut
from bothways.training.pretraining.initial_model import (
    Initialization,
    continue_from,
    has_untrained_globals,
    module_to_train,
    new_model,
)
from bothways.training.pretraining.objectives import OBJECTIVES, PretrainingObjective, build_objective, kind_of
from bothways.training.pretraining.text_data import PretrainingData, Text, Vocabulary, hold_out
from bothways.training.run import Callbacks, Run
from bothways.training.run_checkpoints import Checkpoints, SavedCheckpoint
from bothways.training.schedule import TrainingOptions


@dataclass(frozen=True)
class Length:
    """How long a run is: steps or minutes, whichever comes first; without either, recipes.STEPS.

    steps: number of optimizer steps; None: no limit of steps.
    minutes: time of the training; None: no limit of time.
    """

    steps: int | None
    minutes: float | None

    def num_steps(self, run: Run, processes: Processes, timed: Callable[[], float]) -> int:
        """The number of steps: of the settings, or as many as fit into the minutes. A resumed run keeps its own number,
        or has the larger number that it was resumed with (run.py).

        run: has the number of steps of a resumed run.
        processes: among which the number of a resumed run is shared.
        timed: measures the seconds per step on some steps.
        """
        previous: int = processes.broadcast(run.metadata.get("steps", 0))
        if not self.minutes:
            return max(self.steps or 0, previous) or recipes.STEPS
        if previous:
            return previous

        # How many steps fit into the minutes.
        seconds = timed()
        in_time = max(1, int(self.minutes * 60 / seconds))
        logger.info(f"{self.minutes:g} minutes: {format_count(in_time, 'step')} of {seconds * 1000:.0f} ms")
        if self.steps and self.steps > in_time:
            logger.info(f"the minutes end before the {self.steps:,} steps")
        return min(in_time, self.steps or in_time)


@dataclass(frozen=True, kw_only=True)
class PretrainingSetup:
    """Model, examples and options of a pre-training run.

    initial: the model with its tokenizer, as it is saved after training.
    module: what is trained: the model of `initial`, or a module that contains it.
    objective: prepares batches and computes losses.
    sampler: the examples of each step.
    title: of the curves.
    recipe: hyperparameters by name.
    has_untrained_globals: whether no training has reached the global projections of a Longformer (initial_model.py).
    rule: which tokens are masked.
    heldout: the held-out examples, which evaluate the module.
    options: of the training loop; `length` decides on the number of steps.
    length: of the run, in steps or minutes.
    gradient_accumulation: micro-batches of a step, or more if there are more processes.
    resume: whether to go on from the last checkpoint.
    tensorboard: whether curves are written for TensorBoard.
    builders: processes that build batches ahead for a GPU; 0: a thread.
    candidates: the probability of each word to be a candidate; None: masked words are told from all words.
    """

    initial: Checkpoint
    module: nn.Module
    objective: PretrainingObjective
    sampler: StepSampler | MixedSampler
    title: str
    recipe: Mapping[str, Any]
    has_untrained_globals: bool = False
    rule: MaskRule
    heldout: HeldOut
    options: TrainingOptions
    length: Length
    gradient_accumulation: int
    resume: bool
    tensorboard: bool
    builders: int = 0
    candidates: CandidateRule | None = None

    def open_checkpoints(
        self, data: PretrainingData, run: Run, processes: Processes
    ) -> tuple[Checkpoints, SavedCheckpoint | None]:
        """The run's checkpoints, and the checkpoint to resume from, to whose step sampler and metrics are set back.

        data: the text, which a resumed run must have again.
        run: whose directory has the checkpoints.
        processes: that save and load together.
        """
        # If any of these differs, the examples of the remaining steps would be others (InputError).
        order = {
            "text": data.store.fingerprint,
            "heldout": data.unseen.fingerprint,
            "vocabulary": digest(data.tokenizer.tokens),
        }
        checkpoints = Checkpoints(
            run.directory,
            order=order,
            processes=processes,
            memo=self.sampler.counts,
        )

        saved = checkpoints.load_latest(self.options.dtype) if self.resume else None
        if saved:
            self.sampler.restore(saved.state["memo"])

        # A killed run may have logged steps after its last checkpoint, which are trained again.
        run.truncate_metrics(saved.progress.step if saved else 0)
        return checkpoints, saved


def open_text(settings: Pretrain | Distill) -> Text:
    """The text named by the settings. InputError if files are missing or overlap."""

    def open_corpus(paths: tuple[TableSource, ...]) -> Corpus:
        corpus = Corpus(
            paths,
            settings.documents,
            settings.text_column,
            on_error=settings.on_error,
            encoding=settings.encoding,
        )
        corpus.files()
        return corpus

    text = Text(
        training=open_corpus(settings.corpus),
        heldout=open_corpus(settings.heldout) if settings.heldout else None,
        token_store=settings.token_store,
        language=settings.language,
        processes=settings.processes,
        drop_duplicates=settings.drop_duplicates,
    )
    return hold_out(text)


def check_own_objective(settings: Pretrain) -> None:
    """InputError if a run is resumed without its own objective.

    The objective was an instance, which the run records only by name, or it is of a package that is not installed.
    """
    file = settings.out / METADATA_FILE
    if not settings.resume or not isinstance(settings.objective, str):
        return

    recorded = read_metadata(file).get("settings", {}).get("objective", "auto")
    if recorded != "auto" and recorded not in OBJECTIVES:
        raise InputError(
            f"{settings.out}: was started with an own objective, {recorded}; resume it with "
            f"Pretrain(objective={recorded}(), resume=True, ...), or install the package that has it"
        )


@contextmanager
def open_run(
    verb: str, settings: Pretrain | Distill, callbacks: Callbacks
) -> Iterator[tuple[Run, Processes, torch.device]]:
    """The run directory, the processes that share the run, and the device of this process.

    verb: as bothways.json names it.
    settings: as the run records them.
    callbacks: called with each row of metrics.
    """
    requested = choose_device(settings.device)
    with process_group(requested) as processes:
        device = processes.device(requested)
        run = Run(
            settings.out,
            verb,
            settings,
            resume=settings.resume,
            is_main_process=processes.is_main_process,
            device=device,
            callbacks=callbacks,
        )
        with run:
            yield run, processes, device


def load_start(settings: Pretrain) -> Checkpoint | None:
    """The checkpoint to continue from, if any. InputError if it has no tokenizer."""
    if settings.from_checkpoint is None:
        return None

    start = checkpoint.load(settings.from_checkpoint)
    if start.tokenizer is None:
        raise InputError(f"{settings.from_checkpoint}: has no tokenizer files; add tokenizer.json or vocab.txt")

    # The heads of such a model have no dense pooler, so that pre-training cannot keep them.
    if start.model.config.pooler_act in NO_POOLER:
        return encoder_only(start)
    return start


def choose_vocabulary(settings: Pretrain, start: Checkpoint | None) -> Vocabulary:
    """The vocabulary of the named tokenizer or of the checkpoint to continue from, else one to be learned."""
    tokenizer = start.tokenizer if start else None
    if settings.tokenizer:
        tokenizer = Tokenizer.load(settings.tokenizer)
    return Vocabulary(
        tokenizer,
        size=settings.vocab_size,
        lowercase=settings.lowercase,
        strip_accents=settings.strip_accents,
        extend_by=settings.extend_vocab,
    )


def build_setup(
    settings: Pretrain, start: Checkpoint | None, data: PretrainingData, device: torch.device
) -> PretrainingSetup:
    """Complete the settings, log the recipe, and build everything that training takes.

    settings: as the user gave them.
    start: the checkpoint to continue from, if any.
    data: the text as token stores.
    device: where the training computes.
    """
    config = start.model.config if start else new_config(settings)
    # The tables of a model can have more rows than its tokenizer has entries.
    vocab_size = max(len(data.tokenizer), config.vocab_size if start else 0)
    config = config.replace(vocab_size=vocab_size)
    complete = recipes.complete_settings(settings, config, data.num_tokens)
    logger.info(recipes.summary(settings, complete, config))

    # Held-out text may lack sentence pairs, so that it has an objective of its own.
    build = partial(build_objective, complete.objective)
    objective = build(complete.pairs)

    initialization = Initialization(
        seed=complete.seed,
        dropout=complete.dropout,
        word_vectors=complete.word_vectors,
        local_init=complete.local_init,
    )
    if start is None:
        initial = new_model(
            config,
            settings.family or DEFAULT_MODEL_TYPE,
            objective,
            initialization=initialization,
            data=data,
        )
    else:
        initial = continue_from(start, objective, initialization, data)

    module = module_to_train(initial.model, objective, initialization, data)
    sampler = data.sampler(
        complete.max_length,
        objective.pairs,
        seed=complete.seed,
        batch_tokens=complete.batch_tokens,
    )
    candidates = None
    if complete.candidates:
        unseen = vocab_size - len(data.frequencies)
        candidates = CandidateRule.from_frequencies(np.pad(data.frequencies, (0, unseen)), complete.candidates)

    source = settings.from_checkpoint.name if settings.from_checkpoint else settings.model
    return PretrainingSetup(
        initial=initial,
        module=module,
        objective=objective,
        sampler=sampler,
        title=f"Pre-training, {source}",
        recipe={name: getattr(complete, name) for name in recipes.PAPER},
        has_untrained_globals=has_untrained_globals(initial, start),
        candidates=candidates,
        **common_setup(
            complete,
            data,
            device,
            build_heldout=build,
            pairs=complete.pairs,
            masking=complete.masking,
            warmup=complete.warmup,
            beta2=complete.beta2,
        ),
    )


def common_setup(
    settings: recipes.CompleteSettings | Distill,
    data: PretrainingData,
    device: torch.device,
    build_heldout: Callable[[PairTask], PretrainingObjective],
    *,
    pairs: PairTask = "none",
    masking: MaskUnit = "tokens",
    warmup: float = recipes.WARMUP,
    beta2: float = recipes.BETA_2,
) -> dict[str, Any]:
    """The fields of PretrainingSetup that pre-training and distillation share, by name. The defaults are for
    distillation.

    settings: of a distillation, or the completed settings of a pre-training.
    data: the text as token stores.
    device: where the training computes.
    build_heldout: builds the objective on held-out text, for the task of sentence pairs that this text allows.
    pairs: the task of sentence pairs, if any.
    masking: the units that are masked, such as whole words.
    warmup: fraction of the steps in which the learning rate rises.
    beta2: of AdamW.
    """
    rule = MaskRule.from_tokenizer(data.tokenizer, settings.mask_rate, masking)
    heldout = HeldOut(
        data.unseen,
        data.heldout,
        data.tokenizer,
        length=settings.max_length,
        pairs=pairs,
        objective=build_heldout,
        frequencies=data.frequencies,
        most=settings.heldout_examples,
    )
    options = build_options(settings, device)

    return {
        "rule": rule,
        "heldout": heldout,
        "options": replace(options, warmup=warmup, beta2=beta2),
        "length": Length(settings.steps, settings.minutes),
        "gradient_accumulation": settings.gradient_accumulation,
        "resume": settings.resume,
        "tensorboard": settings.tensorboard,
        "builders": num_builders(device),
    }


def new_config(settings: Pretrain) -> EncoderConfig:
    """Config of a new model, except its vocabulary and dropout, which `new_model` sets."""
    config = SIZES[settings.model].replace(max_position_embeddings=settings.max_length)
    config = FAMILIES[settings.family or DEFAULT_MODEL_TYPE].new_config(config)

    # Some objectives read in one direction only, or in both by two stacks of half the width.
    kind = kind_of(settings.objective)
    if kind == "forward":
        return config.replace(direction="forward")
    if kind == "halves":
        return config.replace(direction="halves", embedding_size=config.hidden_size // 2)
    return config


def build_options(settings: recipes.CompleteSettings | Distill, device: torch.device) -> TrainingOptions:
    """Options of the training loop. Also prepares this process: its memory on CPUs, else deterministic computation."""
    if device.type == "cpu":
        retain_freed_memory()
    elif settings.deterministic:
        # Without this variable torch refuses matrix products on CUDA in deterministic mode.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)

    # Options that have the names of settings go on as they are.
    named_alike = {field.name for field in fields(TrainingOptions)} & vars(settings).keys()
    options = {name: getattr(settings, name) for name in named_alike}
    options["steps"] = settings.steps or recipes.STEPS
    options["device"] = device
    options["dtype"] = choose_dtype(settings.dtype, device)

    return TrainingOptions(**options)


def num_builders(device: torch.device) -> int:
    """The number of processes that build batches for a GPU: up to four, of at most a quarter of the cores."""
    if device.type != "cuda":
        return 0

    # Processes, because a thread would share Python's lock with the training.
    return min(4, num_cores() // 4)


def built_ahead(
    tasks: Callable[[int], Iterator[Task]],
    build: Callable[[Task], Sequence[Batch]],
    device: torch.device,
    builders: int,
    is_local: bool = True,
) -> Callable[[int], Generator[Sequence[Batch], None, None]]:
    """A function from a first step to the micro-batches of it and all following steps: build(task) for each task of
    tasks(first). Close the iterator to stop building.

    tasks: from a first step to the tasks of it and all following steps, such as their rows.
    build: from the task of a step to its micro-batches.
    device: where the training computes.
    builders: processes that build ahead; 0: a background thread does.
    is_local: whether the text is on this machine.
    """
    # On CPUs the training keeps all cores busy. Building ahead gains time only if the text comes from elsewhere, since
    # the training then waits for it.
    if device.type == "cpu" and is_local:
        return lambda first: (build(task) for task in tasks(first))
    if builders:
        return lambda first: build_in_processes(build, tasks(first), builders)
    return lambda first: prefetch(map(build, tasks(first)))
