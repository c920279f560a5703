"""The report page of a run: what is to be said, as plain data, and `write`, which makes one HTML file of it."""

from bothways.metrics.classification import Bin
from bothways.report.answers import AnswerMistake, AnswerMistakes
from bothways.report.baselines import Baselines, Compared
from bothways.report.calibration import Reliability, Scatter
from bothways.report.confusion import Confusion, Labels, LabelScore
from bothways.report.curves import Curves, Lengths, Rates
from bothways.report.entities import TagMistake, TagMistakes
from bothways.report.highlight import Span
from bothways.report.label_errors import SURER, Doubt, Doubts
from bothways.report.mistakes import Miss, Misses, Mistake, Mistakes
from bothways.report.page import Page, Part, render, write
from bothways.report.scores import Folds, Score, Seed, Seeds

__all__ = [
    "SURER",
    "AnswerMistake",
    "AnswerMistakes",
    "Baselines",
    "Bin",
    "Compared",
    "Confusion",
    "Curves",
    "Doubt",
    "Doubts",
    "Folds",
    "LabelScore",
    "Labels",
    "Lengths",
    "Miss",
    "Misses",
    "Mistake",
    "Mistakes",
    "Page",
    "Part",
    "Rates",
    "Reliability",
    "Scatter",
    "Score",
    "Seed",
    "Seeds",
    "Span",
    "TagMistake",
    "TagMistakes",
    "render",
    "write",
]
