"""Classification and regression: texts, or pairs read together or separately; vectors of a frozen encoder.

Letters: N texts, W windows of them, T tokens, H hidden size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from bothways.batch import Batch
from bothways.checkpoint.contents import Checkpoint
from bothways.checkpoint.description import cloze_phrase
from bothways.config import encodes_separately
from bothways.data.columns import Table
from bothways.data.split_tables import read_unlabelled
from bothways.errors import InputError
from bothways.linear import linear_head
from bothways.log import muted
from bothways.model.heads import mean_pool
from bothways.model.model import Model
from bothways.model.prepacked import prepack
from bothways.settings.finetune import Classify, Regress
from bothways.tasks.text_examples import FEW_TEXTS, MAX_TOKENS, MIN_STEP_TEXTS, TextExamples, pool_over_windows
from bothways.tasks.training_task import Metrics, Summary, TrainingTask, compute_outputs, last_layer, sample_rows

MAX_SEPARATE = 10_000  # training pairs above which reading both texts together is better (docs/LOG.md)
MAX_PAIRS = 10_000  # training pairs of the baseline, if the model itself reads both texts together
MAX_WINDOWS = 8  # windows of a text to pool over
FEW_TOKENS = 200_000  # training texts with fewer tokens are read with as many windows as dev and test


class FrozenFeatures:
    """Vectors of the texts of a split, computed on first use: features[split] has float32 [N, H] by pooling.

    "head" is the hidden state that the model's head reads, "mean" the mean of all tokens, each pooled over windows.

    At most MAX_WINDOWS windows of a text are read, and of large training sets only as many as in a training step, so
    that computing the features takes less than half an epoch, or a few seconds.

    model: in eval mode, on the device and in the dtype of the computation. train_windows: windows of a text in a
    training step. window_pooling: "mean" or "max", over the windows of a text.
    """

    def __init__(self, model: Model, data: Mapping[str, TextExamples], train_windows: int, window_pooling: str) -> None:
        self.data, self.train_windows, self.window_pooling = data, train_windows, window_pooling
        self.num_layers = model.config.num_hidden_layers
        self.model: Model | None = model  # until the features of all splits are there
        self._computed: dict[str, dict[str, Tensor]] = {}

    def sample(self, split: str) -> TextExamples:
        """The windows that are read."""
        sample = self.data[split].sample_windows(MAX_WINDOWS, seed=0, epoch=0)
        if split != "train" or sum(sample.sizes) <= FEW_TOKENS:
            return sample
        return sample.sample_windows(self.train_windows, seed=0, epoch=0)

    def __getitem__(self, split: str) -> dict[str, Tensor]:
        if split not in self._computed:
            assert self.model is not None
            forward = partial(pool_states, encode=prepack(self.model), window_pooling=self.window_pooling)
            states_N2H = np.stack(compute_outputs(self.model, self.sample(split), forward))
            head_NH, mean_NH = torch.from_numpy(states_N2H).unbind(1)
            self._computed[split] = {"head": head_NH.contiguous(), "mean": mean_NH.contiguous()}
            if self._computed.keys() >= self.data.keys():
                self.model = None
        return self._computed[split]


def pool_states(model: Model, batch: Batch, *, encode: Callable[[Batch], Tensor], window_pooling: str) -> Tensor:
    """The state read by the head and the mean of all tokens, for each text: [N, 2, H]; for separate pairs [N, 2, 2, H].

    encode: computes the model's hidden states.
    """
    hidden_TH = encode(batch)
    states = model.text_states(hidden_TH, batch), mean_pool(hidden_TH, batch.lengths)
    separate = encodes_separately(model.config)
    return torch.stack([pool_over_windows(x_WH, batch, window_pooling, separate=separate) for x_WH in states], 1)


def fit_text_head(
    model: Model,
    features: FrozenFeatures,
    loss: linear_head.RowLoss,
    splits: Sequence[str],
    score: linear_head.Score | None = None,
) -> None:
    """Fit the last layer of a text head, in place, to the features of these splits.

    The penalty is selected on dev by the score (by the loss if there is no score), or in cross-validation if dev is
    among the splits.
    """
    pooler = model.eval().pooler
    assert pooler is not None

    def read_rows(split: str) -> linear_head.Rows:
        with torch.no_grad():
            return pooler(features[split]["head"]), torch.from_numpy(features.data[split].targets)

    x_NH, targets = map(torch.cat, zip(*map(read_rows, splits), strict=True))
    units = [unit for split in splits for unit in features.data[split].units]
    layer, dev = last_layer(model, "classes"), None if "dev" in splits else read_rows("dev")
    linear_head.fit((x_NH, targets), loss, layer.out_features, groups=units, dev=dev, score=score).write_to(layer)


@dataclass(frozen=True)
class TextSummary(Summary):
    """describe_targets: a line about the targets of a split. find_warnings: called once they are needed."""

    tables: Mapping[str, Table]
    data: Mapping[str, TextExamples]
    describe_targets: Callable[[str], str]
    find_warnings: Callable[[], list[str]]

    def num_rows(self, split: str) -> int:
        return len(self.tables[split])

    def lengths(self, split: str) -> list[int]:
        return self.data[split].lengths

    @cached_property
    def warnings(self) -> list[str]:
        return self.find_warnings()

    def describe(self) -> str:
        lines = [
            f"{split}: {examples.describe()}\n  {self.describe_targets(split)}" for split, examples in self.data.items()
        ]
        return "\n".join([*lines, *self.warnings])


class TextTask(TrainingTask):
    """A task whose rows are texts or pairs of texts; its subclasses are frozen dataclasses."""

    max_micro_batch_tokens: ClassVar[float] = MAX_TOKENS
    freeze_below: ClassVar[int] = FEW_TEXTS
    min_step_examples: ClassVar[int] = MIN_STEP_TEXTS
    min_step_tokens: ClassVar[int] = 512
    min_steps: ClassVar[int] = 150
    no_label: ClassVar[float]
    """The target of a text without a label."""
    settings: Classify | Regress
    pretrained: Checkpoint
    tables: Mapping[str, Table]
    data: Mapping[str, TextExamples]

    @cached_property
    def frozen(self) -> FrozenFeatures:
        with muted():
            model = self.inference_copy(self.initial_checkpoint(0).model)
        return FrozenFeatures(model, self.data, self.settings.train_windows, self.settings.window_pooling)

    @cached_property
    def frozen_model(self) -> Model:
        """The pre-trained encoder with a linear head."""
        with muted():
            model = self.initial_checkpoint(0).model
        self.fit_head(model)
        return model

    @cached_property
    def pair_features(self) -> str | None:
        """What the head reads of a pair whose texts are encoded separately (PAIR_FEATURES); None: it reads the pair as
        one text."""
        if self.settings.pooling == "pair":
            return "pair"
        has_vectors = self.pretrained.pooling == "mean" and self.pretrained.normalized
        if self.tables["train"].pairs is None or not has_vectors or self.settings.pooling != "auto":
            return None
        if self.stays_frozen:
            return "distance"
        return "pair" if len(self.tables["train"]) <= MAX_SEPARATE else None

    def with_targets(self, targets: Mapping[str, np.ndarray]) -> Self:
        """This task with encoded texts and these targets."""
        if self.settings.pooling == "pair" and self.tables["train"].pairs is None:
            raise InputError(
                f"pooling (pair) is for pairs of texts, but {self.settings.train} has single ones; --pair-column names "
                "the column of the second texts"
            )
        separate, (tokenizer, policy) = self.pair_features is not None, self.reader(self.pretrained)
        data = {
            split: TextExamples.encode(
                table, targets[split], tokenizer, policy, separate=separate, phrase=self.settings.cloze
            )
            for split, table in self.tables.items()
        }
        return replace(self, data=data)  # type: ignore[type-var]

    @cached_property
    def separate(self) -> Self | None:
        """For pairs, the task whose head reads "pair" features; else None."""
        if self.tables["train"].pairs is None or self.pair_features == "pair":
            return self if self.pair_features else None
        settings = replace(self.settings, pooling="pair")
        if self.pair_features:
            return replace(self, settings=settings)  # type: ignore[type-var]
        rows = sample_rows([1] * len(self.tables["train"]), MAX_PAIRS, seed=0)
        tables = {**self.tables, "train": self.tables["train"].take(rows)}
        targets = {split: examples.targets for split, examples in self.data.items()}
        task = replace(self, settings=settings, tables=tables)  # type: ignore[type-var]
        return task.with_targets({**targets, "train": targets["train"][rows]})

    def training_examples(self, seed: int, epoch: int) -> TextExamples:
        return self.data["train"].sample_windows(self.settings.train_windows, seed=seed, epoch=epoch)

    def metadata(self, metrics_by_split: Mapping[str, Metrics]) -> dict[str, bool]:
        return {"reads_pairs": self.tables["train"].pairs is not None}

    def encode_for(self, teacher: Checkpoint) -> dict[str, TextExamples]:
        """The texts as a teacher reads them. InputError if it compares two texts and there are single ones."""
        separate = encodes_separately(teacher.model.config)
        if separate and self.tables["train"].pairs is None:
            raise InputError(
                f"{self.settings.teacher}: compares the two texts of a pair, but {self.settings.train} has single texts"
            )
        (tokenizer, policy), phrase = self.reader(teacher), cloze_phrase(teacher.metadata)
        return {
            split: TextExamples.encode(
                table, self.data[split].targets, tokenizer, policy, separate=separate, phrase=phrase
            )
            for split, table in self.tables.items()
        }

    def with_unlabelled(self) -> Self:
        train, examples = self.tables["train"], self.data["train"]
        added = read_unlabelled(self.settings, pairs=train.pairs is not None)
        targets = np.full((len(added), *examples.targets.shape[1:]), self.no_label, examples.targets.dtype)
        separate = examples.second is not None
        phrase = self.settings.cloze
        more = TextExamples.encode(added, targets, *self.reader(self.pretrained), separate=separate, phrase=phrase)
        pairs = None if train.pairs is None or added.pairs is None else train.pairs + added.pairs
        table = Table(train.texts + added.texts, pairs, None, train.where + added.where)
        tables, data = {**self.tables, "train": table}, {**self.data, "train": examples.joined(more)}
        return replace(self, tables=tables, data=data)  # type: ignore[type-var]
