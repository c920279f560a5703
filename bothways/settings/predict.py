"""Settings of `predict`, `fill`, `decide`, `embed` and `evaluate`: inference on texts and files, and its scores."""

from pathlib import Path
from typing import Literal

from bothways.base.errors import InputError, flag
from bothways.pretrained import DEFAULT
from bothways.settings import base
from bothways.settings.fields import FileName, Location, OptionalLocation, argument, option


@base.settings
class Parts:
    """How the work on many rows is divided."""

    workers: int | None = option("machine", default=None, least=1, first=True)
    """Processes that compute, each with its share of the cores. [this one, with all]"""
    ray: str | None = option("machine", default=None)
    """With a directory as output: place the parts on a Ray cluster: its address, auto, or local for a new one here."""
    mixed: bool = option("machine", default=False)
    """With a directory as output: accept another processor or other versions than those the parts were planned with."""
    dry_run: bool = option("output", default=False)
    """Only print the parts, and an estimate of time and cost."""

    @property
    def writes_parts(self) -> bool:
        """Whether the output is a directory, of a file for each part of the input."""
        out = getattr(self, "out", None)
        return out is not None and not out.suffix


@base.settings
class Predict(base.AskedFor, base.Windows, base.Encoded, Parts, base.Checked, base.Compute, base.Printed):
    """Predict labels, numbers, entities or answers, in input order; by default one JSON object per line."""

    model: Location = argument("DIR")
    """Checkpoint, run, or name of a model on the hub."""
    file: FileName = argument("FILE", default="-")
    """.txt (one text per line), .jsonl, .json, .csv, .tsv, .xlsx, .parquet, SQuAD's JSON, or - for standard input."""
    text: str | None = option("data", default=None, first=True)
    """One text, instead of a file."""
    pair: str | None = option("data", default=None)
    """With --text: the second text of a pair, or the passage of a question."""
    keep_columns: str | None = option("output", default=None, first=True)
    """Input columns to copy into the result, such as id,text; or all."""
    text_column: str | None = option("data", default=None, first=True)
    """Column with the texts, or several separated by commas, which are joined. [text, sentence, ...]"""
    pair_column: str | None = option("data", default=None)
    """Column (or columns) with second texts. [pair, sentence2, ... if there is one]"""
    top: int | Literal["all"] | None = option("output", default=None, least=1, first=True, metavar="N|all")
    """How many labels (column scores) or answers (column answers) to return, best first. all: in .csv and .tsv, a
    column for each label. [all labels, of more than five in .csv and .tsv five; one answer]"""
    coverage: float | None = option("output", default=None, least=0.01, most=0.999, first=True)
    """Also return, as column labels, the set that holds the right label of this fraction of texts, such as 0.9. It may
    be empty."""
    min_score: float | None = option("output", default=None, least=0, most=1, first=True)
    """Least score: the label (or answer) of a text below it is empty, an entity below it is left out. With several
    labels a text: those from it on. [none; several labels: the thresholds of fine-tuning]"""
    in_scope: float | None = option("output", default=None, least=0.01, most=0.999, first=True)
    """Say in a column whether a text is like the training texts, and leave the label of others empty. The share of
    texts like them that is kept, such as 0.95."""
    explain: bool = option("output", default=False)
    """Also return, as column words, the words of the text with the effect of each on the prediction, the largest first.
    A text of n words is read n + 1 times."""
    label_next: int | None = option("output", default=None, least=1)
    """Instead of predictions, write this many rows to label next, as a .csv or .tsv with an empty column label."""
    out: OptionalLocation = option("output", default=None, aliases=("-o",), first=True)
    """Output: .jsonl, .parquet, .csv or .tsv; or a directory of a .parquet for each part. [standard output]"""
    escape_formulas: bool = option("output", default=False)
    """In .csv and .tsv: put ' before texts that spreadsheets evaluate (those that begin with =, +, - or @)."""
    resume: bool = option("output", default=False, first=True)
    """Continue an output file that an interrupted command left unfinished."""
    on_error: base.OnError = option("data", default="stop")
    """Unreadable rows: stop and report file and line, or skip them and list them in a file next to the output."""
    json: bool = option("output", default=False)
    """With --out: print the summary as a JSON object."""

    def __post_init__(self) -> None:
        super().__post_init__()
        base.check_asked(self)
        if self.text is None and self.pair is not None:
            raise InputError(f"pair ({self.pair!r}) is the second text of {flag('text')}; give both, or a file")
        if self.text is not None and self.file != "-":
            raise InputError(f"file ({self.file}) and text ({self.text!r}) exclude each other; leave one out")
        if self.escape_formulas and (self.out is None or self.out.suffix not in (".csv", ".tsv")):
            raise InputError(f"escape_formulas is for a .csv or .tsv; name one with {flag('out')}")
        if self.label_next is not None:
            self._check_label_next()
        if self.out is None and (self.workers or self.ray or self.mixed or self.dry_run):
            raise InputError(
                f"workers, ray, mixed and dry_run are for an output file or directory; name it with {flag('out')}"
            )

    def _check_label_next(self) -> None:
        if self.out is None:
            raise InputError(
                f"label_next ({self.label_next}) writes rows to be filled in; name a .csv with {flag('out')}"
            )
        thresholds = ("coverage", "min_score", "in_scope")
        for name in ("text", "keep_columns", "top", *thresholds, "explain", "resume", "workers", "dry_run"):
            if getattr(self, name) not in (None, False):
                reason = "it keeps all columns" if name == "keep_columns" else "it chooses rows of a file"
                raise InputError(
                    f"{name} and label_next ({self.label_next}) exclude each other: {reason}; leave one out"
                )


