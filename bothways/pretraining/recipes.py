"""How pre-training runs where the user leaves it open: values that learned fastest in short trials (docs/LOG.md,
"Leaving the plateau"), or the original paper's (Devlin 2018, appendix A.2)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bothways.config import EncoderConfig
from bothways.settings import Family, Pretrain
from bothways.sizes import SIZES

FAMILY_OF_OBJECTIVE: Mapping[str, Family] = {
    "replaced": "electra",
    "enhanced": "deberta",
    "forward": "bert",
    "halves": "bert",
}
PAPER: Mapping[str, Any] = {
    "learning_rate": 1e-4, "warmup": 0.01, "mask_rate": 0.15, "dropout": 0.1, "beta2": 0.999, "local_init": False,
    "word_vectors": False,
}  # fmt: skip
STEPS = 1000  # without --steps or --minutes
MEASURED_WIDTH = 256  # of the trials that chose the peak rates
PEAK = {"pre": 2e-3, "post": 1e-3}  # learning rates by where a layer's norm stands
PEAK_GOING_ON = 5e-4  # of a checkpoint's weights
MANY_PASSES = 4  # over the text; from here on dropout pays
TOKENS_A_MINUTE = 600_000  # of the mini model on two cores, about


@dataclass(frozen=True, kw_only=True)
class Complete(Pretrain):
    """Settings in which nothing is left open."""

    mask_rate: float
    dropout: float
    learning_rate: float
    warmup: float
    beta2: float
    local_init: bool
    word_vectors: bool


def with_family(settings: Pretrain) -> Pretrain:
    """The settings with a family for a new model: one that has the objective's head, else the one that learns
    fastest."""
    if settings.family or settings.from_checkpoint:
        return settings
    family: Family | None = FAMILY_OF_OBJECTIVE.get(settings.objective)
    if family is None:
        plain = settings.recipe == "paper" or settings.pairs in ("next", "order") or settings.objective == "boundary"
        family = "bert" if plain else "modernbert"
    return replace(settings, family=family)


def completed(settings: Pretrain, config: EncoderConfig, tokens: int) -> Complete:
    """The settings with a value for each that was left open.

    config: of the model that is trained; tokens: of the training text.
    """
    chosen: dict[str, Any] = dict(PAPER)
    if settings.recipe == "measured":
        peak = PEAK_GOING_ON if settings.from_checkpoint else PEAK[config.norm]
        passes = expected_tokens(settings, config) / max(1, tokens)
        chosen = {
            "learning_rate": float(f"{peak * (MEASURED_WIDTH / config.hidden_size) ** 0.8:.2g}"),
            "warmup": 0.05,
            "mask_rate": 0.3 if settings.masking == "tokens" else 0.15,
            "dropout": 0.1 if passes > MANY_PASSES else 0.0,
            "beta2": 0.98,
            "local_init": not settings.from_checkpoint,
            "word_vectors": not settings.from_checkpoint,
        }
    given = {name: value for name, value in vars(settings).items() if value is not None}
    return Complete(**{**chosen, **given})


def expected_tokens(settings: Pretrain, config: EncoderConfig) -> float:
    """About how many tokens the run will read: known for steps, guessed for minutes."""
    if settings.steps or not settings.minutes:
        return (settings.steps or STEPS) * settings.batch_tokens

    def size(config: EncoderConfig) -> float:
        return config.num_hidden_layers * config.hidden_size * (4 * config.hidden_size + 3 * config.intermediate_size)

    speed = size(SIZES["mini"]) / size(config)  # of a smaller model less, as its embeddings and small products cost too
    return settings.minutes * TOKENS_A_MINUTE * min(speed, speed**0.5)


def summary(settings: Pretrain, recipe: Complete, config: EncoderConfig) -> str:
    """One line on what was chosen, with the reason in a few words."""
    sizes = f"{config.num_hidden_layers} layers of {config.hidden_size}"
    model = f"{settings.from_checkpoint}" if settings.from_checkpoint else f"{settings.family}, {sizes}"
    reasons = {
        "learning_rate": f"learning rate {recipe.learning_rate:g} (width {config.hidden_size}, norm {config.norm})",
        "warmup": f"warm-up {recipe.warmup:.0%}",
        "mask_rate": f"{recipe.mask_rate:.0%} masked",
        "dropout": f"dropout {recipe.dropout:g}" + (" (the text is read many times)" if recipe.dropout else ""),
        "word_vectors": "word vectors from co-occurrence" if recipe.word_vectors else "random word vectors",
        "local_init": "attention begins at neighbours" if recipe.local_init else "attention begins at random",
    }
    open_ones = [reason for name, reason in reasons.items() if getattr(settings, name) is None]
    return f"recipe ({settings.recipe}): {model}; {', '.join(open_ones) or 'all as given'}"
