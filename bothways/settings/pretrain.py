"""Settings of `pretrain` and `distill`: objectives, teacher and student, and the weight of each loss."""

from typing import Literal

from bothways.base.errors import InputError, flag
from bothways.settings import base
from bothways.settings.fields import Location, OptionalLocation, OwnObjective, Several, argument, option

ChosenObjective = Literal["auto", "masked", "boundary", "enhanced", "replaced", "forward", "halves"]


@base.settings
class TextTraining(base.Optimization, base.TextFiles, base.Device, base.Printed):
    """Training on unlabelled text: data, steps, evaluation and checkpoints."""

    drop_duplicates: bool = option("data", default=False)
    """Drop documents that are identical to an earlier one, and count them."""
    heldout: base.DataList = option("data", default=(), first=True)
    """Held-out text to evaluate on. [about 5 % of the text: whole files of 20 or more, else every 20th document]"""
    heldout_examples: int = option("data", default=256, least=1)
    """Maximum number of held-out examples to evaluate on."""
    token_store: OptionalLocation = option("data", default=None, metavar="DIR")
    """Cache directory for tokenized text. [~/.cache/bothways/stores; see $BOTHWAYS_CACHE and $XDG_CACHE_HOME]"""
    max_length: int = option("model", default=128, least=8, most=8192, first=True)
    """Maximum tokens per example, special tokens included; also the longest input of a new model."""
    batch_tokens: int = option("training", default=4096, least=1)
    """Tokens per step, summed over all torchrun processes."""
    schedule: base.ScheduleName = option("training", default="linear")
    """Learning rate schedule after warm-up."""
    evaluate_every: int = option("evaluation", default=100, least=1)
    """Steps between evaluations."""
    checkpoint_every: int = option("output", default=500, least=0)
    """Steps between checkpoints; 0: only at the end, and on Ctrl-C or SIGTERM."""
    language: str = option("data", default="en")
    """Language for sentence splitting (ISO 639-1), such as de; if it has no rules, choose a related one, or en."""
    processes: int | None = option("machine", default=None, least=1)
    """Worker processes that tokenize the corpus. [one per core]"""
    shard: bool = option("machine", default=False)
    """Shard weights and optimizer state over the torchrun processes (FSDP) instead of replicating them."""
    tensorboard: bool = option("output", default=False)
    """Also write TensorBoard files (extra `tensorboard`)."""
    deterministic: bool = option("machine", default=False)
    """On GPUs, use only deterministic kernels. CPUs are always deterministic."""
    dtype: base.TrainingDtype = option("machine", default="auto")
    """Number format. auto: bfloat16 where it is faster, else float32; float16, with loss scaling, for older GPUs."""


