"""The report page of a run: what is to be said, as plain data, and `write`, which makes one HTML file of it."""

from bothways.metrics.basic import Bin
from bothways.page.answers import AnswerMistake, AnswerMistakes
from bothways.page.baselines import Baselines, Compared
from bothways.page.certainty import Reliability, Scatter
from bothways.page.classes import Confusion, Labels, LabelScore
from bothways.page.doubts import SURER, Doubt, Doubts
from bothways.page.entities import TagMistake, TagMistakes
from bothways.page.marks import Span
from bothways.page.mistakes import Miss, Misses, Mistake, Mistakes
from bothways.page.page import Page, Part, render, write
from bothways.page.scores import Folds, Score, Seed, Seeds
from bothways.page.training import Curves, Lengths, Rates

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
