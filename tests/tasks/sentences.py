"""A toy task in one file: how many sentences a text has, as classes read from a column of its own.

`tests/tasks/test_toy.py` adds its entry to TASKS.
"""

from dataclasses import dataclass, replace

from bothways.settings.base import settings
from bothways.settings.finetune import Classify
from bothways.tasks.classify.task import ClassifyTask
from bothways.tasks.classify.training import Classification
from bothways.tasks.task import LIST, Route, firsts, split_pairs
from bothways.text.data.split_tables import read_tables


@settings
class Sentences(Classify):
    """Fine-tune a model that counts the sentences of a text."""

    count_column: str = "sentences"
    """Column with the number of sentences."""


@dataclass(frozen=True)
class SentenceCount:
    """The number of sentences of a text, and its probability."""

    sentences: int
    score: float

    def to_json(self):
        return {**vars(self)}


class Counting(Classification):
    name = "sentences"


def count_sentences(model, items, reading):
    predictions = model.classify(firsts(items), **reading)
    return [SentenceCount(int(one.label), one.score).to_json() for one in predictions]


class SentencesTask(ClassifyTask):
    name = "sentences"
    inputs = "single texts"
    options = frozenset()
    route = "/sentences"
    routes = (Route("/sentences", "The number of sentences", LIST, "texts", count_sentences),)

    def train(self, settings, pretrained, fold):
        counted = replace(settings, label_column=settings.count_column)
        return Counting.build(counted, pretrained, read_tables(counted, fold))

    def read(self, model, files, columns, *, need_labels):
        counted = replace(columns, label_column=columns.label_column or model.description.settings["count_column"])
        return super().read(model, files, counted, need_labels=need_labels)

    def predict_rows(self, model, rows, **options):
        assert split_pairs(rows)[1] is None
        return count_sentences(model, [(row.text, None) for row in rows], options)

    def columns(self, model, top=None, *, has_sets=False):
        return {"sentences": int, "score": float}

    def scores_per_row(self, model, top):
        return 1


SENTENCES = SentencesTask()
