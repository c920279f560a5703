"""Settings of `finetune` and `glue`: data, optimization, and each task."""

from typing import Literal

from tyro.conf import Positional

from bothways.errors import InputError
from bothways.settings.base import (
    Compute,
    Data,
    Directory,
    Encoded,
    LearningRate,
    LongTexts,
    Model,
    OnError,
    Optimization,
    OptionalData,
    Output,
    Printed,
    TagColumns,
    TextColumns,
    VectorPooling,
    settings,
)


@settings
class Recipe(Optimization, Compute, Printed):
    """How to fine-tune."""

    seeds: int = 1
    """Number of runs with different seeds; reports mean and standard deviation."""
    keep_seed: Literal["best", "median"] = "best"
    """Which seed's model to keep, by its dev score."""
    epochs: float | None = None
    """Passes over the training data. [3; more for small data: enough for 300 steps, at most 20]"""
    batch_tokens: int | None = None
    """Maximum tokens per step; a longer example is a step by itself. [2048; for long texts enough for 16 of them]"""
    batch_size: int | None = None
    """Examples per step, instead of --batch-tokens."""
    learning_rate: LearningRate = None
    """Peak learning rate. [by the model's width: 5e-5 * (768 / width)^1.5, at most 5e-4]"""
    warmup: float = 0.1
    """Fraction of the steps in which the learning rate rises."""
    layer_decay: float = 1.0
    """Layer-wise learning rate decay (LLRD): each layer's rate is this times that of the layer above."""
    linear_start: bool = True
    """Start from the best linear head on the frozen encoder (LP-FT); keep that model if training does not beat it on
    dev."""
    freeze: int = 0
    """Freeze the bottom N blocks: 1 = embeddings, 2 = embeddings and first layer, ..."""
    dropout: float = 0.1
    """Dropout everywhere."""
    window: int = 256
    """Maximum tokens per training window, special tokens included; longer texts become several windows."""
    long: LongTexts = "windows"
    """Texts longer than a window: read in overlapping windows, refuse, or truncate."""
    evaluations_per_epoch: float = 1.0
    """Evaluations on dev per epoch; the best weights are kept."""
    patience: int | None = None
    """Early stopping: end after this many evaluations without improvement."""
    baselines: bool = True
    """Also score simple models on the same splits: most frequent answer, TF-IDF, frozen vectors + linear model."""
    checkpoint_every: int = 1000
    """Steps between checkpoints; 0: only when asked to stop."""
    resume: bool = False
    """Continue the run in the output directory. Without it, a directory that holds a run is refused."""


@settings
class FineTune(Encoded, Recipe):
    """Fine-tune on labelled data."""

    model: Directory
    """Checkpoint or run to start from."""
    train: Data
    """Labelled training data; dev and test are split off it unless they are given."""
    out: Output
    """Run directory."""
    dev: OptionalData = None
    """Data for model selection. [a stratified tenth of the training data]"""
    test: OptionalData = None
    """Data to report on, never used for selection. [without --dev: another tenth of the training data]"""
    on_error: OnError = "stop"
    """Rows that cannot be read or have no label: stop with file and line, or skip and count them."""
    folds: int | None = None
    """Cross-validation on --train with this many folds; the model that is kept is then trained on all of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("dev", "test") if getattr(self, name)]
        if self.folds and given:
            raise InputError(
                f"folds ({self.folds}) divides --train alone; leave --{given[0]} out, or put its rows into one file"
            )
        if self.folds and self.seeds > 1:
            raise InputError(
                f"folds ({self.folds}) and seeds ({self.seeds}) exclude each other: each fold has its seed"
            )


@settings
class Grouped(FineTune):
    """Groups of rows for splitting."""

    group_column: str | None = None
    """Column of --train such as author, patient or book: rows of one group stay on one side of every split and fold.
    [near-duplicate texts stay together]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_column is not None and self.dev:
            raise InputError(
                f"group_column ({self.group_column}) is for splitting --train, which is not split if --dev is given; "
                "leave one of them out"
            )


@settings
class TextVectors:
    """Which vector of a text the head reads."""

    pooling: Literal["auto", "cls", "mean"] = "auto"
    """[CLS] or the mean of all tokens. auto: the mean if the checkpoint was trained for sentence vectors with it, else
    what the family's own head reads."""
    window_pooling: Literal["mean", "max"] = "mean"
    """How the vectors of a long text's windows are combined."""
    train_windows: int = 2
    """Windows of a long text per training step, drawn anew in each epoch; inference reads all. 0: all."""


@settings
class Classify(TextVectors, TextColumns, Grouped):
    """Fine-tune a classifier of texts or of pairs of texts."""

    multi_label: bool = False
    """Each text may have several labels or none."""
    merge_labels: bool = False
    """Merge labels that differ only in case or white space, in the most frequent spelling."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: each class has the same total weight in the loss."""
    metric: Literal["accuracy", "f1", "f1_macro", "f1_micro", "matthews"] | None = None
    """Metric to report and to select by. [accuracy; f1_micro for multi-label]"""
    positive: str | None = None
    """Positive label for f1 with two classes. [the last in the alphabet]"""


@settings
class Regress(TextVectors, TextColumns, Grouped):
    """Fine-tune a regression model: a number for each text or pair of texts."""

    metric: Literal["spearman", "pearson"] = "spearman"
    """Metric to report and to select by."""


@settings
class Tag(TagColumns, FineTune):
    """Fine-tune a tagger: named entities (NER), or a label for every word."""

    context: bool = True
    """Read each sentence with its neighbours in the document, as many as fit."""


@settings
class Answer(FineTune):
    """Fine-tune an extractive question answering model (SQuAD 1.1 and 2.0)."""

    window: int = 384
    """Maximum tokens per window, question and special tokens included; longer passages become several windows."""
    overlap: int = 128
    """Passage tokens that neighbouring windows share."""
    max_answer_tokens: int = 30
    """Maximum length of an answer in tokens."""
    on_error: OnError = "stop"
    """Answers that are not at their stated position: stop with file and id, or skip and count them."""
    metric: Literal["f1", "exact_match"] = "f1"
    """Metric to report and to select by."""


@settings
class TrainEmbed(TextColumns, FineTune):
    """Fine-tune a sentence embedding model, on matching pairs or on scored pairs."""

    objective: Literal["auto", "pairs", "scores"] = "auto"
    """pairs: in-batch negatives; scores: the cosine regresses the score. [scores if the data have any, else pairs]"""
    gradient_accumulation: int = 1
    """Micro-batches per step. In-batch negatives come from one micro-batch only: leave it at 1, memory is bounded."""
    negative_column: str | None = None
    """Column with hard negatives. [negative, if there is one]"""
    learning_rate: LearningRate = 5e-5
    """Peak learning rate."""
    temperature: float = 0.05
    """Temperature of the softmax over cosines."""
    matryoshka_dims: tuple[int, ...] = ()
    """Matryoshka: prefixes of the vector that are trained to work as vectors too, such as 64 128 256."""
    pooling: VectorPooling = "auto"
    """auto: the checkpoint's own pooling, else the mean."""


@settings
class Glue(Recipe):
    """Fine-tune on each task of a GLUE directory, and print the table with its average."""

    model: Model
    """Checkpoint or run to start from."""
    directory: Positional[Directory]
    """Directory with one folder per task, as published: CoLA, SST-2, MRPC, STS-B, RTE, ..."""
    out: Output
    """Directory of the runs, one per task."""
    tasks: tuple[str, ...] = ()
    """Only these tasks. [all with training data]"""
