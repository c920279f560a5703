"""How a pre-training run begins and ends: its plan and model, new or going on with new text (Gururangan 2020); its
figures, picture and checkpoint."""

from collections.abc import Callable
from dataclasses import replace
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
from bothways.pretraining.inputs import Text
from bothways.pretraining.modules import Replacing
from bothways.pretraining.objectives import Objective, objective_of
from bothways.pretraining.recipes import STEPS, Complete, completed, summary, with_family
from bothways.report import plot
from bothways.settings import Pretrain
from bothways.sizes import SIZES
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import Processes
from bothways.training.loop import Steps
from bothways.training.options import Plan
from bothways.training.run import Run, read_metrics
from bothways.training.run_checkpoints import Checkpoints, Saved

ONE_WAY = ("forward", "halves")
OUR_OWN = "bothways-oneway"


def start_of(settings: Pretrain) -> Checkpoint | None:
    """The checkpoint to go on from, if one is named; without a head that no pre-training has a place for."""
    if settings.from_checkpoint is None:
        return None
    start = checkpoint.load(settings.from_checkpoint)
    return checkpoint.encoder_only(start) if start.model.config.pooler_act in NO_POOLER else start


def settled(settings: Pretrain, start: Checkpoint | None) -> Pretrain:
    """The settings with a family, and with what its paper has in place of "auto". InputError where they do not go
    together."""
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
    asked = f"objective ({objective})"
    if start and (one_way or objective in ONE_WAY) and objective != direction:
        raise InputError(f"{asked}: {settings.from_checkpoint} was made to look {direction}; leave out --objective")
    if objective in ONE_WAY and not start and settings.family != "bert":
        raise InputError(f"{asked} is for a new bert; leave out --objective or --family")
    if pairs != "none" and objective != "masked":
        raise InputError(f"{asked} reads single runs of text; use --pairs none")
    if frozenset(objective_of(objective, pairs).heads) not in family.architectures:
        pairless = frozenset({"masked_words"}) in family.architectures
        way_out = "use --pairs none" if pairs != "none" and pairless else "take another --family or --objective"
        raise InputError(f"{asked}, pairs ({pairs}): {family.model_type} has no place for such a head; {way_out}")
    has_distances = (
        start.model.config.relative_positions is not None if start else "relative_positions" in family.defaults
    )
    if objective == "enhanced" and not has_distances:
        raise InputError(f"{asked} is for layers that know only distances; take --family deberta")
    if (settings.masking == "spans") < (objective == "boundary"):
        raise InputError(f"{asked} guesses spans from their ends; add --masking spans")
    masks = (settings.masking, settings.mask_rate, settings.final_mask_rate)
    if objective in ONE_WAY and masks != (Pretrain.masking, Pretrain.mask_rate, Pretrain.final_mask_rate):
        raise InputError(f"{asked} hides nothing; leave out --masking and --mask-rate")
    if objective in ("replaced", "enhanced") and settings.shard:
        raise InputError(f"{asked} uses weights in two places, which cannot be shared out; leave out --shard")
    if settings.tensorboard and find_spec("tensorboard") is None:
        raise InputError("tensorboard: needs the package tensorboard; pip install 'bothways[tensorboard]'")
    if objective == "replaced" and settings.deterministic and choose_device("auto").type == "cuda":
        raise InputError(f"{asked} adds floats in no fixed order on a GPU; leave out --deterministic")
    return replace(settings, objective=objective, pairs=pairs)


def begin(settings: Pretrain, start: Checkpoint | None, text: Text) -> tuple[Complete, Checkpoint]:
    """The settings with a value for each that was left open, which is said, and the model to be trained."""
    config = start.model.config if start else new_config(settings)
    recipe = completed(settings, config, text.num_tokens)
    logger.info(summary(settings, recipe, config))
    return recipe, goes_on(recipe, start, text) if start else new_model(recipe, text)


def new_config(settings: Pretrain) -> EncoderConfig:
    """Sizes and axes of a new model, but for its vocabulary and dropout."""
    config = SIZES[settings.model].replace(
        max_position_embeddings=settings.max_length,
        initializer_range=settings.initializer_range,  # what it never saw, it cannot read
    )
    return FAMILIES[settings.family or DEFAULT_MODEL_TYPE].new_config(config)


def new_model(settings: Complete, text: Text) -> Checkpoint:
    """A new model of a family for the text's vocabulary."""
    tokenizer, family = text.tokenizer, FAMILIES[settings.family or DEFAULT_MODEL_TYPE]
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
    model = Model(config, aim_of(settings).heads)
    initialize(model, config.initializer_range, torch.Generator().manual_seed(settings.seed))
    if settings.frequency_bias:
        begin_at_frequencies(model, text.frequencies)
    if settings.word_vectors:
        begin_with_word_vectors(model, text, settings.seed)
    if settings.local_init:
        initialize_locally(model)
    return Checkpoint(model, tokenizer, family.model_type if config.direction == "both" else OUR_OWN)


