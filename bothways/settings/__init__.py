"""What each verb can be told, with its defaults: one frozen dataclass a verb. Knows no torch, so that --help is
instant."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg, create_mutex_group

from bothways.errors import InputError
from bothways.settings.declared import as_declared, types_of
from bothways.tables_in_memory import Source

Dtype = Literal["auto", "float32", "bfloat16"]
TrainingDtype = Literal["auto", "float32", "bfloat16", "float16"]
ScheduleName = Literal["linear", "cosine", "one-cycle", "warm-up-stable-decay", "constant"]
Family = Literal[
    "bert",
    "albert",
    "distilbert",
    "electra",
    "roberta",
    "modernbert",
    "longformer",
    "big_bird",
    "deberta",
    "deberta-v2",
]
Size = Literal["tiny", "mini", "small", "medium", "base", "large"]
Output = Annotated[Path, arg(aliases=("-o",))]
Dir = Annotated[Path, arg(metavar="DIR")]
# Data: on the command line paths, in Python tables in memory too (memory.py).
Data = Annotated[Source, arg(constructor=Path)]
OptionalData = Annotated[Source | None, arg(constructor=Path | None, help_behavior_hint="(default: None)")]
DataList = Annotated[tuple[Source, ...], arg(constructor=tuple[Path, ...], help_behavior_hint="(default: )")]

AccentFlag = Annotated[
    bool, FlagCreatePairsOff, arg(help_behavior_hint=""), create_mutex_group(required=False, title="accents")
]


def accents(strip_accents: AccentFlag = False, keep_accents: AccentFlag = False) -> bool | None:
    """Two flags as one setting, which is None without either of them.

    Args:
        strip_accents: Strip accents and vowel signs, as BERT does. [where lower-casing and few words need them]
        keep_accents: Keep accents and vowel signs. [where many words of the text need them, and with --no-lowercase]
    """
    return strip_accents if strip_accents or keep_accents else None


Accents = Annotated[bool | None, arg(constructor=accents, name="")]

# Whose rules for the end of a sentence `sentencex` has. It splits text of all others by those of English, silently.
LANGUAGES = (
    "am", "ar", "bg", "bn", "ca", "da", "de", "el", "en", "es", "fi", "fr", "gu", "hi", "hy", "it", "ja", "kk", "kn",
    "ml", "mr", "my", "nl", "pa", "pl", "pt", "ru", "sk", "ta", "te", "uk",
)  # fmt: skip

# From where to where a setting makes sense, both included, whichever verb has it.
BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("size", "vocab_size", "alphabet", "processes", "steps"), (1, math.inf)),
    **dict.fromkeys(("batch_tokens", "micro_batches"), (1, math.inf)),
    **dict.fromkeys(("evaluate_every", "seeds", "top", "keep", "heldout_examples"), (1, math.inf)),
    **dict.fromkeys(("batch_size", "patience", "longest", "repeats"), (1, math.inf)),
    **dict.fromkeys(("tolerance", "max_drop"), (0, math.inf)),
    "folds": (2, math.inf),
    "overlap": (0, math.inf),
    **dict.fromkeys(("rate", "muon_rate", "weight_decay", "checkpoint_every", "extend_vocab", "freeze"), (0, math.inf)),
    "train_windows": (0, math.inf),
    **dict.fromkeys(("clip", "init"), (1e-6, math.inf)),
    **dict.fromkeys(("minutes", "epochs", "evaluations"), (0.001, math.inf)),
    "length": (8, 8192),
    "temperature": (0.001, 10),
    "window": (8, math.inf),
    "mask_rate": (0.01, 1),
    "mask_rate_end": (0.01, 1),
    "dropout": (0, 0.9),
    "warmup": (0, 1),
    "beta2": (0, 0.9999),
    "watts": (0, math.inf),
    "decay": (0, 1),
    "layer_decay": (0.01, 1),
    "seed": (0, 2**63 - 1),
}


class Checked:
    """Settings that refuse a value of another type than declared (declared.py), a number outside its bounds, no files,
    or an unknown language, when they are made. InputError names it."""

    def __post_init__(self) -> None:
        self._convert()
        if (encoding := getattr(self, "encoding", None)) is not None:
            check_encoding(encoding)
        for name in ("corpus", "file"):
            if getattr(self, name, None) == ():
                raise InputError(f"{name} is empty; name at least one file")
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name, None)
            if isinstance(value, int | float) and not (least <= value <= most and value < math.inf):
                wanted = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
                wanted = "finite" if value == math.inf else wanted
                raise InputError(f"{name} ({value}) must be {wanted}")
        if (language := getattr(self, "language", "en")) not in LANGUAGES:
            raise InputError(
                f"language ({language}) has no rules for the end of a sentence; {', '.join(LANGUAGES)} have. Give the "
                "closest of these, or en, whose rules were the fallback"
            )

    def _convert(self) -> None:
        for name, declared in types_of(type(self)).items():
            object.__setattr__(self, name, as_declared(name, getattr(self, name), declared))


def check_encoding(name: str) -> None:
    """InputError for what is no encoding of text."""
    try:
        "\n".encode(name)
    except (LookupError, TypeError, ValueError):
        known = "utf-8, utf-16, cp1252 (Windows), latin-1, mac_roman, gb18030, shift_jis"
        raise InputError(f"encoding ({name}) is not known; name one such as {known}") from None


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """How the bytes of text files are read."""

    encoding: str | None = None
    """Encoding of text files that have no byte-order mark, such as cp1252. [UTF-8]"""


@dataclass(frozen=True, kw_only=True)
class Vocab(Encoded, Checked):
    """Learn a WordPiece vocabulary from text. The same text gives the same vocabulary, byte for byte."""

    corpus: Positional[tuple[Path, ...]]
    """Files, folders, globs: .txt, .jsonl, .csv, .tsv, .parquet, each also .gz, .xz or .zst; or hf:OWNER/NAME."""
    out: Output
    """Directory for vocab.txt, tokenizer.json and tokenizer_config.json."""
    size: int = 30522
    """Entries at most."""
    alphabet: int = 1000
    """Characters that get an entry, at most, the commonest; Chinese and Japanese need more."""
    lowercase: bool = True
    """Lower-case the text."""
    strip_accents: Accents = None
    """Strip accents and vowel signs. [where lower-casing and few words of the text need them]"""
    documents: Literal["blank", "line", "file"] = "blank"
    """Where a document of a .txt ends: at a blank line, at each line's end, at the file's end."""
    text_column: str = "text"
    """Name of a table's column with the texts, or several between commas; each row is a document."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with rows that cannot be read: stop with file and line, or skip and count them."""
    processes: int = 1
    """Processes that count words."""
    json: bool = False
    """Print one JSON object instead of prose."""


