"""Settings of `info`, `cache` and `demo`."""

from pathlib import Path

from bothways.pretrained import DEFAULT
from bothways.settings.base import Checked, Compute, DefaultModel, OptionalDirectory, Output, Printed, settings


@settings
class Info(Checked, Printed):
    """Describe a checkpoint or run: what it is, how it was made, and from which data."""

    path: DefaultModel = Path(DEFAULT)
    """Checkpoint, run, or name of a model on the hub."""


@settings
class Cache(Checked, Printed):
    """List or delete cached token stores (tokenized text of pre-training). They are rebuilt when needed."""

    clear: bool = False
    """Delete all token stores, except those that a run is building."""
    token_store: OptionalDirectory = None
    """Directory of the token stores. [~/.cache/bothways/stores; see $BOTHWAYS_CACHE and $XDG_CACHE_HOME]"""


@settings
class Demo(Checked, Compute, Printed):
    """Train and use a small BERT on the included novels, in about three minutes on two cores."""

    out: Output = Path("bothways-demo")
    """Output directory."""
    minutes: float = 1.3
    """Minutes of pre-training; the other steps together take about as long."""
    seed: int = 0
    """Random seed."""