def aim_of(settings: Pretrain) -> Objective:
    assert settings.objective != "auto" and settings.pairs != "auto"
    return objective_of(settings.objective, settings.pairs)


def trained_of(settings: Complete, begun: Checkpoint, text: Text) -> nn.Module:
    """What is trained: the model, or one with parts that only training needs."""
    module = aim_of(settings).module(begun.model, settings.seed)
    if isinstance(module, Replacing) and settings.frequency_bias:
        begin_at_frequencies(module.generator, text.frequencies)
    if isinstance(module, Replacing) and settings.local_init:
        initialize_locally(module.generator)
    return module


def begin_at_frequencies(model: Model, frequencies: np.ndarray) -> None:
    """Each word as likely as it is frequent, instead of learning that first."""
    words = dict(model.heads.named_children()).get("masked_words")
    if isinstance(words, MaskedLMHead):
        rest = len(words.bias) - len(frequencies)  # rows of a padded vocabulary, which no text holds
        words.bias.data = torch.from_numpy(
            np.log(metrics.unigram_probabilities(np.pad(frequencies, (0, rest))))
        ).float()


def begin_with_word_vectors(model: Model, text: Text, seed: int) -> None:
    """Embeddings of the words from what stands near them in the training text, as large as they would begin anyway.
    Entries of which the text says hardly anything begin at random: the norm would enlarge their gradients too much."""
    table_VE = model.encoder.embeddings.words.weight.data
    vectors_VE = torch.from_numpy(word_vectors(text.store, text.training, *table_VE.shape, seed=seed))
    norms_V = vectors_VE.norm(dim=1)
    known_V = norms_V > norms_V.mean() / 4
    table_VE[known_V] = vectors_VE[known_V] * table_VE.std()


def goes_on(settings: Complete, found: Checkpoint, text: Text) -> Checkpoint:
    """The model of a checkpoint with the heads that pre-training needs, and a row for each entry of the tokenizer.

    Heads it lacks begin anew and are named. InputError where the family has no such heads, or reads shorter texts.
    """
    if settings.lengthen:
        found = lengthen(found, settings.max_length, settings.lengthen)
    old, heads, tokenizer = found.model, aim_of(settings).heads, text.tokenizer
    config = old.config.replace(
        vocab_size=max(len(tokenizer), old.config.vocab_size), hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
    )  # fmt: skip
    named = FAMILIES[found.model_type].hf_names(state_dict.POOLER, heads)
    model = Model(config, heads, pooler=old.pooler is not None and bool(named))
    initialize(model, config.initializer_range, torch.Generator().manual_seed(settings.seed))
    state, kept = model.state_dict(), old.state_dict()
    for name in state.keys() & kept.keys():
        state[name][: len(kept[name])] = kept[name]  # all of it, but of a longer vocabulary the old entries
    if new := sorted({".".join(name.split(".")[:2]) for name in state.keys() - kept.keys()}):
        logger.info(f"new, to be trained: {', '.join(new)}")
    if settings.frequency_bias and "masked_words" not in old.heads:
        begin_at_frequencies(model, text.frequencies)
    _fill_new_rows(model, found.tokenizer or tokenizer, tokenizer)
    return replace(found, model=model, tokenizer=tokenizer, labels=(), pooling=None, metadata={})


def _fill_new_rows(model: Model, old: Tokenizer, new: Tokenizer) -> None:
    """A new entry begins as the mean of the pieces it was read as before."""
    words = dict(model.heads.named_children()).get("masked_words")
    tables = [model.encoder.embeddings.words.weight, *([words.bias] if isinstance(words, MaskedLMHead) else [])]
    with torch.no_grad():
        for token in new.tokens[len(old) :]:
            pieces = old.ids(token)
            for values in tables:
                values[new.vocab[token]] = values[pieces].mean(0)


def plan_of(settings: Complete, processes: Processes) -> Plan:
    device = processes.device(choose_device("auto"))
    if device.type == "cpu":
        retain_freed_memory()
    elif settings.deterministic:
        torch.use_deterministic_algorithms(True)
    return Plan(
        steps=settings.steps or STEPS, rate=settings.learning_rate, schedule=settings.schedule, warmup=settings.warmup,
        decay=settings.decay, beta2=settings.beta2, weight_decay=settings.weight_decay,
        muon_rate=settings.muon_learning_rate, clip=settings.max_grad_norm,
        evaluate_every=settings.evaluate_every, checkpoint_every=settings.checkpoint_every, seed=settings.seed,
        device=device, dtype=choose_dtype(settings.dtype, device), shard=settings.shard,
        rehearse=settings.compile,
    )  # fmt: skip


def waiting_for_none(steps: Steps, plan: Plan) -> Steps:
    """The same steps, made ahead where a GPU computes; a processor has no core to spare for it."""
    return steps if plan.device.type == "cpu" else lambda first: prefetch(steps(first))


