"""Rankings of pairs by the cosines of their vectors."""

from collections.abc import Callable, Sequence

import numpy as np

from bothways.batching import chunked
from bothways.tasks.arrays import Floats, normalize, top_k

TOP = 10  # results of a ranking that are scored
COMPARE_CHUNK = 256  # texts that are compared with all others together


def rank_pairs(vectors_RNH: Floats, ids_RN: np.ndarray) -> tuple[dict[str, dict[str, float]], dict[str, list[str]]]:
    """The gold pairs of each text, {text: {pair: 1}}, and the TOP pairs with the greatest cosines among all, best
    first.

    A text is excluded from its own ranking, unless it is its own gold pair.
    """
    firsts = (np.unique(ids_N, return_index=True)[1] for ids_N in ids_RN[:2])
    texts_QH, pairs_DH = (
        normalize(vectors_NH[first]) for vectors_NH, first in zip(vectors_RNH[:2], firsts, strict=True)
    )
    return rank_by_scores(lambda rows: texts_QH[rows] @ pairs_DH.T, ids_RN)


def rank_by_scores(
    scores: Callable[[Sequence[int]], Floats], ids_RN: np.ndarray
) -> tuple[dict[str, dict[str, float]], dict[str, list[str]]]:
    """`rank_pairs`, given a function that scores some distinct texts with all distinct pairs, [B, D]. Both are sorted
    by id."""
    texts_Q, pairs_D = (np.unique(ids_N) for ids_N in ids_RN[:2])
    own_pairs = ids_RN[0][ids_RN[0] == ids_RN[1]]
    gold: dict[str, dict[str, float]] = {str(text): {} for text in texts_Q}
    for text, pair in ids_RN[:2].T.tolist():
        gold[str(text)][str(pair)] = 1.0
    ranking: dict[str, list[str]] = {}
    for rows in chunked(range(len(texts_Q)), COMPARE_CHUNK):
        scores_BD = scores(rows)
        itself_BD = (texts_Q[rows, None] == pairs_D) & ~np.isin(pairs_D, own_pairs)
        scores_BD[itself_BD] = -np.inf
        best = top_k(scores_BD, TOP)
        ranking |= {str(texts_Q[row]): [*map(str, pairs_D[columns])] for row, columns in zip(rows, best, strict=True)}
    return gold, ranking
