"""What each verb can be told, with its defaults: one frozen dataclass a verb. Knows no torch, so that --help is
instant."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from bothways.errors import InputError

Dtype = Literal["auto", "float32", "bfloat16"]
Size = Literal["tiny", "mini", "small", "medium", "base", "large"]
Output = Annotated[Path, arg(aliases=("-o",))]
Dir = Annotated[Path, arg(metavar="DIR")]

# From where to where a setting makes sense, both included, whichever verb has it.
BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("size", "vocab_size", "processes", "steps", "batch_tokens"), (1, math.inf)),
    **dict.fromkeys(("evaluate_every", "seeds", "top"), (1, math.inf)),
    **dict.fromkeys(("rate", "weight_decay", "init"), (0, math.inf)),
    **dict.fromkeys(("minutes", "epochs"), (0.001, math.inf)),
    "length": (8, 512),
    "window": (8, math.inf),
    "mask_rate": (0.01, 1),
    "dropout": (0, 0.9),
    "warmup": (0, 1),
    "layer_decay": (0.01, 1),
    "seed": (0, 2**63 - 1),
}


class Checked:
    """Settings that refuse a number outside its bounds, or no files, when they are made. InputError names it."""

    def __post_init__(self) -> None:
        for name in ("corpus", "file"):
            if getattr(self, name, None) == ():
                raise InputError(f"{name} is empty; name at least one file")
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name, None)
            if value is not None and not least <= value <= most:
                wanted = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
                raise InputError(f"{name} ({value}) must be {wanted}")


@dataclass(frozen=True, kw_only=True)
class Vocab(Checked):
    """Learn a WordPiece vocabulary from text. The same text gives the same vocabulary, byte for byte."""

    corpus: Positional[tuple[Path, ...]]
    """Text: .txt (documents between blank lines), .jsonl, .csv, .tsv or .parquet (column `text`)."""
    out: Output
    """Directory for vocab.txt, tokenizer.json and tokenizer_config.json."""
    size: int = 30522
    """Entries at most."""
    lowercase: bool = True
    """Lower-case the text and strip accents."""
    processes: int = 1
    """Processes that count words."""
    json: bool = False
    """Print one JSON object instead of prose."""


@dataclass(frozen=True, kw_only=True)
class Pretrain(Checked):
    """Pre-train a BERT with masked words and next sentences."""

    corpus: Positional[tuple[Path, ...]]
    """Text: .txt (documents between blank lines), .jsonl, .csv, .tsv or .parquet (column `text`)."""
    out: Output
    """Directory of the run."""
    model: Size = "mini"
    """Size of the model."""
    tokenizer: Path | None = None
    """Directory or file of a tokenizer; without it one is learned into the run."""
    vocab_size: int = 30522
    """Entries of a learned vocabulary, at most."""
    heldout: tuple[Path, ...] = ()
    """Text to measure on; without it every 20th document is held out."""
    minutes: float | None = None
    """Train about so long; becomes a fixed number of steps after some timed ones."""
    steps: int | None = None
    """Train so many steps. [1000 without --minutes]"""
    batch_tokens: int = 4096
    """Tokens a step."""
    length: int = 128
    """Tokens of a pair at most, specials counted. The model reads as many; longer texts become windows."""
    pairs: Literal["next", "none"] = "next"
    """next: next-sentence pairs, half of them random; none: single runs of text."""
    mask_rate: float = 0.15
    """Share of tokens to be guessed."""
    dropout: float = 0.1
    """Dropout everywhere; 0 learns faster in short runs."""
    rate: float = 1e-3
    """Peak learning rate."""
    warmup: float = 0.1
    """Share of the steps in which the rate rises."""
    weight_decay: float = 0.01
    """On matrices only."""
    init: float = 0.02
    """Deviation of the initial weights; small models in short runs learn faster with 0.06."""
    frequency_bias: bool = True
    """Begin with each word as likely as it is frequent, instead of learning that first."""
    evaluate_every: int = 100
    """Steps between evaluations."""
    language: str = "en"
    """Language code for splitting sentences."""
    seed: int = 0
    """Every random choice follows from it."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Print one JSON object at the end instead of prose."""