@dataclass(frozen=True, kw_only=True)
class Pretrain(Encoded, Checked):
    """Pre-train a BERT, or one of its family. Several processes: torchrun -m bothways pretrain ..."""

    corpus: Positional[DataList]
    """Files, folders, globs: .txt, .jsonl, .csv, .tsv, .parquet, each also .gz, .xz or .zst; or hf:OWNER/NAME."""
    out: Output
    """Directory of the run."""
    resume: bool = False
    """Go on from the newest sound checkpoint in the run's directory, if there is one."""
    model: Size = "mini"
    """Size of a new model."""
    family: Family | None = None
    """Architecture of a new model. [modernbert; with sentence pairs or --recipe paper: bert]"""
    recipe: Literal["measured", "paper"] = "measured"
    """Defaults of the settings in brackets: those that learned fastest in trials, or BERT's own (Devlin 2018)."""
    objective: Literal["auto", "masked", "boundary", "enhanced", "replaced", "forward", "halves"] = "auto"
    """What is guessed: masked words (enhanced: by a decoder; boundary: from a span's ends), replaced words, next."""
    start: Annotated[Path | None, arg(name="from", metavar="DIR")] = None
    """Checkpoint or run to go on from instead, on new text: its size, and its vocabulary."""
    extend_vocab: int = 0
    """With --from: add so many of the text's own words to the vocabulary."""
    lengthen: int = 0
    """With --from: make a Longformer of a BERT or RoBERTa, that reads --length tokens, each by a window of so many."""
    tokenizer: Path | None = None
    """Directory or file of a tokenizer; without it one is learned into the run."""
    vocab_size: int | None = None
    """Entries of a learned vocabulary, at most. [8,000 to 30,522, by the text]"""
    lowercase: bool = True
    """Lower-case the text of a learned vocabulary."""
    strip_accents: Accents = None
    """Strip accents and vowel signs with a learned vocabulary. [where lower-casing and few words of the text need
    them]"""
    documents: Literal["blank", "line", "file"] = "blank"
    """Where a document of a .txt ends: at a blank line, at each line's end, at the file's end."""
    text_column: str = "text"
    """Name of a table's column with the texts, or several between commas; each row is a document."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with rows that cannot be read: stop with file and line, or skip and count them."""
    drop_duplicates: bool = False
    """Leave out documents that are exactly the same as an earlier one, and count them."""
    heldout: DataList = ()
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
    """Parts that a step is computed in by each process, to save memory; changes nothing but what dropout drops."""
    length: int = 128
    """Tokens of an example at most, specials counted. A new model reads as many; longer texts become windows."""
    pairs: Literal["auto", "next", "order", "none"] = "auto"
    """next: does the second segment follow (BERT); order: are they in order (ALBERT); none: single runs (others)."""
    masks: Literal["tokens", "words", "spans"] = "tokens"
    """What is hidden: tokens one by one (BERT), whole words, or spans of words (SpanBERT)."""
    mask_rate: float | None = None
    """Share of tokens to be guessed. [0.3; words and spans: 0.15]"""
    mask_rate_end: float | None = None
    """Its value at the end of the run, if it is to change in a line."""
    dropout: float | None = None
    """Dropout everywhere. [0, or 0.1 if the text will be read more than 4 times]"""
    schedule: ScheduleName = "linear"
    """How the learning rate goes on after its rise."""
    rate: float | None = None
    """Peak learning rate. [2e-3 (norm first) or 1e-3, for a width of 256; lower for wider models]"""
    warmup: float | None = None
    """Share of the steps in which the rate rises. [0.05]"""
    decay: float = 0.1
    """Share of the steps in which the rate falls, in warm-up-stable-decay."""
    muon_rate: float | None = None
    """Step the layers' matrices with Muon at this peak rate, and the rest with AdamW."""
    weight_decay: float = 0.01
    """On matrices only."""
    beta2: float | None = None
    """AdamW's decay of squared gradients. [0.98]"""
    clip: float = 1.0
    """Gradients of a greater norm are scaled down to it."""
    init: float = 0.02
    """Standard deviation of the initial weights."""
    local_start: bool | None = None
    """Begin with attention at neighbouring tokens, instead of learning that first. [yes for new models]"""
    word_vectors: bool | None = None
    """Begin with word vectors from co-occurrence counts of the text. [yes for new models]"""
    frequency_bias: bool = True
    """Begin with each word as likely as it is frequent, instead of learning that first."""
    evaluate_every: int = 100
    """Steps between evaluations."""
    checkpoint_every: int = 500
    """Steps between checkpoints to go on from; 0: only at the end."""
    keep: int = 2
    """Checkpoints kept, beside the best by held-out loss."""
    language: str = "en"
    """Language whose rules say where a sentence ends (ISO 639-1, such as de); for one without rules of its own en."""
    processes: int | None = None
    """Processes that read the corpus. [one a core]"""
    compile: bool = False
    """Compile the layers; worth its minute on GPUs."""
    shard: bool = False
    """Share a large model's weights and moments out over the processes (FSDP) instead of copying them."""
    watts: float = 10.0
    """Power of one processor thread (of a GPU: name its own, some 300), for the energy that the run reports."""
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
        if self.start and self.family:
            raise InputError(f"family ({self.family}) is for a new model; --from ({self.start}) has its own")
        for name in ("model", "vocab_size", "lowercase", "strip_accents"):
            if self.start and (given := getattr(self, name)) != getattr(Pretrain, name):
                raise InputError(f"{name} ({given}) is for a new model; --from ({self.start}) has its own")
        for name in ("lowercase", "strip_accents"):
            if self.tokenizer and (given := getattr(self, name)) != getattr(Pretrain, name):
                raise InputError(f"{name} ({given}) is for a learned vocabulary; {self.tokenizer} has its own rules")
        if self.lengthen and not self.start:
            raise InputError(f"lengthen ({self.lengthen}) needs --from, a model to make read longer texts")
        if self.extend_vocab and not self.start:
            raise InputError(f"extend_vocab ({self.extend_vocab}) needs --from, a model whose vocabulary to extend")


