"""Ranking: the best passages by one score, and fusion of word scores and vector scores.

Letters: N slots, K best ones.
"""

from collections.abc import Sequence

import numpy as np

CANDIDATES = 100  # passages of each ranking that are fused


def best(scores_N: np.ndarray, number: int, *, above: float = -np.inf) -> np.ndarray:
    """The slots of the greatest scores, best first; those of equal scores in their order. Only scores > `above`."""
    # Passages without a word of the query all score 0: partitioning that many equal scores takes a tenth of a second.
    kept = np.flatnonzero(scores_N > above) if np.isfinite(above) else np.arange(len(scores_N))
    scores = scores_N[kept] if len(kept) < len(scores_N) else scores_N
    number = min(number, len(kept))
    if not number:
        return np.empty(0, np.int64)
    # The K-th best score, and then all that reach it: equal scores at the border are kept in the order of slots.
    border = np.partition(scores, len(scores) - number)[len(scores) - number]
    places = np.flatnonzero((scores >= border) & (scores > above))
    return kept[places[np.argsort(-scores[places], kind="stable")][:number]]


def fuse(
    scores: Sequence[np.ndarray], allowed_N: np.ndarray, number: int, *, above: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """The best slots by several scores of all slots, float32 [N] each, and their fused scores, in 0..1.

    The CANDIDATES best of each ranking are compared by the mean of their scores, each scaled to 0..1 among the
    candidates. On SciFact and Cranfield this is better than fusing ranks (docs/LOG.md). above: a slot must have a score
    greater than this to be in a ranking.
    """
    is_free = bool(allowed_N.all())
    rankings = [
        best(one if is_free else np.where(allowed_N, one, -np.inf), max(number, CANDIDATES), above=least)
        for one, least in zip(scores, above, strict=True)
    ]
    slots = np.unique(np.concatenate(rankings))
    fused = np.zeros(len(slots))
    for one in scores:
        part = one[slots].astype(np.float64)
        span = np.ptp(part) if len(part) else 0.0
        fused += (part - part.min()) / span / len(scores) if span else 1 / len(scores)
    order = np.argsort(-fused, kind="stable")[:number]
    return slots[order], fused[order]
