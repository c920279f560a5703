"""Which other libraries read a checkpoint that Bothways saves."""

from bothways.checkpoint.adapter import readers
from bothways.checkpoint.contents import Checkpoint
from bothways.checkpoint.formats import format_of
from bothways.checkpoint.formats.linear import LinearFormat
from bothways.model.pooler import encodes_separately


def unread_warning(checkpoint: Checkpoint) -> str | None:
    """A line for a classifier whose scores transformers does not compute, and an adapter of which peft does not compute
    all; None for all others."""
    if checkpoint.model.adapter is not None:
        return readers(checkpoint)
    if not isinstance(format_of(checkpoint), LinearFormat):
        return None
    computing = (
        "Bothways computes"
        if encodes_separately(checkpoint.model.config)
        else ("Bothways and sentence-transformers compute")
    )
    return f"only {computing} the scores of this model; --pooling cls gives a head that transformers reads too"
