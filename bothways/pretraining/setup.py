"""Initial model, training options, resume and final checkpoint of a pre-training run.

A run trains a new model, or continues from a checkpoint on new text (Gururangan 2020).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bothways import metrics
from bothways.attention_config import GlobalTokensConfig
from bothways.batching import prefetch
from bothways.checkpoint import checkpoint, state_dict
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.checkpoint.lengthen import lengthen, lengthened_model_type, see_all_as_others, sees_all_as_others
from bothways.config import Direction, EncoderConfig
from bothways.corpus.arrays import digest
from bothways.corpus.cooccurrence import word_vectors
from bothways.corpus.masking import linear_rate
from bothways.corpus.sampler import StepSampler
from bothways.device import choose_device, choose_dtype, retain_freed_memory
from bothways.errors import InputError
from bothways.families import DEFAULT_MODEL_TYPE, FAMILIES
from bothways.log import logger
from bothways.model.heads import MaskedLMHead
from bothways.model.local_init import initialize_locally
from bothways.model.model import Model, initialize
from bothways.model.pooler import NO_POOLER
from bothways.pretraining.heldout import HeldOut, on_plateau
from bothways.pretraining.inputs import PretrainingData
from bothways.pretraining.modules import ReplacedTokenModel
from bothways.pretraining.objectives import Objective, build_objective
from bothways.pretraining.recipes import STEPS, CompleteSettings, complete_settings, summary, with_family
from bothways.report import plot
from bothways.settings import Pretrain
from bothways.sizes import SIZES
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import Processes
from bothways.training.loop import Steps
from bothways.training.options import TrainingOptions
from bothways.training.run import Run, read_metrics
from bothways.training.run_checkpoints import Checkpoints, SavedCheckpoint

ONE_WAY = ("forward", "halves")
OUR_OWN = "bothways-oneway"


@dataclass(frozen=True)
class PretrainingResult:
    """Result of a run: its directory, the saved model, held-out metrics, and cost in minutes, tokens and kWh."""

    directory: Path
    model: Path
    figures: Mapping[str, Any]
    cost: Mapping[str, Any]


def load_start(settings: Pretrain) -> Checkpoint | None:
    """The checkpoint to continue from, if any, without heads that pre-training cannot keep."""
    if settings.from_checkpoint is None:
        return None
    start = checkpoint.load(settings.from_checkpoint)
    return checkpoint.encoder_only(start) if start.model.config.pooler_act in NO_POOLER else start


def resolve_settings(settings: Pretrain, start: Checkpoint | None) -> Pretrain:
    """Replace "auto" by the family's defaults and check that the settings fit together (InputError)."""
    settings = with_family(settings)
    if start:
        checkpoint.check_not_int8(start.model)
    family = FAMILIES[start.model_type if start else settings.family or DEFAULT_MODEL_TYPE]
    if start and settings.lengthen:
        family = FAMILIES[lengthened_model_type(start, settings.max_length, settings.lengthen)]
    direction: Direction = start.model.config.direction if start else "both"
    objective, pairs, one_way = settings.objective, settings.pairs, direction != "both"
    if objective == "auto":
        has_words = start is not None and "masked_words" in start.model.heads
        objective = "masked" if has_words else family.objective
        if direction == "forward" or direction == "halves":
            objective = direction
    if pairs == "auto":
        pairs = family.pairs if objective == "masked" else "none"
    if not start and settings.max_length > family.max_length:
        raise InputError(
            f"max_length ({settings.max_length}) is more than the {family.max_length} tokens of {settings.family}"
        )
    if start and not settings.lengthen and settings.max_length > (most := start.model.config.max_position_embeddings):
        raise InputError(
            f"max_length ({settings.max_length}) is more than the {most} positions of {settings.from_checkpoint}"
        )
    prefix = f"objective ({objective})"
    if start and (one_way or objective in ONE_WAY) and objective != direction:
        raise InputError(f"{prefix}: {settings.from_checkpoint} has direction {direction}; leave out --objective")
    if objective in ONE_WAY and not start and settings.family != "bert":
        raise InputError(f"{prefix} is for a new bert; leave out --objective or --family")
    if pairs != "none" and objective != "masked":
        raise InputError(f"{prefix} does not use sentence pairs; use --pairs none")
    if frozenset(build_objective(objective, pairs).heads) not in family.architectures:
        pairless = frozenset({"masked_words"}) in family.architectures
        way_out = "use --pairs none" if pairs != "none" and pairless else "choose another --family or --objective"
        raise InputError(f"{prefix}, pairs ({pairs}): {family.model_type} has no such head; {way_out}")
    has_distances = (
        start.model.config.relative_positions is not None if start else "relative_positions" in family.defaults
    )
    if objective == "enhanced" and not has_distances:
        raise InputError(f"{prefix} needs relative positions; use --family deberta")
    if (settings.masking == "spans") < (objective == "boundary"):
        raise InputError(f"{prefix} predicts spans from their boundaries; add --masking spans")
    masks = (settings.masking, settings.mask_rate, settings.final_mask_rate)
    if objective in ONE_WAY and masks != (Pretrain.masking, Pretrain.mask_rate, Pretrain.final_mask_rate):
        raise InputError(f"{prefix} masks nothing; leave out --masking and --mask-rate")
    if objective in ("replaced", "enhanced") and settings.shard:
        raise InputError(f"{prefix} shares weights between two modules, which cannot be sharded; leave out --shard")
    if settings.tensorboard and find_spec("tensorboard") is None:
        raise InputError("tensorboard: needs the package tensorboard; pip install 'bothways[tensorboard]'")
    if objective == "replaced" and settings.deterministic and choose_device(settings.device).type == "cuda":
        raise InputError(f"{prefix} is not deterministic on a GPU; leave out --deterministic")
    return replace(settings, objective=objective, pairs=pairs)


