"""Settings of `info`, `cache` and `demo`."""

from pathlib import Path

from bothways.pretrained import DEFAULT
from bothways.settings.accepted import default
from bothways.settings.base import Checked, Compute, DefaultModel, OptionalDirectory, Output, Printed, settings


@settings
class Info(Checked, Printed):
    """Describe a checkpoint or run: what it is, how it was made, and from which data."""

    path: DefaultModel = default(Path(DEFAULT))
    """Checkpoint, run, or name of a model on the hub."""


@settings
class Cache(Checked, Printed):
    """List or delete what is cached: token stores (tokenized text of pre-training) and search indexes of folders. They
    are rebuilt when needed."""

    clear: bool = False
    """Delete all of them, except those that are being built."""
    token_store: OptionalDirectory = default(None)
    """Directory of the token stores. [~/.cache/bothways/stores; see $BOTHWAYS_CACHE and $XDG_CACHE_HOME]"""


@settings
class Demo(Checked, Compute, Printed):
    """Fill, compare, search and train with the packaged model, then pre-train a small BERT, in three minutes."""

    out: Output = default(Path("bothways-demo"))
    """Output directory."""
    minutes: float = 1.0
    """Minutes of pre-training from scratch; the other steps together take about twice as long."""
    seed: int = 0
    """Random seed."""
