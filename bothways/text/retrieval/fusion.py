"""Ranking: the best passages by one score, and fusion of word scores and vector scores.

Letters: N slots, K best ones.
"""

from collections.abc import Sequence

import numpy as np

CANDIDATES = 100  # passages of each ranking that are fused


def best(scores_N: np.ndarray, number: int, *, above: float = -np.inf) -> np.ndarray:
    """The slots of the greatest scores, best first; slots of equal scores in their order. Only scores > `above`."""
    # Passages without a word of the query all score 0: partitioning that many equal scores takes a tenth of a second.
    kept = np.flatnonzero(scores_N > above) if np.isfinite(above) else np.arange(len(scores_N))
    scores = scores_N[kept] if len(kept) < len(scores_N) else scores_N
    number = min(number, len(kept))
    if not number:
        return np.empty(0, np.int64)

    # The K-th best score, and then all that reach it: equal scores at the border are kept in the order of slots.
    border = np.partition(scores, len(scores) - number)[len(scores) - number]
    indices = np.flatnonzero((scores >= border) & (scores > above))
    best_first = np.argsort(-scores[indices], kind="stable")
    return kept[indices[best_first][:number]]


def fuse(
    scores: Sequence[np.ndarray],
    allowed_N: np.ndarray,
    number: int,
    *,
    above: Sequence[float],
) -> tuple[np.ndarray, np.ndarray]:
    """The best slots by several scores, and their fused scores, in 0..1.

    scores: for each ranking, the scores of all slots, float32 [N].
    allowed_N: the slots that may be found.
    number: most slots.
    above: for each ranking, a slot must have a greater score to be in it.

    The CANDIDATES best of each ranking are compared by the mean of their scores, each scaled to 0..1 among the
    candidates. On SciFact and Cranfield this has nDCG@10 0.733 and 0.567, fusing ranks 0.722 and 0.558 (docs/LOG.md).
    """
    all_allowed = bool(allowed_N.all())
    num_candidates = max(number, CANDIDATES)
    rankings = []
    for scores_N, least in zip(scores, above, strict=True):
        candidates_N = scores_N if all_allowed else np.where(allowed_N, scores_N, -np.inf)
        rankings.append(best(candidates_N, num_candidates, above=least))

    slots = np.unique(np.concatenate(rankings))
    fused = np.zeros(len(slots))
    for scores_N in scores:
        part = scores_N[slots].astype(np.float64)
        span = np.ptp(part) if len(part) else 0.0
        if span:
            fused += (part - part.min()) / span / len(scores)
        else:  # a single candidate, or all alike
            fused += 1 / len(scores)

    order = np.argsort(-fused, kind="stable")[:number]
    return slots[order], fused[order]
