"""Classification in a report: counts of the classes, mistakes, and likely label errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from bothways.base.terminal import escape_line
from bothways.measure import metrics, report
from bothways.measure.metrics.label_errors import doubtful_labels, label_set_errors
from bothways.tasks import training_task
from bothways.tasks.scores import Predictions, probability_column
from bothways.tasks.texts import TextReport

if TYPE_CHECKING:
    from bothways.tasks.classify.training import Classification

MAX_LISTED = 30  # classes whose counts are listed
NUM_FREQUENT = 5  # classes that are listed if there are more


@dataclass(frozen=True)
class ClassReport(TextReport):
    label_issue_criterion: ClassVar[str] = report.CONFIDENT_LEARNING
    task: Classification

    def sections(self, predictions: Predictions) -> list[report.Section]:
        if self.task.settings.multi_label:
            return [report.LabelScores([*self.label_scores(predictions)])]
        gold = predictions.gold
        predicted = predictions.predicted

        is_correct = [a == b for a, b in zip(gold, predicted, strict=True)]
        confidences = [probabilities[name] for probabilities, name in zip(predictions.details, predicted, strict=True)]
        calibration = metrics.reliability(confidences, is_correct)

        texts = map(self.text_by_location.__getitem__, predictions.where)
        mistakes = [
            report.LabelMistake(
                text=text,
                gold=gold[row],
                predicted=predicted[row],
                probability=confidences[row],
                pair=pair,
                where=predictions.where[row],
            )
            for row, (text, pair) in enumerate(texts)
            if not is_correct[row]
        ]

        confusion = report.ConfusionMatrix.from_names(self.task.names, gold, predicted)
        return [
            confusion,
            report.LabelScores(confusion.scores),
            report.ReliabilityDiagram(calibration.bins, calibration.error),
            report.Refusals(confidences, is_correct),
            report.LabelMistakes(mistakes, len(gold)),
        ]

    def columns(self, predictions: Predictions) -> dict[str, list[Any]]:
        """With a column for the probability of each class; "" for one that is not stored (NUM_STORED)."""
        details = predictions.details
        probabilities = {probability_column(name): [row.get(name, "") for row in details] for name in self.task.names}
        return {**super().columns(predictions), **probabilities}

    def label_scores(self, predictions: Predictions) -> Iterator[report.LabelScore]:
        """Scores of each label of a multi-label task."""
        gold = Counter(chain.from_iterable(predictions.gold))
        predicted = Counter(chain.from_iterable(predictions.predicted))
        rows = zip(predictions.gold, predictions.predicted, strict=True)
        correct = Counter(name for labels, others in rows for name in {*labels} & {*others})
        for name in self.task.names:
            yield report.LabelScore.from_counts(name, correct[name], gold[name], predicted[name])

    def label_issues(self, predictions: Predictions) -> list[report.LabelIssue]:
        find_errors = label_set_errors if self.task.settings.multi_label else doubtful_labels
        issues = []
        for error in find_errors(predictions.gold, predictions.details):
            where = predictions.where[error.row]
            text, pair = self.text_by_location[where]
            issues.append(training_task.label_issue(error, where, text, pair=pair))
        return issues


def describe_counts(names: Sequence[str], counts: Sequence[int]) -> str:
    """The number of texts of each class; for many classes, only the most frequent, and the number of rare classes."""
    if len(names) <= MAX_LISTED:
        return ", ".join(f"{escape_line(name)} {count:,}" for name, count in zip(names, counts, strict=True))
    frequent = sorted(zip(names, counts, strict=True), key=lambda pair: -pair[1])[:NUM_FREQUENT]
    listed = ", ".join(f"{escape_line(name)} {count:,}" for name, count in frequent)
    return (
        f"{len(names):,} classes, the most frequent: {listed}; {counts.count(0):,} with no texts, "
        f"{counts.count(1):,} with 1 text"
    )
