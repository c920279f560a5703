"""Class decoding: labels and probabilities from scores; prediction sets, which hold the right label with a chosen
probability (split conformal; Vovk 2005).

Letters: N texts, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bothways.errors import InputError, format_count
from bothways.tasks.arrays import Floats, sigmoid, softmax, top_k
from bothways.tasks.windows import whole_number

if TYPE_CHECKING:
    from bothways.model.checkpoint.description import Description

CALIBRATION = "calibration"  # key in bothways.json
SHOWN = 5  # labels in repr(Prediction)


@dataclass(frozen=True, repr=False)
class Prediction:
    """The most probable label of a text, its probability, and the probabilities by label (all, or the `top` highest).

    labels: the label; for multi-label models, every label with probability > 0.5, possibly none; with `coverage`, the
    prediction set. is_set: whether labels are of these two kinds.
    """

    label: str
    score: float
    scores: dict[str, float]
    labels: tuple[str, ...] = ()
    is_set: bool = False

    def __repr__(self) -> str:
        """With the SHOWN highest probabilities, to four digits: `scores` and `labels` have all."""
        best = sorted(self.scores.items(), key=lambda item: -item[1])[:SHOWN]
        shown = [f"{name!r}: {value:.4g}" for name, value in best]
        scores = ", ".join([*shown, *more_than(len(self.scores))])
        labels = ", ".join([*map(repr, self.labels[:SHOWN]), *more_than(len(self.labels))])
        comma = "," if len(self.labels) == 1 else ""
        return (
            f"{type(self).__name__}(label={self.label!r}, score={self.score:.4g}, scores={{{scores}}}, "
            f"labels=({labels}{comma}))"
        )

    def to_json(self) -> dict[str, Any]:
        labels = {"labels": [*self.labels]} if self.is_set else {}
        return {"label": self.label, **labels, "score": self.score, "scores": self.scores}


def more_than(number: int) -> list[str]:
    """The end of a list that is shown up to SHOWN entries: ["... 72 more"], or nothing."""
    return [f"... {number - SHOWN:,} more"] if number > SHOWN else []


def decode_classes(
    parts: Iterable[Floats], model: Description, top: int | None, coverage: float | None
) -> list[Prediction]:
    """The prediction for each text from its scores, [n, C] of some texts at a time. top, coverage: as in
    Predictor.classify."""
    names, is_multi_label, predictions = model.labels, model.multi_label, []
    top = None if top is None else min(whole_number("top", top, 1), len(names))
    is_set = is_multi_label or coverage is not None
    if coverage is not None and is_multi_label:
        raise InputError("coverage is for models with one label a text")
    lowest = 0.5 if coverage is None else stored_calibration(model.metadata).threshold(coverage)
    for scores_NC in parts:
        probabilities_NC = (sigmoid if is_multi_label else softmax)(scores_NC)
        for scores, is_in_set_C, best in zip(
            probabilities_by_label(probabilities_NC, names, top),
            probabilities_NC >= lowest if coverage is not None else probabilities_NC > lowest,
            probabilities_NC.argmax(-1).tolist(),
            strict=True,
        ):
            label = max(scores, key=scores.__getitem__)
            labels = tuple(names[index] for index in is_in_set_C.nonzero()[0].tolist())
            if not is_multi_label:
                others = labels if coverage is not None else ()
                labels = (label, *(name for name in others if name != names[best]))
            predictions.append(Prediction(label, scores[label], scores, labels, is_set))
    return predictions


def probabilities_by_label(
    probabilities_NC: Floats, names: Sequence[str], top: int | None
) -> Iterator[dict[str, float]]:
    """Each row's probabilities by label: all in the labels' order, or the `top` highest, best first."""
    if top is None:
        return (dict(zip(names, row, strict=True)) for row in probabilities_NC.tolist())
    best = top_k(probabilities_NC, top)
    values = np.take_along_axis(probabilities_NC, best, 1).tolist()
    best_names = ((names[index] for index in row) for row in best.tolist())
    return (dict(zip(*row, strict=True)) for row in zip(best_names, values, strict=True))


# --- calibration ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """Calibration of a classifier on held-out rows.

    temperature: by which the scores of the saved model are divided. rows: number of held-out rows. strangeness: 1 - the
    probability of the gold class, ascending; thinned out if there are many rows. is_cross: whether the rows were held
    out from the models of cross-validation and not from the saved one (cross-conformal; Vovk 2015).
    """

    temperature: float
    rows: int
    strangeness: Sequence[float]
    is_cross: bool = False

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Calibration:
        is_cross = stored.get("is_cross", False)
        return Calibration(stored["temperature"], stored["rows"], tuple(stored["strangeness"]), is_cross)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "strangeness": list(self.strangeness)}

    def guarantee(self, coverage: float) -> str:
        """The guarantee of a coverage in one sentence."""
        rows = format_count(self.rows, "row")
        if not self.is_cross:
            spread = 2 * math.sqrt(coverage * (1 - coverage) / (self.rows + 2))
            return (
                f"sets that have the right label for {coverage:.0%} of new texts, from {rows} held out (give or take "
                f"{spread:.0%}, by the draw of these rows)"
            )
        return (
            f"sets that have the right label for about {coverage:.0%} of new texts, from {rows} in cross-validation; "
            f"they were held out from other models than this one, so {max(0.0, 2 * coverage - 1):.0%} are guaranteed"
        )

    def threshold(self, coverage: float) -> float:
        """The lowest probability of a class in a prediction set.

        Of new rows like the held-out ones, at least this fraction have the right class in their set. InputError if
        there are too few rows for it.
        """
        if not 0 < coverage < 1:
            raise InputError(f"coverage ({coverage:g}) must be between 0 and 1, such as 0.9")
        rank = math.ceil((self.rows + 1) * coverage - 1e-9)
        if rank > self.rows:
            needed = math.ceil(coverage / (1 - coverage) - 1e-9)
            raise InputError(
                f"coverage ({coverage:g}) needs {format_count(needed, 'held-out row')}; "
                f"fine-tuning had {self.rows:,}; use at most {self.rows / (self.rows + 1):.2f}"
            )
        position = (rank - 1) * (len(self.strangeness) - 1) / max(1, self.rows - 1)
        return 1 - self.strangeness[math.ceil(position)]


def stored_calibration(metadata: Mapping[str, Any]) -> Calibration:
    """The calibration of a model. InputError if it has none."""
    stored = metadata.get(CALIBRATION)
    if not stored or not stored["strangeness"]:
        raise InputError(
            "the model was not calibrated for prediction sets (coverage); fine-tune a single-label classifier"
        )
    return Calibration.from_json(stored)


LOWEST, HIGHEST, STEPS = 0.2, 20.0, 400  # temperatures that are tried, on a logarithmic scale
MAX_STORED = 2000  # rows whose scores are stored


def fit_calibration(scores_NC: Floats, targets: NDArray[Any], *, multi_label: bool) -> Calibration:
    """The temperature with the lowest loss on these rows, and how unlikely each gold class is at this temperature.

    targets: classes [N], or 0 and 1 of each label [N, C].
    """
    temperature = fit_temperature(scores_NC, targets, multi_label=multi_label)
    strangeness = ()
    if not multi_label:
        ordered_N = np.sort(1 - np.take_along_axis(softmax(scores_NC / temperature), targets[:, None], 1)[:, 0])
        kept = np.linspace(0, len(ordered_N) - 1, min(len(ordered_N), MAX_STORED)).round().astype(np.int64)
        strangeness = tuple(round(value, 6) for value in ordered_N[kept].tolist())
    return Calibration(temperature, len(scores_NC), strangeness)


def fit_temperature(scores_NC: Floats, targets: NDArray[Any], *, multi_label: bool) -> float:
    """The temperature with the lowest cross-entropy: the mean of a linear function of scores / temperature, and of the
    logarithm of a sum of powers."""
    (rows, classes), scores_NC = scores_NC.shape, scores_NC.astype(np.float64)
    if multi_label:
        smoothed_NC = (targets * rows + 1) / (rows + 2)
        linear = (np.maximum(scores_NC, 0) - scores_NC * smoothed_NC).mean()
        below_NC = -np.abs(scores_NC)
    else:
        smoothing = min(1.0, 2 * classes / ((classes - 1) * (rows + 4)))
        below_NC = scores_NC - scores_NC.max(1, keepdims=True)
        gold_N = np.take_along_axis(below_NC, targets[:, None], 1)
        linear = (smoothing - 1) * gold_N.mean() - smoothing * below_NC.mean()

    def loss(temperature: float) -> float:
        powers_NC = np.exp(below_NC / temperature)
        logarithms = np.log1p(powers_NC) if multi_label else np.log(powers_NC.sum(1))
        return float(logarithms.mean() + linear / temperature)

    return min(np.geomspace(LOWEST, HIGHEST, STEPS, dtype=np.float32).tolist(), key=loss)
