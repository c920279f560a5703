"""Class decoding: labels and probabilities from scores; prediction sets, which hold the right label with a chosen
probability (split conformal; Vovk 2005).

Letters: N texts, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError, format_count
from bothways.tasks.arrays import Floats, sigmoid, softmax, top_k
from bothways.tasks.windows import whole_number

if TYPE_CHECKING:
    from bothways.model.checkpoint.description import Description

CALIBRATION = "calibration"  # key in bothways.json
EVEN = 0.5  # above which a label is more probable than not
SHOWN = 5  # labels in repr(Prediction)


@dataclass(frozen=True, repr=False)
class Prediction:
    """The most probable label of a text, its probability, and the probabilities by label (all, or the `top` highest).

    label: None where the text is refused: its best probability is below the `min_score` that was asked for, or it is
    not like the training texts.
    score: the probability of the most probable label.
    scores: probabilities by label.
    labels: the label; for multi-label models, every label above the threshold, possibly none; with `coverage`, the
    prediction set, which may be empty.
    is_set: whether the labels are a set: of a multi-label model, or a prediction set.
    is_like_training: whether the text is one of the `in_scope` share that was asked for; None: not asked for.
    """

    label: str | None
    score: float
    scores: dict[str, float]
    labels: tuple[str, ...] = ()
    is_set: bool = False
    is_like_training: bool | None = None

    def __repr__(self) -> str:
        """With the SHOWN highest probabilities, to four digits: `scores` and `labels` have all."""
        best = sorted(self.scores.items(), key=lambda item: -item[1])[:SHOWN]
        entries = [f"{name!r}: {value:.4g}" for name, value in best]
        scores = ", ".join([*entries, *more_than(len(self.scores))])

        names = [repr(label) for label in self.labels[:SHOWN]]
        labels = ", ".join([*names, *more_than(len(self.labels))])
        comma = "," if len(self.labels) == 1 else ""
        likeness = "" if self.is_like_training is None else f", is_like_training={self.is_like_training}"
        return (
            f"{type(self).__name__}(label={self.label!r}, score={self.score:.4g}, scores={{{scores}}}, "
            f"labels=({labels}{comma}){likeness})"
        )

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {"label": self.label}
        if self.is_set:
            content["labels"] = [*self.labels]
        content["score"] = self.score
        if self.is_like_training is not None:
            content["is_like_training"] = self.is_like_training
        content["scores"] = self.scores
        return content


def more_than(number: int) -> list[str]:
    """The end of a list that is shown up to SHOWN entries: ["... 72 more"], or nothing."""
    return [f"... {number - SHOWN:,} more"] if number > SHOWN else []


@dataclass(frozen=True)
class ClassDecoding:
    """How classes are decoded.

    top: number of probabilities of a prediction; None: all.
    coverage: of prediction sets; None: without sets.
    min_score: probability below which a text is refused and, in a multi-label model, a label is left out; None: no text
    is refused, and labels are left out by the model's own thresholds.

    InputError if a number is out of its range.
    """

    top: int | None = None
    coverage: float | None = None
    min_score: float | None = None

    def __post_init__(self) -> None:
        check_min_score(self.min_score)

    def predictions(
        self, scores_NC: Floats, model: Description, is_like_training_N: Sequence[bool] | None = None
    ) -> Iterator[Prediction]:
        """The prediction for each text from its scores, [N, C]. is_like_training_N: None: not asked for."""
        names = model.labels
        top = None if self.top is None else min(whole_number("top", self.top, 1), len(names))
        if self.coverage is not None and model.multi_label:
            raise InputError("coverage is for models with one label a text")

        probabilities_NC = sigmoid(scores_NC) if model.multi_label else softmax(scores_NC)
        texts = zip(
            probabilities_by_label(probabilities_NC, names, top),
            self._sets(probabilities_NC, model),
            probabilities_NC.argmax(-1).tolist(),
            [None] * len(scores_NC) if is_like_training_N is None else is_like_training_N,
            strict=True,
        )
        for scores, is_in_set_C, best, is_like_training in texts:
            label = max(scores, key=scores.__getitem__)
            score = scores[label]
            is_improbable = self.min_score is not None and score < self.min_score
            is_refused = is_improbable or is_like_training is False

            labels = tuple(names[index] for index in is_in_set_C.nonzero()[0].tolist())
            if self.coverage is not None:
                # The most probable one first. Refused texts keep their sets, whose guarantee would break.
                labels = tuple(sorted(labels, key=lambda name: name != names[best]))
            elif is_refused:
                labels = ()
            elif not model.multi_label:
                labels = (label,)

            yield Prediction(
                label=None if is_refused else label,
                score=score,
                scores=scores,
                labels=labels,
                is_set=model.multi_label or self.coverage is not None,
                is_like_training=is_like_training,
            )

    def _sets(self, probabilities_NC: Floats, model: Description) -> NDArray[np.bool_]:
        """Whether each label is in the set of each text, [N, C]."""
        if self.coverage is not None:
            return probabilities_NC >= stored_calibration(model.metadata).threshold(self.coverage)
        if self.min_score is not None:
            return probabilities_NC >= self.min_score
        return probabilities_NC > stored_thresholds(model)


def check_min_score(min_score: float | None) -> None:
    """InputError unless it is None or a probability."""
    if min_score is None:
        return
    if not isinstance(min_score, int | float | np.number) or isinstance(min_score, bool) or not 0 <= min_score <= 1:
        raise InputError(f"min_score ({min_score!r:.40}) must be a number from 0 to 1, such as 0.6")


def stored_thresholds(model: Description) -> Floats:
    """The probability above which a text has each label, [C]: as fitted on dev, else 0.5."""
    thresholds_C = np.full(len(model.labels), EVEN, np.float32)
    calibration = model.metadata.get(CALIBRATION) or {}
    stored = calibration.get("thresholds")
    if isinstance(stored, list) and len(stored) == len(model.labels):
        thresholds_C[:] = stored
    return thresholds_C


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

    temperature: by which the scores of the saved model are divided.
    rows: number of held-out rows.
    strangeness: 1 - the probability of the gold class, ascending; thinned out if there are many rows.
    is_cross: whether the rows were held out from the models of cross-validation and not from the saved one
    (cross-conformal; Vovk 2015).
    thresholds: of a multi-label model, the probability above which a text has each label; empty: EVEN.
    """

    temperature: float
    rows: int
    strangeness: Sequence[float]
    is_cross: bool = False
    thresholds: Sequence[float] = ()

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Calibration:
        return Calibration(
            temperature=stored["temperature"],
            rows=stored["rows"],
            strangeness=tuple(stored["strangeness"]),
            is_cross=stored.get("is_cross", False),
            thresholds=tuple(stored.get("thresholds", ())),
        )

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "temperature": self.temperature,
            "rows": self.rows,
            "strangeness": list(self.strangeness),
            "is_cross": self.is_cross,
        }
        if self.thresholds:
            content["thresholds"] = list(self.thresholds)
        return content

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
        return 1 - held_out_quantile(self.strangeness, self.rows, coverage, "coverage")


