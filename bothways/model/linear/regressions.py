"""Logistic and ridge regression by scikit-learn, with a selected penalty strength. No torch.

Features may be dense or sparse. scikit-learn is imported when a model is fitted. Letters: N rows, F features, C
outputs.
"""

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import numpy as np

from bothways.base.rng import Purpose, generator
from bothways.text.data.splits import selection_folds

Kind = Literal["classes", "labels", "number"]
Features = Any  # [N, F], an array or a sparse.Csr; to fit, a scipy.sparse.csr_array
Data = tuple[Features, np.ndarray]  # features and targets: classes [N], labels [N, C] (0 or 1) or numbers [N]
Score = Callable[[np.ndarray, np.ndarray], float]  # scores [N, C], targets [N, ...] -> value; higher is better
MISSING_CLASS_BIAS = -30.0  # for classes without a training row
MIN_DEV_ROWS = 100  # cross-validation if dev has fewer rows
NUM_FOLDS = 3  # of the cross-validation
MAX_SELECTION_ROWS = 10_000  # rows for selecting the strength
OUT_OF_FOLD = 5  # folds of out_of_fold_scores
MAX_STRENGTH_ROWS = 2000  # its rows for selecting the strength
FOLD_STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10_000.0)  # C of scikit-learn times the number of rows
MAX_PRODUCTS = 250_000_000  # multiplications in one pass of a fit
MAX_SELECTION_PRODUCTS = 12_000_000  # ... for selecting the strength


