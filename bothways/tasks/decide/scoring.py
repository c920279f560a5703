"""Scores of decisions: accuracy, the share that can be automated, calibration, and recall of texts that no option
fits.

Letters: N texts, U units of them, B resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bothways.measure import metrics
from bothways.measure.metrics.intervals import bootstrap, resampling_units, widen
from bothways.tasks.decide.decoding import Decision
from bothways.tasks.task import split_pairs
from bothways.tasks.text_rows import TextEvaluator, TextRow

if TYPE_CHECKING:
    from bothways.tasks.task import LoadedModel

NONE = ""  # as the gold label: no option fits
ALLOWED_ERROR = 0.05  # of what is automated
Flags = NDArray[np.bool_]
Numbers = NDArray[np.floating[Any]]


class DecisionEvaluator(TextEvaluator[Decision]):
    """accuracy: of all texts; "none of these" is right where no option fits.
    automated: the largest share of the most certain decisions of which at most ALLOWED_ERROR are wrong.
    none_recall, in_scope_accuracy: of the texts that no option fits, and of the others, if there are both.
    calibration_error: of the probability of what was decided, in 10 bins.
    brier: the mean squared difference between the probabilities of all options and none, and 1 for the right one.
    """

    primary: ClassVar[str] = "accuracy"
    secondary: ClassVar[str] = "automated"
    agreement: ClassVar[str] = "same decision"

    def predict(self, model: LoadedModel, rows: Sequence[TextRow]) -> list[Decision]:
        texts, _ = split_pairs(rows)
        decisions: list[Decision] = model.decide(texts)
        return decisions

    def agree(self, predictions: Sequence[Decision], reference: Sequence[Decision] | None) -> Any:
        assert reference is not None
        return super().agree([one.label for one in predictions], [one.label for one in reference])

    def scores(self, gold: Any, predictions: Any) -> Mapping[str, Any]:
        right_N = is_right(gold, predictions)
        confidences_N = np.array([decision.score for decision in predictions])
        is_none_N = np.array([label == NONE for label in gold])

        values = {"accuracy": float(right_N.mean()), "automated": automated(confidences_N, right_N)}
        if is_none_N.any() and not is_none_N.all():
            values["in_scope_accuracy"] = float(right_N[~is_none_N].mean())
            values["none_recall"] = float(right_N[is_none_N].mean())
        values["calibration_error"] = metrics.reliability(confidences_N.tolist(), right_N.tolist()).error
        values["brier"] = brier(gold, predictions)
        return values

    def intervals(self, gold: Any, predictions: Any, units: Any) -> metrics.Intervals:
        """Of accuracy and of the automated share."""
        right_N = is_right(gold, predictions)
        confidences_N = np.array([decision.score for decision in predictions])
        unit_N = resampling_units(units)
        order_N = np.argsort(-confidences_N, kind="stable")
        wrong_N = ~right_N[order_N]
        ordered_units_N = unit_N[order_N]

        def statistic(draws_BU: np.ndarray) -> dict[str, np.ndarray]:
            drawn_BN = draws_BU[:, ordered_units_N]
            return {
                "accuracy": 1 - (drawn_BN * wrong_N).sum(1) / drawn_BN.sum(1),
                "automated": automated_shares(drawn_BN, wrong_N),
            }

        trials = len(gold)
        return bootstrap(int(unit_N.max()) + 1, statistic, lambda name, bounds, value: widen(bounds, value, trials))


def is_right(gold: Sequence[str], decisions: Sequence[Decision]) -> Flags:
    return np.array([(decision.label or NONE) == label for label, decision in zip(gold, decisions, strict=True)])


def automated(confidences_N: Numbers, right_N: Flags) -> float:
    """The largest share of the most certain texts of which at most ALLOWED_ERROR are wrong."""
    order_N = np.argsort(-confidences_N, kind="stable")
    ones_1N = np.ones((1, len(order_N)), np.int64)
    return float(automated_shares(ones_1N, ~right_N[order_N])[0])


def automated_shares(drawn_BN: np.ndarray, wrong_N: Flags) -> np.ndarray:
    """The share in each resample, [B]. drawn_BN: how often each text is drawn, the most certain first."""
    texts_BN = drawn_BN.cumsum(1)
    errors_BN = (drawn_BN * wrong_N).cumsum(1)
    is_allowed_BN = errors_BN <= ALLOWED_ERROR * texts_BN
    shares_B: np.ndarray = np.where(is_allowed_BN, texts_BN, 0).max(1) / texts_BN[:, -1]
    return shares_B


def brier(gold: Sequence[str], decisions: Sequence[Decision]) -> float:
    """The mean over texts of the sum of squared differences, from 0 to 2 (Brier 1950)."""
    total = 0.0
    for label, decision in zip(gold, decisions, strict=True):
        shares = {**decision.probabilities, NONE: decision.none}
        total += sum((share - (name == label)) ** 2 for name, share in shares.items())
    return total / len(gold)
