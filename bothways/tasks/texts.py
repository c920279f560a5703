"""Classification and regression: texts, or pairs read together or separately; vectors of a frozen encoder.

Letters: N texts, W windows of them, T tokens, H hidden size.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from bothways.base.errors import InputError, flag
from bothways.base.log import logger, muted
from bothways.model.config import encodes_separately
from bothways.settings.finetune import Classify, Regress, TrainDecide
from bothways.tasks.text_examples import MAX_TOKENS, MIN_STEP_TEXTS, TRAIN_WINDOWS, TextExamples
from bothways.tasks.training_task import Metrics, TaskReport, TrainingTask, sample_rows, text_reader
from bothways.text.data.columns import Table, join_tables
from bothways.text.data.split_tables import other_columns, read_unlabelled, text_columns, texts_by_location

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.linear.linear_head import RowLoss
    from bothways.model.linear.regressions import Kind, Score
    from bothways.model.linear.tfidf import TfidfModel
    from bothways.model.model import Model
    from bothways.tasks.decide.option_set import OptionSet
    from bothways.tasks.linear_start import FrozenFeatures

MAX_SEPARATE = 10_000  # training pairs above which reading both texts together is better (docs/LOG.md)
MAX_PAIRS = 10_000  # training pairs of the baseline, if the model itself reads both texts together
KEPT_LAYERS = 2 / 3  # fraction of layers to keep for few examples (docs/LOG.md, "Few examples")
PAIR_FEATURES = {"distance": "|u - v|", "pair": "u, v, |u - v| and u * v"}  # of their vectors u and v


class HeadInput(NamedTuple):
    """The input of a head on texts: a pooling ("cls", "mean", or one of PAIR_FEATURES) of the output of the encoder's
    first `layers` layers; None: of all."""

    pooling: str
    layers: int | None = None

    def describe(self) -> str:
        """A name for tables and messages."""
        if self.pooling in PAIR_FEATURES:
            return f"frozen vector pairs ({PAIR_FEATURES[self.pooling]})"
        kind = "[CLS] vectors" if self.pooling == "cls" else "vectors"
        return f"frozen {kind}" + (f" of {self.layers} layers" if self.layers else "")


@dataclass(frozen=True)
class TextReport(TaskReport):
    task: TextTask

    def num_rows(self, split: str) -> int:
        return len(self.task.tables[split])

    def lengths(self, split: str) -> list[int]:
        return self.task.data[split].lengths

    @cached_property
    def warnings(self) -> list[str]:
        return self.task.find_warnings()

    def lines(self) -> Iterator[str]:
        for split, examples in self.task.data.items():
            yield f"{split}: {examples.describe()}\n  {self.task.describe_targets(split)}"

    @cached_property
    def text_by_location(self) -> dict[str, tuple[str, str | None]]:
        """(text, second text) of each row, by location."""
        return texts_by_location(self.task.tables.values())

    def texts(self, where: Sequence[str]) -> Mapping[str, list[Any]]:
        return text_columns(self.text_by_location, where)

    def other_columns(self, where: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        settings = self.task.settings
        shown = set[str]()
        for table in self.task.tables.values():
            if table.columns is not None:
                shown |= table.columns.shown
        return other_columns(settings.sources.values(), where, columns, settings.encoding, shown)


class TextTask(TrainingTask):
    """A task whose rows are texts or pairs of texts; its subclasses are frozen dataclasses.

    reads: what the head reads; None: what the settings, the checkpoint and the rows suggest.
    is_frozen: whether the encoder is never trained, however many rows there are.
    """

    is_frozen: ClassVar[bool] = False

    max_micro_batch_tokens: ClassVar[float] = MAX_TOKENS
    min_step_examples: ClassVar[int] = MIN_STEP_TEXTS
    min_step_tokens: ClassVar[int] = 512
    min_steps: ClassVar[int] = 150
    no_label: ClassVar[float]
    """The target of a text without a label."""
    settings: Classify | Regress | TrainDecide
    pretrained: Checkpoint
    tables: Mapping[str, Table]
    data: Mapping[str, TextExamples]
    reads: HeadInput | None

    @classmethod
    @abstractmethod
    def build(cls, settings: Any, pretrained: Checkpoint, tables: Mapping[str, Table]) -> Self:
        """The task of these tables."""

    @property
    def num_kinds(self) -> int:  # type: ignore[override]
        return max(2, self.num_outputs)

    @property
    @abstractmethod
    def row_loss(self) -> RowLoss:
        """The loss of scores [N, C] and targets."""

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Outputs of the head."""

    @property
    @abstractmethod
    def linear_kind(self) -> Kind:
        """The kind of prediction of linear models of the rows."""

    @property
    def balanced(self) -> bool:
        """Whether all classes have the same total weight in a linear model."""
        return False

    @property
    def linear_score(self) -> Score | None:
        """By which the penalty of a linear model is selected; None: the loss."""
        return None

    @property
    @abstractmethod
    def tfidf_model(self) -> TfidfModel:
        """A linear model over TF-IDF, fitted on train, with the penalty selected on dev."""

    @property
    def soft_targets(self) -> np.ndarray | None:
        """The probability of each class of each training row, [N, C], which linear models are fitted to; None: the
        classes themselves."""
        return None

    @property
    def option_set(self) -> OptionSet | None:
        """The options, if their statements are read beside the texts; None for most tasks."""
        return None

    def outputs_of(self, scores_NC: np.ndarray) -> np.ndarray:
        """The task's outputs, which `scoring` takes, for scores of a linear model [N, C]."""
        return scores_NC

    @property
    def output_scale(self) -> float:
        """By which `outputs_of` multiplies scores."""
        return 1.0

    @abstractmethod
    def describe_targets(self, split: str) -> str:
        """A line about the targets of a split."""

    @abstractmethod
    def find_warnings(self) -> list[str]:
        """Warnings about the rows."""

    def with_all_rows(self, *, keep_test: bool) -> Self:
        """The task whose training rows are the rows of train, dev and test; keep_test: test stays apart."""
        apart = {"test"} if keep_test else set[str]()
        parts = [table for split, table in self.tables.items() if split not in apart]
        joined = join_tables(self.settings.train, parts)
        order = sorted(range(len(joined)), key=lambda row: (joined.where[row].file, joined.where[row].row))
        whole = {"train": joined.take(order)}
        others = {split: table for split, table in self.tables.items() if split in apart}
        return self.build(self.settings, self.pretrained, whole | others)

    @property
    def head_inputs(self) -> list[HeadInput]:
        """The inputs that a head on the frozen encoder can read, the best guess first.

        The last layers of an encoder that was trained for sentence vectors represent the topic of a text, and few
        examples do not suffice to learn anything else from them: its first KEPT_LAYERS come first.
        """
        if self.pair_features:
            asked = self.settings.pooling == "pair"
            return [HeadInput("pair")] if asked else [HeadInput("distance"), HeadInput("pair")]
        layers = math.ceil(KEPT_LAYERS * self.pretrained.model.config.num_hidden_layers)
        mean = [HeadInput("mean", layers), HeadInput("mean")] if layers else [HeadInput("mean")]
        if self.settings.pooling == "auto":
            return mean if self.pretrained.pooling == "mean" else [HeadInput("cls"), *mean[::-1]]
        return [HeadInput("cls")] if self.settings.pooling == "cls" else mean

    def with_text_head(self, labels: tuple[str, ...], seed: int, *, multi_label: bool = False) -> Checkpoint:
        """The pre-trained encoder with a new head for classes, or for a number if there are no labels.

        With a linear start, the pooler starts near the identity.
        """
        from bothways.model.checkpoint.changes.new_head import with_head

        means = self.pretrained.pooling == "mean"
        kind: str | None = self.reads.pooling if self.reads else self.settings.pooling
        if kind == "auto":
            kind = "mean" if means else None
        if kind == "mean" and means and self.pretrained.normalized:
            kind = "unit"
        if self.pair_features:
            features = PAIR_FEATURES[self.pair_features]
            logger.info(f"texts of a pair are encoded separately; the head reads {features}")
        return with_head(
            self.pretrained,
            "classes",
            labels,
            seed=seed,
            num_outputs=len(labels) or 1,
            multi_label=multi_label,
            dropout=self.settings.dropout,
            pooling=self.pair_features or kind,
            near_identity=self.settings.linear_start,
            is_fitted=self.settings.linear_start,
            layers=self.reads.layers if self.reads else None,
        )

    @cached_property
    def frozen(self) -> FrozenFeatures:
        from bothways.tasks.linear_start import FrozenFeatures

        with muted():
            model = self.inference_copy(self.initial_checkpoint(0).model)
        return FrozenFeatures(model, self.data)

    @cached_property
    def frozen_whole(self) -> FrozenFeatures:
        """The features of all layers of the encoder, of which `frozen` may have fewer."""
        from bothways.tasks.linear_start import FrozenFeatures

        if self.frozen.num_layers == self.pretrained.model.config.num_hidden_layers:
            return self.frozen
        return FrozenFeatures(self.inference_copy(self.pretrained.model), self.data)

    @cached_property
    def frozen_model(self) -> Model:
        """The pre-trained encoder with a linear head."""
        with muted():
            model = self.initial_checkpoint(0).model
        self.fit_head(model)
        return model

    @cached_property
    def pair_features(self) -> str | None:
        """The features of a pair whose texts are encoded separately (PAIR_FEATURES), as input of the head; None if the
        pair is read as one text."""
        if self.reads:
            return self.reads.pooling if self.reads.pooling in PAIR_FEATURES else None
        if self.settings.pooling == "pair":
            return "pair"
        is_static = self.pretrained.model.config.is_static
        has_vectors = self.pretrained.pooling == "mean" and (self.pretrained.normalized or is_static)
        if self.tables["train"].pairs is None or not has_vectors or self.settings.pooling != "auto":
            return None
        # Static vectors of both texts read together would not tell which word is of which text.
        return "pair" if is_static or len(self.tables["train"]) <= MAX_SEPARATE else None

    def with_targets(self, targets: Mapping[str, np.ndarray]) -> Self:
        """This task with encoded texts and these targets."""
        if self.settings.pooling == "pair" and self.tables["train"].pairs is None:
            raise InputError(
                f"pooling (pair) is for pairs of texts, but {self.settings.train} has single ones; "
                f"{flag('pair_column')} names the column of the second texts"
            )
        data = self.encode(self.pretrained, targets, self.pair_features is not None)
        return replace(self, data=data)  # type: ignore[type-var]

    def encode(self, model: Checkpoint, targets: Mapping[str, np.ndarray], separate: bool) -> dict[str, TextExamples]:
        """The texts of all splits as a model reads them. separate: see `TextExamples.encode`."""
        tokenizer, policy = text_reader(self.settings.windows, model)
        return {
            split: TextExamples.encode(table, targets[split], tokenizer, policy, separate=separate)
            for split, table in self.tables.items()
        }

    @cached_property
    def separate(self) -> Self | None:
        """For pairs, the task whose head reads "pair" features; else None."""
        if self.tables["train"].pairs is None or self.pair_features == "pair":
            return self if self.pair_features else None
        settings = replace(self.settings, pooling="pair")  # type: ignore[arg-type]  # decisions have no pairs
        if self.pair_features:
            return replace(self, settings=settings)  # type: ignore[type-var]
        rows = sample_rows([1] * len(self.tables["train"]), MAX_PAIRS, seed=0)
        tables = {**self.tables, "train": self.tables["train"].take(rows)}
        targets = {split: examples.targets for split, examples in self.data.items()}
        task = replace(self, settings=settings, tables=tables)  # type: ignore[type-var]
        return task.with_targets({**targets, "train": targets["train"][rows]})

    def training_examples(self, seed: int, epoch: int) -> TextExamples:
        return self.data["train"].sample_windows(TRAIN_WINDOWS, seed=seed, epoch=epoch)

    def metadata(self, metrics_by_split: Mapping[str, Metrics]) -> dict[str, bool]:
        return {"reads_pairs": self.tables["train"].pairs is not None}

    def encode_for(self, teacher: Checkpoint) -> dict[str, TextExamples]:
        """The texts as a teacher reads them. InputError if it compares two texts and there are single ones."""
        separate = encodes_separately(teacher.model.config)
        if separate and self.tables["train"].pairs is None:
            raise InputError(
                f"{self.settings.teacher}: compares the two texts of a pair, but {self.settings.train} has single texts"
            )
        targets = {split: examples.targets for split, examples in self.data.items()}
        return self.encode(teacher, targets, separate)

    def with_unlabelled(self) -> Self:
        train = self.tables["train"]
        examples = self.data["train"]
        added = read_unlabelled(self.settings, pairs=train.pairs is not None)
        targets = np.full((len(added), *examples.targets.shape[1:]), self.no_label, examples.targets.dtype)
        separate = examples.second is not None
        reader = text_reader(self.settings.windows, self.pretrained)
        more = TextExamples.encode(added, targets, *reader, separate=separate)
        pairs = None if train.pairs is None or added.pairs is None else train.pairs + added.pairs
        table = Table(
            texts=train.texts + added.texts,
            pairs=pairs,
            labels=None,
            where=train.where + added.where,
            columns=train.columns,
        )
        tables = {**self.tables, "train": table}
        data = {**self.data, "train": examples.joined(more)}
        return replace(self, tables=tables, data=data)  # type: ignore[type-var]
