"""Settings of `finetune`: data, optimization, and the options of each task."""

from dataclasses import fields
from pathlib import Path
from typing import Literal

from bothways.base.errors import InputError, flag
from bothways.pretrained import DEFAULT
from bothways.settings import base
from bothways.settings.fields import Location, OptionalLocation, Several, option
from bothways.settings.tables_in_memory import TableSource

# Of `finetune`, for steps of a training.
TRAINING_OPTIONS = (
    "epochs",
    "minutes",
    "learning_rate",
    "dev",
    "adapter",
    "quantize",
    "teacher",
    "unlabelled",
    "keep_layers",
    "seeds",
    "linear_start",
)


@base.settings
class Recipe(base.Optimization, base.Compute, base.Printed):
    """Options of every fine-tuning task."""

    seeds: int = option("training", default=1, least=1)
    """Number of runs with different seeds; reports mean and standard deviation."""
    seed: int = option("training", default=0, least=0, most=2**63 - 1)
    """Random seed; with --seeds N, the runs use this seed and the N - 1 that follow it."""
    epochs: float | None = option("training", default=None, least=0.001, first=True)
    """Passes over the training data. [3; for small data enough for 150 to 300 steps, at most 20; of few rows none]"""
    minutes: float | None = option("training", default=None, least=0.001, first=True)
    """Limit of the run: fewer epochs, and parts of the comparison left out. Few rows: time to try training, too."""
    batch_tokens: int | None = option("training", default=None, least=1)
    """Maximum tokens per step; a longer example is its own step. [2048; fewer for small data, at least 16 texts]"""
    batch_size: int | None = option("training", default=None, least=1)
    """Examples per step, instead of --batch-tokens."""
    learning_rate: float | None = option("training", default=None, least=0, aliases=("--lr",))
    """Peak learning rate. [5e-5 * (768 / hidden size)^1.5, at most 5e-4]"""
    warmup: float = option("training", default=0.1, least=0, most=1)
    """Fraction of the steps in which the learning rate rises."""
    linear_start: bool = option("training", default=True)
    """Start from the best linear head on the frozen encoder (LP-FT); keep it unless training beats it on dev."""
    dropout: float = option("training", default=0.1, least=0, most=0.9)
    """Dropout probability, everywhere in the model."""
    window: int = option("model", default=256, least=8, first=True)
    """Maximum tokens per window, special tokens included; longer texts are split into several windows."""
    long: base.LongTexts = option("model", default="windows")
    """Texts longer than a window: split into overlapping windows, raise an error, or truncate."""
    evaluations_per_epoch: float | None = option("evaluation", default=None, least=0.001)
    """Evaluations on dev per epoch. [3 to 12 in the run, for 15 % of its time]"""
    patience: int | None = option("evaluation", default=4, least=1)
    """Early stopping: after this many evaluations without a better metric or a lower loss, the learning rate falls to 0
    in a tenth of the steps so far. With a training loss near 0 it does so at once. None: train to the end."""
    baselines: bool = option("evaluation", default=True)
    """Also score simple baselines on the same splits, such as TF-IDF, or in tag the most frequent tag of each word."""
    checkpoint_every: int = option("output", default=1000, least=0)
    """Steps between checkpoints; 0: only on Ctrl-C or SIGTERM."""
    resume: bool = option("output", default=False, first=True)
    """Continue the run in the output directory. Without it, a directory that already has a run is an error."""


@base.settings
class Adapters:
    """Training of a small addition to the model instead of its weights."""

    adapter: Literal["lora", "bitfit"] | None = option("training", default=None, first=True)
    """Train and save only an addition to the model, which itself does not change, and the head: LoRA in all linear maps
    (Hu 2022), or all biases (Ben Zaken 2022)."""
    rank: int = option("training", default=8, least=1, most=1024)
    """With --adapter lora: rank of the added matrices."""


