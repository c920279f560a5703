"""Text pairs as training examples for sentence embeddings, with a pooled vector per text.

Letters: N pairs of R texts each (text, pair, and perhaps a hard negative), W windows of all of them, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np

from bothways.tasks.text_examples import batch_of_texts
from bothways.tasks.training_task import describe_lengths
from bothways.tasks.windows import WindowPolicy
from bothways.text.batch import Batch
from bothways.text.data.near_duplicates import text_key
from bothways.text.token_windows import TokenWindows
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PairBatch(Batch):
    """All windows of the texts of N pairs; text_of_window is r * N + n for text r of pair n.

    labels: scores [N], or text ids [R, N], equal for near duplicates.
    own_rows [W, 2]: the range of tokens [first, last) to pool in each window, so that no token of overlapping windows
    counts twice.
    matches [N, R - 1, N], of pairs without scores: whether the second text or negative of a row matches the first text
    of another, by any row of the split.
    """

    own_rows: Tensor | None = None
    matches: Tensor | None = None


@dataclass(frozen=True)
class PairExamples:
    """Windows of the N texts of each role, [R]; text ids [R, N], equal for near duplicates; scores [N] of scored
    pairs."""

    windows: list[TokenWindows]
    ids: np.ndarray
    scores: np.ndarray | None = None

    @staticmethod
    def encode(
        texts: Sequence[Sequence[str]], scores: np.ndarray | None, tokenizer: Tokenizer, policy: WindowPolicy
    ) -> PairExamples:
        """texts: [R][N]. policy: how long texts are split."""
        windows: list[TokenWindows] = []
        for column in texts:
            different, rows = TokenWindows.encode(tokenizer, column)
            windows.append(policy.divide(different, rows).take(rows))
        return PairExamples(windows, text_ids(texts), scores)

    @property
    def labels(self) -> np.ndarray:
        """Scores [N] or ids [R, N]."""
        return self.ids if self.scores is None else self.scores

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each pair, over all windows of all its texts."""
        sizes: list[int] = np.sum([windows.sizes for windows in self.windows], axis=0).tolist()
        return sizes

    @cached_property
    def match_codes(self) -> np.ndarray:
        """A number for each pair of a text and a text that matches it, sorted: see `matches`."""
        return np.unique(self.codes(self.ids[0], self.ids[1]))

    def codes(self, first_ids: np.ndarray, second_ids: np.ndarray) -> np.ndarray:
        """A number for each pair of ids, which differs from the numbers of other pairs."""
        return first_ids * (self.ids.max() + 1) + second_ids

    def matches(self, rows: Sequence[int]) -> np.ndarray:
        """Whether the second text or negative of a row matches the first text of another, by any row of the split:
        [N, R - 1, N]."""
        first_N11 = self.ids[0, list(rows)][:, None, None]
        return np.isin(self.codes(first_N11, self.ids[1:, list(rows)]), self.match_codes)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each whole text."""
        lengths: list[int] = np.concatenate([windows.whole_lengths for windows in self.windows]).tolist()
        return lengths

    @cached_property
    def read(self) -> TokenWindows:
        """The windows of all first texts, then of all second ones, then of all negatives."""
        return reduce(TokenWindows.joined, self.windows)

    def batch(self, rows: Sequence[int]) -> PairBatch:
        """All windows of these pairs, sorted by length."""
        import torch

        roles_R1 = np.arange(len(self.windows))[:, None]
        texts = (roles_R1 * len(self.windows[0]) + np.asarray(rows, np.int64)).ravel()
        batch, text_W, windows_W = batch_of_texts(self.read, texts)
        values = {field.name: getattr(batch, field.name) for field in fields(batch)}
        values["text_of_window"] = torch.from_numpy(text_W)
        values["labels"] = torch.from_numpy(self.labels[..., list(rows)])
        values["own_rows"] = torch.from_numpy(self.read.own_rows[windows_W])
        if self.scores is None:
            values["matches"] = torch.from_numpy(self.matches(rows))
        return PairBatch(**values)

    def describe(self) -> str:
        lengths = np.sum([windows.whole_lengths for windows in self.windows], axis=0).tolist()
        num_long = sum(int((windows.num_windows > 1).sum()) for windows in self.windows)
        return (
            f"{self.ids.shape[1]:,} pairs of {len(np.unique(self.ids)):,} different texts, "
            f"{describe_lengths(lengths, 'tokens per pair')}; {num_long:,} texts read in windows"
        )


def text_ids(texts: Sequence[Sequence[str]]) -> np.ndarray:
    """A number for each text, equal for near duplicates: [R, N]. texts: [R][N]."""
    id_by_key: dict[str, int] = {}
    return np.array([[id_by_key.setdefault(text_key(text), len(id_by_key)) for text in column] for column in texts])


def pair_keys(texts: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Keys that are equal for near duplicates of the first two texts."""
    return [*zip(*([*map(text_key, column)] for column in texts[:2]), strict=True)]
