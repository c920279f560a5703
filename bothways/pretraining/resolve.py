"""Resolve the settings of pre-training: family defaults in place of "auto", and checks."""

from dataclasses import replace
from importlib.util import find_spec

from bothways.checkpoint.contents import Checkpoint, check_plain
from bothways.config import Direction
from bothways.device import choose_device
from bothways.errors import InputError
from bothways.families import DEFAULT_MODEL_TYPE, FAMILIES
from bothways.pretraining.lengthen import lengthened_model_type
from bothways.pretraining.objectives import build_objective
from bothways.pretraining.recipes import with_family
from bothways.settings.pretrain import Pretrain

ONE_WAY = ("forward", "halves")


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