@base.settings
class FineTune(Adapters, base.Encoded, Recipe):
    """Fine-tune on labelled data."""

    model: Location = option("model", default=Path(DEFAULT), metavar="DIR", first=True)
    """Checkpoint, run, or name of a model on the hub to start from; tf-idf: a linear model over TF-IDF, no encoder."""
    train: base.Data = option("data")
    """Labelled training data; dev and test sets are split off it unless they are given."""
    out: Location = option("output", aliases=("-o",))
    """Run directory."""
    dev: base.OptionalData = option("data", default=None, first=True)
    """Data for model selection. [a tenth of the training data, stratified by class in classification]"""
    test: base.OptionalData = option("data", default=None, first=True)
    """Data for the reported score, not for selection. [without --dev, a tenth of --train; with it, dev is reported]"""
    on_error: base.OnError = option("data", default="stop")
    """Rows that are unreadable or have no label: stop and report file and line, or skip and count them."""
    folds: int | None = option("data", default=None, least=2, first=True)
    """Cross-validate on --train with this many folds; then train on all folds, except a tenth for selection."""
    keep_layers: Several[int] = option("model", default=())
    """Start from these layers of --model only, counted from 0, such as 0 2 5: a smaller and faster model. [all]"""
    teacher: OptionalLocation = option("task", default=None, metavar="DIR")
    """Distill: also learn the outputs of this model, fine-tuned for the same task (Hinton 2015)."""
    quantize: Literal["int8"] | None = option("training", default=None)
    """Train the last part of the run with inputs and weights rounded to 8 bits, and save an int8 model (Jacob 2018)."""
    alpha: float = option("task", default=0.5, least=0, most=1)
    """Weight of the teacher's outputs in the loss, from 0 to 1; the labels have the rest."""
    unlabelled: base.DataList = option("data", default=())
    """With --teacher: files of more texts (or pairs) without labels, which only the teacher labels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unlabelled and not self.is_distilled:
            reason = f"without {flag('teacher')}" if self.teacher is None else f"with {flag('alpha', 0)}"
            raise InputError(f"unlabelled ({self.unlabelled[0]}) has no effect {reason}: only a teacher labels it")

        if self.adapter and self.keep_layers:
            raise InputError(
                f"keep_layers has no meaning with adapter ({self.adapter}): it belongs to the whole model; leave out "
                "one of them"
            )
        if self.adapter and self.quantize:
            raise InputError("quantize changes the weights, which adapter leaves as they are; leave out one of them")

        separate = [name for name in ("dev", "test") if getattr(self, name)]
        if self.folds and separate:
            raise InputError(
                f"folds ({self.folds}) divides only {flag('train')}; leave out {flag(separate[0])}, or put all rows "
                "into one file"
            )
        if self.folds and self.seeds > 1:
            raise InputError(
                f"folds ({self.folds}) and seeds ({self.seeds}) exclude each other: each fold has its own seed"
            )

    @property
    def windows(self) -> tuple[int, int, base.LongTexts]:
        """Tokens of a window, those that neighbouring windows share (a quarter, unless there is an option for it), and
        what happens to longer texts."""
        return self.window, getattr(self, "overlap", self.window // 4), self.long

    @property
    def is_distilled(self) -> bool:
        """Whether a teacher's outputs are part of the loss."""
        return self.teacher is not None and self.alpha > 0

    @property
    def sources(self) -> dict[str, TableSource]:
        """The labelled data by split, without the splits that are divided off train."""
        sources = {"train": self.train, "dev": self.dev, "test": self.test}
        return {split: source for split, source in sources.items() if source}


@base.settings
class Grouped(FineTune):
    """Groups of rows that splits must not divide."""

    group_column: str | None = option("data", default=None)
    """Column of --train (author, book) whose groups are never split. [none; near-duplicates stay together]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_column is not None and self.dev:
            raise InputError(
                f"group_column ({self.group_column}) has no effect with {flag('dev')}, since {flag('train')} is not "
                "split then; leave out one of them"
            )


@base.settings
class TextPooling:
    """The text vector that the head reads."""

    pooling: Literal["auto", "cls", "mean", "pair"] = option("model", default="auto")
    """Input of the head: [CLS], mean, or pair: both texts' separate means. auto: as the checkpoint was trained."""


@base.settings
class Classify(TextPooling, base.TextColumns, Grouped):
    """Fine-tune a classifier of texts or pairs of texts."""

    multi_label: bool = option("task", default=False, first=True)
    """Each text may have several labels or none."""
    class_weights: Literal["none", "balanced"] = option("task", default="none")
    """balanced: each class has the same total weight in the loss."""
    metric: Literal["accuracy", "f1", "f1_macro", "f1_micro", "matthews"] | None = option("evaluation", default=None)
    """Metric to report and to select the model by. [accuracy; f1_micro for multi-label]"""
    positive: str | None = option("evaluation", default=None)
    """Positive label for f1 with two classes. [the alphabetically last label]"""


@base.settings
class TrainDecide(base.TextColumns, Grouped):
    """Fine-tune decisions among options: from a few rows on, with options that have none. The encoder stays as it
    is."""

    options: str | None = option("task", default=None, first=True, metavar="A,B,C|FILE.json")
    """Options beside those in --train, separated by commas; or a .json file with the names of options and a description
    of each, or a list of descriptions of which one holds. [the labels of --train, which describe themselves]"""
    question: str = option("task", default="")
    """A question that is read before each option, such as "What is this message about?"."""
    probabilities_column: str | None = option("data", default=None)
    """Column with the probability of each option as a JSON object, such as an LLM gives it: soft targets."""

    # Not options here, but what a classifier is asked.
    multi_label = False
    class_weights = "none"
    metric = "accuracy"
    positive = None
    pooling = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        defaults = {each.name: each.default for each in fields(self)}
        for name in TRAINING_OPTIONS:
            value = getattr(self, name)
            if value != defaults[name]:
                raise InputError(
                    f"{name} ({value}) is for a training of the encoder, which stays as it is here; leave it out, or "
                    "use finetune classify"
                )


@base.settings
class Regress(TextPooling, base.TextColumns, Grouped):
    """Fine-tune a regression model: a number for each text or pair of texts."""

    metric: Literal["spearman", "pearson"] = option("evaluation", default="spearman")
    """Metric to report and to select the model by."""


