"""Settings of `vocab`: learn a WordPiece vocabulary."""

from typing import Annotated

from bothways.settings.base import Accents, Checked, Output, Printed, TextFiles, settings
from bothways.settings.location import Locations
from bothways.settings.marks import Positional, arg


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
