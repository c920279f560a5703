"""Buckets: texts of similar lengths, which attention computes together as one tensor with little padding.

Letters: T tokens of all texts, N heads, D head size; a bucket is n texts of S tokens, t tokens without padding.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.base.device import copy_to

MAX_SCORES = 1 << 18  # per head and bucket, so that the scores of all heads stay in the cache
MANY_TEXTS = 8  # from this many texts per length (mean), each length has its own buckets: a sixth less time for lines


def build_buckets(lengths: list[int], device: torch.device) -> list["Bucket"]:
    """Group consecutive texts of similar lengths, each bucket of at most MAX_SCORES; sort by length for few buckets."""
    buckets = []
    start = 0
    for size, run in groupby(lengths, round_length):
        max_texts = max(1, MAX_SCORES // size**2)
        for group in _divide_run(list(run)):
            for first in range(0, len(group), max_texts):
                bucket = Bucket.from_lengths(start, group[first : first + max_texts], device)
                buckets.append(bucket)
                start = bucket.end
    return buckets


def _divide_run(lengths: list[int]) -> list[list[int]]:
    """Texts of one rounded length: by their exact length if each is frequent, which needs no padding, else together."""
    by_length = [list(equal) for _, equal in groupby(lengths)]
    if len(lengths) >= MANY_TEXTS * len(by_length):
        return by_length
    return [lengths]


def round_length(length: int) -> int:
    """Round up to a multiple of 16, or for long texts to a multiple of an eighth of the next power of two."""
    next_power = 1 << (length - 1).bit_length()
    step = max(16, next_power // 8)
    return -(-length // step) * step


@dataclass(frozen=True)
class Bucket:
    """n texts of up to S = `size` tokens, from `start` to `end` in T.

    If their lengths differ, it has: tokens [n * S], the token of each slot; slots [end - start], the slot of each
    token; padding_bias [n, 1, S - s], minus infinity in padding, where s is the length of the shortest text.
    """

    start: int
    end: int
    n: int
    size: int
    tokens: Tensor | None = None
    slots: Tensor | None = None
    padding_bias: Tensor | None = None

    @staticmethod
    def from_lengths(start: int, lengths: list[int], device: torch.device) -> "Bucket":
        """A bucket of texts of these lengths, the first of which begins at `start`."""
        end = start + sum(lengths)
        if min(lengths) == max(lengths):
            return Bucket(start=start, end=end, n=len(lengths), size=lengths[0])

        lengths_n1 = np.array(lengths)[:, None]
        starts_n1 = lengths_n1.cumsum(0) - lengths_n1
        positions_S = np.arange(round_length(max(lengths)))
        is_real_nS = positions_S < lengths_n1

        # Padding repeats the last token of its text. No text is padded before the end of the shortest.
        tokens_nS = starts_n1 + np.minimum(positions_S, lengths_n1 - 1)
        slots = np.flatnonzero(is_real_nS)
        bias = np.where(is_real_nS[:, None, min(lengths) :], np.float32(0), np.float32("-inf"))
        return Bucket(
            start=start,
            end=end,
            n=len(lengths),
            size=len(positions_S),
            tokens=copy_to(torch.from_numpy(tokens_nS.ravel()), device),
            slots=copy_to(torch.from_numpy(slots), device),
            padding_bias=copy_to(torch.from_numpy(bias), device),
        )

    def gather(self, x_TND: Tensor) -> Tensor:
        """The bucket's tokens, padded: [N, n, S, D], a copy."""
        return self.pad(x_TND[self.start : self.end])

    def pad(self, x_tND: Tensor) -> Tensor:
        """Its tokens [t, N, D], padded: [N, n, S, D], a copy."""
        x_NtD = x_tND.transpose(0, 1)
        # Selecting rows of each head takes a quarter of the time of indexing rows of all heads (docs/LOG.md).
        padded = x_NtD.contiguous() if self.tokens is None else x_NtD.index_select(1, self.tokens)
        return padded.unflatten(1, (self.n, self.size))

    def ungather(self, x_NnSD: Tensor) -> Tensor:
        """The inverse: [t, N, D], without padding."""
        x_NtD = x_NnSD.flatten(1, 2)
        if self.slots is not None:
            x_NtD = x_NtD.index_select(1, self.slots)
        return x_NtD.transpose(0, 1)

    def mask_scores(self, scores_NnSS: Tensor) -> Tensor:
        """Set the scores of padding keys to minus infinity, in place."""
        if self.padding_bias is not None:
            num_masked = self.padding_bias.shape[-1]
            scores_NnSS[..., -num_masked:].add_(self.padding_bias.to(scores_NnSS.dtype))
        return scores_NnSS

    def zero_padding(self, g_NnSD: Tensor) -> Tensor:
        """Set padding to zero, in place."""
        if self.padding_bias is not None:
            num_masked = self.padding_bias.shape[-1]
            is_real = self.padding_bias.exp().to(g_NnSD.dtype).transpose(1, 2)
            g_NnSD[:, :, -num_masked:] *= is_real
        return g_NnSD

    @cached_property
    def key_mask(self) -> Tensor | None:
        """Attention mask [1, n, 1, S], False for keys that are padding; None without padding."""
        if self.padding_bias is None:
            return None
        num_unmasked = self.size - self.padding_bias.shape[-1]
        mask_n1S = F.pad(self.padding_bias == 0, (num_unmasked, 0), value=True)
        # Four dimensions: torch's fused kernel falls back to a slow one for masks of three.
        return mask_n1S[None]
