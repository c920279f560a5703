"""Bucketed: texts of near lengths side by side, so that a few large products do what many small ones would.

Texts of one length fill theirs exactly. Near lengths share one: a shorter text is filled up with its own last token,
which no other sees and whose result nobody reads. Letters: T tokens of all texts, N heads, D head size; a rectangle is
n texts of S tokens, s of which belong to the shortest.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

MOST_SCORES = 1 << 18  # of one head in a rectangle: those of all heads stay in the cache
MANY = 8  # texts a length on average, from which on each length has rectangles of its own: a sixth less time for lines


@dataclass(frozen=True)
class Bucket:
    """n texts of up to S = `size` tokens, which stand from `start` to `end` in T.

    Where they are not all equally long: tokens [n * S], which of them stands in each place; places [end - start], where
    each of them stands; hidden [n, 1, S - s], minus infinity where no token of the text stands.
    """

    start: int
    end: int
    n: int
    size: int
    tokens: Tensor | None = None
    places: Tensor | None = None
    hidden: Tensor | None = None

    @staticmethod
    def of(start: int, lengths: list[int], device: torch.device) -> "Bucket":
        """Of texts of these lengths, the first of which begins at `start`."""
        end = start + sum(lengths)
        if min(lengths) == max(lengths):
            return Bucket(start, end, len(lengths), lengths[0])
        lengths_n1 = np.array(lengths)[:, None]
        starts_n1, places_S = lengths_n1.cumsum(0) - lengths_n1, np.arange(rounded(max(lengths)))
        here_nS = places_S < lengths_n1
        arrays = (
            (starts_n1 + np.minimum(places_S, lengths_n1 - 1)).ravel(),
            np.flatnonzero(here_nS),
            np.where(here_nS[:, None, min(lengths) :], np.float32(0), np.float32("-inf")),
        )
        return Bucket(start, end, len(lengths), len(places_S), *(torch.from_numpy(a).to(device) for a in arrays))

    def take(self, x_TND: Tensor) -> Tensor:
        """Its tokens as [N, n, S, D], a copy."""
        x_NtD = x_TND[self.start : self.end].transpose(0, 1)
        taken = x_NtD.contiguous() if self.tokens is None else x_NtD.index_select(1, self.tokens)
        return taken.unflatten(1, (self.n, self.size))

    def give(self, x_NnSD: Tensor) -> Tensor:
        """The other way round: [t, N, D], without what stood in the filling."""
        x_NtD = x_NnSD.flatten(1, 2)
        return (x_NtD if self.places is None else x_NtD.index_select(1, self.places)).transpose(0, 1)

    def hide(self, scores_NnSS: Tensor) -> Tensor:
        """Minus infinity, in place, where a text has no token to look at."""
        if self.hidden is not None:
            scores_NnSS[..., -self.hidden.shape[-1] :].add_(self.hidden.to(scores_NnSS.dtype))
        return scores_NnSS

    def clear(self, g_NnSD: Tensor) -> Tensor:
        """Zeros, in place, in the filling."""
        if self.hidden is not None:
            g_NnSD[:, :, -self.hidden.shape[-1] :] *= self.hidden.exp().to(g_NnSD.dtype).transpose(1, 2)
        return g_NnSD

    def seen(self) -> Tensor | None:
        """Whom a token may look at, [1, n, 1, S], or None where all of its text."""
        return self._seen

    @cached_property
    def _seen(self) -> Tensor | None:
        if self.hidden is None:
            return None
        # With all four dimensions: torch's fused kernel takes no mask of three and leaves it to a slow form.
        return torch.nn.functional.pad(self.hidden == 0, (self.size - self.hidden.shape[-1], 0), value=True)[None]


def rectangles(lengths: list[int], device: torch.device) -> list[Bucket]:
    """Runs of texts of near lengths as rectangles, none with more than MOST_SCORES; sort by length for few of them."""
    found, start = [], 0
    for size, run in groupby(lengths, rounded):
        texts = list(run)
        alike = [list(same) for _, same in groupby(texts)]
        most = max(1, MOST_SCORES // size**2)
        for part in alike if len(texts) >= MANY * len(alike) else [texts]:
            for first in range(0, len(part), most):
                found.append(Bucket.of(start, part[first : first + most], device))
                start = found[-1].end
    return found


def rounded(length: int) -> int:
    """Up to the next multiple of 16; of longer texts of an eighth of the power of two above them."""
    step = max(16, (1 << (length - 1).bit_length()) // 8)
    return -(-length // step) * step