@dataclass(frozen=True, kw_only=True)
class Recipe(Checked):
    """How to fine-tune."""

    seeds: int = 1
    """How many runs, seeds 0, 1, ...; the score is their mean, with its spread."""
    kept: Literal["best", "median"] = "best"
    """Which seed's model is kept, by its score on dev."""
    epochs: float | None = None
    """Passes over the training data. [3; of a small set as many as make 300 steps, at most 20]"""
    batch_tokens: int | None = None
    """Tokens a step at most; a longer example is a step of its own. [2048; of long texts as many as 16 of them have]"""
    batch_size: int | None = None
    """Examples a step, instead of so many tokens."""
    micro_batches: int = 1
    """Parts that a step is computed in, to save memory; changes nothing but what dropout drops."""
    window: int = 256
    """Tokens of a training window, specials counted; longer texts become several."""
    long: Literal["windows", "error", "truncate"] = "windows"
    """What to do with texts longer than a window."""
    rate: float | None = None
    """Peak learning rate; without one it goes by the model's width: 5e-5 * (768 / width)^1.5, at most 5e-4."""
    schedule: ScheduleName = "linear"
    """How the learning rate goes on after its rise."""
    warmup: float = 0.1
    """Share of the steps in which the rate rises."""
    layer_decay: float = 1.0
    """Each layer's rate is this times the next one's (eta_l = eta * layer_decay^(L-l)); printed as a table."""
    linear_start: bool = True
    """Begin with the head that is best on what the encoder gives before training, and keep that model if training does
    not improve it on dev."""
    freeze: int = 0
    """Leave so many parts from below as they are: 1: the embeddings, 2: the first layer too, ..."""
    evaluations: float = 1.0
    """Evaluations on dev an epoch; the weights of the best are kept."""
    patience: int | None = None
    """End after so many evaluations in a row without a new best."""
    weight_decay: float = 0.01
    """On matrices only."""
    clip: float = 1.0
    """Gradients of a greater norm are scaled down to it."""
    dropout: float = 0.1
    """Dropout everywhere."""
    seed: int = 0
    """The first seed."""
    baselines: bool = True
    """Score simple models on the same splits too: the commonest answer, TF-IDF and frozen vectors + linear."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    checkpoint_every: int = 1000
    """Steps between checkpoints to go on from; 0: only where the run is asked to stop."""
    resume: bool = False
    """Go on where the run in the output directory stood; without it, a directory that holds a run is refused."""
    json: bool = False
    """Print one JSON object at the end instead of prose."""


@dataclass(frozen=True, kw_only=True)
class FineTune(Encoded, Recipe):
    """What all fine-tuning can be told."""

    model: Dir
    """Checkpoint or run to start from."""
    train: Data
    """Labelled data; what has no file of its own is taken from it."""
    out: Output
    """Directory of the run."""
    dev: OptionalData = None
    """Data to choose by; without it a tenth of the training data, stratified."""
    test: OptionalData = None
    """Data to report on, never used to choose; without it and --dev another tenth of the training data."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with rows that cannot be read or have no label: stop and name them, or leave them out, counted."""
    folds: int | None = None
    """Cross-validate instead: score each of so many parts of --train by a model trained on the others, which scores
    every row; the model kept is then trained on all parts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("dev", "test") if getattr(self, name)]
        if self.folds and given:
            raise InputError(
                f"folds ({self.folds}) divides --train alone; leave --{given[0]} out, or put its rows into one file"
            )
        if self.folds and self.seeds > 1:
            raise InputError(
                f"folds ({self.folds}) and seeds ({self.seeds}) exclude each other: every fold is trained with a seed "
                "of its own"
            )


@dataclass(frozen=True, kw_only=True)
class Grouped(FineTune):
    """Which rows are to stay together."""

    group_column: str | None = None
    """Name of a column of --train, such as author, patient or book: rows with the same value there stay on one side of
    every split and fold. [rows with near-equal texts stay together]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_column is not None and self.dev:
            raise InputError(
                f"group_column ({self.group_column}) divides --train, which is not divided where there is --dev; leave "
                "one of them out"
            )


