"""Functions of score arrays: probabilities, unit vectors, the highest scores.

They keep the number format of their argument. The last axis has the C classes or H dimensions.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_LABEL = -100  # class of a target without a label, which cross-entropy ignores
Floats = NDArray[np.floating[Any]]


def softmax(scores_NC: Floats) -> Floats:
    powers_NC: Floats = np.exp(scores_NC - scores_NC.max(-1, keepdims=True))
    powers_NC /= powers_NC.sum(-1, keepdims=True)
    return powers_NC


def sigmoid(scores: Floats) -> Floats:
    powers = np.exp(-np.abs(scores))
    probabilities: Floats = np.where(scores >= 0, 1, powers) / (1 + powers)
    return probabilities


def normalize(vectors_NH: Floats, out: Floats | None = None) -> Floats:
    """The vectors scaled to length 1; a zero vector stays zero. out: where to write them."""
    lengths_N = np.sqrt(np.einsum("...h,...h->...", vectors_NH, vectors_NH))
    unit_NH: Floats = np.divide(vectors_NH, np.maximum(lengths_N, 1e-12)[..., None], out=out)
    return unit_NH


def cosines(first_NH: Floats, second_NH: Floats) -> Floats:
    """The cosine of each vector and the one in the same row of the other array, [N]."""
    cosines_N: Floats = (normalize(first_NH) * normalize(second_NH)).sum(-1)
    return cosines_N


def top_k(scores_NC: Floats, k: int) -> NDArray[np.int64]:
    """The columns of the k highest scores of each row, best first, equal ones in their order: [N, min(k, C)]."""
    if k >= scores_NC.shape[1]:
        return np.argsort(-scores_NC, axis=1, kind="stable")
    # Only the k highest scores are sorted.
    lowest_N = np.partition(scores_NC, -k, axis=1)[:, -k]
    best_Nk = np.empty((len(scores_NC), k), np.int64)
    for row, (scores_C, lowest) in enumerate(zip(scores_NC, lowest_N, strict=True)):
        columns = np.flatnonzero(~(scores_C < lowest))
        best_Nk[row] = columns[np.argsort(-scores_C[columns], kind="stable")[:k]]
    return best_Nk
