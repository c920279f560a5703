"""Pairs of texts of any length as examples, and a vector of each text, pooled as in prediction.

Letters: N pairs of R texts each (the text, its own pair, and perhaps one that does not belong), W windows of all of
them, H hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bothways.batch import Batch
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.finetuning.task import window_policy
from bothways.finetuning.texts import AT_ONCE, parts_of, worked_out_again
from bothways.inference.pooling import Bounds, pool_rows, pool_windows
from bothways.inference.windows import own_rows, whole_length
from bothways.model.model import Model
from bothways.settings import FineTune
from bothways.tokenizer.tokenizer import Encoding


@dataclass(frozen=True)
class PairBatch(Batch):
    """All windows of the texts of N pairs; text_of_window is r * N + n for text r of pair n.

    labels: scores [N]; or ids of the texts [R, N], equal for equal texts. own_rows [W, 2]: the rows [first, last) of
    each window that stand for its text.
    """

    own_rows: Tensor | None = None


@dataclass(frozen=True)
class PairTexts:
    """The windows of each text, [R][N][windows]; ids [R, N], equal for equal texts; scores [N], if that is what is to
    be learned."""

    windows: list[list[list[Encoding]]]
    ids: np.ndarray
    scores: np.ndarray | None = None

    @staticmethod
    def of(
        texts: Sequence[Sequence[str]], scores: np.ndarray | None, start: Checkpoint, settings: FineTune
    ) -> "PairTexts":
        """texts: [R][N]."""
        numbers: dict[str, int] = {}
        ids = [[numbers.setdefault(text, len(numbers)) for text in part] for part in texts]
        policy, tokenizer = window_policy(settings, start), start.need_tokenizer()
        windows = [policy.split(tokenizer.encode_many(part)) for part in texts]
        return PairTexts(windows, np.array(ids), scores)

    @property
    def labels(self) -> np.ndarray:
        """What is to be learned of pair n, at [..., n]."""
        return self.ids if self.scores is None else self.scores

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each pair, over all windows of all its texts."""
        return [sum(len(window) for parts in texts for window in parts) for texts in zip(*self.windows, strict=True)]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each text of each pair, whole."""
        return [whole_length(parts) for texts in self.windows for parts in texts]

    def batch(self, rows: Sequence[int]) -> PairBatch:
        """All windows of these pairs, sorted by length."""
        parts = [
            (window, own, role * len(rows) + place)
            for role, windows in enumerate(self.windows)
            for place, row in enumerate(rows)
            for window, own in zip(windows[row], own_rows(windows[row]), strict=True)
        ]
        parts.sort(key=lambda part: len(part[0]))
        batch = Batch.from_encodings([window for window, _, _ in parts])
        given = {field.name: getattr(batch, field.name) for field in fields(batch)}
        given["text_of_window"] = torch.tensor([text for _, _, text in parts])
        given["labels"] = torch.from_numpy(self.labels[..., list(rows)])
        return PairBatch(**given, own_rows=torch.tensor([own for _, own, _ in parts]))

    def describe(self) -> str:
        """How many, how long, and how many are read in windows."""
        lengths = [sum(map(whole_length, texts)) for texts in zip(*self.windows, strict=True)]
        windowed = sum(len(parts) > 1 for texts in self.windows for parts in texts)
        middle, most = np.percentile(lengths, [50, 90])
        return (
            f"{self.ids.shape[1]:,} pairs of {len(np.unique(self.ids)):,} different texts, tokens a pair: median "
            f"{middle:.0f}, 90 % up to {most:.0f}, longest {max(lengths):,}; {windowed} texts read in windows"
        )


def text_vectors(model: Model, batch: PairBatch, pooling: str, at_once: int = AT_ONCE) -> Tensor:
    """A vector a text as Predictor.embed makes it, not normalised: [R, N, H], float32.

    In memory that does not grow with the batch: of more than `at_once` tokens the activations are worked out again on
    the way back, some windows at a time. The vectors of all are there when the loss compares them, so that a step of
    any size has all its negatives (GradCache, Gao 2021, to the same result).
    """
    assert batch.own_rows is not None and batch.text_of_window is not None and batch.labels is not None
    bounds: list[Bounds] = [(first, last) for first, last in batch.own_rows.tolist()]

    def encode(part: Batch, own: list[Bounds]) -> Tensor:
        return torch.stack(pool_rows(pooling)(model(part), part, own))

    if batch.num_tokens <= at_once:
        rows_WH = encode(batch, bounds)
    else:
        again = torch.is_grad_enabled()
        found: list[Tensor] = []
        for part in parts_of(batch, at_once):
            own = bounds[len(found) : len(found) + len(part)]
            found += worked_out_again(encode, part, own) if again else encode(part, own)
        rows_WH = torch.stack(found)
    text_W = batch.text_of_window.cpu()
    order = text_W.argsort().tolist()
    vectors = pool_windows(pooling, rows_WH[order], [bounds[row] for row in order], text_W.bincount().tolist())
    return vectors.to(batch.labels.device).unflatten(0, (-1, batch.labels.shape[-1]))
