"""Which other libraries read a checkpoint that Bothways saves."""

from bothways.checkpoint.adapter import readers
from bothways.checkpoint.contents import Checkpoint
from bothways.checkpoint.formats import format_of
from bothways.checkpoint.formats.hugging_face import HuggingFaceFormat
from bothways.checkpoint.formats.linear import LinearFormat
from bothways.checkpoint.formats.mean_layer import MeanLayerFormat
from bothways.model.pooler import encodes_separately

ONLY_BOTHWAYS = "only Bothways reads this model ({})"


def unread_warning(checkpoint: Checkpoint) -> str | None:
    """A line for a model that transformers reads in part or not at all, or an adapter that peft does; else None."""
    if checkpoint.model.adapter is not None:
        return readers(checkpoint)
    stored = format_of(checkpoint)
    if isinstance(stored, HuggingFaceFormat | MeanLayerFormat):
        return None
    if not isinstance(stored, LinearFormat):
        return ONLY_BOTHWAYS.format(stored.model_type)
    computing = (
        "Bothways computes"
        if encodes_separately(checkpoint.model.config)
        else ("Bothways and sentence-transformers compute")
    )
    return f"only {computing} the scores of this model; --pooling cls gives a head that transformers reads too"
