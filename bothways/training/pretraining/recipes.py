"""Settings of pre-training, resolved and checked, and its default hyperparameters: learning rate, warmup, dropout.

The recipe "measured" has the values that learned fastest in short trials (docs/LOG.md, "Leaving the plateau"); the
recipe "paper" has the values of Devlin 2018, appendix A.2.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain
from typing import Any

from bothways.base.device import choose_device
from bothways.base.errors import InputError, flag, format_count, needs_package
from bothways.model.checkpoint.contents import Checkpoint, check_plain
from bothways.model.config import SIZES, EncoderConfig
from bothways.model.families import DEFAULT_MODEL_TYPE, FAMILIES
from bothways.model.families.spec import FamilySpec
from bothways.settings.base import Family
from bothways.settings.pretrain import Pretrain
from bothways.text.corpus.sentence_pairs import PairTask
from bothways.training.pretraining.objectives import (
    ObjectiveName,
    build_objective,
    kind_of,
    objective_name,
    samples_words,
)

FAMILY_OF_OBJECTIVE: Mapping[str, Family]
FAMILY_OF_OBJECTIVE = {"replaced": "electra", "enhanced": "deberta", "forward": "bert", "halves": "bert"}
PAPER: Mapping[str, Any] = {  # all that a recipe sets
    "mask_rate": 0.15,
    "dropout": 0.1,
    "learning_rate": 1e-4,
    "warmup": 0.01,
    "beta2": 0.999,
    "local_init": False,
    "word_vectors": False,
    "candidates": 0,
}
STEPS = 1000  # without --steps or --minutes
# Measured; of distillation, too. With 0.98 (and epsilon 1e-8), perplexity after 0.6 M tokens was 962 instead of 997.
WARMUP = 0.05
BETA_2 = 0.98
MEASURED_WIDTH = 256  # hidden size of the trials that chose the learning rates
PEAK_LEARNING_RATE = {"pre": 2e-3, "post": 1e-3}  # by the position of LayerNorm
PEAK_CONTINUED = 5e-4  # with --from
MANY_PASSES = 4  # passes over the text from which dropout helps
TOKENS_PER_MINUTE = 600_000  # the mini model on two cores, about
ONE_WAY = ("forward", "halves")
CANDIDATES = 4096  # words that masked words are told from, where a step has them
# They must save this fraction of the products of a step. Of 30,522 words, they save 66 % for tiny, 34 % for mini, 21 %
# for small, 11 % for medium, 5 % for base (docs/LOG.md, "Candidates for the word head").
LEAST_SAVED = 0.2


@dataclass(frozen=True, kw_only=True)
class CompleteSettings(Pretrain):  # type: ignore[misc]  # its base is frozen too; settings/base.py has why mypy sees not
    """Settings in which all values are set."""

    pairs: PairTask
    mask_rate: float
    dropout: float
    learning_rate: float
    warmup: float
    beta2: float
    local_init: bool
    word_vectors: bool
    candidates: int  # words that masked words are told from, on average; 0: all


def with_family(settings: Pretrain) -> Pretrain:
    """Choose a family for a new model: one with the objective's head, else the one that learns fastest."""
    if settings.family or settings.from_checkpoint:
        return settings
    kind = kind_of(settings.objective)
    family: Family | None = FAMILY_OF_OBJECTIVE.get(kind)
    if family is None:
        has_pairs = getattr(settings.objective, "pairs", settings.pairs) in ("next", "order")
        plain = settings.recipe == "paper" or has_pairs or kind == "boundary"
        family = "bert" if plain else "modernbert"
    return replace(settings, family=family)


def complete_settings(settings: Pretrain, config: EncoderConfig, tokens: int) -> CompleteSettings:
    """Fill in unset values from the recipe.

    settings: as the user gave them, with a family and an objective.
    config: of the model to train, with the size of its vocabulary.
    tokens: size of the training text.
    """
    defaults = PAPER if settings.recipe == "paper" else _measured_recipe(settings, config, tokens)
    set_by_user = {name: value for name, value in vars(settings).items() if value is not None}
    return CompleteSettings(**{**defaults, **set_by_user})


