"""Settings of `vocab`, `info`, `cache` and `demo`."""

from pathlib import Path
from typing import Annotated

from bothways.pretrained import DEFAULT
from bothways.settings.base import (
    Accents,
    Checked,
    Compute,
    DefaultModel,
    OptionalDirectory,
    Output,
    Printed,
    TextFiles,
    settings,
)
from bothways.settings.fields import Locations, Positional, arg, default


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


@settings
class Vocab(TextFiles, Checked, Printed):
    """Learn a WordPiece vocabulary from text. The same text gives the same vocabulary, byte for byte."""

    corpus: Positional[Annotated[Locations, arg(help_behavior_hint="(required)")]]
    """Files, folders or globs (.txt, .jsonl, .csv, .tsv, .parquet; also .gz, .xz, .zst), or hf:OWNER/NAME."""
    out: Output
    """Output directory: vocab.txt, tokenizer.json and tokenizer_config.json."""
    size: int = 30522
    """Maximum number of entries."""
    alphabet: int = 1000
    """Number of most frequent characters to include; Chinese and Japanese need more."""
    lowercase: bool = True
    """Lower-case the text."""
    strip_accents: Accents = None
    """Strip accents and vowel signs. [if lower-casing, and they are rare in the text]"""
    processes: int = 1
    """Worker processes for counting words."""