def held_out_quantile(strangeness: Sequence[float], rows: int, share: float, name: str) -> float:
    """The strangeness that at least this share of new rows like the held-out ones do not exceed (Vovk 2005).

    strangeness: of the held-out rows, ascending, thinned out if there are many.
    rows: number of held-out rows.
    share: between 0 and 1.
    name: of the option.

    InputError if there are too few rows.
    """
    if not isinstance(share, int | float | np.number) or not 0 < share < 1:
        raise InputError(f"{name} ({share!r:.40}) must be between 0 and 1, such as 0.9")

    rank = math.ceil((rows + 1) * share - 1e-9)
    if rank > rows:
        needed = math.ceil(share / (1 - share) - 1e-9)
        remedy = "fine-tune on more rows"
        if rows:
            remedy = f"use at most {math.floor(100 * rows / (rows + 1)) / 100:.2f}"
        raise InputError(
            f"{name} ({share:g}) needs {format_count(needed, 'held-out row')}; fine-tuning had {rows:,}; {remedy}"
        )

    # The rank among the values that are stored, which are thinned out.
    position = (rank - 1) * (len(strangeness) - 1) / max(1, rows - 1)
    return strangeness[math.ceil(position)]


def thinned(ordered_N: Floats, most: int) -> tuple[float, ...]:
    """At most this many of sorted values, spread evenly over them, the ends among them."""
    kept = np.linspace(0, len(ordered_N) - 1, min(len(ordered_N), most)).round().astype(np.int64)
    return tuple(ordered_N[kept].tolist())


def stored_calibration(metadata: Mapping[str, Any]) -> Calibration:
    """The calibration of a model. InputError if it has none."""
    stored = metadata.get(CALIBRATION)
    if not stored or not stored["strangeness"]:
        raise InputError(
            "the model was not calibrated for prediction sets (coverage); fine-tune a single-label classifier"
        )
    return Calibration.from_json(stored)


# Temperatures that are tried, on a logarithmic scale.
LOWEST = 0.2
HIGHEST = 20.0
STEPS = 400
MAX_STORED = 2000  # rows whose scores are stored


def fit_calibration(scores_NC: Floats, targets: NDArray[Any], *, multi_label: bool) -> Calibration:
    """The temperature with the lowest loss on these rows, and how unlikely each gold class is at this temperature.

    targets: classes [N], or 0 and 1 of each label [N, C].
    """
    temperature = fit_temperature(scores_NC, targets, multi_label=multi_label)
    strangeness: tuple[float, ...] = ()
    if not multi_label:
        probabilities_NC = softmax(scores_NC / temperature)
        gold_N = np.take_along_axis(probabilities_NC, targets[:, None], 1)[:, 0]
        strangeness = tuple(round(value, 6) for value in thinned(np.sort(1 - gold_N), MAX_STORED))
    return Calibration(temperature, len(scores_NC), strangeness)


def fit_temperature(scores_NC: Floats, targets: NDArray[Any], *, multi_label: bool) -> float:
    """The temperature with the lowest cross-entropy: the mean of a linear function of scores / temperature, and of the
    logarithm of a sum of powers."""
    rows, classes = scores_NC.shape
    scores_NC = scores_NC.astype(np.float64)

    # Targets are smoothed: where all rows are right, as a few rows may be, the lowest temperature would always win.
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
