"""Regression in a report: mistakes, and likely label errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bothways.measure import report
from bothways.measure.metrics.label_errors import OUTLIER_DEVIATIONS, find_outliers
from bothways.tasks.scores import Predictions
from bothways.tasks.texts import TextReport


@dataclass(frozen=True)
class NumberReport(TextReport):
    label_issue_criterion: ClassVar[str] = (
        f"its error is more than {OUTLIER_DEVIATIONS:g} robust standard deviations of all errors"
    )

    def sections(self, predictions: Predictions) -> list[report.Section]:
        texts = self.text_by_location
        mistakes = [
            report.NumberMistake(
                text=texts[where][0],
                gold=gold,
                predicted=predicted,
                pair=texts[where][1],
                where=where,
            )
            for where, gold, predicted in zip(predictions.where, predictions.gold, predictions.predicted, strict=True)
        ]
        return [report.ScatterPlot(predictions.gold, predictions.predicted), report.NumberMistakes(mistakes)]

    def label_issues(self, predictions: Predictions) -> list[report.LabelIssue]:
        texts = self.text_by_location
        issues = []
        for row in find_outliers(predictions.gold, predictions.predicted):
            where = predictions.where[row]
            gold = predictions.gold[row]
            predicted = predictions.predicted[row]
            text, pair = texts[where]
            issues.append(
                report.LabelIssue(
                    where=where,
                    text=text,
                    label=f"{gold:.6g}",
                    suggested=f"{predicted:.6g}",
                    pair=pair,
                )
            )
        return issues