@base.settings
class Fill(base.Checked, base.Compute, base.Printed):
    """Fill each [MASK] in a text."""

    model: Location = argument("DIR", default=Path(DEFAULT))
    """Checkpoint, run, or name of a model on the hub."""
    text: str = argument("TEXT")
    """A text that contains [MASK]."""
    top: int = option("output", default=5, least=1, first=True)
    """Guesses per mask."""
    window: int | None = option("model", default=None, least=8, first=True)
    """Maximum tokens per window, special tokens included. [as in fine-tuning, else 512]"""


@base.settings
class Decide(base.AskedFor, base.Checked, base.Compute, base.Printed):
    """Decide which of the options that are named fits a text, without training."""

    model: Location = argument("DIR", default=Path(DEFAULT))
    """A model that decides, run, or name of a model on the hub."""
    text: str = argument("TEXT")
    """The text."""
    window: int | None = option("model", default=None, least=8)
    """Maximum tokens per window, special tokens included. [as in fine-tuning, else 512]"""
    json: bool = option("output", default=False)
    """Print the decision as a JSON object."""


@base.settings
class Embed(base.Windows, base.Encoded, Parts, base.Checked, base.Compute, base.Printed):
    """Embed texts: a vector per text, as .npy (float32, [texts, hidden size]), .parquet or .jsonl."""

    model: Location = argument("DIR", default=Path(DEFAULT))
    """Checkpoint, run, or name of a model on the hub."""
    file: FileName = argument("FILE")
    """.txt (one text per line), .jsonl, .csv, .tsv, .xlsx, .parquet, or - for standard input."""
    out: Location = option("output", aliases=("-o",))
    """Output: .npy, .parquet or .jsonl; or a directory of a .parquet for each part."""
    text_column: str | None = option("data", default=None, first=True)
    """Column with the texts, or several separated by commas, which are joined. [text, sentence, ...]"""
    pooling: base.VectorPooling = option("model", default="auto")
    """auto: the checkpoint's own pooling, else the mean."""
    normalize: bool = option("output", default=True)
    """Scale vectors to length 1."""
    resume: bool = option("output", default=False, first=True)
    """Continue an output file that an interrupted command left unfinished."""
    on_error: base.OnError = option("data", default="stop")
    """Unreadable rows: stop and report file and line, or skip them and list them in a file next to the output."""
    json: bool = option("output", default=False)
    """Print the summary as a JSON object."""


