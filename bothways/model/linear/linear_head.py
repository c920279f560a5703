"""Linear head on frozen features (linear start), fitted to the optimum with L-BFGS.

Minimizes (sum of losses) / N + strength / 2 * |W|^2 over standardized features (L-BFGS, Liu 1989), then folds the
standardization back into weight and bias. The deviation of a feature includes the rounding error of bf16.

Letters: N rows, H features, C outputs.
"""

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from inspect import unwrap

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.base.device import single_thread
from bothways.model.linear.regressions import fold_rows, random_order

Loss = tuple[Tensor, int | Tensor]  # sum, count
Rows = tuple[Tensor, Tensor]  # features [N, H] float32 and targets [N, ...], on the CPU
RowLoss = Callable[[Tensor, Tensor], Loss]  # scores [N, C], targets [N, ...] -> (sum, count)
Score = Callable[[Tensor, Tensor], float]  # scores [N, C], targets [N, ...] -> value; higher is better
SCALES = tuple(2.0**-power for power in range(9))  # candidate scales of the scores (see best_scale)
STRENGTHS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 1e-3, 1e-4, 1e-5)  # falling: each fit starts near its optimum
MIN_DEV_ROWS = 200  # cross-validation if dev has fewer rows
FOLDS = 5  # of the cross-validation
MAX_ROWS = 10_000  # rows for selecting the strength
MAX_ITERATIONS = 200  # limits of a fit
MAX_FLOPS = 1e12
ROUNDING = 2**-8  # relative rounding error of bf16
DEAD = 1e-6  # smaller deviations, relative to the largest, are left out
NEARLY_DEAD = 1e-3  # ... and relative to the median
# Largest component of the gradient at the end of a fit. The looser one selects neighbouring strengths in 2.4 instead of
# 13.8 s on ACL-ARC (docs/LOG.md).
TOLERANCE = 1e-3
FINAL_TOLERANCE = 1e-5


@dataclass(frozen=True)
class LinearHead:
    """x_NH @ weight_CH.T + bias_C. strength: of the penalty; loss: mean loss on the rows that it was chosen on."""

    weight_CH: Tensor
    bias_C: Tensor
    strength: float
    loss: float

    def __call__(self, x_NH: Tensor) -> Tensor:
        return F.linear(x_NH, self.weight_CH, self.bias_C)

    def scaled(self, factor: float) -> "LinearHead":
        """The head with all outputs multiplied by a factor."""
        return replace(self, weight_CH=self.weight_CH * factor, bias_C=self.bias_C * factor)

    def write_to(self, layer: nn.Linear) -> None:
        """Copy weight and bias into a layer."""
        with torch.no_grad():
            layer.weight.copy_(self.weight_CH)
            layer.bias.copy_(self.bias_C)


def fit(
    train: Rows,
    loss: RowLoss,
    num_outputs: int,
    *,
    groups: Sequence[Hashable] | None = None,
    dev: Rows | None = None,
    strengths: Sequence[float] = STRENGTHS,
    score: Score | None = None,
) -> LinearHead:
    """Fit a head to all training rows, with the strength of the best score on dev; ties go to the lower loss.

    train: features and targets.
    loss: of scores and targets.
    num_outputs: C.
    groups: the group of each training row, which no fold divides.
    dev: rows for selecting the strength. Without them, or with fewer than MIN_DEV_ROWS, it is selected by
        cross-validation on the training rows.
    strengths: in falling order.
    score: of held-out rows. Without it, the strength with the lowest loss is selected, and strengths are tried in order
        until the loss rises. With it (for classes), the head is then scaled down to the lowest loss on the same rows
        (see `best_scale`).

    Deterministic: equal arguments give equal bits, whatever the number of threads.
    """
    with single_thread():
        parts = selection_parts(train, dev, groups)
        solvers = [_Solver(rows, loss, num_outputs) for rows, _ in parts]
        features = [x_NH for _, (x_NH, _) in parts]
        targets = torch.cat([y for _, (_, y) in parts])

        best_strength = strengths[0]
        best = (-np.inf, -np.inf)
        best_scores = torch.zeros(0)
        for strength in strengths:
            for solver in solvers:
                solver.minimize(strength, TOLERANCE)
            scores = torch.cat([solver.scores(x_NH) for solver, x_NH in zip(solvers, features, strict=True)])

            mean_loss = float(loss(scores, targets)[0]) / len(targets)
            quality = (score(scores, targets) if score else 0.0, -mean_loss)
            if quality > best:
                best_strength = strength
                best = quality
                best_scores = scores
            elif score is None:
                break

        solver = _Solver(train, loss, num_outputs)
        solver.minimize(best_strength, FINAL_TOLERANCE)
        weight_CH, bias_C = solver.solution
        _, negative_loss = best
        head = LinearHead(weight_CH=weight_CH, bias_C=bias_C, strength=best_strength, loss=-negative_loss)

        scale = best_scale(best_scores, targets, loss) if score else 1.0
        return head.scaled(scale)


def out_of_fold(
    rows: Rows,
    loss: RowLoss,
    num_outputs: int,
    folds: Sequence[Sequence[int]],
    strengths: Sequence[float],
    *,
    standardize: bool = True,
) -> Tensor:
    """Scores of every row by heads that were fitted to the rows of the other folds, one for each strength:
    [len(strengths), N, C].

    rows: features and targets.
    loss: of scores and targets.
    num_outputs: C.
    folds: the rows of each.
    strengths: in falling order.
    standardize: scale the features first.

    Deterministic: the folds are fitted at the same time, each by one thread.
    """
    x_NH, targets = rows
    scores_SNC = x_NH.new_zeros(len(strengths), len(targets), num_outputs)

    def fit_fold(fold: Sequence[int]) -> None:
        others = np.delete(np.arange(len(targets)), fold)
        solver = _Solver(take(rows, others), loss, num_outputs, standardize=standardize)
        for scores_NC, strength in zip(scores_SNC, strengths, strict=True):
            solver.minimize(strength, TOLERANCE)
            scores_NC[fold] = solver.scores(x_NH[fold])

    num_threads = torch.get_num_threads()
    with single_thread(), ThreadPoolExecutor(num_threads) as threads:
        for _ in threads.map(fit_fold, folds):
            pass  # raises the error of a fold
    return scores_SNC


