"""Settings of `vocab`, `info`, `cache` and `demo`."""

from pathlib import Path

from bothways.base.errors import must_be
from bothways.pretrained import DEFAULT
from bothways.settings.base import Checked, Compute, Printed, TextFiles, settings
from bothways.settings.fields import Location, Locations, OptionalLocation, argument, option


@settings
class Info(Checked, Printed):
    """Describe a checkpoint or run: what it is, how it was made, and from which data. Two runs: their scores, paired on
    the rows that both predict."""

    path: Locations = argument("DIR", default=(Path(DEFAULT),))
    """Checkpoint, run, or name of a model on the hub; or two runs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.path) <= 2:
            raise must_be("path", " ".join(map(str, self.path)), "one checkpoint or run, or two runs to compare")


@settings
class Cache(Checked, Printed):
    """List or delete what is cached: token stores (tokenized text of pre-training), search indexes of folders, weights
    of packed models in float32. They are rebuilt when needed."""

    clear: bool = option("output", default=False)
    """Delete all of them, except those that are being built."""
    token_store: OptionalLocation = option("data", default=None, metavar="DIR")
    """Directory of the token stores. [~/.cache/bothways/stores; see $BOTHWAYS_CACHE and $XDG_CACHE_HOME]"""


@settings
class Demo(Checked, Compute, Printed):
    """Use the packaged model, train it on labels, and pre-train a small BERT, in two minutes."""

    out: Location = option("output", default=Path("bothways-demo"), aliases=("-o",), first=True)
    """Output directory."""
    minutes: float = option("training", default=0.67, least=0.001, first=True)
    """Minutes of pre-training from scratch; the other steps together take about as long."""
    seed: int = option("training", default=0, least=0, most=2**63 - 1)
    """Random seed."""


@settings
class Vocab(TextFiles, Checked, Printed):
    """Learn a WordPiece vocabulary from text. The same text gives the same vocabulary, byte for byte."""

    corpus: Locations = argument("TEXT")
    """Files, folders or globs (.txt, .jsonl, .csv, .tsv, .parquet; also .gz, .xz, .zst), or hf:OWNER/NAME."""
    out: Location = option("output", aliases=("-o",))
    """Output directory: vocab.txt, tokenizer.json and tokenizer_config.json."""
    size: int = option("model", default=30522, least=1, first=True)
    """Maximum number of entries."""
    alphabet: int = option("model", default=1000, least=1)
    """Number of most frequent characters to include; Chinese and Japanese need more."""
    lowercase: bool = option("model", default=True)
    """Lower-case the text."""
    strip_accents: bool | None = option("model", default=None, negative="--keep-accents")
    """Strip accents and vowel signs. [if lower-casing, and they are rare in the text]"""
    processes: int = option("machine", default=1, least=1)
    """Worker processes for counting words."""