@base.settings
class Evaluate(base.AskedFor, base.TagColumns, base.TextColumns, base.Checked, base.Compute, base.Printed):
    """Evaluate a fine-tuned model on labelled data, or a pre-trained model on plain text. To score a file of
    predictions: bothways evaluate --predictions FILE GOLD."""

    model: Location = argument("MODEL")
    """Checkpoint, run, or name of a model on the hub. With --predictions: the file with the gold labels or answers, and
    no further PATH."""
    file: base.DataList = argument("FILE", default=())
    """Labelled data; for models that are not fine-tuned: pairs, a BEIR directory, or plain text (masked words)."""
    predictions: OptionalLocation = option("data", default=None, first=True)
    """Predictions to score: a label per line, a table, CoNLL columns, SQuAD's {id: answer}, or a TREC run."""
    group_column: str | None = option("data", default=None)
    """Column whose groups (author, book) are independent units of the intervals. [as in fine-tuning]"""
    multi_label: bool = option("task", default=False, first=True)
    """With --predictions: each text may have several labels."""
    task: base.LabelTask = option("task", default="auto")
    """With --predictions: labels are classes (classify) or numbers (regress). auto: numbers if they are more than 10
    different ones, some with a fraction."""
    positive: str | None = option("evaluation", default=None)
    """Positive label for f1 with two classes. [the model's last label; with --predictions the last alphabetically]"""
    min_score: float | None = option("evaluation", default=None, least=0, most=1)
    """Refuse texts whose best label has a lower score: the scores are those of the answered texts, with the share of
    them. With several labels a text: the labels from this score on."""
    in_scope: float | None = option("evaluation", default=None, least=0.01, most=0.999)
    """Refuse texts that are not like the training texts. The share of texts like them that is kept, such as 0.95."""
    documents: base.DocumentBreak = option("data", default="blank")
    """For masked words: what separates documents in .txt files: a blank line, the end of a line or of the file."""
    on_error: base.OnError = option("data", default="stop")
    """Unreadable rows, or answers not at their offset: stop and report file and row, or skip and count them."""
    window: int | None = option("model", default=None, least=8, first=True)
    """Maximum tokens per window, special tokens included. [as in fine-tuning, else 512]"""
    how: base.How = option("task", default="vectors", first=True)
    """For a BEIR directory: search by vectors, by words (BM25; the model is not used), or by both."""
    rerank: OptionalLocation = option("model", default=None, metavar="DIR")
    """For a BEIR directory: reranker (finetune rerank), or another model of text pairs, for the best documents."""
    dimensions: int | None = option("task", default=None, least=1, first=True)
    """For vectors: use only their first numbers, as Matryoshka models allow."""
    max_length: int = option("model", default=128, least=8, most=8192, first=True)
    """For masked words: maximum tokens per example."""
    language: str = option("data", default="en")
    """Language: of sentence splitting for masked words, of stemming for --how."""

    def __post_init__(self) -> None:
        base.check_asked(self)
        if self.predictions and self.file:
            raise InputError(f"predictions are scored against one file, {self.model}; leave {self.file[0]} out")
        for name in ("min_score", "in_scope"):
            if self.predictions and getattr(self, name) is not None:
                raise InputError(
                    f"{name} ({getattr(self, name)}) is for a model; leave it out: rows without a prediction are "
                    "counted as refused"
                )
        if self.predictions is None:
            super().__post_init__()
            base.refuse_repeated("file", self.file)
        else:
            self._convert()
            if self.encoding is not None:
                base.check_encoding(self.encoding)


@base.settings
class Check(base.TextColumns, base.Checked, base.Compute, base.Printed):
    """Check a table without training: likely label errors, conflicts, duplicates, empty and odd rows."""

    file: base.Data = argument("TABLE")
    """Texts (or pairs), usually with a label each: .csv, .tsv, .jsonl, .json, .xlsx, .parquet or .txt."""
    model: Location = option("model", default=Path(DEFAULT), metavar="DIR", first=True)
    """Checkpoint, run, or name of a model on the hub, whose vectors judge the labels."""
    multi_label: bool = option("task", default=False, first=True)
    """Each text may have several labels or none."""
    task: base.LabelTask = option("task", default="auto")
    """Labels are classes, as in finetune classify, or numbers, as in finetune regress. auto: numbers if they are more
    than 10 different ones, some with a fraction."""
    out: OptionalLocation = option("output", default=None, aliases=("-o",), first=True)
    """Directory for all remarks, as check.csv and check.html."""