@base.settings
class Pretrain(TextTraining):
    """Pre-train a BERT or a related encoder. For several processes: torchrun -m bothways pretrain ..."""

    corpus: base.DataList = argument("TEXT")
    """Files, folders or globs (.txt, .jsonl, .csv, .tsv, .parquet; also .gz, .xz, .zst), or hf:OWNER/NAME."""
    out: Location = option("output", aliases=("-o",))
    """Run directory."""
    resume: bool = option("output", default=False, first=True)
    """Continue from the newest intact checkpoint in the run directory, if there is one."""
    model: base.Size = option("model", default="mini", first=True)
    """Size of a new model."""
    family: base.Family | None = option("model", default=None, first=True, packages="bothways.families")
    """Architecture of a new model. [modernbert; bert, electra or deberta if other options need it]"""
    recipe: Literal["measured", "paper"] = option("training", default="measured")
    """measured: the values in [brackets], the best in our trials. paper: the values of BERT (Devlin 2018)."""
    minutes: float | None = option("training", default=None, least=0.001, first=True)
    """Train for about this long, or for --steps if they end first; the steps are timed at the start."""
    steps: int | None = option("training", default=None, least=1, first=True)
    """Number of steps. [1000 without --minutes]"""
    from_checkpoint: OptionalLocation = option("model", default=None, flag="--from", metavar="DIR", first=True)
    """Continue pre-training this checkpoint or run on new text; keeps its architecture and vocabulary."""
    extend_vocab: int = option("model", default=0, least=0)
    """With --from: add this many words of the new text to the vocabulary."""
    tokenizer: OptionalLocation = option("model", default=None, first=True)
    """Tokenizer directory or file. [learned from the text]"""
    vocab_size: int | None = option("model", default=None, least=1, first=True)
    """Maximum size of a learned vocabulary. [8,000 to 30,522, by the amount of text]"""
    lowercase: bool = option("model", default=True)
    """Make a learned vocabulary lower-case. Loaded tokenizers keep their own rules."""
    strip_accents: bool | None = option("model", default=None, negative="--keep-accents")
    """Strip accents and vowel signs, if a vocabulary is learned. [if lower-casing, and they are rare in the text]"""
    objective: ChosenObjective | OwnObjective = option("task", default="auto", packages="bothways.objectives")
    """auto: the family's. masked: MLM; boundary: SpanBERT; enhanced: DeBERTa; replaced: ELECTRA; others: causal."""
    pairs: Literal["auto", "next", "order", "none"] = option("task", default="auto")
    """auto: the family's. next: next-sentence prediction (BERT); order: sentence order (ALBERT); none: single texts."""
    masking: Literal["tokens", "words", "spans"] = option("task", default="tokens")
    """Unit of masking: single tokens (BERT), whole words, or spans of words (SpanBERT)."""
    mask_rate: float | None = option("task", default=None, least=0.01, most=1)
    """Fraction of tokens to predict. [0.3; 0.15 for words and spans]"""
    learning_rate: float | None = option("training", default=None, least=0, aliases=("--lr",))
    """Peak learning rate. [2e-3 (pre-norm) or 1e-3 (post-norm), 5e-4 with --from; times (256 / hidden size)^0.8]"""
    warmup: float | None = option("training", default=None, least=0, most=1)
    """Fraction of the steps in which the learning rate rises. [0.05]"""
    dropout: float | None = option("training", default=None, least=0, most=0.9)
    """Dropout probability, everywhere in the model. [0; 0.1 for more than 4 passes over the text]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.from_checkpoint and self.tokenizer:
            raise InputError(
                f"tokenizer ({self.tokenizer}) and from ({self.from_checkpoint}) exclude each other: the checkpoint "
                "has its own tokenizer"
            )
        if self.from_checkpoint and self.family:
            raise InputError(
                f"family ({self.family}) is for a new model; {flag('from_checkpoint')} ({self.from_checkpoint}) has "
                "its own"
            )

        for name in ("model", "vocab_size", "lowercase", "strip_accents"):
            if self.from_checkpoint and (value := getattr(self, name)) != getattr(Pretrain, name):
                raise InputError(
                    f"{name} ({value}) is for a new model; {flag('from_checkpoint')} ({self.from_checkpoint}) has its "
                    "own"
                )
        for name in ("lowercase", "strip_accents"):
            if self.tokenizer and (value := getattr(self, name)) != getattr(Pretrain, name):
                raise InputError(f"{name} ({value}) is for a learned vocabulary; {self.tokenizer} has its own rules")

        if self.extend_vocab and not self.from_checkpoint:
            raise InputError(
                f"extend_vocab ({self.extend_vocab}) needs {flag('from_checkpoint')}, the checkpoint whose vocabulary "
                "to extend"
            )


@base.settings
class Distill(TextTraining):
    """Distill a smaller model from a teacher on unlabelled text. For several processes: torchrun -m bothways ..."""

    teacher: Location = argument("DIR")
    """Teacher: a checkpoint, a run, or the name of a model on the hub."""
    corpus: base.DataList = argument("TEXT", default=())
    """Files, folders or globs (.txt, .jsonl, .csv, .tsv, .parquet; also .gz, .xz, .zst), or hf:OWNER/NAME."""
    out: Location = option("output", aliases=("-o",))
    """Run directory."""
    resume: bool = option("output", default=False, first=True)
    """Continue from the newest intact checkpoint in the run directory, if there is one."""
    static: bool = option("model", default=False, first=True)
    """Instead, make static vectors: one for each entry of the vocabulary, fitted to the text in closed form if there is
    any; --minutes then limits the reading of text. [8 minutes]"""
    dimensions: int | None = option("task", default=None, least=1, first=True)
    """Size of static vectors. [256; with text, as the teacher]"""
    purpose: Literal["words", "vectors", "both"] = option("task", default="both", flag="--for", first=True)
    """words: a model to fill masks and to fine-tune; vectors: a sentence embedding model; both: one model for all."""
    minutes: float | None = option("training", default=None, least=0.001, first=True)
    """Train for about this long, or for --steps if they end first; the steps are timed at the start."""
    steps: int | None = option("training", default=None, least=1, first=True)
    """Number of steps. [1000 without --minutes]"""
    keep_layers: Several[int] = option("model", default=())
    """Layers of the teacher, counted from 0, that the student starts from, such as 0 2 5. [evenly spaced]"""
    layers: int | None = option("model", default=None, first=True)
    """Number of layers of the student. [as the teacher]"""
    hidden_size: int | None = option("model", default=None, first=True)
    """Hidden size of the student; the number of heads follows from the teacher's head size. [as the teacher]"""
    vocab_size: int | None = option("model", default=None, least=1, first=True)
    """Size of the student's vocabulary: the teacher's most frequent entries in the text. [all entries]"""
    tokenizer: OptionalLocation = option("model", default=None, first=True)
    """Tokenizer of the student, a directory or file; all its entries must be the teacher's. [the teacher's]"""
    student: OptionalLocation = option("model", default=None, metavar="DIR")
    """Start from this checkpoint with the teacher's vocabulary; any family, width and depth."""
    relations: float = option("task", default=0.0)
    """Weight of self-attention relations of queries, keys and values (MiniLMv2)."""
    hidden_states: float = option("task", default=0.0)
    """Weight of the mean squared error of all hidden states, through a learned map (TinyBERT)."""
    logits: float = option("task", default=0.0)
    """Weight of the KL divergence from the teacher's masked word probabilities, times temperature^2."""
    vectors: float | None = option("task", default=None)
    """Weight of the cosine distance of text vectors. [10 for vectors and both]"""
    mask_rate: float = option("task", default=0.3, least=0.01, most=1)
    """Fraction of tokens to predict."""
    learning_rate: float = option("training", default=1e-3, least=0, aliases=("--lr",))
    """Peak learning rate."""

    def __post_init__(self) -> None:
        if not self.corpus and not self.static:
            raise InputError(f"corpus is empty; name at least one file, or use {flag('static', True)}")
        super().__post_init__()
        if self.dimensions and not self.static:
            raise InputError(
                f"dimensions ({self.dimensions}) is for {flag('static', True)}; use hidden_size for a student"
            )
        sizes = [name for name in ("keep_layers", "layers", "hidden_size") if getattr(self, name)]
        if self.student and (sizes := [*sizes, *(["vocab_size"] if self.vocab_size else [])]):
            raise InputError(f"{sizes[0]} is for a student made from the teacher; {self.student} has its own sizes")
        if self.tokenizer and (self.vocab_size or self.student):
            other = "vocab_size" if self.vocab_size else "student"
            raise InputError(f"tokenizer ({self.tokenizer}) and {other} exclude each other; leave one out")
        if self.keep_layers and self.layers not in (None, len(self.keep_layers)):
            raise InputError(f"layers ({self.layers}) differs from the {len(self.keep_layers)} of keep_layers")