def build_initial(
    settings: Pretrain, start: Checkpoint | None, data: PretrainingData
) -> tuple[CompleteSettings, Checkpoint]:
    """Complete the settings, log the recipe, and build the initial model."""
    config = start.model.config if start else new_config(settings)
    recipe = complete_settings(settings, config, data.num_tokens)
    logger.info(summary(settings, recipe, config))
    return recipe, continue_from(recipe, start, data) if start else new_model(recipe, data)


def new_config(settings: Pretrain) -> EncoderConfig:
    """Config of a new model, except its vocabulary and dropout."""
    config = SIZES[settings.model].replace(
        max_position_embeddings=settings.max_length,
        initializer_range=settings.initializer_range,
    )
    return FAMILIES[settings.family or DEFAULT_MODEL_TYPE].new_config(config)


def new_model(settings: CompleteSettings, data: PretrainingData) -> Checkpoint:
    """A new model with randomly initialized or precomputed weights, for this vocabulary."""
    tokenizer, family = data.tokenizer, FAMILIES[settings.family or DEFAULT_MODEL_TYPE]
    config = new_config(settings).replace(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_id, hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
    )  # fmt: skip
    if isinstance(config.sparse_attention, GlobalTokensConfig):
        config = config.replace(sparse_attention=GlobalTokensConfig(separator=tokenizer.sep_id))
    if settings.objective == "forward":
        config = config.replace(direction="forward")
    if settings.objective == "halves":
        config = config.replace(direction="halves", embedding_size=config.hidden_size // 2)
    model = Model(config, objective_from_settings(settings).heads)
    initialize(model, config.initializer_range, torch.Generator().manual_seed(settings.seed))
    if settings.frequency_bias:
        init_bias_from_frequencies(model, data.frequencies)
    if settings.word_vectors:
        init_from_word_vectors(model, data, settings.seed)
    if settings.local_init:
        initialize_locally(model)
    return Checkpoint(model, tokenizer, family.model_type if config.direction == "both" else OUR_OWN)


def objective_from_settings(settings: Pretrain) -> Objective:
    assert settings.objective != "auto" and settings.pairs != "auto"
    return build_objective(settings.objective, settings.pairs)


def build_module(settings: CompleteSettings, initial: Checkpoint, data: PretrainingData) -> nn.Module:
    """The module to train: the model, or the model with parts that only training needs."""
    module = objective_from_settings(settings).module(initial.model, settings.seed)
    if isinstance(module, ReplacedTokenModel) and settings.frequency_bias:
        init_bias_from_frequencies(module.generator, data.frequencies)
    if isinstance(module, ReplacedTokenModel) and settings.local_init:
        initialize_locally(module.generator)
    return module


def init_bias_from_frequencies(model: Model, frequencies: np.ndarray) -> None:
    """Start the output bias at log word frequencies, so that they need not be learned."""
    words = dict(model.heads.named_children()).get("masked_words")
    if isinstance(words, MaskedLMHead):
        rest = len(words.bias) - len(frequencies)  # rows of a padded vocabulary
        words.bias.data = torch.from_numpy(
            np.log(metrics.unigram_probabilities(np.pad(frequencies, (0, rest))))
        ).float()


def init_from_word_vectors(model: Model, data: PretrainingData, seed: int) -> None:
    """Start word embeddings from co-occurrence vectors, at the usual scale. Rare words stay random, because LayerNorm
    would amplify the gradients of their short vectors."""
    table_VE = model.encoder.embeddings.words.weight.data
    vectors_VE = torch.from_numpy(word_vectors(data.store, data.training, *table_VE.shape, seed=seed))
    norms_V = vectors_VE.norm(dim=1)
    known_V = norms_V > norms_V.mean() / 4
    table_VE[known_V] = vectors_VE[known_V] * table_VE.std()


def continue_from(settings: CompleteSettings, start: Checkpoint, data: PretrainingData) -> Checkpoint:
    """Adapt a checkpoint: add missing heads (logged) and an embedding row for each new vocabulary entry.

    InputError if the family has no such heads or the model is too short.
    """
    if settings.lengthen:
        start = lengthen(start, settings.max_length, settings.lengthen)
    old, heads, tokenizer = start.model, objective_from_settings(settings).heads, data.tokenizer
    config = old.config.replace(
        vocab_size=max(len(tokenizer), old.config.vocab_size), hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
    )  # fmt: skip
    named = FAMILIES[start.model_type].hf_names(state_dict.POOLER, heads)
    model = Model(config, heads, pooler=old.pooler is not None and bool(named))
    initialize(model, config.initializer_range, torch.Generator().manual_seed(settings.seed))
    state, kept = model.state_dict(), old.state_dict()
    for name in state.keys() & kept.keys():
        state[name][: len(kept[name])] = kept[name]  # of a longer vocabulary, the old entries
    if new := sorted({".".join(name.split(".")[:2]) for name in state.keys() - kept.keys()}):
        logger.info(f"newly initialized: {', '.join(new)}")
    if settings.frequency_bias and "masked_words" not in old.heads:
        init_bias_from_frequencies(model, data.frequencies)
    _fill_new_rows(model, start.tokenizer or tokenizer, tokenizer)
    return replace(start, model=model, tokenizer=tokenizer, labels=(), pooling=None, metadata={})


def _fill_new_rows(model: Model, old: Tokenizer, new: Tokenizer) -> None:
    """Start each new entry at the mean of the pieces it was split into before."""
    words = dict(model.heads.named_children()).get("masked_words")
    tables = [model.encoder.embeddings.words.weight, *([words.bias] if isinstance(words, MaskedLMHead) else [])]
    with torch.no_grad():
        for token in new.tokens[len(old) :]:
            pieces = old.ids(token)
            for values in tables:
                values[new.vocab[token]] = values[pieces].mean(0)


def build_options(settings: CompleteSettings, processes: Processes) -> TrainingOptions:
    device = processes.device(choose_device(settings.device))
    if device.type == "cpu":
        retain_freed_memory()
    elif settings.deterministic:
        torch.use_deterministic_algorithms(True)
    return TrainingOptions(
        steps=settings.steps or STEPS, learning_rate=settings.learning_rate, schedule=settings.schedule,
        warmup=settings.warmup, decay=settings.decay, beta2=settings.beta2, weight_decay=settings.weight_decay,
        muon_learning_rate=settings.muon_learning_rate, max_grad_norm=settings.max_grad_norm,
        evaluate_every=settings.evaluate_every, checkpoint_every=settings.checkpoint_every, seed=settings.seed,
        device=device, dtype=choose_dtype(settings.dtype, device), shard=settings.shard,
        compile_warmup=settings.compile,
    )  # fmt: skip


def prefetched(steps: Steps, options: TrainingOptions) -> Steps:
    """Prepare batches in a background thread on GPUs; on CPUs no core is free for it."""
    return steps if options.device.type == "cpu" else lambda first: prefetch(steps(first))


def num_steps(settings: Pretrain, run: Run, processes: Processes, timed: Callable[[], float]) -> int:
    """The number of steps: that of the settings, or of the resumed run if it is larger; else estimated from the minutes
    by timing some steps."""
    previous: int = processes.broadcast(run.metadata.get("steps", 0))
    known = max(settings.steps or 0, previous)
    if known or not settings.minutes:
        return known or STEPS
    seconds = timed()
    steps = max(1, int(settings.minutes * 60 / seconds))
    logger.info(f"{settings.minutes:g} minutes: {steps} steps of {seconds * 1000:.0f} ms")
    return steps


def mask_rate_at(step: int, settings: CompleteSettings, options: TrainingOptions) -> float:
    """The mask rate at a step; it may change linearly over the run."""
    end = settings.mask_rate if settings.final_mask_rate is None else settings.final_mask_rate
    return linear_rate(step, steps=options.steps, start=settings.mask_rate, end=end)


def warn_on_plateau(
    record: Callable[[dict[str, Any]], None], heldout: HeldOut, options: TrainingOptions, start: SavedCheckpoint | None
) -> Callable[[dict[str, Any]], None]:
    """Wrap `record`: after a tenth of the run, warn if the model is no better than word frequencies alone."""
    due = options.steps / 10
    is_over = start is not None and start.progress.step >= due

    def watch(row: dict[str, Any]) -> None:
        nonlocal is_over
        record(row)
        if row["split"] == "heldout" and row["step"] >= due and not is_over:
            is_over = True
            if on_plateau(row, heldout.unigram_perplexity):
                logger.warning(
                    f"step {row['step']:,}: held-out perplexity {row['perplexity']:.0f} is close to "
                    f"{heldout.unigram_perplexity:.0f}, that of word frequencies alone. The model has not started to "
                    "learn from context; stop and drop options such as --family and --learning-rate, or add --minutes"
                )

    return watch


def compute_cost(settings: Pretrain, directory: Path, processes: int = 1) -> dict[str, Any]:
    """Minutes of training, tokens, and an energy estimate (kWh) from the power per CPU thread or GPU."""
    last = read_metrics(directory)[-1]
    units = 1 if choose_device(settings.device).type == "cuda" else torch.get_num_threads()
    kwh = last["seconds"] * units * processes * settings.watts / 3.6e6
    return {"minutes": last["seconds"] / 60, "tokens": last["tokens"], "kwh": kwh, "watts": settings.watts}


def prepare_resume(
    settings: Pretrain,
    data: PretrainingData,
    sampler: StepSampler,
    options: TrainingOptions,
    run: Run,
    processes: Processes,
) -> tuple[Checkpoints, SavedCheckpoint | None]:
    """Open the run's checkpoints; find the one to resume from and truncate the metrics to its step."""
    vocabulary = digest(data.tokenizer.tokens)
    order = {"text": data.store.fingerprint, "heldout": data.unseen.fingerprint, "vocabulary": vocabulary}
    checkpoints = Checkpoints(
        run.directory, keep=settings.keep_checkpoints, order=order, processes=processes, memo=sampler.counts
    )
    start = checkpoints.load_latest(options.dtype) if settings.resume else None
    if start:
        sampler.counts[:] = start.state["memo"]
    run.truncate_metrics(start.progress.step if start else 0)
    return checkpoints, start


def build_heldout(settings: Pretrain, data: PretrainingData) -> HeldOut:
    assert settings.objective != "auto" and settings.pairs != "auto"
    return HeldOut(
        data.unseen,
        data.heldout,
        data.tokenizer,
        settings.max_length,
        pairs=settings.pairs,
        objective=settings.objective,
        frequencies=data.frequencies,
        most=settings.heldout_examples,
    )


def finish(
    settings: CompleteSettings, initial: Checkpoint, module: nn.Module, heldout: HeldOut, run: Run, processes: Processes
) -> PretrainingResult:
    """Evaluate and save the model, plot the curves, record metrics and cost. All processes get the result."""
    if not run.is_main_process:
        return processes.broadcast(None)
    figures = {**heldout.measure(module), "unigram_perplexity": heldout.unigram_perplexity}
    if isinstance(module, ReplacedTokenModel):
        module.finish()
    if isinstance(initial.model.config.sparse_attention, GlobalTokensConfig) and (
        not settings.from_checkpoint
        or settings.lengthen
        or sees_all_as_others(checkpoint.load(settings.from_checkpoint).model)
    ):
        see_all_as_others(initial.model)
    checkpoint.save(replace(initial, metadata={**run.origin, "heldout": figures}), run.directory / "model")
    levels: dict[str, float] = {name: figures[name] for name in ("unigram_perplexity", "chance") if name in figures}
    title = f"Pre-training, {settings.from_checkpoint.name if settings.from_checkpoint else settings.model}"
    plot.save_curves(run.metrics(), run.directory / "curves.png", title=title, levels=levels)
    cost = compute_cost(settings, run.directory, processes.world_size)
    chosen = {name: getattr(settings, name) for name in CompleteSettings.__annotations__}
    run.update_metadata(heldout=figures, cost=cost, recipe=chosen)
    return processes.broadcast(PretrainingResult(run.directory, run.directory / "model", figures, cost))
