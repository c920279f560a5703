"""Active learning: the texts to label next are uncertain, and differ from each other (Zhdanov 2019).

Of the most uncertain texts, BETA for each one that is wanted, the vectors are clustered with k-means, weighted by
uncertainty; the text nearest to the centre of each cluster is chosen. The uncertainty is 1 - the margin, the difference
of the two highest probabilities; for several labels, of the probabilities of the least certain one.

Letters: N texts, C labels, H size of a vector, K clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError
from bothways.base.rng import Purpose, generator
from bothways.tasks.arrays import normalize, sigmoid, softmax, top_k
from bothways.text.data.near_duplicates import text_key

Floats = NDArray[np.float32]
BETA = 10  # most uncertain texts, for each text to be chosen
MAX_CLUSTERED = 10_000  # texts that are clustered; 0.8 GB of distances at worst
MAX_ITERATIONS = 30  # of k-means


def uncertainties(scores_NC: Floats, *, multi_label: bool) -> Floats:
    """1 - margin of each text, from 0 (certain) to 1."""
    if multi_label:
        highest_N: Floats = (1 - np.abs(2 * sigmoid(scores_NC) - 1)).max(-1)
        return highest_N
    probabilities_NC = softmax(scores_NC)
    best_N2 = np.take_along_axis(probabilities_NC, top_k(probabilities_NC, 2), 1)
    uncertain_N: Floats = 1 - (best_N2[:, 0] - best_N2[:, 1:].sum(1))
    return uncertain_N


@dataclass(frozen=True)
class UnlabelledTexts:
    """Texts to choose from: the index of each, a key that near duplicates share (empty for an empty text), its
    uncertainty and its vector."""

    rows_N: NDArray[np.int64]
    keys: list[str]
    uncertainty_N: Floats
    vectors_NH: Floats

    @staticmethod
    def of(
        texts: Sequence[str], pairs: Sequence[str] | None, parts: Iterable[tuple[Floats, Floats]], *, multi_label: bool
    ) -> UnlabelledTexts:
        """Texts (or pairs), with parts of their scores and vectors."""
        uncertainty: list[Floats] = []
        vectors: list[Floats] = []
        for scores_nC, vectors_nH in parts:
            uncertainty.append(uncertainties(scores_nC, multi_label=multi_label))
            vectors.append(normalize(vectors_nH))

        seconds = pairs or [""] * len(texts)
        keys = [_row_key(text, pair) for text, pair in zip(texts, seconds, strict=True)]
        return UnlabelledTexts(
            rows_N=np.arange(len(keys)),
            keys=keys,
            uncertainty_N=np.concatenate(uncertainty),
            vectors_NH=np.concatenate(vectors),
        )

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, indices: NDArray[np.int64]) -> UnlabelledTexts:
        return UnlabelledTexts(
            rows_N=self.rows_N[indices],
            keys=[self.keys[index] for index in indices.tolist()],
            uncertainty_N=self.uncertainty_N[indices],
            vectors_NH=self.vectors_NH[indices],
        )

    def most_uncertain(self, number: int) -> UnlabelledTexts:
        """At most this many different texts that are not empty, the most uncertain first; ties in input order."""
        first: dict[str, int] = {}
        for index in np.argsort(-self.uncertainty_N, kind="stable").tolist():
            if len(first) == number:
                break
            if self.keys[index]:
                first.setdefault(self.keys[index], index)
        return self.take(np.array([*first.values()], np.int64))


class CandidatePool:
    """The most uncertain of all texts that are added, of which `number` are to be chosen."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.candidates: UnlabelledTexts | None = None

    def add(self, new: UnlabelledTexts) -> UnlabelledTexts:
        """Add texts; returns those that may still be chosen."""
        parts = [new] if self.candidates is None else [self.candidates, new]
        merged = UnlabelledTexts(
            rows_N=np.concatenate([part.rows_N for part in parts]),
            keys=[key for part in parts for key in part.keys],
            uncertainty_N=np.concatenate([part.uncertainty_N for part in parts]),
            vectors_NH=np.concatenate([part.vectors_NH for part in parts]),
        )
        num_clustered = min(BETA * self.number, MAX_CLUSTERED)
        self.candidates = merged.most_uncertain(max(self.number, num_clustered))
        return self.candidates

    def choose(self, source: str) -> list[int]:
        """The indices of the texts to label next, the most uncertain first. InputError if there are fewer different
        texts than `number`; source: what they come from."""
        candidates = self.candidates
        num_candidates = len(candidates or ())
        if candidates is None or num_candidates < self.number:
            different = f"{num_candidates:,} of them different and not empty"
            raise InputError(
                f"label_next ({self.number:,}) is more than there are: {source}, {different}; ask for fewer"
            )

        chosen = representatives(candidates.vectors_NH, candidates.uncertainty_N, self.number)
        return [int(candidates.rows_N[index]) for index in chosen]


