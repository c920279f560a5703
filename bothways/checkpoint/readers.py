"""Which other libraries read a checkpoint that Bothways saves."""

from bothways.checkpoint.contents import Checkpoint
from bothways.checkpoint.formats import format_of
from bothways.checkpoint.formats.linear import LinearFormat
from bothways.model.pooler import encodes_separately


def unread_warning(checkpoint: Checkpoint) -> str | None:
    """A line for a classifier whose scores transformers does not compute; None for all others."""
    if not isinstance(format_of(checkpoint), LinearFormat):
        return None
    readers = (
        "Bothways computes"
        if encodes_separately(checkpoint.model.config)
        else ("Bothways and sentence-transformers compute")
    )
    return f"only {readers} the scores of this model; --pooling cls gives a head that transformers reads too"
