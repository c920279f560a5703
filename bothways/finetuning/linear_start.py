"""Linear models fitted to the optimum of a convex loss with an L2 penalty: heads on frozen features.

Minimized is (sum of losses) / N + strength / 2 * |W|^2 over standardized features (L-BFGS, Liu 1989); the scaling is
folded back, so that the result reads the features as they are. A feature's deviation is that of its values and of what
bf16 rounds off them. Letters: N rows, H features, C outputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.device import single_thread
from bothways.rng import Purpose, generator
from bothways.training.losses import Loss

Rows = tuple[Tensor, Tensor]  # features [N, H] float32 and targets [N, ...], on the processor
RowLoss = Callable[[Tensor, Tensor], Loss]  # scores [N, C] and targets [N, ...] -> (sum, count)
Score = Callable[[Tensor, Tensor], float]  # of scores [N, C] for targets [N, ...]; the higher the better
STRENGTHS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 1e-3, 1e-4, 1e-5)  # falling: each fit begins near its optimum
FOLDS, FEW = 5, 200  # cross-validation where there are fewer rows than FEW to choose by
MOST = 10_000  # rows at most on which the strength is chosen, and by which
ITERATIONS, WORK = 200, 1e12  # at most; WORK in floating-point operations of one fit
ROUNDING = 2**-8  # of bf16, relative
SCALES = tuple(2.0**-power for power in range(9))  # of the scores of a model chosen by a metric
DEAD = 1e-6  # of the greatest deviation; features that vary less are left out
CHOOSING, FINAL = 1e-4, 1e-5  # greatest component of the gradient at which a fit ends


@dataclass(frozen=True)
class Linear:
    """x_NH @ weight_CH.T + bias_C. strength: of the penalty; loss: the mean loss on the rows it was chosen by."""

    weight_CH: Tensor
    bias_C: Tensor
    strength: float
    loss: float

    def __call__(self, x_NH: Tensor) -> Tensor:
        return F.linear(x_NH, self.weight_CH, self.bias_C)

    def write_to(self, layer: nn.Linear) -> None:
        """Give a model's layer these values."""
        with torch.no_grad():
            layer.weight.copy_(self.weight_CH)
            layer.bias.copy_(self.bias_C)


def fit(
    train: Rows, loss: RowLoss, num_outputs: int, *, dev: Rows | None = None, seed: int = 0,
    strengths: Sequence[float] = STRENGTHS, score: Score | None = None,
) -> Linear:  # fmt: skip
    """The linear model of all training rows, with the strength whose score is highest on dev; without dev, or with
    fewer rows than FEW there, highest in cross-validation over the training rows; of equal scores the one with the
    lowest loss; its scores of classes are scaled down to the lowest loss there. Without a score: the lowest loss, where
    strengths are tried from the first on until it rises.

    A function of its arguments: equal ones give equal bits, whatever the number of threads.
    """
    with single_thread():
        chosen_on = sample(train, MOST, seed)
        if dev is not None and len(dev[1]) >= FEW:
            parts = [(chosen_on, sample(dev, MOST, seed))]
        else:
            parts = list(folds(chosen_on, seed))
        solvers = [(_Solver(rows, loss, num_outputs), held_out) for rows, held_out in parts]
        targets = torch.cat([y for _, (_, y) in solvers])
        best, key, held_out_scores = strengths[0], (-np.inf, -np.inf), torch.zeros(0)
        for strength in strengths:
            for solver, _ in solvers:
                solver.minimize(strength, CHOOSING)
            scores = torch.cat([F.linear(x_NH, *solver.solution) for solver, (x_NH, _) in solvers])
            found = score(scores, targets) if score else 0.0, -float(loss(scores, targets)[0]) / len(targets)
            if found > key:
                best, key, held_out_scores = strength, found, scores
            elif score is None:
                break
        solver = _Solver(train, loss, num_outputs)
        solver.minimize(best, FINAL)
        scale = best_scale(held_out_scores, targets, loss) if score else 1.0
        weight_CH, bias_C = solver.solution
        return Linear(weight_CH * scale, bias_C * scale, best, -key[1])


