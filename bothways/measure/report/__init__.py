"""Report page of a run: dataclasses for its sections, and `write` for the HTML file."""

from bothways.measure.metrics.classification import Bin
from bothways.measure.report.confusion import ConfusionMatrix, LabelScore, LabelScores
from bothways.measure.report.curves import ReliabilityDiagram, ScatterPlot, TokenLengths
from bothways.measure.report.highlight import Highlight
from bothways.measure.report.markup import Section
from bothways.measure.report.mistakes import (
    CONFIDENT_LEARNING,
    LabelIssue,
    LabelIssues,
    LabelMistake,
    LabelMistakes,
    NumberMistake,
    NumberMistakes,
    RowRemarks,
    WordSupport,
    issue_columns,
)
from bothways.measure.report.page import Page, column_kinds, render, write, write_predictions
from bothways.measure.report.refusals import Refusals
from bothways.measure.report.score_tables import (
    BaselineComparison,
    FoldTable,
    ModelScore,
    ScoreSummary,
    SeedScores,
    SeedTable,
)
from bothways.measure.report.text_mistakes import AnswerMistake, AnswerMistakes, TagMistake, TagMistakes
from bothways.measure.report.training_curves import TrainingCurves

__all__ = [
    "CONFIDENT_LEARNING",
    "AnswerMistake",
    "AnswerMistakes",
    "BaselineComparison",
    "Bin",
    "ConfusionMatrix",
    "FoldTable",
    "Highlight",
    "LabelIssue",
    "LabelIssues",
    "LabelMistake",
    "LabelMistakes",
    "LabelScore",
    "LabelScores",
    "ModelScore",
    "NumberMistake",
    "NumberMistakes",
    "Page",
    "Refusals",
    "ReliabilityDiagram",
    "RowRemarks",
    "ScatterPlot",
    "ScoreSummary",
    "Section",
    "SeedScores",
    "SeedTable",
    "TagMistake",
    "TagMistakes",
    "TokenLengths",
    "TrainingCurves",
    "WordSupport",
    "column_kinds",
    "issue_columns",
    "render",
    "write",
    "write_predictions",
]
