"""What each verb can be told, with its defaults: one frozen dataclass a verb. Knows no torch, so that --help is
instant."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from bothways.errors import InputError

Dtype = Literal["auto", "float32", "bfloat16"]
TrainingDtype = Literal["auto", "float32", "bfloat16", "float16"]
Size = Literal["tiny", "mini", "small", "medium", "base", "large"]
Output = Annotated[Path, arg(aliases=("-o",))]
Dir = Annotated[Path, arg(metavar="DIR")]

# From where to where a setting makes sense, both included, whichever verb has it.
BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("size", "vocab_size", "processes", "steps", "batch_tokens", "micro_batches"), (1, math.inf)),
    **dict.fromkeys(("evaluate_every", "seeds", "top", "keep", "heldout_examples"), (1, math.inf)),
    **dict.fromkeys(("rate", "muon_rate", "weight_decay", "checkpoint_every", "extend_vocab"), (0, math.inf)),
    **dict.fromkeys(("clip", "init"), (1e-6, math.inf)),
    **dict.fromkeys(("minutes", "epochs"), (0.001, math.inf)),
    "length": (8, 512),
    "window": (8, math.inf),
    "mask_rate": (0.01, 1),
    "mask_rate_end": (0.01, 1),
    "dropout": (0, 0.9),
    "warmup": (0, 1),
    "decay": (0, 1),
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
    """Files, folders, globs: .txt, .jsonl, .csv, .tsv, .parquet, each also .gz, .xz or .zst; or hf:OWNER/NAME."""
    out: Output
    """Directory for vocab.txt, tokenizer.json and tokenizer_config.json."""
    size: int = 30522
    """Entries at most."""
    lowercase: bool = True
    """Lower-case the text and strip accents."""
    documents: Literal["blank", "line", "file"] = "blank"
    """Where a document of a .txt ends: at a blank line, at each line's end, at the file's end."""
    text_column: str = "text"
    """Name of a table's column with the texts; each row is a document."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with rows that cannot be read: stop with file and line, or skip and count them."""
    processes: int = 1
    """Processes that count words."""
    json: bool = False
    """Print one JSON object instead of prose."""


@dataclass(frozen=True, kw_only=True)
class Pretrain(Checked):
    """Pre-train a BERT with masked words and sentence pairs. Several processes: torchrun -m bothways pretrain ..."""

    corpus: Positional[tuple[Path, ...]]
    """Files, folders, globs: .txt, .jsonl, .csv, .tsv, .parquet, each also .gz, .xz or .zst; or hf:OWNER/NAME."""
    out: Output
    """Directory of the run."""
    resume: bool = False
    """Go on from the newest sound checkpoint in the run's directory, if there is one."""
    model: Size = "mini"
    """Size of a new model."""
    start: Annotated[Path | None, arg(name="from", metavar="DIR")] = None
    """Checkpoint or run to go on from instead, on new text: its size, and its vocabulary."""
    extend_vocab: int = 0
    """With --from: add so many of the text's own words to the vocabulary."""
    tokenizer: Path | None = None
    """Directory or file of a tokenizer; without it one is learned into the run."""
    vocab_size: int = 30522
    """Entries of a learned vocabulary, at most."""
    documents: Literal["blank", "line", "file"] = "blank"
    """Where a document of a .txt ends: at a blank line, at each line's end, at the file's end."""
    text_column: str = "text"
    """Name of a table's column with the texts; each row is a document."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with rows that cannot be read: stop with file and line, or skip and count them."""
    drop_duplicates: bool = False
    """Leave out documents that are exactly the same as an earlier one, and count them."""
    heldout: tuple[Path, ...] = ()
    """Text to measure on; without it every 20th document is held out."""
    heldout_examples: int = 256
    """Examples of it to measure on, at most."""
    store: Annotated[Path | None, arg(metavar="DIR")] = None
    """Directory where texts are kept as tokens, to be used again. [a folder bothways in the user's cache]"""
    minutes: float | None = None
    """Train about so long; becomes a fixed number of steps after some timed ones."""
    steps: int | None = None
    """Train so many steps. [1000 without --minutes]"""
    batch_tokens: int = 4096
    """Tokens a step, over all processes."""
    micro_batches: int = 1
    """Parts that a step is computed in by each process, to save memory; changes no result."""
    length: int = 128
    """Tokens of an example at most, specials counted. A new model reads as many; longer texts become windows."""
    pairs: Literal["next", "order", "none"] = "next"
    """next: does the second segment follow (BERT); order: are they in order (ALBERT); none: single runs (RoBERTa)."""
    masks: Literal["tokens", "words", "spans"] = "tokens"
    """What is hidden: tokens one by one (BERT), whole words, or spans of words (SpanBERT)."""
    mask_rate: float = 0.15
    """Share of tokens to be guessed."""
    mask_rate_end: float | None = None
    """Its value at the end of the run, if it is to change in a line."""
    dropout: float = 0.1
    """Dropout everywhere; 0 learns faster in short runs."""
    schedule: Literal["linear", "cosine", "one-cycle", "warm-up-stable-decay", "constant"] = "linear"
    """How the learning rate goes on after its rise."""
    rate: float = 1e-3
    """Peak learning rate."""
    warmup: float = 0.1
    """Share of the steps in which the rate rises."""
    decay: float = 0.1
    """Share of the steps in which the rate falls, in warm-up-stable-decay."""
    muon_rate: float | None = None
    """Step the layers' matrices with Muon at this peak rate, and the rest with AdamW."""
    weight_decay: float = 0.01
    """On matrices only."""
    clip: float = 1.0
    """Gradients of a greater norm are scaled down to it."""
    init: float = 0.02
    """Deviation of the initial weights; small models in short runs learn faster with 0.06."""
    frequency_bias: bool = True
    """Begin with each word as likely as it is frequent, instead of learning that first."""
    evaluate_every: int = 100
    """Steps between evaluations."""
    checkpoint_every: int = 500
    """Steps between checkpoints to go on from; 0: only at the end."""
    keep: int = 2
    """Checkpoints kept, beside the best by held-out loss."""
    language: str = "en"
    """Language code for splitting sentences."""
    processes: int | None = None
    """Processes that read the corpus. [one a core]"""
    compile: bool = False
    """Compile the layers; worth its minute on GPUs."""
    shard: bool = False
    """Share a large model's weights and moments out over the processes (FSDP) instead of copying them."""
    tensorboard: bool = False
    """Write TensorBoard files as well (extra `tensorboard`)."""
    seed: int = 0
    """Every random choice follows from it."""
    deterministic: bool = False
    """On GPUs: only kernels that give the same numbers twice. On processors all do."""
    dtype: TrainingDtype = "auto"
    """auto: bf16 where the device is fast at it. float16 scales its losses, for older GPUs."""
    json: bool = False
    """Print one JSON object at the end instead of prose."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start and self.tokenizer:
            raise InputError(
                f"tokenizer ({self.tokenizer}) and from ({self.start}) exclude each other: --from has its own"
            )
        if self.extend_vocab and not self.start:
            raise InputError(f"extend_vocab ({self.extend_vocab}) needs --from, a model whose vocabulary to extend")


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
    documents: Literal["blank", "line", "file"] = "blank"
    """Where a document of a .txt ends, when measuring masked words: at a blank line, a line's end, the file's end."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with rows that cannot be read, when measuring masked words: stop with file and line, or skip them."""
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
