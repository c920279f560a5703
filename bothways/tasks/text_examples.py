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
from bothways.tasks.windows import WindowPolicy
from bothways.text.batch import Batch
from bothways.text.data.columns import Table
from bothways.text.token_windows import Integers, TokenWindows
from bothways.text.tokenizer.tokenizer import Tokenizer

MAX_TOKENS = 1024  # of texts whose activations are kept; the windows of larger batches are recomputed
MAX_PAIR_TOKENS = 8192  # of pairs, whose losses need the whole batch
TRAIN_WINDOWS = 1  # of a long text in a training step, drawn anew in each epoch; inference reads all
MIN_STEP_TEXTS = 16  # a step of fewer texts, even long ones, has a noisy gradient


@dataclass(frozen=True)
class TextExamples:
    """Texts as windows, with their targets: classes [N], numbers [N], or labels [N, C]. units: `Table.units`."""

    windows: TokenWindows
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
        different, rows = TokenWindows.encode(tokenizer, table.texts, table.pairs)
        windows = policy.divide(different, rows, table.where).take(rows)
        return TextExamples(windows, targets, table.units)

    def take(self, rows: Sequence[int]) -> TextExamples:
        """These texts only."""
        second = self.second and self.second.take(rows)
        units = [self.units[row] for row in rows]
        return TextExamples(
            windows=self.windows.take(rows),
            targets=self.targets[[*rows]],
            units=units,
            second=second,
        )

    def joined(self, other: TextExamples) -> TextExamples:
        """These texts, and the texts of another set."""
        second = self.second.joined(other.second) if self.second and other.second else None
        targets = np.concatenate([self.targets, other.targets])
        return TextExamples(
            windows=self.windows.joined(other.windows),
            targets=targets,
            units=self.units + other.units,
            second=second,
        )

    @cached_property
    def sizes(self) -> list[int]:
        """Number of tokens of each text or pair, summed over its windows (overlaps count twice; see `lengths`)."""
        sizes: list[int] = self.windows.sizes.tolist()
        return [*map(sum, zip(sizes, self.second.sizes, strict=True))] if self.second else sizes

    @property
    def lengths(self) -> list[int]:
        """Tokens of each whole text or pair."""
        lengths: list[int] = self.windows.whole_lengths.tolist()
        return [*map(sum, zip(lengths, self.second.lengths, strict=True))] if self.second else lengths

    def sample_windows(self, max_windows: int, *, seed: int, epoch: int) -> TextExamples:
        """The same texts with at most max_windows random windows of each (0: all)."""
        if self.second:
            first = replace(self, second=None).sample_windows(max_windows, seed=seed, epoch=epoch)
            return replace(first, second=self.second.sample_windows(max_windows, seed=seed, epoch=epoch))
        numbers_N = self.windows.num_windows
        if not max_windows or numbers_N.max(initial=0) <= max_windows:
            return self

        is_kept_W = np.ones(len(self.windows.ranges), bool)
        for row in np.flatnonzero(numbers_N > max_windows).tolist():
            order = generator(seed, Purpose.WINDOWS, epoch, row).permutation(numbers_N[row])
            is_kept_W[self.windows.bounds[row] + order[max_windows:]] = False
        return replace(self, windows=self.windows.kept(np.flatnonzero(is_kept_W)))

    @cached_property
    def read(self) -> TokenWindows:
        """The windows of all texts, and then the windows of all second texts that are encoded separately."""
        return self.windows.joined(self.second.windows) if self.second else self.windows

    def batch(self, rows: Sequence[int]) -> Batch:
        """All windows of these texts, sorted by length, with `text_of_window` and targets as labels.

        Texts of pairs that are encoded separately have the indices 2n and 2n + 1 for pair n.
        """
        import torch

        texts = np.asarray(rows, np.int64)
        if self.second:
            texts = np.stack([texts, texts + len(self.windows)], axis=1).ravel()
        batch, text_W, _ = batch_of_texts(self.read, texts)
        return replace(
            batch,
            text_of_window=torch.from_numpy(text_W),
            labels=torch.from_numpy(self.targets[list(rows)]),
        )

    def describe(self) -> str:
        lengths = self.lengths
        num_long = int((self.windows.num_windows > 1).sum())
        kind = "pairs" if self.second else "texts"
        return f"{len(lengths):,} {kind}, {describe_lengths(lengths)}; {num_long:,} read in windows"


def batch_of_texts(windows: TokenWindows, texts: Integers) -> tuple[Batch, Integers, Integers]:
    """All windows of these texts, sorted by length, with the number of the text of each window, [W], and the windows,
    [W].

    windows: of more texts.
    texts: their rows.
    """
    chosen_W, bounds = windows.windows_of(texts)
    text_W = np.repeat(np.arange(len(texts)), np.diff(bounds))
    order_W = windows.lengths[chosen_W].argsort(kind="stable")
    chosen_W = chosen_W[order_W]
    return windows.batch(chosen_W), text_W[order_W], chosen_W