@dataclass(frozen=True, kw_only=True)
class Classify(Checked):
    """Fine-tune a model to tell classes of texts (or pairs of texts) apart."""

    model: Dir
    """Checkpoint or run to start from."""
    train: Path
    """Labelled table: .csv, .tsv, .jsonl or .parquet with columns `text`, `label` and perhaps `pair`."""
    out: Output
    """Directory of the run."""
    dev: Path | None = None
    """Table to choose by; without it every tenth row of the training table, stratified."""
    test: Path | None = None
    """Table to report on; never used to choose."""
    text_column: str = "text"
    """Name of the column with the texts."""
    pair_column: str = "pair"
    """Name of the column with second texts, if there is one."""
    label_column: str = "label"
    """Name of the column with the labels."""
    seeds: int = 1
    """How many runs, seeds 0, 1, ...; the score is their mean, and the best one by dev is kept."""
    epochs: float = 3.0
    """Passes over the training table."""
    batch_tokens: int = 2048
    """Tokens a step at most."""
    window: int = 256
    """Tokens of a training window, specials counted; longer texts become several."""
    rate: float = 5e-5
    """Peak learning rate."""
    warmup: float = 0.1
    """Share of the steps in which the rate rises."""
    layer_decay: float = 1.0
    """Each layer's rate is this times the next one's (eta_l = eta * layer_decay^(L-l))."""
    weight_decay: float = 0.01
    """On matrices only."""
    dropout: float = 0.1
    """Dropout everywhere."""
    seed: int = 0
    """The first seed."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Print one JSON object at the end instead of prose."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(Checked):
    """Measure a model: a classifier on a labelled table, a pre-trained one on text."""

    model: Positional[Dir]
    """Checkpoint or run."""
    file: Positional[tuple[Path, ...]]
    """Labelled tables for a classifier; text for masked-word perplexity."""
    text_column: str = "text"
    """Name of the column with the texts."""
    pair_column: str = "pair"
    """Name of the column with second texts, if there is one."""
    label_column: str = "label"
    """Name of the column with the labels."""
    length: int = 128
    """Tokens of a pair at most, when measuring masked words."""
    language: str = "en"
    """Language code for splitting sentences, when measuring masked words."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Predict(Checked):
    """Label texts: one JSON object a line, in input order."""

    model: Positional[Dir]
    """Checkpoint or run."""
    file: Positional[str] = "-"
    """.txt (one text a line), .jsonl, .csv, .tsv, .parquet, or - for lines of standard input."""
    text_column: str = "text"
    """Name of the column with the texts."""
    pair_column: str = "pair"
    """Name of the column with second texts, if there is one."""
    long: Literal["windows", "error", "truncate"] = "windows"
    """What to do with texts longer than the model reads."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Predictions are JSON anyway."""


@dataclass(frozen=True, kw_only=True)
class Fill(Checked):
    """Guess the words behind each [MASK]."""

    model: Positional[Dir]
    """Checkpoint or run."""
    text: Positional[str]
    """A text with [MASK] in it."""
    top: int = 5
    """Words a mask."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Embed(Checked):
    """A vector a text, as a .npy file of float32, [texts, hidden size]."""

    model: Positional[Dir]
    """Checkpoint or run."""
    file: Positional[str]
    """.txt (one text a line), .jsonl, .csv, .tsv, .parquet, or - for lines of standard input."""
    out: Output
    """The .npy file to write."""
    text_column: str = "text"
    """Name of the column with the texts."""
    pooling: Literal["auto", "mean", "cls", "max"] = "auto"
    """auto: what the checkpoint says, else the mean."""
    normalize: bool = True
    """Vectors of length 1."""
    long: Literal["windows", "error", "truncate"] = "windows"
    """What to do with texts longer than the model reads."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Print one JSON object instead of prose."""


@dataclass(frozen=True, kw_only=True)
class Info(Checked):
    """What a checkpoint or run is, how it was made, and from which data."""

    path: Positional[Path]
    """Checkpoint or run."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Demo(Checked):
    """The whole life of a small BERT on the novels in the package, in about three minutes on two cores."""

    out: Output = Path("bothways-demo")
    """Directory of the run."""
    minutes: float = 1.3
    """Pre-training time; the rest takes about as long again."""
    seed: int = 0
    """Every random choice follows from it."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Print one JSON object at the end as well."""
