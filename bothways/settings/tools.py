"""Settings of `info`, `cache` and `demo`."""

from pathlib import Path

from tyro.conf import Positional

from bothways.settings.base import Checked, Compute, OptionalDirectory, Output, Printed, settings


@settings
class Info(Checked, Printed):
    """Show what a checkpoint or run is, how it was made, and from which data."""

    path: Positional[Path]
    """Checkpoint or run."""


@settings
class Cache(Checked, Printed):
    """List or delete the token stores that pre-training caches. They are rebuilt when they are needed."""

    clear: bool = False
    """Delete them, except those that a run is building."""
    token_store: OptionalDirectory = None
    """Directory of the token stores. [a folder `bothways` in the user's cache]"""


@settings
class Demo(Checked, Compute, Printed):
    """The whole life of a small BERT on the novels in the package, in about three minutes on two cores."""

    out: Output = Path("bothways-demo")
    """Output directory."""
    minutes: float = 1.3
    """Pre-training time; the rest takes about as long again."""
    seed: int = 0
    """Random seed."""