def best_scale(scores_NC: Tensor, targets: Tensor, loss: RowLoss) -> float:
    """The factor of classes' scores that minimizes the loss on held-out rows (temperature scaling, Guo 2017).

    The penalty with the best metric may leave a model far too confident, from whose loss training hardly recovers.
    Predicted labels stay the same.
    """
    return min(SCALES, key=lambda scale: float(loss(scores_NC * scale, targets)[0]))


def sample(rows: Rows, most: int, seed: int) -> Rows:
    """At most so many of these rows, drawn by the seed."""
    if len(rows[1]) <= most:
        return rows
    drawn = torch.from_numpy(np.sort(generator(seed, Purpose.FOLDS).permutation(len(rows[1]))[:most]))
    return rows[0][drawn], rows[1][drawn]


def folds(rows: Rows, seed: int) -> list[tuple[Rows, Rows]]:
    """Each fold's other rows and its own; every class (or range of numbers) is dealt out evenly."""
    x_NH, targets = rows
    order = torch.from_numpy(generator(seed, Purpose.FOLDS).permutation(len(targets)))
    if targets.ndim == 1:
        order = order[targets[order].argsort(stable=True)]
    number = min(FOLDS, len(targets))
    fold_N = torch.empty(len(targets), dtype=torch.long)
    fold_N[order] = torch.arange(len(targets)) % number
    found = []
    for fold in range(number):
        inside_N = fold_N == fold
        found.append(((x_NH[~inside_N], targets[~inside_N]), (x_NH[inside_N], targets[inside_N])))
    return found


class _Solver:
    """One problem, solved for one strength after the other; each fit begins where the one before ended."""

    def __init__(self, rows: Rows, loss: RowLoss, num_outputs: int) -> None:
        x_NH, self.targets = rows
        self.loss, self.mean_H = loss, x_NH.mean(0)
        # What varies less than bf16 rounds it would be rounding made large.
        noise_H = ROUNDING * x_NH.square().mean(0).sqrt()
        deviation_H = torch.hypot(x_NH.std(0, correction=0), noise_H)
        is_alive_H = deviation_H > DEAD * deviation_H.max()  # a dead unit's weight would be huge
        self.deviation_H = torch.where(is_alive_H, deviation_H, torch.inf)
        self.x_NH = (x_NH - self.mean_H) / self.deviation_H
        self.weight_CH = self.x_NH.new_zeros(num_outputs, x_NH.shape[1], requires_grad=True)
        self.bias_C = self.x_NH.new_zeros(num_outputs, requires_grad=True)

    @property
    def solution(self) -> tuple[Tensor, Tensor]:
        """Weight [C, H] and bias [C] for the features as they were given."""
        weight_CH = self.weight_CH.detach() / self.deviation_H
        return weight_CH, self.bias_C.detach() - weight_CH @ self.mean_H

    def minimize(self, strength: float, tolerance: float) -> None:
        work = 6 * self.x_NH.numel() * len(self.bias_C)  # of one evaluation with its gradient
        optimizer = torch.optim.LBFGS(
            [self.weight_CH, self.bias_C], max_iter=int(max(10, min(ITERATIONS, WORK / work))),
            tolerance_grad=tolerance, tolerance_change=tolerance / 100, history_size=10, line_search_fn="strong_wolfe",
        )  # fmt: skip

        def closure() -> Tensor:
            optimizer.zero_grad()
            total = self.loss(F.linear(self.x_NH, self.weight_CH, self.bias_C), self.targets)[0] / len(self.targets)
            objective = total + strength / 2 * self.weight_CH.square().sum()
            objective.backward()
            return objective

        optimizer.step(closure)