def num_steps(settings: Pretrain, run: Run, processes: Processes, timed: Callable[[], float]) -> int:
    """The steps asked for, or those the run was begun with if that is more; else as many as fill the minutes, by the
    seconds that one takes."""
    begun_with: int = processes.share(run.made.get("steps", 0))
    known = max(settings.steps or 0, begun_with)
    if known or not settings.minutes:
        return known or STEPS
    speed = timed()
    number = max(1, int(settings.minutes * 60 / speed))
    logger.info(f"{settings.minutes:g} minutes are {number} steps of {speed * 1000:.0f} ms")
    return number


def mask_rate_at(step: int, settings: Complete, plan: Plan) -> float:
    """The share of tokens to hide at a step."""
    end = settings.mask_rate if settings.final_mask_rate is None else settings.final_mask_rate
    return linear_rate(step, steps=plan.steps, start=settings.mask_rate, end=end)


def watching_plateau(
    record: Callable[[dict[str, Any]], None], held: HeldOut, plan: Plan, start: Saved | None
) -> Callable[[dict[str, Any]], None]:
    """The same, but the first evaluation after a tenth of the run warns if words are still guessed by frequency."""
    due = plan.steps / 10
    is_over = start is not None and start.progress.step >= due

    def watch(row: dict[str, Any]) -> None:
        nonlocal is_over
        record(row)
        if row["split"] == "heldout" and row["step"] >= due and not is_over:
            is_over = True
            if on_plateau(row, held.unigram_perplexity):
                logger.info(
                    f"step {row['step']:,}: held-out perplexity {row['perplexity']:.0f} is hardly below "
                    f"{held.unigram_perplexity:.0f}, that of word frequencies alone. The run has not begun to learn "
                    "from context; stop it and leave out options such as --family and --learning-rate, or add --minutes"
                )

    return watch


def cost_of(settings: Pretrain, directory: Path, processes: int = 1) -> dict[str, Any]:
    """Minutes of training, tokens, and the energy of the processors' threads or GPUs by their stated power."""
    last = read_metrics(directory)[-1]
    units = 1 if choose_device("auto").type == "cuda" else torch.get_num_threads()
    kwh = last["seconds"] * units * processes * settings.watts / 3.6e6
    return {"minutes": last["seconds"] / 60, "tokens": last["tokens"], "kwh": kwh, "watts": settings.watts}


def going_on(
    settings: Pretrain, text: Text, order: StepSampler, plan: Plan, run: Run, processes: Processes
) -> tuple[Checkpoints, Saved | None]:
    """The run's checkpoints, and the one to go on from, to whose step the metrics are cut back."""
    vocabulary = digest(text.tokenizer.tokens)
    read = {"text": text.store.fingerprint, "heldout": text.unseen.fingerprint, "vocabulary": vocabulary}
    checkpoints = Checkpoints(
        run.directory, keep=settings.keep_checkpoints, order=read, processes=processes, memo=order.counts
    )
    start = checkpoints.newest_sound(plan.dtype) if settings.resume else None
    if start:
        order.counts[:] = start.facts["memo"]
    run.cut_back(start.progress.step if start else 0)
    return checkpoints, start


def held_out_of(settings: Pretrain, text: Text) -> HeldOut:
    assert settings.objective != "auto" and settings.pairs != "auto"
    return HeldOut(
        text.unseen,
        text.heldout,
        text.tokenizer,
        settings.max_length,
        pairs=settings.pairs,
        objective=settings.objective,
        frequencies=text.frequencies,
        most=settings.heldout_examples,
    )


def finish(
    settings: Complete, ended: Checkpoint, module: nn.Module, held: HeldOut, run: Run, processes: Processes
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure and save the model, draw the curves, note figures and cost, which all processes get."""
    if not run.leads:
        return processes.share(None)
    figures = {**held.measure(module), "unigram_perplexity": held.unigram_perplexity}
    if isinstance(module, Replacing):
        module.finish()
    if isinstance(ended.model.config.sparse_attention, GlobalTokensConfig) and (
        not settings.from_checkpoint
        or settings.lengthen
        or sees_all_as_others(checkpoint.load(settings.from_checkpoint).model)
    ):
        see_all_as_others(ended.model)
    checkpoint.save(replace(ended, metadata={**run.origin, "heldout": figures}), run.directory / "model")
    levels: dict[str, float] = {name: figures[name] for name in ("unigram_perplexity", "chance") if name in figures}
    title = f"Pre-training, {settings.from_checkpoint.name if settings.from_checkpoint else settings.model}"
    plot.save_curves(run.metrics(), run.directory / "curves.png", title=title, levels=levels)
    cost = cost_of(settings, run.directory, processes.world)
    chosen = {name: getattr(settings, name) for name in Complete.__annotations__}
    run.note(heldout=figures, cost=cost, recipe=chosen)
    return processes.share((figures, cost))
