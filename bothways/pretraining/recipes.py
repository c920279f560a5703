"""Settings of pre-training, resolved and checked, and its default hyperparameters: learning rate, warmup, dropout.

The recipe "measured" has the values that learned fastest in short trials (docs/LOG.md, "Leaving the plateau"); the
recipe "paper" has those of Devlin 2018, appendix A.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from bothways.checkpoint.changes.lengthen import lengthened_model_type
from bothways.checkpoint.contents import Checkpoint, check_plain
from bothways.config import SIZES, Direction, EncoderConfig
from bothways.device import choose_device
from bothways.errors import InputError, format_count
from bothways.families import DEFAULT_MODEL_TYPE, FAMILIES
from bothways.pretraining.objectives import build_objective
from bothways.settings.base import Family
from bothways.settings.pretrain import Pretrain

FAMILY_OF_OBJECTIVE: Mapping[str, Family] = {
    "replaced": "electra",
    "enhanced": "deberta",
    "forward": "bert",
    "halves": "bert",
}
PAPER: Mapping[str, Any] = {
    "learning_rate": 1e-4,
    "warmup": 0.01,
    "mask_rate": 0.15,
    "dropout": 0.1,
    "beta2": 0.999,
    "local_init": False,
    "word_vectors": False,
}
STEPS = 1000  # without --steps or --minutes
MEASURED_WIDTH = 256  # hidden size of the trials that chose the learning rates
PEAK_LEARNING_RATE = {"pre": 2e-3, "post": 1e-3}  # by the position of LayerNorm
PEAK_CONTINUED = 5e-4  # with --from
MANY_PASSES = 4  # passes over the text from which dropout helps
TOKENS_PER_MINUTE = 600_000  # the mini model on two cores, about
ONE_WAY = ("forward", "halves")


@dataclass(frozen=True, kw_only=True)
class CompleteSettings(Pretrain):  # type: ignore[misc]  # its base is frozen too; settings/base.py has why mypy sees not
    """Settings in which all values are set."""

    mask_rate: float
    dropout: float
    learning_rate: float
    warmup: float
    beta2: float
    local_init: bool
    word_vectors: bool


def with_family(settings: Pretrain) -> Pretrain:
    """Choose a family for a new model: one with the objective's head, else the one that learns fastest."""
    if settings.family or settings.from_checkpoint:
        return settings
    family: Family | None = FAMILY_OF_OBJECTIVE.get(settings.objective)
    if family is None:
        plain = settings.recipe == "paper" or settings.pairs in ("next", "order") or settings.objective == "boundary"
        family = "bert" if plain else "modernbert"
    return replace(settings, family=family)


def complete_settings(settings: Pretrain, config: EncoderConfig, tokens: int) -> CompleteSettings:
    """Fill in unset values from the recipe. config: config of the model to train; tokens: size of the training text."""
    defaults: dict[str, Any] = dict(PAPER)
    if settings.recipe == "measured":
        peak = PEAK_CONTINUED if settings.from_checkpoint else PEAK_LEARNING_RATE[config.norm]
        passes = expected_tokens(settings, config) / max(1, tokens)
        defaults = {
            "learning_rate": float(f"{peak * (MEASURED_WIDTH / config.hidden_size) ** 0.8:.2g}"),
            "warmup": 0.05,
            "mask_rate": 0.3 if settings.masking == "tokens" else 0.15,
            "dropout": 0.1 if passes > MANY_PASSES else 0.0,
            "beta2": 0.98,
            "local_init": not settings.from_checkpoint,
            "word_vectors": not settings.from_checkpoint,
        }
    set_by_user = {name: value for name, value in vars(settings).items() if value is not None}
    return CompleteSettings(**{**defaults, **set_by_user})


def expected_tokens(settings: Pretrain, config: EncoderConfig) -> float:
    """Approximate number of tokens the run will read: known for steps, estimated for minutes."""
    in_steps = (settings.steps or STEPS) * settings.batch_tokens
    if not settings.minutes:
        return in_steps

    def size(config: EncoderConfig) -> float:
        return config.num_hidden_layers * config.hidden_size * (4 * config.hidden_size + 3 * config.intermediate_size)

    speed = size(SIZES["mini"]) / size(config)  # less for smaller models, whose embeddings and small matrices dominate
    in_time = settings.minutes * TOKENS_PER_MINUTE * min(speed, speed**0.5)
    return min(in_time, in_steps) if settings.steps else in_time


def summary(settings: Pretrain, recipe: CompleteSettings, config: EncoderConfig) -> str:
    """One line: the chosen hyperparameters, each with a short reason."""
    sizes = f"{format_count(config.num_hidden_layers, 'layer')} of {config.hidden_size}"
    model = f"{settings.from_checkpoint}" if settings.from_checkpoint else f"{settings.family}, {sizes}"
    reasons = {
        "learning_rate": f"learning rate {recipe.learning_rate:g} (width {config.hidden_size}, norm {config.norm})",
        "warmup": f"warm-up {recipe.warmup:.0%}",
        "mask_rate": f"{recipe.mask_rate:.0%} masked",
        "dropout": f"dropout {recipe.dropout:g}" + (" (the text is read many times)" if recipe.dropout else ""),
        "word_vectors": "word vectors from co-occurrence" if recipe.word_vectors else "random word vectors",
        "local_init": "attention starts at neighbours" if recipe.local_init else "attention starts at random",
    }
    chosen = [reason for name, reason in reasons.items() if getattr(settings, name) is None]
    return f"recipe ({settings.recipe}): {model}; {', '.join(chosen) or 'all set'}"


def resolve_settings(settings: Pretrain, start: Checkpoint | None) -> Pretrain:
    """Replace "auto" by the family's defaults and check that the settings fit together (InputError)."""
    settings = with_family(settings)
    if start:
        check_plain(start.model)
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
