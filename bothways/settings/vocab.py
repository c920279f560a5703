"""Settings of `vocab`: learn a WordPiece vocabulary."""

from pathlib import Path

from tyro.conf import Positional

from bothways.settings.base import Accents, Checked, Corpus, Output, Printed, settings


@settings
class Vocab(Corpus, Checked, Printed):
    """Learn a WordPiece vocabulary from text. The same text gives the same vocabulary, byte for byte."""

    corpus: Positional[tuple[Path, ...]]
    """Files, folders, globs: .txt, .jsonl, .csv, .tsv, .parquet, each also .gz, .xz or .zst; or hf:OWNER/NAME."""
    out: Output
    """Output directory: vocab.txt, tokenizer.json and tokenizer_config.json."""
    size: int = 30522
    """Maximum number of entries."""
    alphabet: int = 1000
    """Maximum number of single characters, the most frequent first; Chinese and Japanese need more."""
    lowercase: bool = True
    """Lower-case the text."""
    strip_accents: Accents = None
    """Strip accents and vowel signs. [if lower-casing, and few words of the text need them]"""
    processes: int = 1
    """Worker processes that count words."""