def fit_strength(
    rows: Rows, loss: RowLoss, num_outputs: int, strength: float, *, standardize: bool = True
) -> LinearHead:
    """The head of a known strength, fitted to all rows. Its loss is the mean loss on these rows.

    rows: features and targets.
    loss: of scores and targets.
    num_outputs: C.
    strength: of the penalty.
    standardize: scale the features first.
    """
    x_NH, targets = rows
    with single_thread():
        solver = _Solver(rows, loss, num_outputs, standardize=standardize)
        solver.minimize(strength, FINAL_TOLERANCE)
        weight_CH, bias_C = solver.solution
        total, _ = loss(solver.scores(x_NH), targets)
        return LinearHead(weight_CH=weight_CH, bias_C=bias_C, strength=strength, loss=float(total) / len(targets))


def selection_parts(train: Rows, dev: Rows | None, groups: Sequence[Hashable] | None) -> list[tuple[Rows, Rows]]:
    """(rows to fit, rows to score) for choosing the strength: train and dev, or folds of train if dev is small."""
    if dev is not None and len(dev[1]) >= MIN_DEV_ROWS:
        return [(take(train, sample_rows(train)), take(dev, sample_rows(dev)))]

    folds = fold_rows(train[1].numpy(), sample_rows(train), groups, FOLDS)
    return [(take(train, others), take(train, held_out)) for others, held_out in folds]


def best_scale(scores_NC: Tensor, targets: Tensor, loss: RowLoss) -> float:
    """The factor of class scores with the lowest loss on held-out rows (temperature scaling, Guo 2017).

    The penalty with the best metric may give a head that is far too confident, and training hardly recovers from its
    loss. Predicted labels do not change.
    """
    return min(SCALES, key=lambda scale: float(loss(scores_NC * scale, targets)[0]))


def sample_rows(rows: Rows) -> np.ndarray:
    """At most MAX_ROWS random rows, in order."""
    return np.sort(random_order(len(rows[1]))[:MAX_ROWS])


def take(rows: Rows, indices: np.ndarray) -> Rows:
    """Some of the rows."""
    x_NH, targets = rows
    return x_NH[indices], targets[indices]


class _LBFGS(torch.optim.LBFGS):
    """The same without torch's compiler, from which torch's optimizers hide these methods: that would import it first,
    in three seconds of a processor."""

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)


class _Solver:
    """A problem that is solved for a decreasing sequence of strengths; each fit starts at the previous solution.

    standardize: scale the features first; otherwise the penalty is of weights for the features as they are.
    """

    def __init__(self, rows: Rows, loss: RowLoss, num_outputs: int, *, standardize: bool = True) -> None:
        x_NH, self.targets = rows
        self.loss = loss

        self.mean_H = torch.zeros_like(x_NH[0])
        self.deviation_H = torch.ones_like(x_NH[0])
        if standardize:
            self.mean_H, self.deviation_H = self._moments(x_NH)
        self.x_NH = (x_NH - self.mean_H) / self.deviation_H
        self.weight_CH = self.x_NH.new_zeros(num_outputs, x_NH.shape[1], requires_grad=True)
        self.bias_C = self.x_NH.new_zeros(num_outputs, requires_grad=True)

    @staticmethod
    def _moments(x_NH: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of each feature; an infinite deviation leaves it out."""
        # Scaling a feature that varies less than bf16 rounds it would amplify the rounding errors.
        noise_H = ROUNDING * x_NH.square().mean(0).sqrt()
        deviation_H = torch.hypot(x_NH.std(0, correction=0), noise_H)

        # The weight of a dead unit would be huge.
        smallest = torch.maximum(DEAD * deviation_H.max(), NEARLY_DEAD * deviation_H.median())
        is_alive_H = deviation_H > smallest
        return x_NH.mean(0), torch.where(is_alive_H, deviation_H, torch.inf)

    @property
    def solution(self) -> tuple[Tensor, Tensor]:
        """Weight [C, H] and bias [C] for features that are not standardized."""
        weight_CH = self.weight_CH.detach() / self.deviation_H
        return weight_CH, self.bias_C.detach() - weight_CH @ self.mean_H

    def scores(self, x_NH: Tensor) -> Tensor:
        """Scores of features that are not standardized, [N, C]."""
        weight_CH, bias_C = self.solution
        return F.linear(x_NH, weight_CH, bias_C)

    def minimize(self, strength: float, tolerance: float) -> None:
        """Fit with this strength, from the last solution on."""
        flops = 6 * self.x_NH.numel() * len(self.bias_C)  # FLOPs of the objective and its gradient
        optimizer = _LBFGS(
            [self.weight_CH, self.bias_C],
            max_iter=int(max(10, min(MAX_ITERATIONS, MAX_FLOPS / flops))),
            tolerance_grad=tolerance,
            tolerance_change=tolerance / 100,
            history_size=10,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            total, _ = self.loss(F.linear(self.x_NH, self.weight_CH, self.bias_C), self.targets)
            mean_loss = total / len(self.targets)
            objective = mean_loss + strength / 2 * self.weight_CH.square().sum()
            objective.backward()
            return objective

        optimizer.step(closure)