@dataclass(frozen=True, kw_only=True)
class TextColumns(Encoded):
    """Where a table's texts and labels stand."""

    text_column: str | None = None
    """Name of the column with the texts, or several between commas, read together. [text, sentence, ...]"""
    pair_column: str | None = None
    """Name of the column (or columns) with second texts. [pair, sentence2, ... where there is one]"""
    label_column: str | None = None
    """Name of the column with the labels. [label, class, score, ...]"""


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """What a text's classes or number are read off."""

    pooling: Literal["auto", "cls", "mean"] = "auto"
    """What the head reads: the first token's state, or the mean of all (of one length if the checkpoint's vectors are).
    auto: the mean if the checkpoint was trained with it to give vectors (1_Pooling says so), else what the family's own
    head reads."""
    window_pooling: Literal["mean", "max"] = "mean"
    """How the vectors of a long text's windows become one."""
    train_windows: int = 2
    """Windows of a long text that a training step reads, drawn anew in each pass; predictions read all. 0: all."""


@dataclass(frozen=True, kw_only=True)
class Classify(Pooled, TextColumns, Grouped):
    """Fine-tune a model to tell classes of texts (or pairs of texts) apart."""

    multi_label: bool = False
    """A text may have several labels, or none."""
    merge_labels: bool = False
    """Take labels that differ only in case or blanks for one, in the commonest spelling."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: a rare class counts as much as a common one."""
    metric: Literal["accuracy", "f1", "f1_macro", "f1_micro", "matthews"] | None = None
    """What is reported, and chosen by. [accuracy; f1_micro for several labels]"""
    positive: str | None = None
    """The label that f1 looks for, of two. [the last in the alphabet]"""


