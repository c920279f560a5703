"""Settings of `distill`: the teacher, the student, and the weight of each loss."""

from typing import Literal

from bothways.errors import InputError, flag
from bothways.settings.base import DataList, settings
from bothways.settings.fields import Location, OptionalLocation, Several, argument, option
from bothways.settings.pretrain import TextTraining


@settings
class Distill(TextTraining):
    """Distill a smaller model from a teacher on unlabelled text. For several processes: torchrun -m bothways ..."""

    teacher: Location = argument("DIR")
    """Teacher: a checkpoint, a run, or the name of a model on the hub."""
    corpus: DataList = argument("TEXT", default=())
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
