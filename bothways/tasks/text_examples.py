"""Texts as training examples: windows of long texts, pooled into one vector per text.

A training step reads a random sample of a long text's windows, drawn anew in each epoch; inference reads all windows.

Letters: N texts, W windows of them, H hidden size, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bothways.base.rng import Purpose, generator
from bothways.tasks.training_task import describe_lengths
from bothways.tasks.windows import WindowPolicy, whole_length
from bothways.text.batch import Batch
from bothways.text.data.columns import Table
from bothways.text.tokenizer.tokenizer import Encoding, Tokenizer

MAX_TOKENS = 1024  # of texts whose activations are kept; the windows of larger batches are recomputed
MAX_PAIR_TOKENS = 8192  # of pairs, whose losses need the whole batch
TRAIN_WINDOWS = 1  # of a long text in a training step, drawn anew in each epoch; inference reads all
MIN_STEP_TEXTS = 16  # a step of fewer texts, even long ones, has a noisy gradient


@dataclass(frozen=True)
class TextExamples:
    """Texts as windows, with their targets: classes [N], numbers [N], or labels [N, C]. units: `Table.units`."""

    windows: list[list[Encoding]]
    targets: np.ndarray
    units: list[str]
    second: TextExamples | None = None
    """The second texts of pairs that are encoded separately."""

    @staticmethod
    def encode(
        table: Table, targets: np.ndarray, tokenizer: Tokenizer, policy: WindowPolicy, *, separate: bool = False
    ) -> TextExamples:
        """policy: how long texts are split. separate: encode the texts of a pair separately.

        InputError if the first text of a pair leaves too little room for the second.
        """
        if separate and table.pairs is not None:
            first, second = (
                TextExamples.encode(replace(table, texts=texts, pairs=None), targets, tokenizer, policy)
                for texts in (table.texts, table.pairs)
            )
            return replace(first, second=second, units=table.units)
        windows = policy.split(tokenizer.encode_many(table.texts, table.pairs), table.where)
        return TextExamples(windows, targets, table.units)

    def take(self, rows: Sequence[int]) -> TextExamples:
        """These texts only."""
        second = self.second and self.second.take(rows)
        units = [self.units[row] for row in rows]
        return TextExamples(
            windows=[self.windows[row] for row in rows],
            targets=self.targets[[*rows]],
            units=units,
            second=second,
        )

    def joined(self, other: TextExamples) -> TextExamples:
        """These texts, and the texts of another set."""
        second = self.second.joined(other.second) if self.second and other.second else None
        targets = np.concatenate([self.targets, other.targets])
        return TextExamples(
            windows=self.windows + other.windows,
            targets=targets,
            units=self.units + other.units,
            second=second,
        )

    @cached_property
    def sizes(self) -> list[int]:
        """Number of tokens of each text or pair, summed over its windows (overlaps count twice; see `lengths`)."""
        sizes = [sum(map(len, windows)) for windows in self.windows]
        return [*map(sum, zip(sizes, self.second.sizes, strict=True))] if self.second else sizes

    @property
    def lengths(self) -> list[int]:
        """Tokens of each whole text or pair."""
        lengths = [*map(whole_length, self.windows)]
        return [*map(sum, zip(lengths, self.second.lengths, strict=True))] if self.second else lengths

    def sample_windows(self, max_windows: int, *, seed: int, epoch: int) -> TextExamples:
        """The same texts with at most max_windows random windows of each (0: all)."""
        if self.second:
            first = replace(self, second=None).sample_windows(max_windows, seed=seed, epoch=epoch)
            return replace(first, second=self.second.sample_windows(max_windows, seed=seed, epoch=epoch))
        if not max_windows or all(len(windows) <= max_windows for windows in self.windows):
            return self
        sampled = []
        for row, windows in enumerate(self.windows):
            if len(windows) > max_windows:
                indices = generator(seed, Purpose.WINDOWS, epoch, row).permutation(len(windows))[:max_windows]
                windows = [windows[index] for index in sorted(indices)]
            sampled.append(windows)
        return replace(self, windows=sampled)

    def batch(self, rows: Sequence[int]) -> Batch:
        """All windows of these texts, sorted by length, with `text_of_window` and targets as labels.

        Texts of pairs that are encoded separately have the indices 2n and 2n + 1 for pair n.
        """
        import torch

        roles = [self, self.second] if self.second else [self]
        texts = [role.windows[row] for row in rows for role in roles]
        entries = [(window, text) for text, windows in enumerate(texts) for window in windows]
        entries.sort(key=lambda entry: len(entry[0]))
        return replace(
            Batch.from_encodings([window for window, _ in entries]),
            text_of_window=torch.tensor([text for _, text in entries]),
            labels=torch.from_numpy(self.targets[list(rows)]),
        )

    def describe(self) -> str:
        lengths = self.lengths
        num_long = sum(len(windows) > 1 for windows in self.windows)
        kind = "pairs" if self.second else "texts"
        return f"{len(lengths):,} {kind}, {describe_lengths(lengths)}; {num_long:,} read in windows"