@dataclass(frozen=True, kw_only=True)
class Regress(Pooled, TextColumns, Grouped):
    """Fine-tune a model to give each text (or pair of texts) a number."""

    metric: Literal["spearman", "pearson"] = "spearman"
    """What is reported, and chosen by."""


@dataclass(frozen=True, kw_only=True)
class Tag(FineTune):
    """Fine-tune a model to find entities in texts, or to label every word."""

    scheme: Literal["auto", "iob1", "iob2", "bioes", "plain"] = "auto"
    """How the tags mark entities, found out by looking; plain: one label a word, as parts of speech."""
    words_column: str | None = None
    """Name of a table's column with lists of words. [tokens, words]"""
    tags_column: str | None = None
    """Name of a table's column with lists of tags. [tags, ner_tags, labels]"""
    context: bool = True
    """Read the sentences around each one in its document too, as many as fit."""


@dataclass(frozen=True, kw_only=True)
class Answer(FineTune):
    """Fine-tune a model to find the answer to a question in a passage, or that there is none (SQuAD 1.1 and 2.0)."""

    window: int = 384
    """Tokens of a window, question and specials counted; longer passages become several."""
    overlap: int = 128
    """Tokens of the passage that neighbouring windows share."""
    longest: int = 30
    """Tokens of an answer at most."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with answers that do not stand where they say: stop with file and id, or skip and count them."""
    metric: Literal["f1", "exact_match"] = "f1"
    """What is reported, and chosen by."""


@dataclass(frozen=True, kw_only=True)
class TrainEmbed(TextColumns, FineTune):
    """Fine-tune a model to give texts vectors: of pairs that belong together, or of pairs with a score."""

    objective: Literal["auto", "pairs", "scores"] = "auto"
    """pairs: each text's own pair against all others of the step; scores: the cosine is to be the score. [scores where
    there are any; pairs with --negative-column]"""
    micro_batches: int = 1
    """Parts that a step is computed in. Pairs compete only within a part: leave it at 1, memory is bounded anyway."""
    negative_column: str | None = None
    """Name of a column with texts that do not belong, if there is one. [negative]"""
    rate: float | None = 5e-5
    """Peak learning rate."""
    temperature: float = 0.05
    """Cosines are divided by it before they compete."""
    sizes: tuple[int, ...] = ()
    """Matryoshka: so many of a vector's first numbers are to do as vectors too, such as 64 128 256."""
    pooling: Literal["auto", "mean", "cls", "max"] = "auto"
    """auto: what the checkpoint says, else the mean."""


@dataclass(frozen=True, kw_only=True)
class Glue(Recipe):
    """Fine-tune a model on each task of GLUE in a directory, and print the table with its average."""

    model: Positional[Dir]
    """Checkpoint or run to start from."""
    directory: Positional[Dir]
    """Directory with a folder a task, as published: CoLA, SST-2, MRPC, STS-B, RTE, ..."""
    out: Output
    """Directory of the runs, one a task."""
    tasks: tuple[str, ...] = ()
    """Only these. [all that have training data]"""


