"""Refused texts: how many texts keep their label, and how many of those labels are right, by the least score.

A text is answered, and keeps its label, if the score of the label is at least the least score; else it is refused.
Letters: N texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bothways.measure.report.chart import build_axis, dot, figure, plot, polyline
from bothways.measure.report.curves import SIZE, X_RANGE, Y_RANGE
from bothways.measure.report.markup import Html, Section, data_element, element, join, table

MIN_TEXTS = 20  # with fewer, a curve says nothing
LEAST_SCORES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # rows of the table, and dots on the curve
MAX_POINTS = 200  # of the curve
FEWEST_DRAWN = 10  # answered texts at the left end of the curve: the accuracy of fewer jumps from text to text


@dataclass(frozen=True)
class Refusals(Section):
    """The accuracy of the answered texts against the share of texts that are answered, by the least score of a label
    (El-Yaniv 2010).

    confidences: the score of the label of each text.
    is_correct: whether the label of each text is right.
    """

    confidences: Sequence[float]
    is_correct: Sequence[bool]
    heading = "None of these"
    wide = False

    def body(self) -> Html:
        """The chart with its caption, and the numbers in a table that is folded; a sentence if there are few texts."""
        if len(self.confidences) < MIN_TEXTS:
            return element("p", f"A curve of refused texts needs {MIN_TEXTS} texts.")

        caption = (
            "With a least score (min_score), texts whose label is less probable are refused. From right to left, more "
            "of them are: the share of texts that keep their label, and how many of these labels are right. Texts of "
            "none of the classes are refused besides, if they were not among these rows."
        )

        head = ["Least score", "Keep their label", "Accuracy of these"]
        rows = [
            (f"{least:g}", data_element(answered, "share"), data_element(accuracy, "share"))
            for least, (answered, accuracy) in self.by_score.items()
        ]
        numbers = table("Texts that keep their label, by the least score.", head, rows)
        details = element("details", element("summary", "Show the numbers"), numbers)
        return join((figure(self._chart(caption), caption), details))

    @property
    def by_score(self) -> dict[float, tuple[float, float]]:
        """By least score: the share of texts that keep their label, and the accuracy of these texts. A least score that
        no text reaches is left out."""
        confidences_N = np.array(self.confidences)
        is_correct_N = np.array(self.is_correct, np.float64)

        shares = {}
        for least in LEAST_SCORES:
            is_kept_N = confidences_N >= least
            if is_kept_N.any():
                shares[least] = float(is_kept_N.mean()), float(is_correct_N[is_kept_N].mean())
        return shares

    def _chart(self, description: str) -> Html:
        """A curve over all least scores, with a dot at each of LEAST_SCORES.

        description: what the chart shows, for a screen reader.
        """
        # The most confident texts are answered first: number i is how many of the first i + 1 labels are right.
        order_N = np.argsort(-np.array(self.confidences), kind="stable")
        num_right_N = np.cumsum(np.array(self.is_correct, np.float64)[order_N])

        # Evenly spaced points; of few texts, each once.
        num_texts = len(order_N)
        ranks = np.unique(np.linspace(FEWEST_DRAWN - 1, num_texts - 1, MAX_POINTS).round().astype(int))
        points = []
        for rank in ranks.tolist():
            num_answered = rank + 1
            points.append((num_answered / num_texts, num_right_N[rank] / num_answered))

        x = build_axis("share of texts that keep their label", [0.0, 1.0], X_RANGE, "share")
        accuracies = [accuracy for _, accuracy in points]
        y = build_axis("accuracy", [*accuracies, 1.0], Y_RANGE, "share")

        shapes = [polyline([(x.at(share), y.at(accuracy)) for share, accuracy in points], "series0")]
        for least, (share, accuracy) in self.by_score.items():
            # The axis begins near the lowest point of the curve. A least score that fewer than FEWEST_DRAWN texts reach
            # may have an accuracy below it.
            if y.low <= accuracy <= y.high:
                tooltip = f"least score {least:g}: {share:.1%} keep their label, {accuracy:.1%} of these are right"
                shapes.append(dot((x.at(share), y.at(accuracy)), "series0", radius=3, tooltip=tooltip))
        return plot("Accuracy of the texts that keep their label", description, x, y, *shapes, size=SIZE)
