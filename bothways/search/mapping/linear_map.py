"""A linear map from the vectors of one embedding model to the vectors of another, fitted to texts that both have read.

Ridge regression with an intercept, at several penalties, and beside it the orthogonal map (Schoenemann 1966). The best
of them is chosen by cross-validation. The sizes of both vectors may differ. Letters: N texts, G size of an old vector,
H of a new one, P penalties.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ORTHOGONAL = None  # stands among the penalties for the orthogonal map, which has none
# In units of the mean eigenvalue of the old vectors' covariance.
PENALTIES: tuple[float | None, ...] = (ORTHOGONAL, 1e-6, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
FOLDS = 5


@dataclass(frozen=True)
class LinearMap:
    """old @ weight + bias, scaled to length 1. weight_GH: float64 [G, H]. bias_H: float64 [H]."""

    weight_GH: np.ndarray
    bias_H: np.ndarray

    def __call__(self, old_NG: np.ndarray) -> np.ndarray:
        """Vectors of the new model, float32 [N, H], of length 1."""
        mapped_NH = old_NG.astype(np.float64) @ self.weight_GH + self.bias_H
        return unit_rows(mapped_NH).astype(np.float32)


@dataclass(frozen=True)
class FittedMap:
    """A map and how well it does.

    apply: the map, fitted to all texts.
    penalty: which was chosen, in units of the mean eigenvalue; ORTHOGONAL for the orthogonal map.
    cosine: the mean cosine between a mapped vector and the vector that the new model computes, out of fold.
    heldout_NH: the vector of each text by a map that was fitted without it, float32 [N, H].
    """

    apply: LinearMap
    penalty: float | None
    cosine: float
    heldout_NH: np.ndarray


def fit_map(old_NG: np.ndarray, new_NH: np.ndarray) -> FittedMap:
    """The map with the penalty whose vectors are nearest to the new ones on texts that it was not fitted to.

    old_NG, new_NH: the vectors of the same texts, of length 1, in random order: every fifth is a fold.
    """
    folds_N = np.arange(len(old_NG)) % FOLDS

    cosines_P = np.zeros(len(PENALTIES))
    for fold in range(FOLDS):
        is_inside_N = folds_N == fold
        maps = _fit(old_NG[~is_inside_N], new_NH[~is_inside_N], PENALTIES)
        for place, linear_map in enumerate(maps):
            cosines_P[place] += (linear_map(old_NG[is_inside_N]) * new_NH[is_inside_N]).sum()
    penalty = PENALTIES[int(cosines_P.argmax())]

    heldout_NH = np.empty(new_NH.shape, np.float32)
    for fold in range(FOLDS):
        is_inside_N = folds_N == fold
        (linear_map,) = _fit(old_NG[~is_inside_N], new_NH[~is_inside_N], [penalty])
        heldout_NH[is_inside_N] = linear_map(old_NG[is_inside_N])

    (linear_map,) = _fit(old_NG, new_NH, [penalty])
    return FittedMap(
        apply=linear_map,
        penalty=penalty,
        cosine=float(cosines_P.max()) / len(old_NG),
        heldout_NH=heldout_NH,
    )


def _fit(old_NG: np.ndarray, new_NH: np.ndarray, penalties: Sequence[float | None]) -> list[LinearMap]:
    """The map of each penalty."""
    old_mean_G = old_NG.mean(0, dtype=np.float64)
    new_mean_H = new_NH.mean(0, dtype=np.float64)
    x_NG = old_NG - old_mean_G
    y_NH = new_NH - new_mean_H

    # One decomposition serves all penalties.
    covariance_GG = x_NG.T @ x_NG
    products_GH = x_NG.T @ y_NH
    values_G, vectors_GG = np.linalg.eigh(covariance_GG)
    turned_GH = vectors_GG.T @ products_GH
    scale = float(values_G.mean()) or 1.0

    maps = []
    for penalty in penalties:
        if penalty is ORTHOGONAL:
            weight_GH = _orthogonal(products_GH) / scale / len(values_G)
        else:
            weight_GH = vectors_GG @ (turned_GH / (values_G.clip(0) + penalty * scale)[:, None])
        maps.append(LinearMap(weight_GH, new_mean_H - old_mean_G @ weight_GH))
    return maps


def _orthogonal(products_GH: np.ndarray) -> np.ndarray:
    """The matrix with orthonormal rows or columns that is nearest to the products, times the sum of their singular
    values: over the trace of the covariance, it is the best rotation with the best scale."""
    left, singular, right = np.linalg.svd(products_GH, full_matrices=False)
    return np.asarray(left @ right * singular.sum())


def unit_rows(rows_NH: np.ndarray) -> np.ndarray:
    """Rows of length 1; a row of zeros stays."""
    lengths_N1 = np.linalg.norm(rows_NH, axis=1, keepdims=True)
    return np.asarray(rows_NH / np.where(lengths_N1 > 0, lengths_N1, 1))
