"""Settings of `evaluate`: score a model, or a file of predictions."""

from typing import Annotated, Literal

from bothways.errors import InputError
from bothways.settings.accepted import default
from bothways.settings.base import (
    Checked,
    Compute,
    DataList,
    DocumentBreak,
    How,
    OnError,
    OptionalDirectory,
    Printed,
    TagColumns,
    TextColumns,
    check_encoding,
    settings,
)
from bothways.settings.location import Location, OptionalLocation
from bothways.settings.marks import Positional, arg


@settings
class Evaluate(TagColumns, TextColumns, Checked, Compute, Printed):
    """Evaluate a fine-tuned model on labelled data, or a pre-trained model on plain text. To score a file of
    predictions: bothways evaluate --predictions FILE GOLD."""

    model: Positional[Annotated[Location, arg(metavar="MODEL")]]
    """Checkpoint, run, or name of a model on the hub. With --predictions: the file with the gold labels or answers, and
    no further PATH."""
    file: Positional[DataList] = default(())
    """Labelled data; for models that are not fine-tuned: pairs, a BEIR directory, or plain text (masked words)."""
    predictions: OptionalLocation = default(None)
    """Predictions to score: a label per line, a table, CoNLL columns, SQuAD's {id: answer}, or a TREC run."""
    group_column: str | None = None
    """Column whose groups (author, book) are independent units of the intervals. [as in fine-tuning]"""
    multi_label: bool = False
    """With --predictions: each text may have several labels."""
    positive: str | None = None
    """Positive label for f1 with two classes. [the model's last label; with --predictions the last alphabetically]"""
    documents: DocumentBreak = "blank"
    """For masked words: what separates documents in .txt files: a blank line, the end of a line or of the file."""
    on_error: OnError = "stop"
    """Unreadable rows, or answers not at their offset: stop and report file and row, or skip and count them."""
    window: int | None = None
    """Maximum tokens per window, special tokens included. [as in fine-tuning, else 512]"""
    how: How = "vectors"
    """For a BEIR directory: search by vectors, by words (BM25; the model is not used), or by both."""
    rerank: OptionalDirectory = default(None)
    """For a BEIR directory: model of text pairs that orders the best documents anew."""
    dimensions: int | None = None
    """For vectors: use only their first numbers, as Matryoshka models allow."""
    round: Literal["int8"] | None = None
    """For a BEIR directory: round the documents' vectors to 8 bits, as an index may store them."""
    max_length: int = 128
    """For masked words: maximum tokens per example."""
    language: str = "en"
    """Language: of sentence splitting for masked words, of stemming for --how."""

    def __post_init__(self) -> None:
        if self.predictions and self.file:
            raise InputError(f"predictions are scored against one file, {self.model}; leave {self.file[0]} out")
        if self.predictions is None:
            super().__post_init__()
        else:
            self._convert()
            if self.encoding is not None:
                check_encoding(self.encoding)
