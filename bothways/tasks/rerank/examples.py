"""Queries with their passages as training examples.

An example is a query, whose passages are scored together. A step reads some of them, drawn anew in each epoch;
inference reads all. Letters: N passages of L queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bothways.base.rng import Purpose, generator
from bothways.tasks import training_task
from bothways.tasks.text_examples import TRAIN_WINDOWS, TextExamples
from bothways.tasks.windows import WindowPolicy
from bothways.text.batch import Batch
from bothways.text.data.columns import Table
from bothways.text.data.rankings import RankedPassages
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RankBatch(Batch):
    """The windows of the passages of L queries, each read together with its query. labels [N]: of the passages, nan
    for those without; list_sizes [L]: how many passages each query has, which follow each other."""

    list_sizes: Tensor | None = None


@dataclass(frozen=True)
class RankExamples:
    """texts: each query with one of its passages, as a pair. lists: the rows of each query among them."""

    texts: TextExamples
    lists: list[list[int]]

    @staticmethod
    def encode(table: RankedPassages, tokenizer: Tokenizer, policy: WindowPolicy) -> RankExamples:
        """policy: how long passages are split."""
        labels = np.array([np.nan if label is None else label for label in table.labels], np.float32)
        pairs = Table(
            texts=table.queries,
            pairs=table.passages,
            labels=None,
            where=table.where,
            groups=table.units,
        )
        return RankExamples(TextExamples.encode(pairs, labels, tokenizer, policy), table.lists)

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each query with all its passages."""
        return [sum(self.texts.sizes[row] for row in rows) for rows in self.lists]

    @property
    def num_passages(self) -> list[int]:
        return [len(rows) for rows in self.lists]

    def batch(self, rows: Sequence[int]) -> RankBatch:
        """All windows of the passages of these queries, sorted by length."""
        import torch

        lists = [self.lists[row] for row in rows]
        batch = self.texts.batch([row for passages in lists for row in passages])
        values = {field.name: getattr(batch, field.name) for field in fields(batch)}
        return RankBatch(**values, list_sizes=torch.tensor([len(passages) for passages in lists]))

    def learnable(self) -> RankExamples:
        """Only the queries that have a relevant passage and one that is not."""
        labels_N = self.texts.targets
        kept = [rows for rows in self.lists if (labels_N[rows] > 0).any() and (labels_N[rows] == 0).any()]
        return replace(self, lists=kept)

    def sample(self, size: int, *, seed: int, epoch: int) -> RankExamples:
        """The same queries with at most `size` judged passages each: relevant ones in up to half of the places (more,
        if there are few others), and a random window of each long passage."""
        sampled = []
        for number, rows in enumerate(self.lists):
            draw = generator(seed, Purpose.NEGATIVES, epoch, number)
            order = [rows[place] for place in draw.permutation(len(rows)).tolist()]
            relevant = [row for row in order if self.texts.targets[row] > 0]
            others = [row for row in order if self.texts.targets[row] == 0]
            num_relevant = max(1, size // 2, size - len(others))
            chosen = relevant[:num_relevant]
            sampled.append([*chosen, *others[: size - len(chosen)]])
        return RankExamples(self.texts.sample_windows(TRAIN_WINDOWS, seed=seed, epoch=epoch), sampled)

    def describe(self) -> str:
        labels_N = self.texts.targets
        num_relevant = sum(int((labels_N[rows] > 0).sum()) for rows in self.lists)
        num_long = int((self.texts.windows.num_windows > 1).sum())
        lengths = training_task.describe_lengths(self.texts.lengths, "tokens with the query")
        return (
            f"{len(self.lists):,} queries with {len(labels_N):,} passages, {num_relevant:,} of them relevant, "
            f"{lengths}; {num_long:,} read in windows"
        )
