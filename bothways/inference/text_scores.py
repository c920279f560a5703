"""Predictor.classify, regress and is_next: labels, numbers, next-sentence probabilities.

Letters: N texts, W windows of them, H hidden size, C outputs of the head.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Unpack, overload

import numpy as np

from bothways.errors import InputError, format_count
from bothways.inference.base import PredictorBase
from bothways.inference.reading import ReadOptions, Rows, Texts
from bothways.tasks.arguments import read_one_or_many, whole_number
from bothways.tasks.arrays import sigmoid, softmax, top_k
from bothways.tasks.prediction_sets import stored_calibration


@dataclass(frozen=True)
class Prediction:
    """The most probable label of a text, its probability, and the probabilities by label (all, or the `top` highest).

    labels: the label; for multi-label models, every label with probability > 0.5, possibly none; with `coverage`, the
    prediction set. is_set: whether labels are of these two kinds.
    """

    label: str
    score: float
    scores: dict[str, float]
    labels: tuple[str, ...] = ()
    is_set: bool = field(default=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        labels = {"labels": [*self.labels]} if self.is_set else {}
        return {"label": self.label, **labels, "score": self.score, "scores": self.scores}


class TextScores(PredictorBase):
    @overload
    def classify(  # type: ignore[overload-overlap]
        self,
        texts: str,
        pairs: str | None = None,
        *,
        top: int | None = None,
        coverage: float | None = None,
        **options: Unpack[ReadOptions],
    ) -> Prediction: ...
    @overload
    def classify(
        self,
        texts: Texts,
        pairs: Texts | None = None,
        *,
        top: int | None = None,
        coverage: float | None = None,
        **options: Unpack[ReadOptions],
    ) -> list[Prediction]: ...
    def classify(
        self,
        texts: Texts,
        pairs: Texts | None = None,
        *,
        top: int | None = None,
        coverage: float | None = None,
        **options: Unpack[ReadOptions],
    ) -> Prediction | list[Prediction]:
        """The most probable label of each text (or pair).

        A long text is classified by the mean of its windows' vectors, or by their maximum if the model was fine-tuned
        that way. top: number of labels in `scores`, the most probable first; by default all, which take about 60 bytes
        per label and text. coverage: for a calibrated single-label model, `labels` is the set that holds the right
        label of this fraction of texts like those of fine-tuning, the most probable first.
        """
        firsts, seconds, is_single = read_one_or_many(texts, pairs)
        self._need_head("classes", "text classes", "fine-tune one: bothways finetune classify")
        if not self.labels:
            raise InputError("the model has one output, for regression; use regress")
        top = None if top is None else min(whole_number("top", top, 1), len(self.labels))
        is_multi_label, predictions = self.description.multi_label, []
        is_set = is_multi_label or coverage is not None
        lowest = 0.5 if coverage is None else self._lowest_in_set(coverage)
        for scores_NC in self.backend.text_scores("classes", firsts, seconds, options):
            probabilities_NC = (sigmoid if is_multi_label else softmax)(scores_NC)
            for scores, is_in_set_C, best in zip(
                self._by_label(probabilities_NC, top),
                probabilities_NC >= lowest if coverage is not None else probabilities_NC > lowest,
                probabilities_NC.argmax(-1).tolist(),
                strict=True,
            ):
                label = max(scores, key=scores.__getitem__)
                labels = tuple(self.labels[index] for index in is_in_set_C.nonzero()[0].tolist())
                if not is_multi_label:
                    others = labels if coverage is not None else ()
                    labels = (label, *(name for name in others if name != self.labels[best]))
                predictions.append(Prediction(label, scores[label], scores, labels, is_set))
        return predictions[0] if is_single else predictions

    @overload
    def regress(self, texts: str, pairs: str | None = None, **options: Unpack[ReadOptions]) -> float: ...  # type: ignore[overload-overlap]
    @overload
    def regress(self, texts: Texts, pairs: Texts | None = None, **options: Unpack[ReadOptions]) -> Rows: ...
    def regress(self, texts: Texts, pairs: Texts | None = None, **options: Unpack[ReadOptions]) -> float | Rows:
        """The number that a regression model predicts for each text (or pair), float32 [N]."""
        firsts, seconds, is_single = read_one_or_many(texts, pairs)
        self._need_head("classes", "a number", "fine-tune one: bothways finetune regress")
        if self.backend.heads["classes"] != 1:
            raise InputError(f"the model has {format_count(len(self.labels), 'class', 'classes')}; use classify")
        numbers: Rows = np.concatenate([*self.backend.text_scores("classes", firsts, seconds, options)])[:, 0]
        return float(numbers[0]) if is_single else numbers

    @overload
    def is_next(self, first: str, second: str, **options: Unpack[ReadOptions]) -> float: ...  # type: ignore[overload-overlap]
    @overload
    def is_next(self, first: Texts, second: Texts, **options: Unpack[ReadOptions]) -> Rows: ...
    def is_next(self, first: Texts, second: Texts, **options: Unpack[ReadOptions]) -> float | Rows:
        """The probability that the second text follows the first, float32 [N].

        This is a softmax over the two scores of the next-sentence head (Devlin 2018, section 3.1). The first score
        means "follows", or "in the original order" for ALBERT's sentence-order head.
        """
        self._need_head("next_sentence", "next sentences", "use a model pre-trained with next-sentence prediction")
        firsts, seconds, is_single = read_one_or_many(first, second, names=("first", "second"))
        if seconds is None:
            raise InputError("second is None; give the text that may follow")
        scores_N2 = np.concatenate([*self.backend.text_scores("next_sentence", firsts, seconds, options)])
        probabilities: Rows = softmax(scores_N2)[:, 0]
        return float(probabilities[0]) if is_single else np.ascontiguousarray(probabilities)

    def _lowest_in_set(self, coverage: float) -> float:
        """The lowest probability of a label in a prediction set."""
        if self.description.multi_label:
            raise InputError("coverage is for models with one label a text")
        return stored_calibration(self.description.metadata).threshold(coverage)

    def _by_label(self, probabilities_NC: Rows, top: int | None) -> Iterator[dict[str, float]]:
        """Each row's probabilities by label: all in the labels' order, or the `top` highest, best first."""
        if top is None:
            return (dict(zip(self.labels, row, strict=True)) for row in probabilities_NC.tolist())
        best = top_k(probabilities_NC, top)
        values = np.take_along_axis(probabilities_NC, best, 1).tolist()
        names = ((self.labels[index] for index in row) for row in best.tolist())
        return (dict(zip(*row, strict=True)) for row in zip(names, values, strict=True))