def _row_key(text: str, pair: str) -> str:
    """A key that near-duplicate rows share; "" for an empty row."""
    keys = (text_key(text), text_key(pair))
    if not any(keys):
        return ""
    return blake2b(repr(keys).encode(), digest_size=16).hexdigest()


def representatives(vectors_NH: Floats, weights_N: Floats, number: int) -> list[int]:
    """The row nearest to the centre of each weighted k-means cluster, in ascending order. All rows if there are no more
    than `number`; as many rows as clusters even if vectors are equal."""
    if number >= len(vectors_NH):
        return [*range(len(vectors_NH))]

    x_NH = vectors_NH.astype(np.float64)
    w_N = np.maximum(weights_N.astype(np.float64), 1e-6)
    first_centres_KH = x_NH[spread(x_NH, w_N, number)]
    centres_KH = k_means(x_NH, w_N, first_centres_KH)

    distances_NK = squared_distances(x_NH, centres_KH)
    chosen: list[int] = []
    for cluster in range(number):
        distances_NK[chosen, cluster] = np.inf  # the nearest row of another cluster
        chosen.append(int(distances_NK[:, cluster].argmin()))
    return sorted(chosen)


def spread(x_NH: NDArray[np.float64], weights_N: NDArray[np.float64], number: int) -> list[int]:
    """Rows far from each other, the first centres of k-means (greedy k-means++, Arthur 2007): of a few rows, drawn with
    a probability proportional to their weight times the squared distance to the nearest centre so far, the one that
    leaves the smallest sum of these products."""
    draws_KD = generator(0, Purpose.LABELS).random((number, 2 + int(np.log(number))))
    nearest_N = np.ones(len(x_NH))
    rows: list[int] = []
    for draws_D in draws_KD:
        sums_N = (weights_N * nearest_N).cumsum()
        drawn_D = np.searchsorted(sums_N, draws_D * sums_N[-1], side="right").clip(max=len(x_NH) - 1)

        distances_DN = squared_distances(x_NH[drawn_D], x_NH).clip(min=0)
        distances_DN = np.minimum(distances_DN, nearest_N if rows else np.inf)
        best = int((distances_DN @ weights_N).argmin())

        rows.append(int(drawn_D[best]))
        nearest_N = distances_DN[best]
    return rows


def k_means(
    x_NH: NDArray[np.float64], weights_N: NDArray[np.float64], centres_KH: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weighted means of clusters after Lloyd's iterations (Lloyd 1982); a cluster without rows keeps its centre."""
    cluster_N = np.full(len(x_NH), -1)
    for _ in range(MAX_ITERATIONS):
        nearest_N = squared_distances(x_NH, centres_KH).argmin(1)
        if np.array_equal(nearest_N, cluster_N):
            break

        cluster_N = nearest_N
        sums_KH = np.zeros_like(centres_KH)
        np.add.at(sums_KH, cluster_N, weights_N[:, None] * x_NH)
        sizes_K1 = np.bincount(cluster_N, weights_N, len(centres_KH))[:, None]
        centres_KH = np.where(sizes_K1 > 0, sums_KH / np.maximum(sizes_K1, 1e-300), centres_KH)
    return centres_KH


def squared_distances(x_NH: NDArray[np.float64], centres_KH: NDArray[np.float64]) -> NDArray[np.float64]:
    """[N, K]"""
    squares_NK: NDArray[np.float64] = np.square(x_NH).sum(1)[:, None] + np.square(centres_KH).sum(1)
    return squares_NK - 2 * x_NH @ centres_KH.T