def fit(
    train: Data,
    dev: Data,
    kind: Kind,
    num_outputs: int,
    strengths: Sequence[float],
    *,
    groups: Sequence[Hashable] | None = None,
    balanced: bool = False,
    score: Score | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights [C, F], bias [C] and strength of the best model.

    The strength is the one with the highest score on dev, or, if dev has fewer than MIN_DEV_ROWS rows, in
    cross-validation on the training rows. Ties go to the lower loss, which also decides without a score. Large problems
    are fitted to a random sample of the rows (MAX_PRODUCTS).

    train: features and targets.
    dev: rows for selecting the strength; may be empty.
    kind: of the targets.
    num_outputs: C.
    strengths: in the order in which ties are decided.
    groups: the group of each training row, which no fold divides.
    balanced: give all classes the same total weight.
    score: of held-out rows.
    """
    from threadpoolctl import threadpool_limits

    x_NF, targets = train
    # Two classes have one row of weights. The size of a sparse array is the number of values that it stores.
    num_weight_rows = 1 if num_outputs == 2 and kind == "classes" else num_outputs
    row_cost = max(1.0, x_NF.size / len(targets) * num_weight_rows)
    rows = random_order(len(targets))[: int(MAX_PRODUCTS / row_cost)]
    selected = rows[: min(MAX_SELECTION_ROWS, int(MAX_SELECTION_PRODUCTS / row_cost))]

    if len(dev[1]) >= MIN_DEV_ROWS:
        parts = [((x_NF[selected], targets[selected]), dev)]
    else:
        folds = fold_rows(targets, selected, groups, NUM_FOLDS)
        parts = [((x_NF[others], targets[others]), (x_NF[fold], targets[fold])) for others, fold in folds]

    paths = [PenaltyPath(fitted, kind, num_outputs, balanced=balanced) for fitted, _ in parts]

    def criterion(strength: float) -> tuple[float, float]:
        """Smaller is better."""
        held_out_scores = []
        held_out_targets = []
        total = 0.0
        for path, (_, (x_nF, targets_n)) in zip(paths, parts, strict=True):
            weight_CF, bias_C = path.solve(strength)
            scores_nC = scores(x_nF, weight_CF, bias_C)
            held_out_scores.append(scores_nC)
            held_out_targets.append(targets_n)
            total += loss(scores_nC, targets_n, kind)

        if score is None:
            return 0.0, total
        return -score(np.concatenate(held_out_scores), np.concatenate(held_out_targets)), total

    # On a busy machine, threads that wait for each other made a fit of 0.5 s take 20 s.
    with threadpool_limits(1):
        strength = min(strengths, key=criterion)
        chosen = PenaltyPath((x_NF[rows], targets[rows]), kind, num_outputs, balanced=balanced)
        weight_CF, bias_C = chosen.solve(strength)
        return weight_CF, bias_C, strength


def fold_rows(
    targets: np.ndarray, rows: np.ndarray, groups: Sequence[Hashable] | None, num_folds: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(the other rows, the rows) of each fold of some training rows.

    targets: of all training rows.
    rows: those to divide.
    groups: of all training rows; no fold divides a group.
    num_folds: their number.
    """
    row_groups = None if groups is None else [groups[row] for row in rows.tolist()]
    folds = selection_folds(targets[rows], row_groups, seed=0, folds=num_folds)
    return [(np.delete(rows, fold), rows[fold]) for fold in folds]


def out_of_fold_scores(
    x_NF: np.ndarray,
    targets: np.ndarray,
    kind: Kind,
    num_outputs: int,
    *,
    groups: Sequence[Hashable] | None = None,
    balanced: bool = False,
) -> np.ndarray:
    """Scores [N, C] of each row, by a model of dense features that was fitted to the other folds.

    The penalty is the one with the lowest loss on at most MAX_STRENGTH_ROWS rows; penalties are tried in falling order
    until the loss rises.

    x_NF: dense features.
    targets: of all rows.
    kind: of the targets.
    num_outputs: C.
    groups: the group of each row, which no fold divides.
    balanced: give all classes the same total weight.
    """
    from threadpoolctl import threadpool_limits

    Fold = tuple[PenaltyPath, np.ndarray, np.ndarray]

    def prepare(rows: np.ndarray) -> list[Fold]:
        """Of each fold: the fits to the other rows, its features and its rows."""
        prepared = []
        for others, fold in fold_rows(targets, rows, groups, OUT_OF_FOLD):
            train_NF, fold_NF = standardize(x_NF[others], x_NF[fold])
            path = PenaltyPath((train_NF, targets[others]), kind, num_outputs, balanced=balanced)
            prepared.append((path, fold_NF, fold))
        return prepared

    def predict(folds: list[Fold], rows: np.ndarray, strength: float) -> np.ndarray:
        scores_NC = np.zeros((len(targets), num_outputs))
        for path, fold_NF, fold in folds:
            weight_CF, bias_C = path.solve(strength / path.num_rows)
            scores_NC[fold] = scores(fold_NF, weight_CF, bias_C)
        return scores_NC[rows]

    rows = np.arange(len(targets))
    sample = np.sort(random_order(len(targets))[:MAX_STRENGTH_ROWS])
    best_loss = np.inf
    best = np.zeros(0)
    with threadpool_limits(1):
        folds = prepare(sample)
        for strength in FOLD_STRENGTHS:
            scores_NC = predict(folds, sample, strength)
            total = loss(scores_NC, targets[sample], kind)
            if total >= best_loss:
                break
            best_loss = total
            best = scores_NC
            best_strength = strength

        if len(sample) == len(rows):
            return best
        return predict(prepare(rows), rows, best_strength)


def scores(x_NF: Features, weight_CF: np.ndarray, bias_C: np.ndarray) -> np.ndarray:
    """x W^T + b, [N, C]."""
    scores_NC: np.ndarray = x_NF @ weight_CF.T + bias_C
    return scores_NC


def standardize(train_NF: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Dense features with mean 0 and deviation 1 in the training rows, float32. A constant feature becomes 0."""
    mean_F = train_NF.mean(0)
    deviation_F = train_NF.std(0)
    deviation_F = np.where(deviation_F > 1e-6 * deviation_F.max(), deviation_F, np.inf)
    return [((x_NF - mean_F) / deviation_F).astype(np.float32) for x_NF in (train_NF, *others)]


def loss(scores_NC: np.ndarray, targets: np.ndarray, kind: Kind) -> float:
    """The sum of cross-entropies or squared errors."""
    if kind == "number":
        return float(((scores_NC[:, 0] - targets) ** 2).sum())
    if kind == "labels":
        wrong_NC = np.where(targets, -scores_NC, scores_NC)
        return float(np.logaddexp(0, wrong_NC).sum())
    target_scores_N = scores_NC[np.arange(len(targets)), targets]
    return float((np.logaddexp.reduce(scores_NC, axis=1) - target_scores_N).sum())


def random_order(num_rows: int) -> np.ndarray:
    """A random permutation that depends only on the number of rows."""
    order: np.ndarray = generator(0, Purpose.FOLDS).permutation(num_rows)
    return order


class PenaltyPath:
    """Models of the same rows, one for each strength that is asked for.

    Logistic regression for classes [N], or for each label of labels [N, C] separately; ridge regression for numbers
    [N]. A logistic regression starts at the solution of the strength before: for rising strengths the next optimum is
    near. balanced: give all classes the same total weight.
    """

    def __init__(self, data: Data, kind: Kind, num_outputs: int, *, balanced: bool) -> None:
        self.features, self.targets = data
        self.num_rows = len(self.targets)
        self.kind = kind
        self.num_outputs = num_outputs
        self.balanced = balanced
        self.logistic_regression: Any = None
        self.labels: list[PenaltyPath] = []
        if kind == "labels":
            for label_N in self.targets.T:
                self.labels.append(PenaltyPath((self.features, label_N), "classes", 2, balanced=balanced))

    def solve(self, strength: float) -> tuple[np.ndarray, np.ndarray]:
        """Weights [C, F] and bias [C]. strength: scikit-learn's C, the weight of the losses relative to the penalty."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from solvers that stop early: a baseline does not need the last digit
            if self.kind == "number":
                return self._solve_number(strength)
            if self.kind == "labels":
                return self._solve_labels(strength)
            return self._solve_classes(strength)

    def _solve_number(self, strength: float) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.linear_model import Ridge

        ridge = Ridge(alpha=1 / strength, solver="sparse_cg").fit(self.features, self.targets)
        return ridge.coef_[None], np.array([ridge.intercept_])

    def _solve_labels(self, strength: float) -> tuple[np.ndarray, np.ndarray]:
        parts = [label.solve(strength) for label in self.labels]
        weight_CF = np.stack([weight[1] - weight[0] for weight, _ in parts])
        bias_C = np.array([bias[1] - bias[0] for _, bias in parts])
        return weight_CF, bias_C

    def _solve_classes(self, strength: float) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.linear_model import LogisticRegression

        weight_CF = np.zeros((self.num_outputs, self.features.shape[1]))
        bias_C = np.full(self.num_outputs, MISSING_CLASS_BIAS)
        classes = np.unique(self.targets)
        bias_C[classes] = 0.0
        if len(classes) == 1:
            return weight_CF, bias_C

        if self.logistic_regression is None:
            weights = "balanced" if self.balanced else None
            self.logistic_regression = LogisticRegression(max_iter=300, class_weight=weights, warm_start=True)
        model = self.logistic_regression.set_params(C=strength)
        model.fit(self.features, self.targets)

        # For two classes scikit-learn has one row: the second class relative to the first.
        rows = classes[-1:] if len(classes) == 2 else classes
        weight_CF[rows] = model.coef_
        bias_C[rows] = model.intercept_
        return weight_CF, bias_C
