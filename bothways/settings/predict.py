"""Settings of `predict`, `fill` and `embed`: inference on texts and files."""

from pathlib import Path
from typing import Annotated

from bothways.errors import InputError
from bothways.pretrained import DEFAULT
from bothways.settings.accepted import FileName, Several, default
from bothways.settings.base import (
    Checked,
    Compute,
    DefaultModel,
    Encoded,
    Model,
    OnError,
    OptionalOutput,
    Output,
    Printed,
    VectorPooling,
    Windows,
    settings,
)
from bothways.settings.marks import Positional, arg


@settings
class Predict(Windows, Encoded, Checked, Compute, Printed):
    """Predict labels, numbers, entities or answers, in input order; by default one JSON object per line."""

    model: Model
    """Checkpoint, run, or name of a model on the hub."""
    file: Positional[Annotated[FileName, arg(metavar="[FILE]")]] = default("-")
    """.txt (one text per line), .jsonl, .csv, .tsv, .xlsx, .parquet, SQuAD's JSON, or - for standard input."""
    text: str | None = None
    """One text, instead of a file."""
    pair: str | None = None
    """With --text: the second text of a pair, or the passage of a question."""
    cloze: str | None = None
    """Without fine-tuning: classify by the word at the mask of a phrase before each text, such as "It was [MASK]."."""
    words: Several[str] = default(())
    """With --cloze: the words, which are the labels too, or LABEL=WORD."""
    keep_columns: str | None = None
    """Input columns to copy into the result, such as id,text; or all."""
    text_column: str | None = None
    """Column with the texts, or several separated by commas, which are joined. [text, sentence, ...]"""
    pair_column: str | None = None
    """Column (or columns) with second texts. [pair, sentence2, ... if there is one]"""
    top: int | None = None
    """How many labels (column scores) or answers (column answers) to return, best first. [all labels; one answer]"""
    coverage: float | None = None
    """Also return, as column labels, the set that holds the right label of this fraction of texts, such as 0.9."""
    label_next: int | None = None
    """Instead of predictions, write this many rows to label next, as a .csv or .tsv with an empty column label."""
    out: OptionalOutput = default(None)
    """Output file: .jsonl, .parquet, .csv or .tsv. [standard output]"""
    escape_formulas: bool = False
    """In .csv and .tsv: put ' before texts that spreadsheets evaluate (those that begin with =, +, - or @)."""
    resume: bool = False
    """Continue an output file that an interrupted command left unfinished."""
    on_error: OnError = "stop"
    """Unreadable rows: stop and report file and line, or skip them and list them in a file next to the output."""
    json: bool = False
    """With --out: print the summary as a JSON object."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.cloze is None) != (not self.words):
            raise InputError("cloze and words need each other: a phrase with [MASK], and the words to choose from")
        if self.text is None and self.pair is not None:
            raise InputError(f"pair ({self.pair!r}) is the second text of --text; give both, or a file")
        if self.text is not None and self.file != "-":
            raise InputError(f"file ({self.file}) and text ({self.text!r}) exclude each other; leave one out")
        if self.escape_formulas and (self.out is None or self.out.suffix not in (".csv", ".tsv")):
            raise InputError("escape_formulas is for a .csv or .tsv; name one with --out")
        if self.label_next is not None:
            self._check_label_next()

    def _check_label_next(self) -> None:
        if self.out is None:
            raise InputError(f"label_next ({self.label_next}) writes rows to be filled in; name a .csv with --out")
        for name in ("text", "keep_columns", "top", "coverage", "resume"):
            if getattr(self, name) not in (None, False):
                reason = "it keeps all columns" if name == "keep_columns" else "it chooses rows of a file"
                raise InputError(
                    f"{name} and label_next ({self.label_next}) exclude each other: {reason}; leave one out"
                )


@settings
class Fill(Checked, Compute, Printed):
    """Fill each [MASK] in a text."""

    model: DefaultModel = default(Path(DEFAULT))
    """Checkpoint, run, or name of a model on the hub."""
    text: Positional[str]
    """A text that contains [MASK]."""
    top: int = 5
    """Guesses per mask."""
    window: int | None = None
    """Maximum tokens per window, special tokens included. [as in fine-tuning, else 512]"""


@settings
class Embed(Windows, Encoded, Checked, Compute, Printed):
    """Embed texts: a vector per text, as .npy (float32, [texts, hidden size]), .parquet or .jsonl."""

    model: DefaultModel = default(Path(DEFAULT))
    """Checkpoint, run, or name of a model on the hub."""
    file: Positional[Annotated[FileName, arg(metavar="FILE")]]
    """.txt (one text per line), .jsonl, .csv, .tsv, .xlsx, .parquet, or - for standard input."""
    out: Output
    """Output file: .npy, .parquet or .jsonl."""
    text_column: str | None = None
    """Column with the texts, or several separated by commas, which are joined. [text, sentence, ...]"""
    pooling: VectorPooling = "auto"
    """auto: the checkpoint's own pooling, else the mean."""
    normalize: bool = True
    """Scale vectors to length 1."""
    resume: bool = False
    """Continue an output file that an interrupted command left unfinished."""
    on_error: OnError = "stop"
    """Unreadable rows: stop and report file and line, or skip them and list them in a file next to the output."""
    json: bool = False
    """Print the summary as a JSON object."""
