"""Logistic and ridge regression over dense or sparse features, with the strength of the penalty chosen by the data; by
scikit-learn, which is loaded when a model is fitted. No torch.

Letters: N rows, F features, C outputs.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from scipy import sparse

from bothways.rng import Purpose, generator

Kind = Literal["classes", "labels", "number"]
Features = Any  # [N, F], an array or a scipy.sparse.csr_array
Rows = tuple[Features, np.ndarray]  # and targets: classes [N], labels [N, C] (0 or 1) or numbers [N]
Score = Callable[[np.ndarray, np.ndarray], float]  # of scores [N, C] for targets [N, ...]; the higher the better
NEVER = -30.0  # the score of a class without a training row
FOLDS, FEW = 3, 100  # cross-validation where there are fewer rows than FEW to choose by
MOST_CHOSEN_ON = 10_000  # rows that a strength is chosen on
MOST_WORK, MOST_CHOICE = 250_000_000, 12_000_000  # products of numbers in one pass of a fit


def fit(
    train: Rows, dev: Rows, kind: Kind, num_outputs: int, strengths: Sequence[float], *, balanced: bool = False,
    score: Score | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:  # fmt: skip
    """Weights [C, F], bias [C] and strength of the model whose strength has the highest score on dev, or, with fewer
    than FEW rows there, in cross-validation over the training rows; of equal scores, or without one, the lowest loss.
    Of many or wide rows with many outputs some are drawn (MOST_WORK). balanced: rare classes count as much as common
    ones."""
    from threadpoolctl import threadpool_limits

    x_NF, targets = train
    numbers = x_NF.nnz if sparse.issparse(x_NF) else x_NF.size
    a_row = max(1.0, numbers / len(targets) * (1 if num_outputs == 2 and kind == "classes" else num_outputs))
    rows = order_of(len(targets))[: int(MOST_WORK / a_row)]
    chosen_on = rows[: min(MOST_CHOSEN_ON, int(MOST_CHOICE / a_row))]
    parts = [((x_NF[chosen_on], targets[chosen_on]), dev)]
    if len(dev[1]) < FEW:
        folds = [(np.delete(chosen_on, np.s_[fold::FOLDS]), chosen_on[fold::FOLDS]) for fold in range(FOLDS)]
        parts = [((x_NF[others], targets[others]), (x_NF[own], targets[own])) for others, own in folds]

    def badness(strength: float) -> tuple[float, float]:
        given = [
            (scores(held_out[0], *solution(learned_on, kind, num_outputs, strength, balanced)), held_out[1])
            for learned_on, held_out in parts
        ]
        total = sum(loss(scores_NC, targets, kind) for scores_NC, targets in given)
        scores_NC, targets = (np.concatenate(column) for column in zip(*given, strict=True))
        return -score(scores_NC, targets) if score else 0.0, total

    # On a busy machine, threads that wait for each other made a fit of 0.5 s take 20.
    with threadpool_limits(1):
        strength = min(strengths, key=badness)
        return *solution((x_NF[rows], targets[rows]), kind, num_outputs, strength, balanced), strength


def scores(x_NF: Features, weight_CF: np.ndarray, bias_C: np.ndarray) -> np.ndarray:
    scores_NC: np.ndarray = x_NF @ weight_CF.T + bias_C
    return scores_NC


def standardized(train_NF: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Dense features with mean 0 and deviation 1 in training rows, float32; a constant stays one."""
    mean_F, deviation_F = train_NF.mean(0), train_NF.std(0)
    deviation_F = np.where(deviation_F > 1e-6 * deviation_F.max(), deviation_F, np.inf)
    return [((x_NF - mean_F) / deviation_F).astype(np.float32) for x_NF in (train_NF, *others)]


def loss(scores_NC: np.ndarray, targets: np.ndarray, kind: Kind) -> float:
    """The sum of cross-entropies or squared errors."""
    if kind == "number":
        return float(((scores_NC[:, 0] - targets) ** 2).sum())
    if kind == "labels":
        return float(np.logaddexp(0, np.where(targets, -scores_NC, scores_NC)).sum())
    own_N = scores_NC[np.arange(len(targets)), targets]
    return float((np.logaddexp.reduce(scores_NC, axis=1) - own_N).sum())


def order_of(number: int) -> np.ndarray:
    """A fixed random order of so many rows."""
    order: np.ndarray = generator(0, Purpose.FOLDS).permutation(number)
    return order


def solution(
    rows: Rows, kind: Kind, num_outputs: int, strength: float, balanced: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Weights [C, F] and bias [C] of logistic regression (classes [N], or of each label [N, C] by itself) or of ridge
    regression (numbers [N]); strength: the weight of the losses beside that of the penalty, C of scikit-learn."""
    from sklearn.linear_model import LogisticRegression, Ridge

    features, targets = rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of solvers that stop early: a baseline needs no last digit
        if kind == "number":
            ridge = Ridge(alpha=1 / strength, solver="sparse_cg").fit(features, targets)
            return ridge.coef_[None], np.array([ridge.intercept_])
        if kind == "labels":
            parts = [solution((features, one), "classes", 2, strength, balanced) for one in targets.T]
            return (
                np.stack([weight[1] - weight[0] for weight, _ in parts]),
                np.array([bias[1] - bias[0] for _, bias in parts]),
            )
        weight_CF, bias_C = np.zeros((num_outputs, features.shape[1])), np.full(num_outputs, NEVER)
        known = np.unique(targets)
        bias_C[known] = 0.0
        if len(known) == 1:
            return weight_CF, bias_C
        model = LogisticRegression(C=strength, max_iter=300, class_weight="balanced" if balanced else None)
        model.fit(features, targets)
        two = len(known) == 2  # of which there is one row: the second's beside the first's
        weight_CF[known[-1:] if two else known] = model.coef_
        bias_C[known[-1:] if two else known] = model.intercept_
        return weight_CF, bias_C