@base.settings
class Tag(base.TagColumns, FineTune):
    """Fine-tune a tagger: named entities (NER), or a label for every word."""

    context: bool = option("model", default=True, first=True)
    """Read each sentence together with as many neighbouring sentences of its document as fit into a window."""


@base.settings
class Answer(FineTune):
    """Fine-tune an extractive question answering model (SQuAD 1.1 and 2.0)."""

    window: int = option("model", default=384, least=8, first=True)
    """Maximum tokens per window, question and special tokens included; longer passages are split into windows."""
    overlap: int = option("model", default=128, least=0)
    """Passage tokens shared by neighbouring windows."""
    max_answer_tokens: int = option("task", default=30, least=1)
    """Maximum length of an answer in tokens."""
    on_error: base.OnError = option("data", default="stop")
    """Answers not found at their offset: stop and report file and id, or skip and count them."""
    metric: Literal["f1", "exact_match"] = option("evaluation", default="f1")
    """Metric to report and to select the model by."""


@base.settings
class TrainEmbed(base.TextColumns, FineTune):
    """Fine-tune a sentence embedding model, on matching pairs or on scored pairs."""

    objective: Literal["auto", "pairs", "scores"] = option("task", default="auto")
    """pairs: contrastive, in-batch negatives; scores: fit the cosine to the score. auto: scores if there are any."""
    gradient_accumulation: int = option("training", default=1, least=1)
    """Micro-batches per step. Negatives come from the same micro-batch, so keep it at 1; memory is bounded anyway."""
    negative_column: str | None = option("data", default=None)
    """Column with hard negatives. [negative, if there is one]"""
    negatives_from: OptionalLocation = option("data", default=None, metavar="STORE", first=True)
    """Index (`bothways index`) or folder that is searched for a hard negative of each pair. The rows with them are
    written to rows.jsonl in the run directory."""
    learning_rate: float | None = option("training", default=5e-5, least=0, aliases=("--lr",))
    """Peak learning rate."""
    temperature: float = option("task", default=0.05, least=0.001, most=10)
    """Temperature of the softmax over cosines."""
    matryoshka_dims: Several[int] = option("task", default=())
    """Also train the first N components to work as vectors on their own (Matryoshka), such as 64 128 256."""
    pooling: base.VectorPooling = option("model", default="auto")
    """auto: the checkpoint's own pooling, else the mean."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.negatives_from and (self.negative_column is not None or self.objective == "scores"):
            name = "objective" if self.objective == "scores" else "negative_column"
            raise InputError(
                f"negatives_from ({self.negatives_from}) finds negatives of matching pairs; leave out "
                f"{flag(name, getattr(self, name))}"
            )

    @property
    def mined_rows(self) -> Path:
        """The pairs with the negatives that a search finds."""
        return Path(self.out) / "rows.jsonl"


@base.settings
class Rerank(base.TextColumns, FineTune):
    """Fine-tune a reranker: a model that reads a query and a passage together, and orders what a search has found."""

    train: base.OptionalData = option("data", default=None, first=True)  # type: ignore[assignment]
    """Rows of query, passage and label (0: not relevant, more: relevant), with the rank or score of the search."""
    pairs: OptionalLocation = option("data", default=None, first=True)
    """Instead of --train: rows of a query and a relevant passage, such as clicks; or a BEIR directory (Thakur 2021).
    The other passages are what a search finds; they are written to rows.jsonl in the run directory."""
    negatives_from: OptionalLocation = option("data", default=None, metavar="STORE", first=True)
    """With --pairs: the index (`bothways index`) or folder that is searched. [the documents of the BEIR directory]"""
    passages: int = option("data", default=20, least=2, most=1000, first=True)
    """With --pairs: how many of the first passages of each search are read, and reranked later."""
    first_rank: int = option("data", default=1, least=1)
    """With --pairs: passages in places before this one are no negatives, as some may be relevant."""
    max_share: float | None = option("data", default=None, least=0.01)
    """With --pairs: nor are those whose score is above this share of the relevant passage's, such as 0.95. [none]"""
    negatives: int = option("training", default=7, least=1, most=200, first=True)
    """Passages beside a relevant one that a step reads for each query, drawn anew in each epoch."""
    pooling: Literal["cls", "mean"] = option("model", default="cls")
    """Input of the head: [CLS], or the mean of all tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.train and not self.pairs:
            raise InputError(
                f"train is missing: name rows of query, passage and label, or give {flag('pairs')} with "
                f"{flag('negatives_from')}"
            )
        if self.pairs and self.train not in (None, self.mined_rows):
            raise InputError(f"pairs ({self.pairs}) stands in for {flag('train')}; leave out one of them")
        if self.negatives_from and not self.pairs:
            raise InputError(
                f"negatives_from ({self.negatives_from}) needs {flag('pairs')}, whose queries are searched"
            )
        for name in ("teacher", "unlabelled"):
            if value := getattr(self, name):
                raise InputError(f"{name} ({value}) has no use for a reranker; leave it out")

    @property
    def mined_rows(self) -> Path:
        """The rows that a search finds for the pairs."""
        return Path(self.out) / "rows.jsonl"