@dataclass(frozen=True, kw_only=True)
class Evaluate(TextColumns, Checked):
    """Measure a model on labelled data, a pre-trained one on text; or somebody else's predictions: evaluate
    --predictions FILE GOLD."""

    model: Positional[Dir]
    """Checkpoint or run; with --predictions the file with the right answers."""
    file: Positional[DataList] = ()
    """Labelled data of the model's kind; text for masked-word perplexity; for vectors pairs, or a directory with a
    corpus, queries and judgements (BEIR)."""
    predictions: Path | None = None
    """Predictions to be scored: a label a line, a table, CoNLL columns, SQuAD's {id: answer}, TREC's run."""
    words_column: str | None = None
    """Name (in CoNLL columns: number, from 0) of the column with words. [tokens, words; 0]"""
    tags_column: str | None = None
    """Name (in CoNLL columns: number, -1 the last) of the column with tags. [tags, ner_tags, labels; -1]"""
    scheme: Literal["auto", "iob1", "iob2", "bioes", "plain"] = "auto"
    """How tags mark entities, found out by looking; plain: one label a word."""
    multi_label: bool = False
    """With --predictions: a text may have several labels."""
    positive: str | None = None
    """The label that f1 looks for, of two. [the last of the model's, or of the files' in the alphabet]"""
    documents: Literal["blank", "line", "file"] = "blank"
    """Where a document of a .txt ends, when measuring masked words: at a blank line, a line's end, the file's end."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with rows that cannot be read, or answers that do not stand where they say: stop with file and line,
    or skip and count them."""
    window: int | None = None
    """Tokens that are read at once, specials counted. [as it was fine-tuned, else 512]"""
    length: int = 128
    """Tokens of a pair at most, when measuring masked words."""
    language: str = "en"
    """Language whose rules say where a sentence ends, when measuring masked words."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def __post_init__(self) -> None:
        if self.predictions and self.file:
            raise InputError(f"predictions are scored against one file, {self.model}; leave {self.file[0]} out")
        if self.predictions is None:
            super().__post_init__()
        else:
            self._convert()
            if self.encoding is not None:
                check_encoding(self.encoding)


@dataclass(frozen=True, kw_only=True)
class Predict(Encoded, Checked):
    """Label texts: one JSON object a line, in input order."""

    model: Positional[Dir]
    """Checkpoint or run."""
    file: Positional[str] = "-"
    """.txt (one text a line), .jsonl, .csv, .tsv, .parquet, or - for lines of standard input; for questions SQuAD's
    JSON or a table with columns question and context."""
    text: str | None = None
    """A text to label, in place of a file."""
    pair: str | None = None
    """With --text: its second text; if it is a question, the passage."""
    keep: str | None = None
    """Input columns to copy into the result, such as id,text; or all."""
    text_column: str | None = None
    """Name of the column with the texts, or several between commas, read together. [text, sentence, ...]"""
    pair_column: str | None = None
    """Name of the column (or columns) with second texts. [pair, sentence2, ... where there is one]"""
    window: int | None = None
    """Tokens that are read at once, specials counted. [as it was fine-tuned, else 512]"""
    long: Literal["windows", "error", "truncate"] | None = None
    """What to do with texts longer than a window. [as it was fine-tuned, else windows]"""
    top: int | None = None
    """Answers a question, all in `answers` if more than one; or labels a text in `scores`. Best first. [one answer; all
    labels]"""
    out: Annotated[Path | None, arg(aliases=("-o",))] = None
    """File to write, .jsonl, .parquet, .csv or .tsv. [standard output]"""
    escape_formulas: bool = False
    """In .csv and .tsv: put ' before texts that a spreadsheet would compute, those that begin with =, +, - or @."""
    resume: bool = False
    """Go on with an output file that a stopped or killed command left unfinished."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with a row that cannot be read: stop with file and line, or set it aside beside the output."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Predictions are JSON anyway."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text is None and self.pair is not None:
            raise InputError(f"pair ({self.pair!r}) is the second text of --text; give both, or a file")
        if self.text is not None and self.file != "-":
            raise InputError(f"file ({self.file}) and text ({self.text!r}) exclude each other; leave one out")
        if self.escape_formulas and (self.out is None or self.out.suffix not in (".csv", ".tsv")):
            raise InputError("escape_formulas is for a .csv or .tsv; name one with --out")


@dataclass(frozen=True, kw_only=True)
class Fill(Checked):
    """Guess the words behind each [MASK]."""

    model: Positional[Dir]
    """Checkpoint or run."""
    text: Positional[str]
    """A text with [MASK] in it."""
    top: int = 5
    """Words a mask."""
    window: int | None = None
    """Tokens that are read at once, specials counted. [as it was fine-tuned, else 512]"""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Embed(Encoded, Checked):
    """A vector a text: .npy (float32, [texts, hidden size]), .parquet or .jsonl."""

    model: Positional[Dir]
    """Checkpoint or run."""
    file: Positional[str]
    """.txt (one text a line), .jsonl, .csv, .tsv, .parquet, or - for lines of standard input."""
    out: Output
    """File to write, .npy, .parquet or .jsonl."""
    text_column: str | None = None
    """Name of the column with the texts, or several between commas, read together. [text, sentence, ...]"""
    pooling: Literal["auto", "mean", "cls", "max"] = "auto"
    """auto: what the checkpoint says, else the mean."""
    normalize: bool = True
    """Vectors of length 1."""
    window: int | None = None
    """Tokens that are read at once, specials counted. [as it was fine-tuned, else 512]"""
    long: Literal["windows", "error", "truncate"] | None = None
    """What to do with texts longer than a window. [as it was fine-tuned, else windows]"""
    resume: bool = False
    """Go on with an output file that a stopped or killed command left unfinished."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with a row that cannot be read: stop with file and line, or set it aside beside the output."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Print one JSON object instead of prose."""


@dataclass(frozen=True, kw_only=True)
class Quantize(TextColumns, Checked):
    """Make a model int8: smaller, and faster on processors, with the loss of accuracy measured before it is written."""

    model: Positional[Dir]
    """Checkpoint or run."""
    texts: Annotated[Path, arg(name="with")]
    """Your own texts, at least 32: calibrated on some, measured on others; by their labels where a column `label` (or
    --label-column), tags or answers are there, else by how the results move."""
    out: Output
    """Directory to write."""
    max_drop: float | None = None
    """The greatest loss allowed, in points (of a hundred). [0.5; for vectors that is a mean cosine of 0.995]"""
    dtype: Dtype = "auto"
    """What is not int8; auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Export(TextColumns, Checked):
    """Write a model as ONNX, compared with ours before the file gets its name."""

    model: Positional[Dir]
    """Checkpoint or run."""
    out: Output
    """Directory to write: model.onnx, the tokenizer's files, and how it was made."""
    to: Literal["onnx"] = "onnx"
    """The format."""
    tolerance: float = 1e-4
    """The greatest difference of a score from ours."""
    int8: bool = False
    """Write model-int8.onnx too; its loss is measured on --with."""
    texts: Annotated[Path | None, arg(name="with")] = None
    """Your own texts, with labels or without, on which int8 is measured."""
    max_drop: float | None = None
    """The greatest loss allowed to int8, in points (of a hundred). [0.5; for vectors that is a mean cosine of 0.995]"""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Bench(Encoded, Checked):
    """How fast a model is on this machine: texts and tokens a second, and how long one call takes, over batch sizes and
    lengths, beside every peer that is installed."""

    model: Positional[Dir]
    """Checkpoint or run."""
    out: Annotated[Path | None, arg(aliases=("-o",))] = None
    """Picture to write (.png)."""
    texts: Annotated[Path | None, arg(name="with")] = None
    """Your own texts, for their mix of lengths. [random words of the lengths below alone]"""
    lengths: tuple[int, ...] = (16, 64, 128, 256, 512)
    """Tokens of a text."""
    window: int | None = None
    """Tokens that are read at once, specials counted. [as it was fine-tuned, else 512]"""
    batches: tuple[int, ...] = (1, 8, 64)
    """Texts a call."""
    repeats: int = 5
    """Measurements of each, of which the median counts."""
    peers: bool = True
    """Measure peers that are installed as well: sentence-transformers, ONNX Runtime, OpenVINO."""
    dtype: Dtype = "auto"
    """auto: bf16 where the processor is fast at it."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Info(Checked):
    """What a checkpoint or run is, how it was made, and from which data."""

    path: Positional[Path]
    """Checkpoint or run."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Cache(Checked):
    """The token stores that pre-training keeps to use again: list them, or delete them. Nothing is lost but time."""

    clear: bool = False
    """Delete them, except those that a run is building just now."""
    store: Annotated[Path | None, arg(metavar="DIR")] = None
    """Directory where they are kept. [a folder bothways in the user's cache]"""
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
