"""All scores of one kind of predictions, each with its 95 % interval, and how many rows they are of."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bothways import metrics
from bothways.data.conll import Sentence
from bothways.data.tags import Scheme


@dataclass(frozen=True)
class Predictions:
    """What a model says of rows that it was not trained on, beside what is right; N entries each, all of JSON's kinds.

    where: file and line. groups: what a row is part of (its document, its passage; else itself). details: what
    else the task tells of a row, such as the probabilities of its likeliest classes.
    """

    where: list[str]
    gold: list[Any]
    predicted: list[Any]
    groups: list[str]
    details: list[Any]

    @staticmethod
    def joined(parts: Iterable["Predictions"]) -> "Predictions":
        found = Predictions([], [], [], [], [])
        for part in parts:
            for field in fields(found):
                getattr(found, field.name).extend(getattr(part, field.name))
        return found


def class_scores(gold: Sequence[str], predicted: Sequence[str], positive: str | None) -> dict[str, Any]:
    scores = metrics.classification(gold, predicted, positive=positive)
    bounds = metrics.classification_intervals(gold, predicted, positive=positive)
    return {**metrics.with_intervals(scores, bounds), "texts": len(gold)}


def label_set_scores(
    gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]], names: Sequence[str]
) -> dict[str, Any]:
    bounds = metrics.multi_label_intervals(gold, predicted)
    return {**metrics.with_intervals(metrics.multi_label(gold, predicted, names), bounds), "texts": len(gold)}


def number_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, Any]:
    bounds = metrics.regression_intervals(gold, predicted)
    return {**metrics.with_intervals(metrics.regression(gold, predicted), bounds), "texts": len(gold)}


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], scheme: Scheme, documents: Sequence[str]
) -> dict[str, Any]:
    """The tags of each sentence, and what it is part of (`document_of`); of plain tags the accuracy alone."""
    bounds = metrics.entity_intervals(gold, predicted, scheme, documents)
    scores = metrics.entity_scores(gold, predicted, scheme)
    return {**metrics.with_intervals(scores, bounds), "sentences": len(gold)}


def tag_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], documents: Sequence[str]
) -> dict[str, Any]:
    """Of plain tags: the share of words whose tag is right."""
    scores = entity_scores(gold, predicted, "plain", documents)
    words = sum(map(len, gold))
    return {**{name: scores[name] for name in ("accuracy", "accuracy_interval", "sentences")}, "words": words}


def document_of(sentence: Sentence) -> str:
    """What a sentence is part of: a document of its file, or else itself."""
    file, _, line = sentence.where.rpartition(":")
    return f"{file}:{line}" if sentence.document is None else f"{file}, document {sentence.document}"


def answer_scores(
    gold: Mapping[str, Sequence[str]], predicted: Mapping[str, str], passages: Mapping[str, str]
) -> dict[str, Any]:
    """Everything by the question's id: the right answers, the one given, the passage. In percent."""
    bounds = metrics.answer_intervals(gold, predicted, passages)
    return metrics.with_intervals(metrics.answer_scores(gold, predicted), bounds)


def pair_scores(gold: Sequence[float], cosines: Sequence[float]) -> dict[str, Any]:
    """Correlations alone: a cosine has not the scores' unit."""
    names = ("spearman", "pearson")
    scores, bounds = metrics.regression(gold, cosines), metrics.regression_intervals(gold, cosines)
    return {**metrics.with_intervals({name: scores[name] for name in names}, bounds), "pairs": len(gold)}


def ranking_scores(
    qrels: Mapping[str, Mapping[str, float]], ranking: Mapping[str, Sequence[str]], *, k: int = 10
) -> dict[str, Any]:
    bounds = metrics.ranking_intervals(qrels, ranking, k=k)
    return metrics.with_intervals(metrics.ranking_scores(qrels, ranking, k=k), bounds)