def _measured_recipe(settings: Pretrain, config: EncoderConfig, tokens: int) -> dict[str, Any]:
    """The values that learned fastest in short trials."""
    peak = PEAK_CONTINUED if settings.from_checkpoint else PEAK_LEARNING_RATE[config.norm]
    learning_rate = peak * (MEASURED_WIDTH / config.hidden_size) ** 0.8
    passes = expected_tokens(settings, config) / max(1, tokens)
    is_new = not settings.from_checkpoint
    default_mask_rate = 0.3 if settings.masking == "tokens" else 0.15
    mask_rate = default_mask_rate if settings.mask_rate is None else settings.mask_rate
    return {
        "learning_rate": float(f"{learning_rate:.2g}"),
        "warmup": WARMUP,
        "mask_rate": default_mask_rate,
        "dropout": 0.1 if passes > MANY_PASSES else 0.0,
        "beta2": BETA_2,
        # Together, perplexity 235 instead of 874 after 0.8 M tokens (docs/LOG.md, "Leaving the plateau").
        "local_init": is_new,
        "word_vectors": is_new,
        "candidates": num_candidates(settings, config, mask_rate),
    }


def num_candidates(settings: Pretrain, config: EncoderConfig, mask_rate: float) -> int:
    """CANDIDATES where they save LEAST_SAVED of the products of a step, else 0: all words.

    settings: with an objective.
    config: of the model to train, with the size of its vocabulary.
    mask_rate: fraction of the tokens that are masked.
    """
    if config.vocab_size <= 2 * CANDIDATES or not samples_words(build_objective(settings.objective)):
        return 0

    # Products of the forward pass for a token; the backward pass has twice as many of each.
    predicted = 1.0 if kind_of(settings.objective) in ONE_WAY else mask_rate
    hidden = config.hidden_size
    num_feed_forward = 3 if config.feed_forward == "gated" else 2
    layer = hidden * (4 * hidden + num_feed_forward * config.intermediate_size)

    # Of tokens that are not read, the last layer has keys and values only.
    unread = (1 - predicted) * (layer - 2 * hidden**2)
    layers = config.num_hidden_layers * layer - unread
    embedding = config.embedding_size or hidden
    head = predicted * embedding * (hidden + config.vocab_size)
    saved = predicted * embedding * (config.vocab_size - CANDIDATES)
    return CANDIDATES if saved >= LEAST_SAVED * (layers + head) else 0


def expected_tokens(settings: Pretrain, config: EncoderConfig) -> float:
    """Approximate number of tokens the run will read: known for steps, estimated for minutes."""
    in_steps = (settings.steps or STEPS) * settings.batch_tokens
    if not settings.minutes:
        return in_steps

    # Smaller models gain less than their layers save, as their embeddings and small matrices dominate.
    speed = _size_of_layers(SIZES["mini"]) / _size_of_layers(config)
    in_time = settings.minutes * TOKENS_PER_MINUTE * min(speed, speed**0.5)
    return min(in_time, in_steps) if settings.steps else in_time


def _size_of_layers(config: EncoderConfig) -> float:
    return config.num_hidden_layers * config.hidden_size * (4 * config.hidden_size + 3 * config.intermediate_size)


def summary(settings: Pretrain, recipe: CompleteSettings, config: EncoderConfig) -> str:
    """One line: the chosen hyperparameters, each with a short reason.

    settings: as the user gave them.
    recipe: the same settings, complete.
    config: of the model to train.
    """
    if settings.from_checkpoint:
        model = f"{settings.from_checkpoint}"
    else:
        sizes = f"{format_count(config.num_hidden_layers, 'layer')} of {config.hidden_size}"
        model = f"{settings.family}, {sizes}"

    reasons = {
        "learning_rate": f"learning rate {recipe.learning_rate:g} (width {config.hidden_size}, norm {config.norm})",
        "warmup": f"warm-up {recipe.warmup:.0%}",
        "mask_rate": f"{recipe.mask_rate:.0%} masked",
        "dropout": f"dropout {recipe.dropout:g}" + (" (the text is read many times)" if recipe.dropout else ""),
        "word_vectors": "word vectors from co-occurrence" if recipe.word_vectors else "random word vectors",
        "local_init": "attention starts at neighbours" if recipe.local_init else "attention starts at random",
    }
    if recipe.candidates:
        reasons["candidates"] = f"words told from {recipe.candidates:,} candidates, in the last tenth from all"
    chosen = [reason for name, reason in reasons.items() if getattr(settings, name, None) is None]
    return f"recipe ({settings.recipe}): {model}; {', '.join(chosen) or 'all set'}"


def default_objective(start: Checkpoint | None, family: FamilySpec) -> ObjectiveName:
    """The objective of a checkpoint by its direction and its heads, else the objective of the family."""
    if start is None:
        return family.objective
    direction = start.model.config.direction
    if direction == "forward" or direction == "halves":
        return direction
    return "masked" if "masked_words" in start.model.heads else family.objective


def resolve_settings(settings: Pretrain, start: Checkpoint | None) -> Pretrain:
    """Replace "auto" by the family's defaults and check that the settings fit together (InputError)."""
    settings = with_family(settings)
    if start:
        check_plain(start.model)
    family = FAMILIES[start.model_type if start else settings.family or DEFAULT_MODEL_TYPE]

    objective = settings.objective
    pairs = settings.pairs
    if objective == "auto":
        objective = default_objective(start, family)
    if pairs == "auto" and not isinstance(objective, str):
        pairs = objective.pairs
    elif pairs == "auto":
        pairs = family.pairs if objective == "masked" else "none"

    settings = replace(settings, objective=objective, pairs=pairs)
    heads = build_objective(objective, pairs).heads
    errors = chain(model_errors(settings, start, family, heads), run_errors(settings))
    message = next(errors, None)
    if message:
        raise InputError(message)
    return settings


def model_errors(
    settings: Pretrain, start: Checkpoint | None, family: FamilySpec, heads: Mapping[str, int]
) -> Iterator[str]:
    """Errors for settings that the model does not support. A checkpoint keeps its direction; a new one-way model is a
    BERT.

    settings: resolved.
    start: the checkpoint to continue from, if any.
    family: of the model.
    heads: of the objective.
    """
    objective = objective_name(settings.objective)
    kind = kind_of(settings.objective)
    pairs = settings.pairs
    length = settings.max_length
    if start:
        config = start.model.config
        most = config.max_position_embeddings
        if length > most:
            yield f"max_length ({length}) is more than the {most} positions of {settings.from_checkpoint}"
        direction = config.direction
        if (direction != "both" or kind in ONE_WAY) and kind != direction:
            yield (
                f"objective ({objective}): {settings.from_checkpoint} has direction {direction}; leave out "
                f"{flag('objective')}"
            )
        has_distances = config.relative_positions is not None
    else:
        if length > family.max_length:
            yield f"max_length ({length}) is more than the {family.max_length} tokens of {settings.family}"
        if kind in ONE_WAY and settings.family != "bert":
            yield f"objective ({objective}) is for a new bert; leave out {flag('objective')} or {flag('family')}"
        has_distances = "relative_positions" in family.defaults

    if not isinstance(settings.objective, str) and pairs != settings.objective.pairs:
        yield f"pairs ({pairs}): {objective} has pairs {settings.objective.pairs}; leave out {flag('pairs')}"
    if pairs != "none" and kind != "masked":
        yield f"objective ({objective}) does not use sentence pairs; use {flag('pairs', 'none')}"
    if frozenset(heads) not in family.architectures:
        has_pairless = frozenset({"masked_words"}) in family.architectures
        if pairs != "none" and has_pairless:
            way_out = f"use {flag('pairs', 'none')}"
        else:
            way_out = f"choose another {flag('family')} or {flag('objective')}"
        yield f"objective ({objective}), pairs ({pairs}): {family.model_type} has no such head; {way_out}"
    if kind == "enhanced" and not has_distances:
        yield f"objective ({objective}) needs relative positions; use {flag('family', 'deberta')}"


def run_errors(settings: Pretrain) -> Iterator[str]:
    """Errors for masking options that the objective does not use, and for settings that this machine, its packages or
    several processes do not support."""
    kind = kind_of(settings.objective)
    subject = f"objective ({objective_name(settings.objective)})"
    if kind == "boundary" and settings.masking != "spans":
        yield f"{subject} predicts spans from their boundaries; add {flag('masking', 'spans')}"
    masks = (settings.masking, settings.mask_rate)
    if kind in ONE_WAY and masks != (Pretrain.masking, Pretrain.mask_rate):
        yield f"{subject} masks nothing; leave out {flag('masking')} and {flag('mask_rate')}"
    if kind in ("replaced", "enhanced") and settings.shard:
        yield f"{subject} shares weights between two modules, which cannot be sharded; leave out {flag('shard')}"
    if settings.tensorboard and find_spec("tensorboard") is None:
        yield str(needs_package("tensorboard", "tensorboard", "tensorboard"))
    if kind == "replaced" and settings.deterministic and choose_device(settings.device).type == "cuda":
        yield f"{subject} is not deterministic on a GPU; leave out {flag('deterministic')}"
